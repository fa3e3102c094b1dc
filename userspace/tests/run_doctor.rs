//! What `rpcprobe doctor` says of this kernel, beside what a capture finds.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use common::capture::Capture;
use common::{needs_kernel, rpcprobe};
use serde_json::Value;

fn doctor() -> Value {
    let output = rpcprobe(["doctor", "--json"]).output().expect("rpcprobe runs");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("doctor prints JSON")
}

#[test]
fn hooks_are_attached_as_doctor_says() {
    let Some(_turn) = needs_kernel() else { return };
    let said: BTreeMap<String, Option<String>> = doctor()["hooks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|hook| {
            let name = hook["name"].as_str().expect("a name").to_owned();
            (name, hook["attached_as"].as_str().map(str::to_owned))
        })
        // Those of `attach` and `--stacks`, which doctor tries, too.
        .filter(|(name, _)| !name.starts_with("task") || name == "task_rename")
        .filter(|(name, _)| name != "sw:cpu-clock")
        .collect();
    let capture = Capture::of(&[], &["true"], Stdio::null()).succeeded();
    let had = capture.manifest().hooks.into_iter().map(|hook| (hook.name, hook.attached_as));
    assert_eq!(said, had.collect());
    assert_eq!(said["sys_enter"].as_deref(), Some("tp_btf"));
}

/// Lockdown shows in securityfs only.
#[test]
fn lockdown_is_not_denied_where_it_cannot_be_seen() {
    let Some(_turn) = needs_kernel() else { return };
    let lockdown = &doctor()["lockdown"];
    if Path::new("/sys/kernel/security/lockdown").exists() {
        assert!(lockdown["mode"].is_string(), "{lockdown}");
    } else if std::fs::read_dir("/sys/kernel/security").is_ok_and(|mut of| of.next().is_none()) {
        assert!(lockdown["unknown"].is_string(), "{lockdown}");
    }
}
