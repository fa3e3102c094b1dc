//! Builds the kernel side (`make -C ../bpf`) and tells the crate where the object is.
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let bpf = PathBuf::from(here).join("../bpf");
    println!("cargo::rerun-if-changed={}", bpf.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out.join("rpcprobe.bpf.o");
    let jobs = std::env::var("NUM_JOBS").unwrap_or_else(|_| "1".into());
    // As bpf/Makefile calls the processor that the program is built for.
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    let arch = if arch == "aarch64" { "arm64" } else { "x86" };
    let status = Command::new("make")
        .env_remove("MAKEFLAGS") // of a make that runs cargo: its jobs are not ours
        .arg("--no-print-directory")
        .arg(format!("--jobs={jobs}"))
        .arg("-C")
        .arg(&bpf)
        .args([format!("OBJECT={}", object.display()), format!("ARCH={arch}")])
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("make -C {} failed: {status}", bpf.display()),
        Err(error) => panic!("cannot run make: {error}"),
    }
    println!("cargo::rustc-env=RPCPROBE_BPF_OBJECT={}", object.display());
}
