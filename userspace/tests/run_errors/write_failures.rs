//! What we write has no room or nobody to take it: the target must not notice.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::capture::NAME;
use crate::common::{assert_no_crash, assert_refused, needs_kernel, text, unaffected, RPCPROBE};

/// `rpcprobe run` in a file system of that size: what it and the target said, then what
/// `rpcprobe report` says about the result.
fn on_a_small_disk(size: &str, command: &str) -> [Output; 2] {
    let mount = TempDir::new().unwrap();
    let script = "mount -t tmpfs -o size=$SIZE none \"$MOUNT\" && cd \"$MOUNT\" || exit 99
        \"$RPCPROBE\" run -q -o capture -- sh -c \"$COMMAND\"
        echo $? > \"$STATUS\"
        \"$RPCPROBE\" report capture > \"$STATUS.out\" 2> \"$STATUS.err\"
        echo $? >> \"$STATUS\"";
    let kept = TempDir::new().unwrap();
    let status = kept.path().join("status");
    // A mount namespace of its own: the file system goes away with it.
    let mut unshare = Command::new("unshare");
    unaffected(&mut unshare);
    unshare.args(["-m", "sh", "-c", script]).env("SIZE", size).env("MOUNT", mount.path());
    unshare.env("RPCPROBE", RPCPROBE).env("COMMAND", command).env("STATUS", &status);
    let output = unshare.output().expect("unshare runs");
    let read = |suffix: &str| fs::read(format!("{}{suffix}", status.display())).unwrap_or_default();
    let statuses = text(&read(""));
    let code = |line: usize| -> std::process::ExitStatus {
        let word = statuses.lines().nth(line);
        let code: i32 = word.and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{output:?}"));
        ExitStatusExt::from_raw(code << 8)
    };
    [
        Output { status: code(0), ..output.clone() },
        Output { status: code(1), stdout: read(".out"), stderr: read(".err") },
    ]
}

#[test]
fn a_full_disk_spares_the_target() {
    let Some(_turn) = needs_kernel() else { return };
    let chatty = "dd bs=1 count=100000 if=/dev/zero of=/dev/null 2>/dev/null; echo done";
    // The events do not fit; then everything but the tables does.
    for (size, command) in [("64k", chatty), ("16k", "echo done")] {
        let [run, report] = on_a_small_disk(size, command);
        assert_eq!(text(&run.stdout), "done\n", "{size}");
        assert_refused(&run, 1, &["capture", "No space left on device"]);
        assert_refused(&report, 1, &["capture", "not a finished capture"]);
        assert_eq!(text(&report.stdout), "");
        // The target's own failure is more than ours.
        let [run, _] = on_a_small_disk(size, &format!("{command}; exit 3"));
        assert_refused(&run, 3, &["No space left on device"]);
    }
}

/// Nothing that happens to our own words may harm what the target's parent sees.
#[test]
fn the_report_that_nobody_takes_does_not_change_the_exit_status() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    for redirection in ["2>/dev/full", "2>&-", "2>&1 >/dev/null | :"] {
        let script = format!(
            "{{ \"$RPCPROBE\" run --force -o \"$AT\" -- sh -c 'sleep 0.1; exit 3'; \
             echo $? >&4; }} {redirection}"
        );
        let mut shell = Command::new("sh");
        unaffected(&mut shell);
        shell.args(["-c", &format!("{{ {script}; }} 4>&1")]).env("RPCPROBE", RPCPROBE);
        let output = shell.env("AT", parent.path().join(NAME)).output().unwrap();
        assert_eq!(text(&output.stdout), "3\n", "{redirection}: {}", text(&output.stderr));
        assert_no_crash(&text(&output.stderr));
    }
}
