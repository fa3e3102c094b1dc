//! Prints how much each program needs of what the kernel allows, and checks margins.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use libbpf_rs::{libbpf_sys, PrintLevel};

use super::*;
use crate::probe::opened::memory_bytes;

static VERIFIER_LOGS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// The functions of a program, by the index of the first instruction, and the functions that each calls.
fn functions(instructions: &[libbpf_sys::bpf_insn]) -> BTreeMap<usize, BTreeSet<usize>> {
    // include/uapi/linux/bpf.h
    const CALL: u8 = 0x85;
    const PSEUDO_CALL: u8 = 1;
    const LOAD_64: u8 = 0x18;
    const PSEUDO_FUNC: u8 = 4;
    let called = instructions.iter().enumerate().filter_map(|(at, instruction)| {
        let calls = match instruction.code {
            CALL => instruction.src_reg() == PSEUDO_CALL,
            LOAD_64 => instruction.src_reg() == PSEUDO_FUNC,
            _ => false,
        };
        calls.then(|| (at, (at as i64 + 1 + i64::from(instruction.imm)) as usize))
    });
    let called: Vec<(usize, usize)> = called.collect();
    let mut functions: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::from([(0, BTreeSet::new())]);
    functions.extend(called.iter().map(|(_, to)| (*to, BTreeSet::new())));
    for (at, to) in called {
        let (_, calls) = functions.range_mut(..=at).next_back().expect("0 is there");
        calls.insert(to);
    }
    functions
}

/// The stack that the deepest chain of calls needs, as check_max_stack_depth_subprog() computes it without a JIT: a
/// multiple of 32 for each function (kernel/bpf/verifier.c).
fn deepest(functions: &BTreeMap<usize, (u64, BTreeSet<usize>)>, at: usize) -> u64 {
    let (own_bytes, calls) = &functions[&at];
    let below = calls.iter().map(|to| deepest(functions, *to)).max().unwrap_or(0);
    (*own_bytes).max(1).next_multiple_of(32) + below
}

/// What the kernel reports of a loaded program.
#[derive(Debug)]
struct Verified {
    name: String,
    /// Of the program and its own functions.
    instructions: usize,
    /// Instructions that the verifier processed, counted at each visit.
    processed: u64,
    stack_bytes: u64,
    /// Of the maps that it uses, as the kernel accounts for them.
    map_bytes: u64,
}

/// Memory of a map, by its number (bpf_map_show_fdinfo(), kernel/bpf/syscall.c).
fn map_bytes(id: u32) -> Result<u64> {
    let map = libbpf_rs::MapHandle::from_map_id(id)?;
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd()))?;
    let memory = told.lines().find_map(|line| line.strip_prefix("memlock:"));
    Ok(memory.context("the kernel does not say what memory a map takes")?.trim().parse()?)
}

/// Memory of all maps that a program uses.
fn map_bytes_of(program: &libbpf_rs::Program<'_>) -> Result<u64> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut ids = [0u32; 64]; // BPF allows as many maps (MAX_USED_MAPS)
    info.nr_map_ids = ids.len() as u32;
    info.map_ids = ids.as_mut_ptr() as u64;
    let mut bytes = size_of_val(&info) as u32;
    let fd = program.as_fd().as_raw_fd();
    // SAFETY: the structure and the array are as large as is said, and outlive the call.
    let error = unsafe {
        let info = std::ptr::from_mut(&mut info).cast();
        libbpf_sys::bpf_obj_get_info_by_fd(fd, info, &raw mut bytes)
    };
    if error != 0 {
        return Err(std::io::Error::last_os_error()).context("bpf_obj_get_info_by_fd");
    }
    ids.iter().take(info.nr_map_ids as usize).map(|id| map_bytes(*id)).sum()
}

/// What is known of each program once it is loaded.
fn verified(config: &Config) -> Result<Vec<Verified>> {
    const STATISTICS: u32 = 4; // BPF_LOG_STATS, include/linux/bpf_verifier.h
    let types = Opened::types(config)?;
    let specs = chosen(&types).into_iter().filter(|of| config.wants(of)).collect();
    // The fentry programs are the same functions, and not every kernel loads them.
    let direct = direct::Chosen::present(direct::By::Kprobe, &types, |_| true);
    let mut opened = Opened::with(config, &types, specs, Some(direct))?;
    for mut program in opened.open.progs_mut() {
        program.set_log_level(STATISTICS);
    }
    let keep = |_: PrintLevel, message: String| {
        if message.contains("-- BEGIN PROG LOAD LOG --") {
            VERIFIER_LOGS.lock().expect("no test has failed").push(message);
        }
    };
    libbpf_rs::set_print(Some((PrintLevel::Debug, keep)));
    let loaded = opened.open.load();
    quiet_libbpf();
    let object = loaded.context("the kernel refused the programs")?;
    let logs = std::mem::take(&mut *VERIFIER_LOGS.lock().expect("no test has failed"));
    let read = |log: &String| -> Option<Result<Verified>> {
        let name = log.split('\'').nth(1)?.to_string();
        let processed = log.split_once("processed ")?.1.split(' ').next()?.parse().ok()?;
        // `stack depth 136+0+48`: of each function, in the order in which they lie in the program.
        let depths = log.split_once("stack depth ")?.1.lines().next()?;
        let depths = depths.split([' ', '+']).map_while(|of| of.parse::<u64>().ok());
        let program = object.progs().find(|program| program.name() == name.as_str())?;
        let functions = functions(program.insns());
        let depths: Vec<u64> = depths.take(functions.len()).collect();
        let all = (depths.len() == functions.len()).then_some(depths)?.into_iter();
        let functions =
            functions.into_iter().zip(all).map(|((at, calls), own)| (at, (own, calls))).collect();
        Some(map_bytes_of(&program).map(|map_bytes| Verified {
            name,
            instructions: program.insn_cnt(),
            processed,
            stack_bytes: deepest(&functions, 0),
            map_bytes,
        }))
    };
    logs.iter().map(|log| read(log).with_context(|| format!("not understood: {log}"))?).collect()
}

/// Margins: compilers and kernels change what the verifier makes of a program, so with little room left the next
/// compiler or kernel may refuse it. The verifier allows 512 bytes of stack in all functions of a chain of calls, and
/// processes 1,000,000 instructions (kernel/bpf/verifier.c).
const MOST_STACK_BYTES: u64 = 480;
const MOST_PROCESSED: u64 = 500_000;
/// The rings take the memory that was asked for. The memory of the other maps grows with the machine's (`tables`): by
/// less than a sixteenth of it beyond what the smallest machine needs.
const LEAST_MAP_BYTES: u64 = 128 << 20;

/// A line for each program.
fn table(programs: &[Verified]) -> String {
    let head = ["program", "instructions", "processed", "stack bytes", "maps KiB"];
    let row = |[name, instructions, processed, stack_bytes, map_kib]: [&str; 5]| {
        format!("{name:32} {instructions:>12} {processed:>9} {stack_bytes:>11} {map_kib:>8}\n")
    };
    let of_program = |program: &Verified| {
        let numbers = [
            program.instructions.to_string(),
            program.processed.to_string(),
            program.stack_bytes.to_string(),
            (program.map_bytes >> 10).to_string(),
        ];
        row([&program.name, &numbers[0], &numbers[1], &numbers[2], &numbers[3]])
    };
    std::iter::once(row(head)).chain(programs.iter().map(of_program)).collect()
}

#[test]
fn the_verifier_has_room_left() {
    let _turn = TURN.lock();
    let stacks = Some(Stacks { sample_hz: 1, sleeps: Sleeps::All });
    let all = Config { tasks: true, ..config(stacks, true) };
    let Some(mut programs) = needed(verified(&all)) else { return };
    assert!(programs.len() > 20, "{programs:?}");
    programs.sort_by_key(|program| std::cmp::Reverse(program.stack_bytes));
    // The output of passing tests is kept back, so this is written to standard error directly.
    std::io::stderr().write_all(table(&programs).as_bytes()).expect("standard error is open");
    let most_map_bytes = LEAST_MAP_BYTES + memory_bytes() / 16;
    for Verified { name, processed, stack_bytes, map_bytes, .. } in programs {
        assert!(processed <= MOST_PROCESSED, "{name}: {processed} instructions processed");
        assert!(stack_bytes <= MOST_STACK_BYTES, "{name}: {stack_bytes} bytes of stack");
        assert!(map_bytes <= most_map_bytes, "{name}: {map_bytes} bytes of maps");
    }
}
