//! Decodes the parts of records that describe code: stacks, and the files that code is mapped from.

use anyhow::{bail, Result};

use crate::event::{hex, Code, Module};
use rpcprobe_record::{text, RecMapping};

/// The first `count` addresses of `rest`, and what follows them.
pub(super) fn frames(rest: &[u8], count: u32, most: usize) -> Result<(Box<[u64]>, &[u8])> {
    let count = count as usize;
    let Some((bytes, rest)) = rest.split_at_checked(count.min(most) * 8) else {
        bail!("a stack longer than its record");
    };
    if count > most {
        bail!("a stack of {count} frames");
    }
    let address = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    Ok((bytes.chunks_exact(8).map(address).collect(), rest))
}

pub(super) fn code(r: &RecMapping, rest: &[u8]) -> Result<Code> {
    let identity = match r.build_id.get(..r.build_id_bytes as usize) {
        Some([]) => format!("inode:{}:{}:{}", r.dev >> 20, r.dev & 0xf_ffff, r.ino),
        Some(id) => format!("build-id:{}", hex(id)),
        None => bail!("a build id of {} bytes", r.build_id_bytes),
    };
    let path = path(rest, r.path_bytes)?.unwrap_or_default();
    Ok(Code {
        start: r.start,
        end: r.start.saturating_add(r.bytes),
        file_offset: r.file_offset,
        module: Module { path, identity: identity.into() },
    })
}

pub(super) fn path(rest: &[u8], bytes: u32) -> Result<Option<Box<str>>> {
    if bytes == 0 {
        return Ok(None);
    }
    let Some(bytes) = rest.get(..bytes as usize) else { bail!("a path longer than its record") };
    Ok(Some(text(bytes).into()))
}
