//! Where a capture may be written to.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use crate::common::capture::{contents, run, Capture, NAME};
use crate::common::{
    assert_refused, needs_kernel, open_directory, rpcprobe, text, unaffected, RPCPROBE,
};
use crate::{assert_nothing_left, try_run};

#[test]
fn a_capture_is_overwritten_only_by_force() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    assert!(try_run(parent.path(), &["--label", "run=first"], &["true"]).status.success());
    let first = contents(&at);
    let output = try_run(parent.path(), &[], &["echo", "ran"]);
    assert_refused(&output, 1, &[at.to_str().unwrap(), "exists", "--force"]);
    assert_eq!(text(&output.stdout), "");
    assert!(contents(&at) == first, "the first capture has changed");

    let output = try_run(parent.path(), &["--force", "--label", "run=second"], &["true"]);
    let capture = Capture::in_directory(parent, output).succeeded();
    assert_eq!(capture.manifest().labels.get("run").map(|label| &label[..]), Some("second"));
    assert_eq!(contents(&at).len(), 4);
    capture.checked();
}

/// A former capture stays until the program runs.
#[test]
fn a_run_that_does_not_start_takes_nothing_away() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    assert!(try_run(parent.path(), &[], &["true"]).status.success());
    let plain = parent.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let first = contents(&at);
    for (options, program, btf, code) in [
        (&["--force"][..], "no-such-command-anywhere", None, 127),
        (&["--force"], plain.to_str().unwrap(), None, 126),
        (&["--force", "-u", "nobody-of-that-name"], "true", None, 1),
        (&["--force"], "true", Some("/nonexistent"), 1),
    ] {
        let mut command = run(parent.path(), options, &[program]);
        let output = command.envs(btf.map(|btf| ("RPCPROBE_BTF", btf))).output().unwrap();
        assert_refused(&output, code, &[]);
        assert!(contents(&at) == first, "{program} {btf:?}: something has changed");
    }
    assert!(try_run(parent.path(), &["--force"], &["true"]).status.success());
    assert!(contents(&at) != first);
}

#[test]
fn force_removes_planted_links_and_not_what_they_lead_to() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let (at, victim) = (parent.path().join(NAME), parent.path().join("victim"));
    fs::create_dir(&at).unwrap();
    fs::write(&victim, "precious").unwrap();
    for name in ["manifest.json", "events.bin", "requests.parquet", "segments.parquet"] {
        symlink(&victim, at.join(name)).unwrap();
        symlink(&victim, at.join(format!("{name}.tmp"))).unwrap();
    }
    let output = try_run(parent.path(), &["--force"], &["true"]);
    let capture = Capture::in_directory(parent, output).succeeded();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for file in fs::read_dir(&at).unwrap().map(Result::unwrap) {
        assert!(file.file_type().unwrap().is_file(), "{file:?}");
    }
    assert_eq!(contents(&at).len(), 4);
    capture.checked();
}

/// Found out when the program runs already: it goes on, and the former capture is still whole.
#[test]
fn a_former_capture_that_cannot_be_removed_stays_whole() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    assert!(try_run(parent.path(), &[], &["true"]).status.success());
    let first = contents(&at);
    // What is mounted on cannot be removed in that mount namespace.
    let script = "mount --bind \"$AT/manifest.json\" \"$AT/manifest.json\" || exit 99
        \"$RPCPROBE\" run --force -q -o \"$AT\" -- sh -c 'echo ran; exit 3'";
    let mut unshare = Command::new("unshare");
    unaffected(&mut unshare);
    unshare.args(["-m", "sh", "-c", script]).env("AT", &at).env("RPCPROBE", RPCPROBE);
    let output = unshare.output().expect("unshare runs");
    assert_refused(&output, 3, &["nothing was captured", "manifest.json"]);
    assert_eq!(text(&output.stdout), "ran\n");
    assert!(contents(&at) == first, "something has changed");
}

#[test]
fn force_does_not_reach_beyond_captures() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    fs::create_dir(&at).unwrap();
    fs::write(at.join("thesis.txt"), "three years of work").unwrap();
    fs::write(at.join("manifest.json"), "{}").unwrap();
    let before = contents(&at);
    let output = try_run(parent.path(), &["--force"], &["true"]);
    assert_refused(&output, 1, &["thesis.txt"]);
    assert!(contents(&at) == before, "something has changed");
}

#[test]
fn an_output_that_cannot_be_a_directory_is_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (file, link, dangling) =
        (scratch.path().join("file"), scratch.path().join("link"), scratch.path().join("dangling"));
    fs::write(&file, "content").unwrap();
    symlink(&elsewhere, &link).unwrap();
    symlink(scratch.path().join("nowhere"), &dangling).unwrap();
    let orphan = scratch.path().join("no/parent");
    for (at, word) in [
        (&file, "not a directory"),
        (&link, "symbolic link"),
        (&dangling, "symbolic link"),
        (&orphan, "No such file"),
    ] {
        for force in [&[][..], &["--force"]] {
            let mut command = rpcprobe(["run", "-q", "-o"]);
            let output = command.arg(at).args(force).args(["--", "echo", "ran"]).output().unwrap();
            assert_refused(&output, 1, &[at.to_str().unwrap(), word]);
            assert_eq!(text(&output.stdout), "");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 4);
}

/// Under sudo the user's rights count, not root's.
#[test]
fn a_directory_the_invoking_user_may_not_write_to_is_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = open_directory(); // root's, so that nobody else may write to it
    let mut command = run(parent.path(), &[], &["echo", "ran"]);
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    let output = command.output().unwrap();
    assert_refused(&output, 1, &[parent.path().to_str().unwrap(), "Permission denied"]);
    assert_eq!(text(&output.stdout), "");
    assert_nothing_left(&parent);
}
