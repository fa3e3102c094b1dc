//! Targets that ask much of a tracer, and surroundings that grant it little.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use common::capture::{kinds, run, stdin_from, Capture};
use common::{frpc, needs_kernel, open_directory, peer_in_c, rpcprobe, text};
use rpcprobe::model::Kind;
use tempfile::TempDir;

/// A capture of the peer `crowd`, which must have counted `expected`.
fn crowd(arguments: &[&str], expected: &str) -> Capture {
    let (_directory, program) = peer_in_c("crowd.c");
    let command: Vec<&str> = [&program[..]].iter().chain(arguments).copied().collect();
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    assert_eq!(text(&capture.output.stdout).trim(), expected);
    assert_eq!(capture.manifest().counts.records_lost, 0);
    capture
}

/// Mode 3 on the 300 expressions, started by these words; its answers.
fn mode_3_by(words: &[&str]) -> (Capture, Vec<u8>) {
    let program = frpc("frpc");
    let command: Vec<&str> = words.iter().copied().chain([&program[..], "-m", "3"]).collect();
    let capture = Capture::of(&[], &command, stdin_from(frpc("expressions.txt"))).succeeded();
    let answers = capture.output.stdout.clone();
    (capture, answers)
}

/// So many requests of that kind, none of another, and all complete.
fn has_complete(capture: &Capture, kind: Kind, count: usize) {
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(kind, count)].into());
    for (request, _) in requests {
        assert!(request.complete, "{request:?}");
    }
}

#[test]
fn two_thousand_threads_have_their_requests() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["threads", "1000", "10"], "10000"), Kind::Unix, 10_000);
}

#[test]
fn ten_thousand_short_processes_are_followed() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["forks", "10000"], "10000"), Kind::Process, 1);
}

#[test]
fn a_storm_of_programs_has_a_request_for_each() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["execs", "1000", "/bin/true"], "1000"), Kind::Exec, 1000);
}

#[test]
fn two_captures_at_once_do_not_mix() {
    let Some(_turn) = needs_kernel() else { return };
    let program = frpc("frpc");
    let running: Vec<_> = (0..2)
        .map(|_| {
            let parent = TempDir::new().expect("a temporary directory");
            let child = run(parent.path(), &[], &[&program, "-m", "3"])
                .stdin(stdin_from(frpc("expressions.txt")))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn();
            (parent, child.expect("rpcprobe runs"))
        })
        .collect();
    for (parent, child) in running {
        let output = child.wait_with_output().expect("rpcprobe ends");
        has_complete(&Capture::in_directory(parent, output).succeeded(), Kind::Pipe, 300);
    }
}

#[test]
fn a_program_under_a_seccomp_filter_is_traced_all_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, sealed) = peer_in_c("sealed.c");
    let (capture, answers) = mode_3_by(&[&sealed]);
    has_complete(&capture, Kind::Pipe, 300);
    assert_eq!(answers, mode_3_by(&[]).1);
}

/// As in a container: rpcprobe and its target see other process numbers than the kernel's hooks.
#[test]
fn namespaces_of_its_own_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let inner = run(parent.path(), &[], &[&frpc("frpc"), "-m", "3"]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts", "--"]);
    unshare.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    let output = unshare.stdin(stdin_from(frpc("expressions.txt"))).output().expect("unshare runs");
    has_complete(&Capture::in_directory(parent, output).succeeded(), Kind::Pipe, 300);
}

/// A program that is to run as another user does so, no more and no less than without us.
#[test]
fn a_setuid_program_has_the_privilege_it_has_without_us() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = open_directory();
    let program = directory.path().join("id");
    fs::copy("/usr/bin/id", &program).expect("a copy of id");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("setuid");
    let user = |command: &mut Command| {
        text(&command.output().expect("the program runs").stdout).trim().to_owned()
    };
    let mut without = Command::new("setpriv");
    without.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(&program).arg("-u");
    let mut with = rpcprobe(["run", "--quiet", "-u", "nobody", "-o"]);
    with.arg(directory.path().join("capture")).arg("--").arg(&program).arg("-u");
    let alone = user(&mut without);
    assert!(!alone.is_empty());
    assert_eq!(user(&mut with), alone);
}
