//! `--btf FILE`: kernel structure layouts from a file, whole and minimized, and files that cannot be used.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::capture::{run, Capture, NAME};
use common::{assert_refused, frpc, needs_kernel, rpcprobe, text};
use rpcprobe::model::Kind;
use tempfile::TempDir;

/// The running kernel's BTF.
const OWN: &str = "/sys/kernel/btf/vmlinux";
/// The kernel-side object, as built.
const OBJECT: &str = env!("RPCPROBE_BPF_OBJECT");

/// Writes a full copy of the kernel's BTF and a minimized file with only the types that the programs need.
fn whole_and_minimized(folder: &Path) -> [PathBuf; 2] {
    let [whole, minimized] = ["whole.btf", "minimized.btf"].map(|name| folder.join(name));
    fs::write(&whole, fs::read(OWN).expect("it can be read")).expect("there is room");
    let path = std::env::var("PATH").unwrap_or_default();
    let made = Command::new("bpftool")
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .args(["gen", "min_core_btf"])
        .args([&whole, &minimized])
        .arg(OBJECT)
        .output()
        .expect("bpftool, which built the kernel side");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let bytes = |path| fs::metadata(path).expect("it is there").len();
    assert!(bytes(&minimized) * 100 < bytes(&whole), "{} bytes", bytes(&minimized));
    [whole, minimized]
}

#[test]
fn a_copy_and_a_minimized_file_serve_as_the_kernels_own() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().expect("a temporary directory");
    for file in whole_and_minimized(scratch.path()) {
        let shown = file.to_str().expect("UTF-8");
        let doctor = rpcprobe(["doctor", "--btf", shown]).output().expect("rpcprobe runs");
        assert!(doctor.status.success(), "{}", text(&doctor.stdout));
        assert!(text(&doctor.stdout).contains(&format!("layouts   {shown} (--btf)")));

        let (program, input) = (frpc("frpc"), frpc("expressions.txt"));
        let script = format!("head -20 '{input}' | '{program}' -m 3");
        let capture = Capture::of(&["--btf", shown], &["sh", "-c", &script], Stdio::null());
        let rows = capture.succeeded().rows();
        let of_pipes: Vec<_> = rows.iter().filter(|row| row.request.kind == Kind::Pipe).collect();
        assert!(of_pipes.len() >= 20, "{} requests", of_pipes.len());
        assert!(of_pipes.iter().all(|row| row.request.reason.is_none()));
    }
}

#[test]
fn attach_takes_a_minimized_file() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().expect("a temporary directory");
    let [_, minimized] = whole_and_minimized(scratch.path());
    let mut sleeper = Command::new("sleep").arg("60").spawn().expect("sleep");
    let pid = sleeper.id().to_string();
    let attached = rpcprobe(["attach", "--pid", &pid, "--duration", "200ms", "-o"])
        .arg(scratch.path().join(NAME))
        .arg("--btf")
        .arg(minimized)
        .output()
        .expect("rpcprobe runs");
    sleeper.kill().expect("it runs still");
    sleeper.wait().expect("it has ended");
    assert!(attached.status.success(), "{}", text(&attached.stderr));
}

/// A file that cannot be used is refused by `run` and by `doctor`. The message names the file and the problem.
#[test]
fn files_that_do_not_serve_are_told() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().expect("a temporary directory");
    let file = |name: &str, content: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, content).expect("there is room");
        path.to_str().expect("UTF-8").to_string()
    };
    let own = fs::read(OWN).expect("it can be read");
    for (btf, why) in [
        ("/nonexistent".to_string(), "No such file"),
        (scratch.path().to_str().expect("UTF-8").to_string(), "is a directory"),
        (file("empty", b""), "cannot be parsed"),
        (file("text", b"no type information at all\n"), "cannot be parsed"),
        (file("truncated", &own[..own.len() / 2]), "cannot be parsed"),
        // This object has structures of the same names, with the fields that the program reads.
        (OBJECT.to_string(), "of another kernel"),
    ] {
        let parent = TempDir::new().expect("a temporary directory");
        let output = run(parent.path(), &["--btf", &btf], &["echo", "ran"]).output().unwrap();
        assert_refused(&output, 1, &[&btf, why, "--btf"]);
        assert_eq!(text(&output.stdout), "");
        let doctor = rpcprobe(["doctor", "--btf", &btf]).output().expect("rpcprobe runs");
        assert_eq!(doctor.status.code(), Some(1), "{btf}");
        let said = text(&doctor.stdout);
        assert!(said.contains(&btf) && said.contains(why), "{said}");
    }
}

/// A BTF file does not help where the kernel has no BTF: BTF tracepoints then have nothing to attach to.
#[test]
fn a_file_does_not_replace_what_programs_attach_to() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let why = "not what BTF tracepoints attach to";
    let mut command = run(parent.path(), &["--btf", OWN], &["echo", "ran"]);
    let output = command.env("RPCPROBE_BTF", "/nonexistent").output().expect("rpcprobe runs");
    assert_refused(&output, 1, &["/nonexistent", "--btf", why]);
    assert_eq!(text(&output.stdout), "");
    let mut doctor = rpcprobe(["doctor", "--btf", OWN]);
    let doctor = doctor.env("RPCPROBE_BTF", "/nonexistent").output().expect("rpcprobe runs");
    assert_eq!(doctor.status.code(), Some(1));
    let said = text(&doctor.stdout);
    assert!(said.contains("rpcprobe does not work here") && said.contains(why), "{said}");
}
