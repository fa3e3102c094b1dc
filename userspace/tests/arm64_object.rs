//! The kernel side compiles for arm64, too, and has the same programs and maps as what is loaded here. That kernels for
//! arm64 load it, `make vmtest` shows (experiments/kernels).

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::text;
use libbpf_rs::ObjectBuilder;
use tempfile::TempDir;

/// Names of the programs of an object, and of its maps.
fn names(object: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let open = ObjectBuilder::default().open_file(object).expect("an object");
    let programs = open.progs().map(|program| program.name().to_string_lossy().into_owned());
    // The data sections' maps have the first letters of the file's name in theirs.
    let maps = open.maps().map(|map| map.name().to_string_lossy().into_owned());
    (programs.collect(), maps.filter(|name| !name.contains('.')).collect())
}

#[test]
fn the_kernel_side_compiles_for_arm64() {
    let folder = TempDir::new().expect("a temporary directory");
    let object = folder.path().join("arm64.bpf.o");
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf");
    // Jobs and flags of a make that runs the tests are not for this one.
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").args(["--jobs=2", "ARCH=arm64", "-C"]);
    make.arg(bpf).arg(format!("OBJECT={}", object.display()));
    let made = make.output().expect("make runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let (programs, maps) = names(&object);
    assert!(programs.len() > 50, "{programs:?}");
    assert_eq!((programs, maps), names(Path::new(env!("RPCPROBE_BPF_OBJECT"))));
}
