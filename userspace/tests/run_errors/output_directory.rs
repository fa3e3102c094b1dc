//! Where a capture may be written to.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use crate::common::capture::{contents, run, Capture, NAME};
use crate::common::{assert_refused, needs_kernel, open_directory, rpcprobe, text};
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
