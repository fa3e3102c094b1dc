//! How `attach` selects its targets: by process id, name, port or control group.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rpcprobe::capture::manifest::Manifest;
use rpcprobe::model::Kind;
use tempfile::TempDir;

use crate::common::capture::NAME;
use crate::common::process::until;
use crate::common::{as_nobody, assert_refused, directory_of_nobody, echo, needs_kernel, text};
use crate::{attach, captured, compare, whole, Group, Load};

/// A copy of the echo program under a unique name.
fn echo_called(name: &str, directory: &Path, arguments: &str) -> Load {
    let program = directory.join(name);
    // Another process makes the copy, for the reason given in common::directory_of_nobody().
    assert!(Command::new("cp").arg(echo()).arg(&program).status().expect("cp").success());
    Load::start(1, |log| {
        let mut command = Command::new(&program);
        command.args(arguments.split_whitespace()).args(["-n", "10000000", "--log"]).arg(log);
        command
    })
}

fn pids_of(manifest: &Manifest) -> Vec<u32> {
    let attached = manifest.command.attached.as_ref().expect("attached");
    attached.processes.iter().map(|process| process.pid).collect()
}

#[test]
fn programs_are_found_by_name_port_and_cgroup() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = TempDir::new().expect("a temporary directory");
    let name = "attach-by-name";
    let load = echo_called(name, directory.path(), "-t tcp -c 2");
    let mut pids = load.pids();
    pids.sort_unstable();
    let found = |option: &str, value: &str, expected: &[u32]| {
        let capture = captured(vec![option.into(), value.into()]);
        let (manifest, requests) = whole(&capture);
        assert_eq!(pids_of(&manifest), expected, "{option} {value}");
        assert!(compare(&load, &manifest, &requests) > 50, "{option} {value}");
        assert_eq!(manifest.command.argv, ["attach", option, value]);
        assert!(capture.report().starts_with(&format!("attach {option} {value} (")));
    };
    found("--comm", name, &pids);

    let port = {
        let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", pids[1])).expect("sockets");
        let inodes: Vec<_> = fs::read_dir(format!("/proc/{}/fd", pids[1]))
            .expect("descriptors")
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .collect();
        let listens = |words: &[&str]| {
            let socket = PathBuf::from(format!("socket:[{}]", words[9]));
            words[3] == "0A" && inodes.contains(&socket)
        };
        let mut lines =
            sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| listens(words)).expect("a listener");
        let (_, port) = line[1].split_once(':').expect("address and port");
        u16::from_str_radix(port, 16).expect("a port")
    };
    // The first process also holds the listening socket.
    found("--port", &port.to_string(), &pids);

    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(mount) = mounts.find(|mount| mount[2] == "cgroup2") else {
        println!("skipped: no cgroup version 2");
        return;
    };
    let group = PathBuf::from(mount[1]).join(format!("rpcprobe-test-{}", std::process::id()));
    let inner = group.join("inner");
    fs::create_dir_all(&inner).expect("a cgroup");
    for pid in &pids {
        fs::write(inner.join("cgroup.procs"), pid.to_string()).expect("moved");
    }
    found("--cgroup", group.to_str().expect("UTF-8"), &pids);
    found("--cgroup", &format!("/{}", group.file_name().unwrap().to_str().unwrap()), &pids);
    drop(load);
    until("the cgroup is empty", || fs::remove_dir(&inner).is_ok());
    let _ = fs::remove_dir(&group);
}

#[test]
fn what_cannot_be_attached_to_is_told_in_one_line() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = TempDir::new().expect("a temporary directory");
    let refused = |arguments: &[&str], words: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let output = attach(directory.path(), &arguments).output().expect("rpcprobe runs");
        assert_refused(&output, 1, words);
        assert!(!directory.path().join(NAME).exists(), "{arguments:?}");
    };
    refused(&["--pid", "4194303"], &["4194303"]);
    refused(&["--pid", "2"], &["2", "kernel"]);
    refused(&["--comm", "nobody-is-called-so"], &["nobody-is-called-so"]);
    refused(&["--port", "1"], &["port 1"]);
    refused(&["--cgroup", "/nobody/is/there"], &["/nobody/is/there"]);
    // A target that does not exist is an error even if another one does.
    let me = std::process::id().to_string();
    refused(&["--pid", &me, "--comm", "nobody-is-called-so"], &["nobody-is-called-so"]);

    let nothing = attach(directory.path(), &[]).output().expect("rpcprobe runs");
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing.stderr));
    let (directory, program) = directory_of_nobody();
    let output = directory.path().join("capture");
    let mut command =
        as_nobody(&program, &["attach", "--pid", "1", "-o", output.to_str().expect("UTF-8")]);
    assert_refused(&command.output().expect("rpcprobe runs"), 1, &["root"]);
}

#[test]
fn redis_is_found_by_its_port() {
    let Some(_turn) = needs_kernel() else { return };
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !there("redis-server") || !there("redis-benchmark") {
        println!("skipped: no redis here");
        return;
    }
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port().to_string()
    };
    let directory = TempDir::new().expect("a temporary directory");
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-p", &port]).args(arguments).current_dir(directory.path());
        if program == "redis-server" {
            command = Command::new(program);
            command.args(["--port", &port, "--save", "", "--bind", "127.0.0.1"]);
            command.current_dir(directory.path());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Group::start(&mut command)
    };
    let server = start("redis-server", &[]);
    let address = format!("127.0.0.1:{port}");
    until("redis listens", || std::net::TcpStream::connect(&address).is_ok());
    let clients = start("redis-benchmark", &["-l", "-t", "set,get", "-c", "4", "-n", "100000"]);
    std::thread::sleep(std::time::Duration::from_millis(300)); // until its work has begun
    let capture = captured(vec!["--port".into(), port.clone()]);
    let (manifest, requests) = whole(&capture);
    let mut pids = [server.pid(), clients.pid()];
    pids.sort_unstable();
    assert_eq!(pids_of(&manifest), pids);
    assert!(requests.len() > 100, "{}", requests.len());
    for (request, _) in &requests {
        assert_eq!(request.kind, Kind::Resp);
        assert_eq!(request.server.as_ref().expect("both").pid, server.pid());
        assert_eq!(request.client.as_ref().expect("both").pid, clients.pid());
    }
}
