//! Errors that prevent a run from starting.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use crate::common::capture::{run, NAME};
use crate::common::{
    as_nobody, assert_no_crash, assert_refused, directory_of_nobody, needs_kernel, needs_root,
    rpcprobe, text,
};
use crate::noise::noise;
use crate::{assert_nothing_left, try_run};

#[test]
fn run_without_root_says_what_to_do() {
    if !needs_root() {
        return;
    }
    let (home, program) = directory_of_nobody();
    let at = home.path().join(NAME);
    let output = as_nobody(&program, &["run", "-o", at.to_str().unwrap(), "--", "echo", "ran"]);
    let output = { output }.output().unwrap();
    // The advice names the program by its whole path, because sudo does not search that folder.
    let call = format!("sudo {} ", program.display());
    assert_refused(&output, 1, &["root", &call]);
    assert_eq!(text(&output.stdout), "");
    assert!(!at.exists());
    let doctor = as_nobody(&program, &["doctor"]).output().unwrap();
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("root"), "{}", text(&doctor.stdout));
    assert_no_crash(&text(&doctor.stderr));
}

#[test]
fn help_needs_nothing() {
    if !needs_root() {
        return;
    }
    let (_home, program) = directory_of_nobody();
    for command in ["run", "report", "requests", "explain", "attribute", "doctor"] {
        for arguments in [&[command, "--help"][..], &["help", command], &[command, "-h"]] {
            let output = as_nobody(&program, arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            let help = text(&output.stdout);
            assert!(help.contains(&format!("rpcprobe {command}")), "{arguments:?}: {help}");
        }
    }
    let output = as_nobody(&program, &["--version"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), concat!("rpcprobe ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_arguments_show_usage() {
    for arguments in [
        &["run"][..],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["run", "--label", "no equals sign", "--", "true"],
        &["run", "--ring-kib", "3", "--", "true"],
        &["run", "--scope", "galaxy", "--", "true"],
        &["run", "-q", "--json", "--", "true"],
        &["requests", "--kind", "carrier pigeon"],
        &["requests", "--min", "soon"],
        &["requests", "--sort", "colour"],
        &["explain"],
        &["explain", "a", "b", "c"],
        &["attach"],
        &["attach", "--duration", "1s"],
        &["report", "--by", "colour"],
        &["report", "--status", "well"],
        &["nonsense"],
        &[],
    ] {
        let output = rpcprobe(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("Usage:") || stderr.contains("--help"), "{arguments:?}: {stderr}");
        assert_no_crash(&stderr);
    }
}

/// An error about missing or wrong arguments names the command that was probably meant.
#[test]
fn what_was_meant_is_guessed() {
    let scratch = TempDir::new().unwrap();
    let directory = scratch.path().to_str().unwrap();
    let slowest = format!("`rpcprobe explain {directory} --slowest`");
    let list = format!("`rpcprobe requests {directory} --slowest 5`");
    for (arguments, words) in [
        (&["explain", directory][..], &["which request", &slowest[..], &list][..]),
        (&["explain", directory, "1", "--slowest"], &["--slowest stands in place"]),
        (&["attach", "1234"], &["`rpcprobe attach --pid 1234`", "`rpcprobe attach --port 1234`"]),
        (&["attach", "nginx", "--duration", "1s"], &["`rpcprobe attach --comm nginx`"]),
        (&["attach", "/system.slice"], &["`rpcprobe attach --cgroup /system.slice`"]),
    ] {
        assert_refused(&rpcprobe(arguments).output().unwrap(), 2, words);
    }
    for (arguments, words) in [
        (&["explain", "nonsense"][..], &["nonsense is not the number of a request"][..]),
        (&["explain", directory, "foo"], &["foo is not the number of a request"]),
        (&["diff"], &["`rpcprobe diff BEFORE AFTER`"]),
        (&["report", "a", "b", "c", "--html", "page.html"], &["at most two captures"]),
    ] {
        assert_refused(&rpcprobe(arguments).output().unwrap(), 1, words);
    }
}

#[test]
fn a_command_that_cannot_run_is_told_as_shells_do() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = scratch.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    let directory = scratch.path().to_str().unwrap();
    for (command, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/command", 127),
        ("./no-such-command", 127),
        (&orphan[..], 127),
        (&plain[..], 126),
        (directory, 126),
        ("", 127),
    ] {
        let parent = TempDir::new().unwrap();
        let output = try_run(parent.path(), &[], &[command, "argument"]);
        assert_refused(&output, code, &["cannot run", command]);
        assert_nothing_left(&parent);
    }
}

#[test]
fn an_unknown_user_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let output = try_run(parent.path(), &["-u", "nobody-of-that-name"], &["true"]);
    assert_refused(&output, 1, &["nobody-of-that-name"]);
    assert_nothing_left(&parent);
}

#[test]
fn unreadable_type_information_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (empty, random) = (file("empty", b""), file("random", &noise(4096)));
    let directory = scratch.path().to_str().unwrap();
    for btf in ["/nonexistent", &empty, &random, directory] {
        let parent = TempDir::new().unwrap();
        let mut command = run(parent.path(), &[], &["echo", "ran"]);
        let output = command.env("RPCPROBE_BTF", btf).output().unwrap();
        assert_refused(&output, 1, &[btf, "type information"]);
        assert_eq!(text(&output.stdout), "");
        assert_nothing_left(&parent);
        let doctor = rpcprobe(["doctor"]).env("RPCPROBE_BTF", btf).output().unwrap();
        assert_eq!(doctor.status.code(), Some(1), "{btf}");
        assert!(text(&doctor.stdout).contains(btf), "{}", text(&doctor.stdout));
    }
}
