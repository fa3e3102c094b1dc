//! Checks reports against an independent reader: DuckDB computes every statistic from the Parquet
//! files.

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rpcprobe::capture::manifest::Manifest;
use tempfile::TempDir;

use common::capture::Capture;
use common::made_up::made_up;
use common::{frpc_folder, needs_kernel, python, rpcprobe, text};

fn agrees(directory: &Path) {
    let compare = format!("{}/tests/sql/compare.py", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(compare).arg(common::RPCPROBE).arg(directory);
    let output = command.output().expect("Python runs");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("reports agree with SQL"), "{said}");
}

#[test]
fn made_up_captures_of_every_size_agree() {
    for requests in [0, 1, 2, 150, 3_000] {
        let directory = TempDir::new().expect("a directory");
        made_up(directory.path(), requests);
        agrees(directory.path());
    }
}

#[test]
fn a_real_capture_agrees() {
    let Some(_turn) = needs_kernel() else { return };
    let input = File::open(frpc_folder().join("expressions.txt")).expect("the expressions");
    let frpc = frpc_folder().join("frpc");
    let command = [frpc.to_str().expect("UTF-8"), "-m", "3"];
    let capture = Capture::of(&[], &command, Stdio::from(input)).succeeded();
    agrees(&capture.path());
}

#[test]
fn labels_group_captures_and_several_have_a_report_each() {
    let parent = TempDir::new().expect("a directory");
    let dirs: Vec<_> =
        ["before", "after", "more"].iter().map(|name| parent.path().join(name)).collect();
    for (dir, label) in dirs.iter().zip(["before", "after", "after"]) {
        std::fs::create_dir(dir).expect("a directory");
        made_up(dir, 300);
        let file = dir.join("manifest.json");
        let read = std::fs::read(&file).expect("a manifest");
        let mut manifest: Manifest = serde_json::from_slice(&read).expect("a manifest");
        manifest.labels.insert("change".into(), label.into());
        std::fs::write(&file, serde_json::to_vec(&manifest).expect("JSON")).expect("written");
    }
    let json = |options: &[&str]| -> serde_json::Value {
        let output =
            rpcprobe(["report", "--json"]).args(options).args(&dirs).output().expect("runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let each = json(&[]);
    assert_eq!(each["reports"].as_array().map(Vec::len), Some(3));
    let by_label = json(&["--by", "label"]);
    assert_eq!(by_label["captures"].as_array().map(Vec::len), Some(3));
    assert_eq!((&by_label["in_capture"], &by_label["not_conserved"]), (&900.into(), &0.into()));
    let groups = &by_label["kinds"][0]["groups"]["listed"];
    let one = &each["reports"][0]["kinds"][0];
    // Two captures with the same content: twice the requests in twice the time.
    assert_eq!(groups[0]["name"], "change=after");
    assert_eq!(groups[1]["name"], "change=before");
    assert_eq!(groups[1]["requests"], one["requests"]);
    assert_eq!(groups[0]["rate_per_s"], groups[1]["rate_per_s"]);
    assert_eq!(groups[0]["latency"]["p99_ns"], one["latency"]["p99_ns"]);
}

#[test]
fn a_filter_that_matches_nothing_tells_what_there_is() {
    let directory = TempDir::new().expect("a directory");
    made_up(directory.path(), 300);
    for command in ["report", "explain"] {
        let mut run = rpcprobe([command]);
        run.arg(directory.path()).args(["--method", "PUT *"]);
        if command == "explain" {
            run.arg("--slowest");
        }
        let output = run.output().expect("rpcprobe runs");
        let said = text(&output.stdout);
        assert!(said.contains("No request passes the filter"), "{said}");
        assert!(said.contains("http1 (") && said.contains("GET /a1 ("), "{said}");
    }
}
