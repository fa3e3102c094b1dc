//! `--stacks` on the real kernel: which functions the stacks name, and what they show without the
//! program's file or its debug data.

mod common;

use std::collections::{HashMap, HashSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::capture::{run, stdin_from, Capture};
use common::process::{child_named, until, Talking};
use common::{frpc, needs_kernel, peer_in_c, rpcprobe, text};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use rpcprobe::capture::reader::Reader;
use rpcprobe::model::{Category, Segment, Taken};
use rpcprobe::output::{read_stacks, ShownFrame};
use rpcprobe::records::{RecHdr, REC_MAPPING, REC_SAMPLE, REC_STACK};
use tempfile::TempDir;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/waits.c");

/// The program, compiled with frame pointers and these flags, in a temporary directory.
fn program(flags: &[&str]) -> (TempDir, PathBuf) {
    let directory = common::open_directory();
    let program = directory.path().join("waits");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]);
    compiler.args(flags).arg(SOURCE).arg("-o").arg(&program).arg("-lpthread");
    assert!(compiler.status().expect("cc runs").success());
    (directory, program)
}

/// Whether the process is in read() on its standard input.
fn reads_input(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    call.starts_with("0 0x0 ")
}

type Shown = (Segment, Vec<ShownFrame>);

/// The segments that have a stack, each with its stack.
fn shown(capture: &Capture) -> Vec<Shown> {
    let segments: Vec<Segment> =
        capture.checked().into_iter().flat_map(|(_, segments)| segments).collect();
    let ids: HashSet<u64> = segments.iter().filter_map(|s| Some(s.stack?.stack_id)).collect();
    let stacks = read_stacks(&capture.file("stacks.parquet"), &ids).expect("stacks.parquet");
    let with_stack = segments.into_iter().filter(|segment| segment.stack.is_some());
    with_stack
        .map(|segment| {
            let stack = stacks[&segment.stack.expect("just checked").stack_id].clone();
            (segment, stack)
        })
        .collect()
}

fn is_sampled(segment: &Segment) -> bool {
    segment.stack.is_some_and(|used| matches!(used.taken, Taken::Sampled { .. }))
}

fn has(frames: &[ShownFrame], part: &str) -> bool {
    frames.iter().any(|frame| frame.function.contains(part))
}

/// Sampled frames of the program itself, or of a file that replaced it under its path.
fn own_frames(capture: &Capture) -> Vec<ShownFrame> {
    let sampled = shown(capture).into_iter().filter(|(segment, _)| is_sampled(segment));
    let frames = sampled.flat_map(|(_, frames)| frames);
    frames.filter(|frame| frame.module.as_ref().is_some_and(|m| m.ends_with("waits"))).collect()
}

/// Runs the program's loop, then the command `then` in its directory, in one capture.
fn loop_and(program: &Path, then: &str) -> Capture {
    let script = format!("cd {} && ./waits loop && {then}", program.parent().unwrap().display());
    Capture::of(&["--stacks"], &["sh", "-c", &script], Stdio::null()).succeeded()
}

/// Kernel addresses reveal where the kernel lies in memory, so only the owner of the capture may
/// read its files.
#[test]
fn kernel_addresses_are_for_the_owner_only() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--stacks"], &["sleep", "0.01"], Stdio::null()).succeeded();
    let mode = |name| fs::metadata(capture.file(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("events.bin"), mode("symbols.parquet")), (0o600, 0o600));
    assert_eq!((mode("stacks.parquet"), mode("segments.parquet")), (0o600, 0o600));
    let mut frames = shown(&capture).into_iter().flat_map(|(_, frames)| frames).peekable();
    assert!(frames.peek().is_some());
    assert!(frames.all(|frame| !frame.kernel || frame.address.is_none()));
}

#[test]
fn waits_show_the_kernel_function_they_sleep_in() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = program(&["-g"]);
    let parent = TempDir::new().unwrap();
    let mut target = Talking::to(run(parent.path(), &["--stacks"], &[program.to_str().unwrap()]));
    let pid = child_named(target.pid(), "waits");
    until("the program waits for input", || reads_input(pid));
    target.say("");
    let capture = Capture::in_directory(parent, target.end()).succeeded();
    let shown = shown(&capture);
    for (category, function) in [
        (Category::Sleep, "nanosleep"),
        (Category::Lock, "futex_wait"),
        (Category::IdlePeer, "pipe_read"),
    ] {
        let (_, frames) = (shown.iter())
            .filter(|(segment, _)| segment.category == category)
            .max_by_key(|(segment, _)| segment.duration_ns)
            .unwrap_or_else(|| panic!("no {category} with a stack"));
        assert!(has(frames, function), "{category}: {frames:?}");
        assert!(frames.iter().all(|frame| frame.kernel), "{frames:?}");
    }
    for (segment, _) in &shown {
        let run_queue = [Category::RunqueueWakeup, Category::RunqueuePreempted];
        assert!(!run_queue.contains(&segment.category), "{segment:?}");
    }
}

/// A thread writes to a file while another thread is in the middle of a long write to it.
#[test]
fn a_lock_of_the_kernels_is_named_with_the_function_that_wanted_it() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("waits_pair.c");
    let capture = Capture::of(&["--stacks"], &[&program, "6"], Stdio::null()).succeeded();
    let shown = shown(&capture);
    let named = shown.iter().filter(|(segment, frames)| {
        let detail = segment.detail.as_deref().unwrap_or("");
        let wanted_by = detail.strip_prefix("kernel rwsem (write) in ");
        segment.category == Category::Lock
            && wanted_by.is_some_and(|by| by.contains("_write_iter, in pwrite64 "))
            && has(frames, "down_write")
    });
    let locks: Vec<_> = shown.iter().filter(|(s, _)| s.category == Category::Lock).collect();
    assert!(named.count() >= 2, "{locks:#?}");
}

#[test]
fn samples_name_functions_inlined_ones_and_lines() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = program(&["-g"]);
    let capture = loop_and(&program, "true");
    let mut frames = own_frames(&capture).into_iter();
    let inlined = frames.find(|frame| frame.function == "spin_inlined").expect("the inlined loop");
    assert!(inlined.inlined && inlined.file.as_ref().unwrap().ends_with("waits.c"), "{inlined:?}");
    let source = fs::read_to_string(SOURCE).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("line of the loop")).unwrap();
    let lines = (line - 1..=line).map(|line| Some(line as u32));
    assert!(lines.clone().any(|line| line == inlined.line), "{inlined:?}");
    let around = frames.next().expect("what it is inlined in");
    assert_eq!((&*around.function, around.inlined), ("work_named", false));
    assert_eq!(frames.next().expect("the caller").function, "main");

    let path = capture.path();
    let path = path.to_str().unwrap();
    let id = &capture.rows()[0].request.request_id.to_string();
    for row in capture.rows() {
        let id = row.request.request_id.to_string();
        let json = rpcprobe(["explain", "--json", path, &id]).output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
        assert_eq!(told["conserved"], true);
    }
    let told = text(&rpcprobe(["explain", "--all", path, id]).output().unwrap().stdout);
    assert!(told.contains("spin_inlined (") && told.contains("waits.c:"), "{told}");
    assert!(told.contains("sample* found it in:"), "{told}");
    assert!(told.contains("* in whole or in part sampled"), "{told}");
    assert!(told.contains("timer interrupt, taking a sample"), "{told}");

    let counts = capture.manifest().counts;
    assert!(counts.samples > 0 && counts.sampling_ns > 0, "{counts:?}");
}

#[test]
fn without_debug_data_the_function_is_named_without_names_the_place() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, plain) = program(&[]);
    let frames = own_frames(&loop_and(&plain, "true"));
    assert!(has(&frames, "work_named"), "{frames:?}");
    assert!(!has(&frames, "spin_inlined") && frames.iter().all(|frame| frame.file.is_none()));

    let (_directory, stripped) = program(&["-s"]);
    let frames = own_frames(&loop_and(&stripped, "true"));
    assert!(!frames.is_empty());
    for frame in &frames {
        assert!(frame.function.starts_with("[waits+0x") && frame.file.is_none(), "{frame:?}");
    }
}

#[test]
fn other_files_in_place_of_the_program_lend_it_no_names() {
    let Some(_turn) = needs_kernel() else { return };
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        // Nor must a FIFO at the program's path block the capture.
        for then in ["rm waits", "cp /bin/sh other && mv other waits", "rm waits && mkfifo waits"] {
            let (_directory, program) = program(&["-g", build_id]);
            let frames = own_frames(&loop_and(&program, then));
            assert!(!frames.is_empty());
            for frame in &frames {
                assert!(frame.function.starts_with("[waits+0x"), "{then}: {frame:?}");
            }
        }
    }
}

#[test]
fn names_outlive_what_they_were_read_from() {
    let Some(_turn) = needs_kernel() else { return };
    let (directory, program) = program(&["-g", "-Wl,--build-id=none"]);
    let capture = loop_and(&program, "true");
    let before = (capture.tables(), fs::read(capture.file("stacks.parquet")).unwrap());
    assert!(has(&own_frames(&capture), "spin_inlined"));
    drop(directory);
    let again = rpcprobe(["attribute", "-q"]).arg(capture.path()).output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let after = (capture.tables(), fs::read(capture.file("stacks.parquet")).unwrap());
    assert!(before == after, "other rows than before");
}

#[test]
fn processes_too_short_to_look_at_have_names() {
    let Some(_turn) = needs_kernel() else { return };
    let evaluate = format!("for i in $(seq 100); do echo '+ 1 2' | {} -m 1; done", frpc("frpc"));
    let options = ["--stacks=5000"];
    let capture = Capture::of(&options, &["sh", "-c", &evaluate], Stdio::null()).succeeded();
    let sampled: Vec<_> = shown(&capture).into_iter().filter(|(s, _)| is_sampled(s)).collect();
    let in_program = |frame: &ShownFrame| frame.module.as_ref().is_some_and(|m| m.contains("ld-"));
    let frames: Vec<_> = sampled.iter().flat_map(|(_, f)| f).filter(|f| in_program(f)).collect();
    assert!(frames.iter().any(|frame| !frame.function.starts_with('[')), "{frames:?}");
}

#[test]
fn without_the_option_there_is_nothing_of_it() {
    let Some(_turn) = needs_kernel() else { return };
    let run = |options: &[&str]| {
        let stdin = stdin_from(frpc("expressions.txt"));
        Capture::of(options, &[&frpc("frpc"), "-m", "3"], stdin).succeeded()
    };
    let kinds_of = |capture: &Capture| -> HashSet<u8> {
        let events = fs::File::open(capture.file("events.bin")).unwrap();
        let mut reader = Reader::new(events, false).unwrap();
        let mut kinds = HashSet::new();
        while let Some(item) = reader.next_record().unwrap() {
            kinds.insert(rpcprobe::records::read::<RecHdr>(item.record).unwrap().0.kind);
        }
        kinds
    };
    let of_stacks = [REC_STACK, REC_SAMPLE, REC_MAPPING];
    let capture = run(&[]);
    assert!(kinds_of(&capture).is_disjoint(&of_stacks.into()));
    assert!(capture.segments().values().flatten().all(|segment| segment.stack.is_none()));
    for name in ["stacks.parquet", "symbols.parquet"] {
        assert!(!capture.file(name).exists());
    }
    let manifest = capture.manifest();
    assert_eq!(manifest.options.stacks, None);
    assert!(manifest.hooks.iter().all(|hook| hook.name != "sw:cpu-clock"), "{:?}", manifest.hooks);

    let only_samples = kinds_of(&run(&["--stacks", "--sleep-stacks", "none"]));
    assert!(!only_samples.contains(&REC_STACK) && only_samples.contains(&REC_MAPPING));
    let only_sleeps = run(&["--stacks=0"]);
    let kinds = kinds_of(&only_sleeps);
    assert!(kinds.contains(&REC_STACK) && !kinds.contains(&REC_SAMPLE), "{kinds:?}");
    assert_eq!(only_sleeps.checked().len(), 300);
}

#[test]
fn no_paths_holds_for_stacks() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = program(&["-g"]);
    let command = [program.to_str().unwrap(), "loop"];
    let capture = Capture::of(&["--stacks", "--no-paths"], &command, Stdio::null()).succeeded();
    let shown = shown(&capture);
    assert!(shown.iter().any(|(segment, _)| is_sampled(segment)));
    for (_, frames) in shown {
        for frame in frames {
            assert!(!format!("{frame:?}").contains('/'), "{frame:?}");
        }
    }
    let events = fs::File::open(capture.file("events.bin")).unwrap();
    let mut reader = Reader::new(events, false).unwrap();
    while let Some(item) = reader.next_record().unwrap() {
        assert!(!item.record.windows(5).any(|part| part == b"/waits"[..5].as_ref()));
    }
}

/// Length of the instructions of each BPF program that a capture has loaded, by program name.
fn loaded(options: &[&str]) -> HashMap<String, usize> {
    let parent = TempDir::new().unwrap();
    let mut target = Talking::to(run(parent.path(), options, &["cat"]));
    target.say("loaded?");
    assert_eq!(target.hear(), "loaded?");
    // Other processes may have loaded the same programs, so only those that this process has
    // descriptors for count.
    let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", target.pid())).unwrap();
    let ids: HashSet<u32> = (descriptors.flatten())
        .filter_map(|descriptor| fs::read_to_string(descriptor.path()).ok())
        .filter_map(|info| {
            let id = info.lines().find_map(|line| line.strip_prefix("prog_id:"))?;
            id.trim().parse().ok()
        })
        .collect();
    let with_instructions = ProgInfoQueryOptions::default().include_xlated_prog_insns(true);
    let programs = ProgInfoIter::with_query_opts(with_instructions)
        .filter(|program| ids.contains(&program.id))
        .map(|program| (program.name.to_string_lossy().into(), program.xlated_prog_insns.len()));
    let programs = programs.collect();
    assert!(target.end().status.success());
    programs
}

#[test]
fn without_the_option_none_of_its_code_is_in_the_kernel() {
    let Some(_turn) = needs_kernel() else { return };
    let (without, with) = (loaded(&[]), loaded(&["--stacks"]));
    assert!(without.len() > 20, "{without:?}");
    assert!(with.contains_key("on_cpu_clock") && !without.contains_key("on_cpu_clock"));
    assert_eq!(with.len(), without.len() + 1);
    assert!(with["on_sched_switch"] > without["on_sched_switch"], "{with:?} {without:?}");
    for (program, bytes) in &without {
        assert!(program == "on_sched_switch" || with[program] == *bytes, "{program}");
    }
    assert_eq!(loaded(&["--stacks=0", "--sleep-stacks", "none"]), without);
}

#[test]
fn damaged_debug_data_costs_names_and_nothing_else() {
    let Some(_turn) = needs_kernel() else { return };
    for (section, function) in [(".debug_abbrev", "work_named"), (".debug_info", "work_named")] {
        let (directory, program) = program(&["-g"]);
        // The damaged file equals the program, build id included, except for the content of this
        // section.
        let (junk, damaged) = (directory.path().join("junk"), directory.path().join("damaged"));
        fs::write(&junk, [0xa5; 4000]).unwrap();
        let mut damage = Command::new("objcopy");
        damage.arg("--update-section").arg(format!("{section}={}", junk.display()));
        damage.arg(&program).arg(damaged);
        assert!(damage.status().expect("objcopy runs").success());
        let frames = own_frames(&loop_and(&program, "mv damaged waits"));
        assert!(has(&frames, function), "{section}: {:?}", frames.first());
    }
}

#[test]
fn files_are_read_with_the_rights_of_who_asked() {
    let Some(_turn) = needs_kernel() else { return };
    let (directory, program) = program(&["-g"]);
    for (mode, function) in [(0o755, "spin_inlined"), (0o700, "[waits+0x")] {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        let home = common::open_directory();
        chown(home.path(), Some(common::NOBODY), Some(common::NOBODY)).unwrap();
        let command = [program.to_str().unwrap(), "loop"];
        let mut command = run(home.path(), &["--stacks"], &command);
        command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let capture = Capture::in_directory(home, output).succeeded();
        assert!(has(&own_frames(&capture), function), "{mode:o}");
    }
}
