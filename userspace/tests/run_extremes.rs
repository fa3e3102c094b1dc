//! Targets that ask much of a tracer, and surroundings that grant it little.

mod common;

use std::fs::{self, File, Permissions};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::capture::{kinds, run, stdin_from, Capture};
use common::{echo, frpc, needs_kernel, open_directory, peer_in_c, rpcprobe, text, RPCPROBE};
use rpcprobe::attribute::EVENTS;
use rpcprobe::capture::reader::Reader;
use rpcprobe::model::{Kind, Reason};
use rpcprobe::records::{read, RecHdr, REC_SYSCALL};
use tempfile::TempDir;

/// A capture of the peer `crowd`, which must have counted `expected`.
fn crowd(arguments: &[&str], expected: &str) -> Capture {
    let (_directory, program) = peer_in_c("crowd.c");
    let command: Vec<&str> = [&program[..]].iter().chain(arguments).copied().collect();
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    assert_eq!(text(&capture.output.stdout).trim(), expected);
    assert_eq!(capture.manifest().counts.records_lost, 0);
    capture
}

/// Mode 3 on the 300 expressions, started by these words; its answers.
fn mode_3_by(words: &[&str]) -> (Capture, Vec<u8>) {
    let program = frpc("frpc");
    let command: Vec<&str> = words.iter().copied().chain([&program[..], "-m", "3"]).collect();
    let capture = Capture::of(&[], &command, stdin_from(frpc("expressions.txt"))).succeeded();
    let answers = capture.output.stdout.clone();
    (capture, answers)
}

/// So many requests of that kind, none of another, and all complete.
fn has_complete(capture: &Capture, kind: Kind, count: usize) {
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(kind, count)].into());
    for (request, _) in requests {
        assert!(request.complete, "{request:?}");
    }
}

#[test]
fn two_thousand_threads_have_their_requests() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["threads", "1000", "10"], "10000"), Kind::Unix, 10_000);
}

#[test]
fn ten_thousand_short_processes_are_followed() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["forks", "10000"], "10000"), Kind::Process, 1);
}

#[test]
fn a_storm_of_programs_has_a_request_for_each() {
    let Some(_turn) = needs_kernel() else { return };
    has_complete(&crowd(&["execs", "1000", "/bin/true"], "1000"), Kind::Exec, 1000);
}

/// In a PID namespace their parent knows them by other numbers than the kernel's hooks.
#[test]
fn programs_in_a_pid_namespace_are_waited_for() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, crowd) = peer_in_c("crowd.c");
    let command = ["unshare", "--pid", "--fork", &crowd, "execs", "20", "/bin/true"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    assert_eq!(text(&capture.output.stdout).trim(), "20");
    has_complete(&capture, Kind::Exec, 21); // and the one that unshare made
}

/// Who has the number of a dead traced process is not traced for that, and the other way round.
#[test]
fn processes_of_one_number_are_told_apart() {
    let Some(_turn) = needs_kernel() else { return };
    let most: i64 = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    let tid = most - 9;
    let (_directory, program) = peer_in_c("crowd.c");
    let mut rival = Command::new(&program)
        .args(["rival", &tid.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let capture = crowd(&["same", "300", &tid.to_string(), "/bin/true"], "300");
    drop(rival.stdin.take());
    let had: u32 = text(&rival.wait_with_output().unwrap().stdout).trim().parse().unwrap();
    assert!(had > 0, "the number never was anybody else's");
    has_complete(&capture, Kind::Exec, 300);

    let events = File::open(capture.file(EVENTS)).unwrap();
    let mut reader = Reader::new(BufReader::new(events), false).unwrap();
    let mut calls = 0;
    while let Some(item) = reader.next_record().unwrap() {
        let Some((hdr, _)) = read::<RecHdr>(item.record) else { continue };
        if i64::from(hdr.tid) == tid && hdr.kind == REC_SYSCALL {
            assert_ne!(i64::from(hdr.aux), libc::SYS_getppid, "a call of the other's");
            calls += 1;
        }
    }
    assert!(calls > 300, "{calls}");
}

#[test]
fn two_captures_at_once_do_not_mix() {
    let Some(_turn) = needs_kernel() else { return };
    let program = frpc("frpc");
    let running: Vec<_> = (0..2)
        .map(|_| {
            let parent = TempDir::new().expect("a temporary directory");
            let child = run(parent.path(), &[], &[&program, "-m", "3"])
                .stdin(stdin_from(frpc("expressions.txt")))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn();
            (parent, child.expect("rpcprobe runs"))
        })
        .collect();
    for (parent, child) in running {
        let output = child.wait_with_output().expect("rpcprobe ends");
        has_complete(&Capture::in_directory(parent, output).succeeded(), Kind::Pipe, 300);
    }
}

#[test]
fn a_program_under_a_seccomp_filter_is_traced_all_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, sealed) = peer_in_c("sealed.c");
    let (capture, answers) = mode_3_by(&[&sealed]);
    has_complete(&capture, Kind::Pipe, 300);
    assert_eq!(answers, mode_3_by(&[]).1);
}

/// `inner` by `unshare` in PID, mount, network, IPC and UTS namespaces of its own.
fn in_namespaces(inner: &Command) -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--net", "--ipc", "--uts", "--"]);
    unshare.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => unshare.env(name, value),
            None => unshare.env_remove(name),
        };
    }
    unshare
}

/// Whether names were left out that would have been those of others.
fn warns_of_names(capture: &Capture) -> bool {
    capture
        .manifest()
        .warnings
        .iter()
        .any(|warning| warning.to_string().contains("inside a PID namespace"))
}

/// As in a container: rpcprobe and its target see other process numbers than the kernel's hooks.
#[test]
fn namespaces_of_its_own_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let inner = run(parent.path(), &[], &[&frpc("frpc"), "-m", "3"]);
    let output = in_namespaces(&inner).stdin(stdin_from(frpc("expressions.txt"))).output();
    let capture = Capture::in_directory(parent, output.expect("unshare runs")).succeeded();
    has_complete(&capture, Kind::Pipe, 300);
    assert!(warns_of_names(&capture));
    // Inside, the first process is rpcprobe; outside it is another, which must not be given its name.
    for (request, segments) in capture.checked() {
        for end in [request.client, request.server].into_iter().flatten() {
            assert_eq!(end.comm, "frpc");
        }
        for by in segments.into_iter().filter_map(|segment| segment.by) {
            assert_ne!(by.to_string(), "rpcprobe/1");
        }
    }
}

/// What a container has: a root with little more in it than the programs, /proc and /sys.
const CONTAINER: &str = r#"
    set -e
    root=$1/root probe=$2 target=$3 bare=$4
    mkdir "$root"
    mount -t tmpfs tmpfs "$root"
    cd "$root"
    mkdir usr proc sys out old
    for link in bin sbin lib lib64; do
        if [ -L "/$link" ]; then cp -P "/$link" .; else mkdir $link; mount --bind "/$link" $link; fi
    done
    mount --bind /usr usr
    mount -o remount,bind,ro usr
    mount --bind "$1" out
    cp "$probe" "$target" .
    mount -t proc proc proc
    if [ "$bare" != no-sys ]; then mount --rbind /sys sys; fi
    pivot_root . old
    cd /
    umount -l /old
    if [ "$bare" = no-proc ]; then umount -l /proc; fi
    exec /rpcprobe run -q -o /out/capture -- /frpc -m 3
"#;

/// Mode 3 on the 300 expressions in such a root and namespaces of its own, without the one or the other.
fn in_a_container(bare: &str) -> Capture {
    let parent = TempDir::new().expect("a temporary directory");
    let mut shell = Command::new("sh");
    common::unaffected(&mut shell);
    shell.args(["-c", CONTAINER, "sh"]).arg(parent.path()).args([RPCPROBE, &frpc("frpc"), bare]);
    let mut container = in_namespaces(&shell);
    let output = container.stdin(stdin_from(frpc("expressions.txt"))).output();
    Capture::in_directory(parent, output.expect("unshare runs"))
}

#[test]
fn the_root_of_a_container_is_enough() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = in_a_container("").succeeded();
    has_complete(&capture, Kind::Pipe, 300);
    assert_eq!(capture.output.stdout, mode_3_by(&[]).1);
}

#[test]
fn what_a_container_lacks_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    for (bare, word) in [("no-proc", "/proc is not mounted"), ("no-sys", "/sys/devices/system/cpu")]
    {
        let capture = in_a_container(bare);
        let stderr = text(&capture.output.stderr);
        common::assert_no_crash(&stderr);
        assert_eq!(capture.output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(word), "no {word:?} in: {stderr}");
        assert!(capture.output.stdout.is_empty(), "the program has not run");
    }
}

/// New control groups in every hierarchy there is, with little memory and half of a CPU where these can
/// be limited; gone when dropped.
struct Groups(Vec<PathBuf>);

impl Groups {
    fn new(name: &str) -> Groups {
        let limits = [
            ("memory.max", "268435456"),
            ("memory.limit_in_bytes", "268435456"),
            ("cpu.max", "50000 100000"),
            ("cpu.cfs_quota_us", "50000"),
        ];
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let wanted = |words: &Vec<&str>| {
            let options: Vec<&str> = words[3].split(',').collect();
            let limits = options.iter().any(|option| ["memory", "cpu"].contains(option));
            words[2] == "cgroup2" || (words[2] == "cgroup" && limits)
        };
        let make = |words: Vec<&str>| {
            let group = Path::new(words[1]).join(format!("rpcprobe-{name}-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            for (file, limit) in limits.iter().filter(|(file, _)| group.join(file).exists()) {
                fs::write(group.join(file), limit).expect("a limit");
            }
            Some(group)
        };
        Groups(words.filter(wanted).filter_map(make).collect())
    }

    /// What a shell says to move itself into all of them.
    fn enter(&self) -> String {
        let enter = |group: &PathBuf| format!("echo $$ > {}/cgroup.procs\n", group.display());
        self.0.iter().map(enter).collect()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            common::process::until("the cgroup is empty", || fs::remove_dir(group).is_ok());
        }
    }
}

/// From a control group that grants little, on a target in another.
#[test]
fn limited_by_control_groups_it_captures_all_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    let (ours, targets) = (Groups::new("ours"), Groups::new("targets"));
    if ours.0.is_empty() {
        println!("skipped: no control groups");
        return;
    }
    let parent = TempDir::new().expect("a temporary directory");
    let inside = format!("{}exec \"$0\" -m 3", targets.enter());
    let inner = run(parent.path(), &[], &["sh", "-c", &inside, &frpc("frpc")]);
    let mut shell = Command::new("sh");
    common::unaffected(&mut shell);
    shell.args(["-ec", &format!("{}exec \"$0\" \"$@\"", ours.enter())]);
    shell.arg(inner.get_program()).args(inner.get_args());
    let output = shell.stdin(stdin_from(frpc("expressions.txt"))).output().expect("sh runs");
    let capture = Capture::in_directory(parent, output).succeeded();
    has_complete(&capture, Kind::Pipe, 300);
    assert_eq!(capture.manifest().counts.records_lost, 0);
}

/// Programs in a control group of their own, of which rpcprobe, in another, sees a part of the tree.
#[test]
fn a_control_group_is_attached_to_from_namespaces() {
    let Some(_turn) = needs_kernel() else { return };
    let groups = Groups::new("attached");
    let is_second = |group: &&PathBuf| group.join("cgroup.controllers").exists();
    let Some(group) = groups.0.iter().find(is_second) else {
        println!("skipped: no cgroup version 2");
        return;
    };
    let parent = TempDir::new().expect("a temporary directory");
    // The shell that starts both is in neither.
    let script = r#"
        sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$1" "$2" -t unix -n 100000000 --log "$3/log" &
        until [ "$(wc -l < "$3/log")" -gt 100 ]; do sleep 0.01; done 2> /dev/null
        "$4" attach -q --cgroup "$1" --duration 300ms -o "$3/capture"
        status=$?
        kill $(cat "$1/cgroup.procs")
        wait
        exit $status
    "#;
    let mut shell = Command::new("sh");
    common::unaffected(&mut shell);
    shell.args(["-c", script, "sh"]).arg(group).arg(echo()).arg(parent.path()).arg(RPCPROBE);
    let mut container = in_namespaces(&shell);
    let output = container.stdout(Stdio::null()).output().expect("unshare runs");
    let capture = Capture::in_directory(parent, output).succeeded();
    assert!(warns_of_names(&capture));
    let requests = capture.checked();
    assert!(requests.len() > 10);
    for (request, _) in requests {
        assert_eq!(request.kind, Kind::Unix);
        let cut = [Reason::BeganBefore, Reason::CaptureEnded];
        assert!(request.reason.as_ref().is_none_or(|reason| cut.contains(reason)), "{request:?}");
    }
}

/// A program that is to run as another user does so, no more and no less than without us.
#[test]
fn a_setuid_program_has_the_privilege_it_has_without_us() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = open_directory();
    let program = directory.path().join("id");
    fs::copy("/usr/bin/id", &program).expect("a copy of id");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("setuid");
    let user = |command: &mut Command| {
        text(&command.output().expect("the program runs").stdout).trim().to_owned()
    };
    let mut without = Command::new("setpriv");
    without.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]).arg(&program).arg("-u");
    let mut with = rpcprobe(["run", "--quiet", "-u", "nobody", "-o"]);
    with.arg(directory.path().join("capture")).arg("--").arg(&program).arg("-u");
    let alone = user(&mut without);
    assert!(!alone.is_empty());
    assert_eq!(user(&mut with), alone);
}
