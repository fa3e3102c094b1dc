//! The tasks that exist when a capture begins, from /proc: later tasks have records of their own.

use std::fs;

use zerocopy::IntoBytes;

use crate::records::{RecHdr, RecTask, COMM_BYTES, REC_TASK, TASK_KTHREAD};

const PF_KTHREAD: u64 = 0x0020_0000; // include/linux/sched.h

/// One record per thread. Threads that end meanwhile are left out: no other records of them follow.
pub fn tasks() -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for process in numeric_entries("/proc") {
        for tid in numeric_entries(&format!("/proc/{process}/task")) {
            if let Some(record) = task(process, tid) {
                records.push(record);
            }
        }
    }
    records
}

fn numeric_entries(directory: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn task(tgid: u32, tid: u32) -> Option<Vec<u8>> {
    let stat = fs::read(format!("/proc/{tgid}/task/{tid}/stat")).ok()?;
    // "pid (comm) state ppid pgrp session tty tpgid flags ...": comm may hold anything, so cut at
    // the last parenthesis.
    let open = stat.iter().position(|&b| b == b'(')?;
    let close = stat.iter().rposition(|&b| b == b')')?;
    let rest = String::from_utf8_lossy(stat.get(close + 1..)?);
    let mut fields = rest.split_ascii_whitespace();
    let ppid = fields.nth(1)?.parse().ok()?;
    let flags: u64 = fields.nth(4)?.parse().ok()?;
    let mut comm = [0; COMM_BYTES];
    // Kernel workers have longer names here than in the kernel's comm field.
    let name = stat.get(open + 1..close)?;
    let length = name.len().min(COMM_BYTES);
    comm[..length].copy_from_slice(&name[..length]);
    let hdr = RecHdr {
        ts_ns: 0,
        tid,
        kind: REC_TASK,
        flags: if flags & PF_KTHREAD != 0 { TASK_KTHREAD } else { 0 },
        aux: 0,
    };
    Some(RecTask { hdr, tgid, ppid, comm }.as_bytes().to_vec())
}
