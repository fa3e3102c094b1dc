//! Compares the Rust mirror of the records with `bpf/records.h`, field by field.
//!
//! The BPF object cannot be used for this: its BTF contains only types named by maps, globals and
//! prototypes, and records are locals of the programs. So the same compiler compiles the same
//! header once more, with one global of each struct.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::{Btf, HasSize};
use rpcprobe::records::{LAYOUT, SIZES};

/// Structs whose C definition ends in an array that is sent only in part. The Rust mirror omits the
/// array.
const WITH_TAIL: [(&str, &str); 9] = [
    ("RecExec", "path"),
    ("RecSyscallPath", "path"),
    ("RecUnixChannel", "path"),
    ("RecStack", "frames"),
    ("RecSample", "frames"),
    ("RecMapping", "path"),
    ("RecHeaderBlock", "piece"),
    ("RecLine", "line"),
    ("RecMethod", "path"),
];

fn tail(name: &str) -> Option<&'static str> {
    WITH_TAIL.iter().find(|(owner, _)| *owner == name).map(|(_, field)| *field)
}

fn bpf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf")
}

/// Names of the structs in records.h, in order.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(bpf().join("records.h")).expect("bpf/records.h");
    header
        .lines()
        .filter_map(|line| line.strip_prefix("struct rec_")?.split_whitespace().next())
        .map(|name| format!("rec_{name}"))
        .collect()
}

/// The first available of the compilers that bpf/Makefile looks for.
fn compiler() -> String {
    let given = std::env::var("CLANG").ok();
    let known = ["clang-19", "clang-18", "clang-17", "clang"].map(String::from);
    given
        .into_iter()
        .chain(known)
        .find(|clang| {
            let version = Command::new(clang).arg("--version").stdout(Stdio::null()).status();
            version.is_ok_and(|status| status.success())
        })
        .expect("the compiler that built the kernel side")
}

/// Compiles an object whose BTF contains every record.
fn object(dir: &Path) -> PathBuf {
    let mut source = String::from("#include \"kernel_types.h\"\n#include \"records.h\"\n");
    for name in declared() {
        source += &format!("struct {name} a_{name};\n");
    }
    let object = dir.join("records.bpf.o");
    let mut clang = Command::new(compiler())
        .args([
            "-target",
            "bpf",
            "-D__TARGET_ARCH_x86",
            "-mcpu=v3",
            "-O2",
            "-g",
            "-std=gnu11",
            "-x",
            "c",
            "-c",
            "-I",
        ])
        .arg(bpf())
        .args([Path::new("-"), Path::new("-o"), &object])
        .stdin(Stdio::piped())
        .spawn()
        .expect("clang runs");
    let mut stdin = clang.stdin.take().expect("piped");
    stdin.write_all(source.as_bytes()).expect("clang reads its input");
    drop(stdin);
    assert!(clang.wait().expect("clang ends").success());
    object
}

/// Runs a check on the BTF of all records.
fn with_btf(check: impl FnOnce(&Btf<'_>)) {
    let dir = tempfile::tempdir().expect("a directory for the object");
    check(&Btf::from_path(object(dir.path())).expect("the object has BTF"));
}

/// `RecSwitchSys` -> `rec_switch_sys`.
fn c_name(rust_name: &str) -> String {
    let mut name = String::new();
    for c in rust_name.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn record<'b>(btf: &'b Btf<'_>, rust_name: &str) -> Struct<'b> {
    let name = c_name(rust_name);
    btf.type_by_name(&name).unwrap_or_else(|| panic!("no struct {name} in bpf/records.h"))
}

/// Member name and byte offset, in order; records have no bit fields.
fn members(of: &Struct<'_>) -> Vec<(String, usize)> {
    of.iter()
        .map(|member| {
            let name = member.name.expect("a record has no anonymous members").to_string_lossy();
            match member.attr {
                MemberAttr::Normal { offset } => {
                    assert_eq!(offset % 8, 0, "{name} does not begin at a byte");
                    (name.into_owned(), offset as usize / 8)
                }
                MemberAttr::BitField { .. } => panic!("{name} is a bit field"),
            }
        })
        .collect()
}

fn rust_fields(name: &str) -> Vec<(String, usize)> {
    LAYOUT
        .iter()
        .filter(|(owner, _, _)| *owner == name)
        .map(|(_, field, offset)| (field.to_string(), *offset))
        .collect()
}

#[test]
fn every_field_lies_where_the_kernel_side_puts_it() {
    with_btf(|btf| {
        for (name, _) in SIZES {
            let mut c = members(&record(btf, name));
            if let Some(tail) = tail(name) {
                assert_eq!(c.pop().map(|(field, _)| field).as_deref(), Some(tail), "{name}");
            }
            assert_eq!(rust_fields(name), c, "{name}");
        }
    });
}

#[test]
fn every_struct_is_as_large_as_on_the_kernel_side() {
    with_btf(|btf| {
        for (name, size) in SIZES {
            let c = record(btf, name);
            // For a struct with a tail, the mirrored size ends where the tail begins.
            let begins = |tail: &str| members(&c).into_iter().find(|(field, _)| field == tail);
            let sent = match tail(name) {
                Some(tail) => begins(tail).expect("it has its tail").1,
                None => c.size(),
            };
            assert_eq!(*size, sent, "{name}");
        }
    });
}

#[test]
fn every_record_of_the_kernel_side_has_a_mirror() {
    let mirrored: Vec<String> = SIZES.iter().map(|(name, _)| c_name(name)).collect();
    assert_eq!(declared(), mirrored);
}
