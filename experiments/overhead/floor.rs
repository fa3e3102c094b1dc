//! Attaches an empty program to each tracepoint that rpcprobe uses, and stays until its standard input
//! ends: the least cost of any tool on these hooks. With `--clock` each program reads the clock once: the
//! least cost of any tool that records times.
//!
//! Prints `ready N` when N programs are attached. The software events of page faults are left out: a round
//! trip has none.

use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{ensure, Context, Result};
use libbpf_rs::libbpf_sys as sys;
use rpcprobe::probe::hooks::{Means, HOOKS};

/// `r0 = 0; exit`, preceded by `call bpf_ktime_get_ns` if `reads_clock`.
fn next_to_nothing(reads_clock: bool) -> Vec<sys::bpf_insn> {
    let insn = |code: u32, imm: u32| sys::bpf_insn {
        code: code as u8,
        imm: imm as i32,
        ..Default::default()
    };
    let mut instructions = vec![
        insn(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, 0),
        insn(sys::BPF_JMP | sys::BPF_EXIT, 0),
    ];
    if reads_clock {
        let call = insn(sys::BPF_JMP | sys::BPF_CALL, sys::BPF_FUNC_ktime_get_ns);
        instructions.insert(0, call);
    }
    instructions
}

fn owned(fd: i32) -> Result<OwnedFd> {
    ensure!(fd >= 0, std::io::Error::from_raw_os_error(-fd));
    // SAFETY: the preceding call has opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program and its link to the tracepoint; dropping them removes both.
fn attach(tracepoint: &str, reads_clock: bool) -> Result<(OwnedFd, OwnedFd)> {
    let name = CString::new(tracepoint)?;
    let instructions = next_to_nothing(reads_clock);
    // SAFETY: the strings and instructions live until the calls return.
    unsafe {
        let id = sys::libbpf_find_vmlinux_btf_id(name.as_ptr(), sys::BPF_TRACE_RAW_TP);
        ensure!(id > 0, std::io::Error::from_raw_os_error(-id));
        let mut options = sys::bpf_prog_load_opts {
            sz: size_of::<sys::bpf_prog_load_opts>() as u64,
            expected_attach_type: sys::BPF_TRACE_RAW_TP,
            attach_btf_id: id as u32,
            ..Default::default()
        };
        let program = owned(sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_TRACING,
            c"nothing".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as u64,
            &mut options,
        ))?;
        let link = owned(sys::bpf_raw_tracepoint_open(
            std::ptr::null(),
            program.as_raw_fd(),
        ))?;
        Ok((program, link))
    }
}

fn main() -> Result<()> {
    let reads_clock = std::env::args().any(|argument| argument == "--clock");
    let mut attached = Vec::new();
    for hook in HOOKS {
        let Means::Tracepoint(name) = hook.means else {
            continue;
        };
        match attach(name, reads_clock) {
            Ok(links) => attached.push(links),
            Err(error) if !hook.required => eprintln!("floor: {name}: {error:#}"),
            Err(error) => return Err(error).with_context(|| name.to_owned()),
        }
    }
    println!("ready {}", attached.len());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
