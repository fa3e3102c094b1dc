//! The kernel side also compiles for arm64, with the same programs and maps as the object loaded here. `make vmtest`
//! (experiments/kernels) shows that arm64 kernels load it.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::text;
use libbpf_rs::ObjectBuilder;
use tempfile::TempDir;

/// Names of an object's programs and maps.
fn names(object: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let open = ObjectBuilder::default().open_file(object).expect("an object");
    let programs = open.progs().map(|program| program.name().to_string_lossy().into_owned());
    // The names of the data sections' maps begin with the first letters of the object file's name; they are left out.
    let maps = open.maps().map(|map| map.name().to_string_lossy().into_owned());
    (programs.collect(), maps.filter(|name| !name.contains('.')).collect())
}

#[test]
fn the_kernel_side_compiles_for_arm64() {
    let folder = TempDir::new().expect("a temporary directory");
    let object = folder.path().join("arm64.bpf.o");
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    // A make that runs the tests must not pass its jobs and flags to this make.
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").args(["--jobs=2", "ARCH=arm64", "-C"]);
    make.arg(bpf).arg(format!("OBJECT={}", object.display()));
    let made = make.output().expect("make runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let (programs, maps) = names(&object);
    assert!(programs.len() > 50, "{programs:?}");
    assert_eq!((programs, maps), names(Path::new(env!("RPCPROBE_BPF_OBJECT"))));
}
