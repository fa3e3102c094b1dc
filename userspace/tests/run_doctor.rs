//! What `rpcprobe doctor` says of this kernel, compared with what a capture finds.

mod common;

use std::collections::{BTreeMap, BTreeSet};
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
        // `doctor` also tries the hooks of `attach` and `--stacks`, which a plain capture does not use.
        .filter(|(_, attached_as)| attached_as.as_deref() != Some("iter"))
        .filter(|(name, _)| name != "sw:cpu-clock")
        .collect();
    let capture = Capture::of(&[], &["true"], Stdio::null()).succeeded();
    let had = capture.manifest().hooks.into_iter().map(|hook| (hook.name, hook.attached_as));
    assert_eq!(said, had.collect());
    assert_eq!(said["sys_enter"].as_deref(), Some("tp_btf"));
}

/// Lockdown is visible only in securityfs. `doctor` must not deny it where securityfs is not mounted.
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

/// A capture attaches exactly the functions that `doctor` could hook. Where none can be hooked, `run --direct-hooks`
/// says so and runs nothing.
#[test]
fn functions_are_hooked_as_doctor_says() {
    let Some(_turn) = needs_kernel() else { return };
    let direct = doctor()["direct"].as_array().expect("a list").clone();
    assert!(!direct.is_empty());
    for means in ["fentry", "kprobe"] {
        let allowed = |each: &&Value| each[means].get("Ok").is_some();
        let said: BTreeSet<&str> =
            direct.iter().filter(allowed).filter_map(|each| each["function"].as_str()).collect();
        let option = format!("--direct-by={means}");
        if said.is_empty() {
            println!("no function can be hooked by {means}");
            let folder = tempfile::tempdir().expect("a temporary directory");
            let output = folder.path().join("capture");
            let command = ["run", "--direct-hooks", &option, "-o"];
            let mut refused = rpcprobe(command);
            let refused = refused.arg(&output).args(["--", "true"]).output().expect("it runs");
            let told = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(1), "{told}");
            assert!(told.contains("does not allow them"), "{told}");
            assert!(!output.exists());
            continue;
        }
        let options = ["--direct-hooks", &option];
        let capture = Capture::of(&options, &["true"], Stdio::null()).succeeded();
        let hooks = capture.manifest().hooks;
        let had = hooks.iter().filter(|hook| {
            hook.attached_as.as_deref().is_some_and(|of| of.starts_with(means) && of.contains('+'))
        });
        assert_eq!(had.map(|hook| hook.name.as_str()).collect::<BTreeSet<_>>(), said);
    }
}
