//! Where a capture may be written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::capture::{contents, run, Capture, NAME};
use crate::common::{
    as_nobody, assert_refused, directory_of_nobody, needs_kernel, open_directory, rpcprobe, text,
    unaffected, NOBODY, RPCPROBE,
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
    assert_eq!(contents(&at).len(), 5);
    capture.checked();
}

/// Without `-o`, each capture gets a directory of its own, no earlier capture is overwritten, and reading commands use
/// the newest.
#[test]
fn captures_without_a_name_are_numbered() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let here = |arguments: &[&str]| {
        let mut command = rpcprobe(arguments);
        command.current_dir(parent.path()).output().unwrap()
    };
    let run = |number: &str| here(&["run", "-q", "--label", number, "--", "true"]);
    assert_eq!(text(&run("number=1").stderr), "");
    let report = || {
        let output = here(&["report"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stderr), text(&output.stdout))
    };
    let (said, first) = report();
    assert!(said.is_empty() && first.contains("number=1"), "{said}{first}");

    let second = run("number=2");
    assert!(second.status.success());
    assert_eq!(
        text(&second.stderr),
        "rpcprobe: rpcprobe.out exists: capturing to rpcprobe.out.2\n"
    );
    // Attributing a capture again does not make it the newest.
    assert!(here(&["attribute", "-q", "rpcprobe.out"]).status.success());
    let (said, second) = report();
    assert_eq!(said, "rpcprobe: reading rpcprobe.out.2\n");
    assert!(second.contains("number=2"), "{second}");
    for arguments in [&["requests"][..], &["explain", "1"], &["attribute", "-q"]] {
        let output = here(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "rpcprobe: reading rpcprobe.out.2\n", "{arguments:?}");
    }
    // An explicit name is used as given.
    let output = here(&["run", "-q", "-o", "rpcprobe.out", "--", "true"]);
    assert_refused(&output, 1, &["rpcprobe.out exists", "--force"]);
    assert_eq!(text(&here(&["report", "rpcprobe.out"]).stdout), first);
    assert!(here(&["run", "-q", "--force", "--", "true"]).status.success());
    let (said, forced) = report();
    assert_eq!(said, "rpcprobe: reading rpcprobe.out\n");
    assert!(!forced.contains("number="), "{forced}");
    // A run that does not start creates no directory.
    assert_eq!(here(&["run", "--", "/no/such/program"]).status.code(), Some(127));
    assert!(!parent.path().join("rpcprobe.out.3").exists());
}

fn modes(directory: &Path) -> BTreeMap<String, u32> {
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    let mut modes = BTreeMap::from([(".".to_owned(), mode(directory))]);
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        modes.insert(entry.file_name().into_string().unwrap(), mode(&entry.path()));
    }
    modes
}

/// Access does not depend on the umask. Attributing again keeps the permissions of the capture.
#[test]
fn only_the_owner_reads_a_capture_that_is_not_shared() {
    let Some(_turn) = needs_kernel() else { return };
    for (umask, options, directory_mode, file_mode) in
        [("000", "", 0o700, 0o600), ("077", "--share", 0o755, 0o644)]
    {
        let (home, program) = directory_of_nobody();
        let at = home.path().join(NAME);
        let script =
            format!("umask {umask}; exec '{RPCPROBE}' run -q {options} -o {NAME} -- true",);
        let mut command = Command::new("sh");
        unaffected(&mut command);
        command.args(["-c", &script]).current_dir(home.path());
        command.env("SUDO_UID", NOBODY.to_string()).env("SUDO_GID", NOBODY.to_string());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let expected: BTreeMap<String, u32> = [
            "events.bin",
            "manifest.json",
            "requests.parquet",
            "segments.parquet",
            "threads.parquet",
        ]
        .map(|name| (name.to_owned(), file_mode))
        .into_iter()
        .chain([(".".to_owned(), directory_mode)])
        .collect();
        assert_eq!(modes(&at), expected);
        let again = as_nobody(&program, &["attribute", "-q", at.to_str().unwrap()]).output();
        assert!(again.unwrap().status.success());
        assert_eq!(modes(&at), expected);
        // A third user, neither the capture's owner nor root.
        let mut other = Command::new("setpriv");
        other.args(["--reuid=54321", "--regid=54321", "--clear-groups", "--"]);
        let read = other.arg(&program).arg("report").arg(&at).output().unwrap();
        assert_eq!(read.status.success(), !options.is_empty(), "{}", text(&read.stderr));
    }
}

/// With --force, a former capture is kept until the new target program runs.
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
    for name in
        ["manifest.json", "events.bin", "requests.parquet", "segments.parquet", "threads.parquet"]
    {
        symlink(&victim, at.join(name)).unwrap();
        symlink(&victim, at.join(format!("{name}.tmp"))).unwrap();
    }
    let output = try_run(parent.path(), &["--force"], &["true"]);
    let capture = Capture::in_directory(parent, output).succeeded();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    for file in fs::read_dir(&at).unwrap().map(Result::unwrap) {
        assert!(file.file_type().unwrap().is_file(), "{file:?}");
    }
    assert_eq!(contents(&at).len(), 5);
    capture.checked();
}

/// The failure shows up only after the target program has started: the target runs on, and the former capture stays
/// whole.
#[test]
fn a_former_capture_that_cannot_be_removed_stays_whole() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    assert!(try_run(parent.path(), &[], &["true"]).status.success());
    let first = contents(&at);
    // A mount point cannot be removed in its mount namespace.
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

/// Under sudo, write permission is that of the invoking user, not root's.
#[test]
fn a_directory_the_invoking_user_may_not_write_to_is_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = open_directory(); // root owns it, so nobody else may write to it
    let mut command = run(parent.path(), &[], &["echo", "ran"]);
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    let output = command.output().unwrap();
    assert_refused(&output, 1, &[parent.path().to_str().unwrap(), "Permission denied"]);
    assert_eq!(text(&output.stdout), "");
    assert_nothing_left(&parent);
}
