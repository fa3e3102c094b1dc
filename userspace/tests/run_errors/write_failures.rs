//! Write failures of the program itself: no space left, or a closed output. The target must not
//! notice.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::capture::{contents, NAME};
use crate::common::{assert_no_crash, assert_refused, needs_kernel, text, unaffected, RPCPROBE};
use crate::{on, small_capture};

/// Results of `rpcprobe run` in a small file system and of the commands after it.
struct SmallDisk {
    run: Output,
    /// Names in the capture directory.
    files: Vec<String>,
    /// Output of `rpcprobe report`.
    report: Output,
    /// Output of the command that `run` suggested, run with more space.
    advice: Option<Output>,
    /// Output of `rpcprobe report` after that.
    at_last: Output,
}

impl SmallDisk {
    fn of(size: &str, command: &str) -> SmallDisk {
        let (mount, kept) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let script = r#"
            try() {
                step=$1; shift
                "$RPCPROBE" "$@" > "$KEPT/$step.out" 2> "$KEPT/$step.err"
                echo $? > "$KEPT/$step.code"
            }
            mount -t tmpfs -o size=$SIZE none "$MOUNT" && cd "$MOUNT" || exit 99
            try run run -q -o capture -- sh -c "$COMMAND"
            ls -A capture > "$KEPT/files"
            try report report capture
            mount -o remount,size=64m "$MOUNT" || exit 99
            advice=$(sed -n 's/.*`rpcprobe \([^`]*\)`.*/\1/p' "$KEPT/run.err")
            [ -z "$advice" ] || try advice $advice -q
            try at_last report capture"#;
        // In a mount namespace of its own: the file system is removed together with the namespace.
        let mut unshare = Command::new("unshare");
        unaffected(&mut unshare);
        unshare.args(["-m", "sh", "-c", script]).env("RPCPROBE", RPCPROBE);
        unshare.env("SIZE", size).env("COMMAND", command);
        unshare.env("MOUNT", mount.path()).env("KEPT", kept.path());
        let output = unshare.output().expect("unshare runs");
        assert!(output.status.success(), "{output:?}");
        let read = |name: String| fs::read(kept.path().join(name));
        let step = |step: &str| {
            let code: i32 = text(&read(format!("{step}.code")).ok()?).trim().parse().unwrap();
            Some(Output {
                status: ExitStatusExt::from_raw(code << 8),
                stdout: read(format!("{step}.out")).unwrap(),
                stderr: read(format!("{step}.err")).unwrap(),
            })
        };
        let files = text(&read("files".into()).unwrap());
        SmallDisk {
            run: step("run").expect("a run"),
            files: files.lines().map(str::to_owned).collect(),
            report: step("report").expect("a report"),
            advice: step("advice"),
            at_last: step("at_last").expect("a report"),
        }
    }

    /// Fails unless `run` reported the error exactly once, the command it suggested works, and
    /// `report` refuses before that.
    fn checked(self) -> SmallDisk {
        let stderr = text(&self.run.stderr);
        assert_eq!(stderr.matches("No space left on device").count(), 1, "{stderr}");
        assert!(!stderr.contains("External"), "{stderr}");
        assert!(stderr.contains("make room, then `rpcprobe attribute"), "{stderr}");
        assert!(!self.files.iter().any(|name| name.ends_with(".tmp")), "{:?}", self.files);
        assert_refused(&self.report, 1, &["capture"]);
        assert_eq!(text(&self.report.stdout), "");
        let advice = self.advice.as_ref().expect("advice");
        assert!(advice.status.success(), "{}", text(&advice.stderr));
        assert!(self.at_last.status.success(), "{}", text(&self.at_last.stderr));
        self
    }
}

#[test]
fn a_full_disk_spares_the_target_and_what_fits_is_kept() {
    let Some(_turn) = needs_kernel() else { return };
    let mut kept = BTreeSet::new();
    // Grows from almost no space to enough space, one page at a time. The file sizes depend on the
    // machine: there is a record for each of its tasks.
    for pages in 2.. {
        assert!(pages < 500, "it never fits");
        let disk = SmallDisk::of(&format!("{}k", 4 * pages), "echo done");
        assert_eq!(text(&disk.run.stdout), "done\n");
        kept.insert(disk.files.clone());
        if disk.run.status.success() {
            assert!(disk.report.status.success(), "{}", text(&disk.report.stderr));
            break;
        }
        let disk = disk.checked();
        assert_eq!(disk.run.status.code(), Some(1));
        let report = text(&disk.at_last.stdout);
        if disk.files.iter().any(|name| name == "manifest.json") {
            assert_refused(&disk.report, 1, &["requests.parquet", "`rpcprobe attribute capture`"]);
            assert!(report.contains("1 request (1 process), all complete"), "{report}");
            assert!(report.starts_with("sh -c echo done\n"), "{report}");
        } else {
            assert_refused(&disk.report, 1, &["not a finished capture"]);
        }
    }
    let (events, manifest) = ("events.bin".to_owned(), "manifest.json".to_owned());
    let tables = ["requests.parquet", "segments.parquet", "threads.parquet"].map(str::to_owned);
    let all = [&[events.clone(), manifest.clone()][..], &tables].concat();
    assert_eq!(kept, [vec![events.clone()], vec![events, manifest], all].into());
}

#[test]
fn events_that_do_not_fit_are_kept_as_far_as_they_do() {
    let Some(_turn) = needs_kernel() else { return };
    let chatty = "dd bs=1 count=100000 if=/dev/zero of=/dev/null 2>/dev/null; echo done";
    let disk = SmallDisk::of("64k", chatty).checked();
    assert_eq!(text(&disk.run.stdout), "done\n");
    assert_eq!(disk.run.status.code(), Some(1));
    assert_eq!(disk.files, ["events.bin"]);
    assert!(text(&disk.at_last.stdout).contains("the events break off at byte"));
}

#[test]
fn a_full_disk_does_not_hide_the_targets_failure() {
    let Some(_turn) = needs_kernel() else { return };
    let disk = SmallDisk::of("16k", "echo done; exit 3").checked();
    assert_refused(&disk.run, 3, &["No space left on device"]);
    assert_eq!(text(&disk.run.stdout), "done\n");
}

/// New tables next to an old manifest would look like a complete capture.
#[test]
fn tables_and_manifest_are_replaced_together_or_not_at_all() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let whole = fs::read(capture.file("events.bin")).unwrap();
    fs::write(capture.file("events.bin"), &whole[..whole.len() / 2]).unwrap();
    let before = contents(&capture.path());
    // A mount point cannot be replaced in its mount namespace.
    let script = "mount --bind \"$AT/manifest.json\" \"$AT/manifest.json\" || exit 99
        exec \"$RPCPROBE\" attribute -q --allow-truncated \"$AT\"";
    let mut unshare = Command::new("unshare");
    unaffected(&mut unshare);
    unshare.args(["-m", "sh", "-c", script]).env("AT", capture.path()).env("RPCPROBE", RPCPROBE);
    assert_refused(&unshare.output().expect("unshare runs"), 1, &["manifest.json"]);
    assert!(contents(&capture.path()) == before, "something has changed");
    // Without the mount the same command succeeds, so nothing else prevented it.
    assert!(on(&capture.path(), &["attribute", "-q", "--allow-truncated"]).status.success());
    assert!(contents(&capture.path()) != before);
    capture.checked();
}

/// Write failures of the program's own messages must not change the exit status that the target's
/// parent sees.
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
