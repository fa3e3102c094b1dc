//! The Rust mirror of the records against the compiled kernel side: every field where C has it.

use std::collections::HashSet;

use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::Btf;
use rpcprobe::records::{LAYOUT, SIZES};

/// Built by build.rs from the same sources as the probe itself.
const OBJECT: &str = env!("RPCPROBE_BPF_OBJECT");

/// Structs whose C side ends in a `path` array that is sent only in part: Rust leaves it out.
const WITH_PATH: [&str; 2] = ["RecExec", "RecSyscallPath"];

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
    btf.type_by_name::<Struct<'_>>(&name)
        .unwrap_or_else(|| panic!("struct {name} is not in the BTF of {OBJECT}"))
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
    let btf = Btf::from_path(OBJECT).expect("the object has BTF");
    for (name, _) in SIZES {
        let mut c = members(&record(&btf, name));
        if WITH_PATH.contains(name) {
            assert_eq!(c.pop().map(|(field, _)| field).as_deref(), Some("path"));
        }
        assert_eq!(rust_fields(name), c, "{name}");
    }
}

#[test]
fn every_struct_is_as_large_as_on_the_kernel_side() {
    let btf = Btf::from_path(OBJECT).expect("the object has BTF");
    for (name, size) in SIZES {
        let c = record(&btf, name);
        // What is sent of these two ends where the path begins, plus the bytes of the path.
        let sent = match members(&c).into_iter().find(|(field, _)| field == "path") {
            Some((_, offset)) if WITH_PATH.contains(name) => offset,
            _ => c.size(),
        };
        assert_eq!(*size, sent, "{name}");
    }
}

#[test]
fn no_record_of_the_kernel_side_is_without_mirror() {
    let btf = Btf::from_path(OBJECT).expect("the object has BTF");
    let mirrored: HashSet<String> = SIZES.iter().map(|(name, _)| c_name(name)).collect();
    for id in 1..btf.len() as u32 {
        let Some(found) = btf.type_by_id::<Struct<'_>>(id.into()) else { continue };
        let Some(name) = found.name().map(|name| name.to_string_lossy().into_owned()) else {
            continue;
        };
        // rec_task is written by user space only, so the object need not have it.
        assert!(!name.starts_with("rec_") || mirrored.contains(&name), "{name}");
    }
}
