//! What the target and the processes around it must not notice: that it runs under `rpcprobe run`.

mod common;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{chown, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};

use common::capture::{run, Capture, NAME};
use common::process::{child_named, in_session_of, kill, until, Talking};
use common::{frpc, needs_kernel, open_directory, rpcprobe, text, unaffected, RPCPROBE};
use tempfile::TempDir;

/// Runs a shell script, with `run` in place of the word `RUN` before the command under test.
fn script(script: &str, run: &str) -> Output {
    let mut shell = Command::new("sh");
    unaffected(&mut shell);
    shell.arg("-c").arg(script.replace("RUN ", run)).output().expect("sh runs")
}

/// Runs the script without `rpcprobe run` and with it.
fn without_and_with(text: &str) -> [Output; 2] {
    let parent = TempDir::new().expect("a temporary directory");
    let at = parent.path().join(NAME);
    let with = format!("'{RPCPROBE}' run -q -o '{}' -- ", at.to_str().expect("UTF-8"));
    [script(text, ""), script(text, &with)]
}

/// Fails unless output and exit status are the same both ways. Returns standard output.
fn same(script: &str) -> String {
    let [without, with] = without_and_with(script);
    assert_eq!(text(&without.stdout), text(&with.stdout), "{script}: {}", text(&with.stderr));
    assert_eq!(text(&without.stderr), text(&with.stderr), "{script}");
    assert_eq!(without.status, with.status, "{script}");
    text(&with.stdout)
}

#[test]
fn output_is_the_same_in_every_mode() {
    let Some(_turn) = needs_kernel() else { return };
    let (program, input) = (frpc("frpc"), frpc("expressions.txt"));
    for script in [
        format!("RUN '{program}' -m 1 < '{input}'"),
        format!("cat '{input}' | RUN '{program}' -m 1 | cat"),
        format!("RUN '{program}' -m 3 < '{input}'"),
        format!("RUN '{program}' -m 2 -i '{input}' -o /dev/stdout"),
    ] {
        assert_eq!(same(&script).lines().count(), 300, "{script}");
    }
    // Wrong input: error messages and exit status must match too.
    let output = same(&format!("printf '+ 1\\n+ 1 2\\n' | RUN '{program}' -m 3; echo $?"));
    assert_eq!(output.lines().last(), Some("1"));
}

#[test]
fn closed_standard_descriptors_stay_closed() {
    let Some(_turn) = needs_kernel() else { return };
    for script in [
        "RUN sh -c 'ls /proc/self/fd; cat; echo $?' <&- 2>&1",
        "RUN ls /proc/self/fd <&-",
        "RUN sh -c 'ls /proc/self/fd >&2; echo x; echo $? >&2' 2>&1 >&-",
        "RUN sh -c 'ls /proc/self/fd; echo x >&2; echo $?' 2>&-",
        "RUN sh -c 'exec ls /proc/self/fd 1>&3' 3>&1 <&- >&- 2>&-",
    ] {
        assert!(!same(script).is_empty(), "{script}");
    }
    for mode in ["-m 1", "-m 3"] {
        let program = frpc("frpc");
        same(&format!("RUN '{program}' {mode} <&-; echo $?"));
        same(&format!("RUN '{program}' {mode} < /dev/null >&-; echo $?"));
    }
}

#[test]
fn open_descriptors_are_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    let listed = same("RUN ls /proc/self/fd 7</dev/null 9>/dev/null </dev/null");
    assert!(listed.contains("7\n9\n"), "{listed}");
    // The descriptors must also refer to the same files at the same positions.
    let script = "exec 5<'INPUT'; RUN sh -c 'read a <&5; cat /proc/self/fdinfo/5; \
                  readlink /proc/self/fd/5'; head -c 9 <&5";
    same(&script.replace("INPUT", &frpc("expressions.txt")));
}

#[test]
fn what_a_process_inherits_is_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    for (script, sign) in [
        ("A_VARIABLE='a  b' RUN env | grep -v ^_=", "A_VARIABLE=a  b"),
        ("RUN env -u PATH /usr/bin/env | grep -v ^_=", "PWD="),
        ("cd /usr/lib && RUN sh -c pwd", "/usr/lib"),
        ("umask 0137; RUN sh -c umask", "0137"),
        ("ulimit -S -n 123; ulimit -c 0; ulimit -s 4096; RUN sh -c 'ulimit -a'", "123"),
        ("RUN cat /proc/self/limits", "Max locked memory"),
        ("nice -n 5 RUN nice", "5"),
        (
            "RUN cat /proc/self/oom_score_adj /proc/self/coredump_filter /proc/self/personality",
            "\n",
        ),
        ("RUN cat /proc/self/timerslack_ns", "0"),
        // Name, parent and times may differ; process group, session and terminal must not.
        ("RUN cut -d' ' -f5-8 /proc/self/stat | cut -d' ' -f2-", " "),
        ("chrt --batch 0 RUN chrt -p 0 | sed 's/pid [0-9]*//'", "SCHED_BATCH"),
        ("taskset -c 0 RUN grep Cpus_allowed_list /proc/self/status", "0\n"),
    ] {
        let output = same(script);
        assert!(output.contains(sign), "{script}: {output}");
    }
}

#[test]
fn only_who_empties_the_rings_is_scheduled_before_others() {
    let Some(_turn) = needs_kernel() else { return };
    let of = |stat: &str| format!(r#"cut -d " " -f 41 {stat}"#); // the policy: proc(5), stat
    let script = format!("sleep 0.3; {}; {}", of("/proc/self/stat"), of("/proc/$PPID/stat"));
    let [_, with] = without_and_with(&format!("RUN sh -c '{script}'"));
    assert_eq!(text(&with.stdout), format!("{}\n{}\n", libc::SCHED_OTHER, libc::SCHED_RR));
    // A run that is already real-time keeps its priority and policy.
    let script = r#"sleep 0.3; cut -d " " -f 40,41 /proc/$PPID/stat"#;
    let [_, with] = without_and_with(&format!("chrt --fifo 50 RUN sh -c '{script}'"));
    assert_eq!(text(&with.stdout), format!("50 {}\n", libc::SCHED_FIFO));
}

/// Signals, users, groups, capabilities, CPUs: every field of /proc/self/status that is not a
/// measurement.
#[test]
fn the_status_of_the_process_is_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    let fields =
        "^(Umask|TracerPid|Uid|Gid|Groups|NoNewPrivs|Seccomp.*|Cap...|Sig(Pnd|Blk|Ign|Cgt)\
                  |ShdPnd|Cpus_allowed|Mems_allowed|THP_enabled|Speculation.*|CoreDumping):";
    for before in [
        "",
        "trap '' INT HUP USR1 CHLD; ",
        "trap '' PIPE; ",
        "exec setpriv --no-new-privs --inh-caps=-all ",
        "exec nohup ",
        // perl-base is on every Debian system; the shell has no command that sets the signal mask.
        "exec perl -MPOSIX -e 'sigprocmask(SIG_BLOCK, POSIX::SigSet->new(2, 10, 15, 34)); \
         exec @ARGV' ",
    ] {
        let output = same(&format!("{before}RUN grep -E '{fields}' /proc/self/status"));
        assert!(output.lines().count() > 15, "{before}: {output}");
    }
}

#[test]
fn a_pipe_that_closes_early_ends_both_sides_alike() {
    let Some(_turn) = needs_kernel() else { return };
    let program = frpc("frpc");
    for left in [
        "RUN sh -c 'while echo x; do :; done'".to_string(),
        format!("yes '+ 1 2' | RUN '{program}' -m 1"),
        format!("yes '+ 1 2' | RUN '{program}' -m 3"),
    ] {
        // Descriptor 3 is the output of the whole script: what the left side prints goes to `head`.
        let script = format!("{{ {{ {left} 3>&-; echo $? >&3; }} | head -1; echo $?; }} 3>&1");
        let [without, with] = without_and_with(&script);
        // The two sides end at the same time, and either may print first.
        let lines = |output: &Output| {
            let mut lines: Vec<_> = text(&output.stdout).lines().map(String::from).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&without), lines(&with), "{script}");
        assert_eq!(lines(&with).len(), 3, "{script}");
        assert_eq!(text(&without.stderr), text(&with.stderr), "{script}");
    }
}

/// A pipe ends when the target closes it: `rpcprobe` must not keep it open.
#[test]
fn pipes_that_the_target_closes_are_closed() {
    let Some(_turn) = needs_kernel() else { return };
    // The other side writes to WORD when its pipe ends. The wait is bounded, so that a failing test
    // ends; a minute is enough on any machine.
    let wait = "n=0; until test -s WORD || test $n = 1200; do sleep 0.05; n=$((n + 1)); done; \
                cat WORD >&2";
    for script in [
        format!("{{ yes; echo $? > WORD; }} | RUN sh -c 'exec <&-; {wait}'"),
        format!("RUN sh -c 'exec >&-; {wait}' | {{ cat; echo end > WORD; }}"),
    ] {
        let output = without_and_with_word(&script);
        assert!(!output[0].is_empty());
        assert_eq!(output[0], output[1], "{script}");
    }
}

/// Standard error of the script without and with `rpcprobe run`. WORD stands for a file that does
/// not exist yet.
fn without_and_with_word(script: &str) -> [String; 2] {
    let scratch = TempDir::new().unwrap();
    let word = scratch.path().join("word");
    let script = script.replace("WORD", word.to_str().unwrap());
    let [without, with] = without_and_with(&format!("rm -f '{}'; {script}", word.display()));
    [text(&without.stderr), text(&with.stderr)]
}

#[test]
fn the_way_the_target_ends_is_passed_on() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let end = |script: &str| -> ExitStatus {
        let status = run(parent.path(), &["--force"], &["sh", "-c", script]).status().unwrap();
        let capture = parent.path().join(NAME).join("manifest.json");
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(capture).unwrap()).unwrap();
        assert_eq!(manifest["command"]["wait_status"], status.into_raw(), "{script}");
        status
    };
    for code in [0, 1, 3, 126, 127, 255] {
        assert_eq!(end(&format!("exit {code}")).code(), Some(code));
    }
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
        assert_eq!(end(&format!("kill -{signal} $$")).signal(), Some(signal));
    }
}

/// Starts `rpcprobe` with a target that handles signals, and waits until the target is ready.
fn signalled(parent: &Path, script: &str) -> Talking {
    let script = format!("{script}; echo ready; while :; do sleep 0.01; done");
    let mut target = Talking::to(run(parent, &[], &["sh", "-c", &script]));
    assert_eq!(target.hear(), "ready");
    target
}

#[test]
fn signals_to_rpcprobe_reach_the_target() {
    let Some(_turn) = needs_kernel() else { return };
    for (name, signal) in
        [("TERM", libc::SIGTERM), ("HUP", libc::SIGHUP), ("INT", libc::SIGINT), ("USR2", 12)]
    {
        let parent = TempDir::new().unwrap();
        let mut target = signalled(parent.path(), &format!("trap 'echo {name}; exit 7' {name}"));
        kill(target.pid(), signal);
        assert_eq!(target.hear(), name);
        let output = target.end();
        assert_eq!(output.status.code(), Some(7), "{name}: {}", text(&output.stderr));
        assert!(!Capture::in_directory(parent, output).checked().is_empty());
    }
}

#[test]
fn a_signal_that_the_target_does_not_handle_ends_both() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let target = signalled(parent.path(), ":");
    kill(target.pid(), libc::SIGTERM);
    let output = target.end();
    assert_eq!(output.status.signal(), Some(libc::SIGTERM));
    Capture::in_directory(parent, output).checked();
}

#[test]
fn a_signal_that_the_target_ignores_ends_nothing() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let mut target = signalled(parent.path(), "trap '' TERM; trap 'echo lives; exit 0' USR1");
    kill(target.pid(), libc::SIGTERM);
    kill(target.pid(), libc::SIGUSR1);
    assert_eq!(target.hear(), "lives");
    assert!(target.end().status.success());
}

#[test]
fn killing_rpcprobe_leaves_the_target_unharmed() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let done = parent.path().join("done");
    let script = "echo $$; read line && echo \"$line\" > \"$DONE\"; kill -TERM $$";
    let mut command = run(parent.path(), &[], &["sh", "-c", script]);
    command.env("DONE", &done);
    let mut target = Talking::to(command);
    let pid: i32 = target.hear().parse().expect("a process id");
    kill(target.pid(), libc::SIGKILL);
    target.say("after the end");
    until("the target finishes", || {
        fs::read_to_string(&done).is_ok_and(|text| text == "after the end\n")
    });
    let output = target.end();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    until("the target ends", || !Path::new(&format!("/proc/{pid}")).exists());

    // The directory that it left is reported as unfinished, and is not read as a complete capture.
    let path = parent.path().join(NAME);
    let report = rpcprobe(["report"]).arg(&path).output().unwrap();
    common::assert_refused(&report, 1, &["not a finished capture", "manifest.json"]);
}

#[test]
fn the_target_s_children_are_not_waited_for() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let script = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let output = run(parent.path(), &[], &["sh", "-c", script]).output().unwrap();
    let pid: i32 = text(&output.stdout).trim().parse().expect("a process id");
    let lives = Path::new(&format!("/proc/{pid}")).exists();
    kill(pid, libc::SIGKILL);
    assert!(lives && output.status.success(), "{}", text(&output.stderr));
    Capture::in_directory(parent, output).checked();
}

#[test]
fn the_target_runs_as_the_user_asked_for_and_files_belong_to_who_asked() {
    let Some(_turn) = needs_kernel() else { return };
    // A user other than root and nobody that exists on every system.
    const INVOKING: u32 = 1;
    let parent = open_directory();
    chown(parent.path(), Some(INVOKING), Some(INVOKING)).unwrap();
    let mut command = run(parent.path(), &["-u", "nobody"], &["sh", "-c", "id; cat"]);
    command.env("SUDO_UID", INVOKING.to_string()).env("SUDO_GID", INVOKING.to_string());
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = Command::new("id").arg("nobody").output().unwrap();
    assert_eq!(text(&output.stdout), text(&expected.stdout));

    let path = parent.path().join(NAME);
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        let found = entry.metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (INVOKING, INVOKING), "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        ["events.bin", "manifest.json", "requests.parquet", "segments.parquet", "threads.parquet"]
    );
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (INVOKING, INVOKING));
    Capture::in_directory(parent, output).checked();
}

/// A pseudo-terminal with a command as its foreground process group.
struct Terminal {
    keyboard: File,
    child: std::process::Child,
    seen: String,
}

impl Terminal {
    fn with(mut command: Command) -> Terminal {
        let (mut master, mut slave) = (-1, -1);
        let (none, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: both descriptors are written, the rest is left to the system.
        let made =
            unsafe { libc::openpty(&mut master, &mut slave, none, std::ptr::null_mut(), no_size) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just opened, and nobody else has them.
        let (keyboard, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        // SAFETY: takes numbers only.
        unsafe { libc::fcntl(keyboard.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        let end = || Stdio::from(slave.try_clone().expect("dup"));
        command.stdin(end()).stdout(end()).stderr(end());
        in_session_of(&mut command, 0);
        let child = command.spawn().expect("the command starts");
        Terminal { keyboard, child, seen: String::new() }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).expect("the terminal takes keys");
    }

    /// Reads the screen until it shows `what` or ends. Returns whether it showed `what`.
    fn shows(&mut self, what: &str) -> bool {
        let mut buffer = [0; 4096];
        while !self.seen.contains(what) {
            // Reading a terminal that all processes have closed returns an error.
            match self.keyboard.read(&mut buffer) {
                Ok(length @ 1..) => self.seen.push_str(&text(&buffer[..length])),
                _ => return false,
            }
        }
        true
    }

    /// Returns everything that was on the screen, and the command's exit status.
    fn end(mut self) -> (String, ExitStatus) {
        self.shows("\0");
        (self.seen, self.child.wait().expect("a status"))
    }
}

/// The same command in a terminal, without and with `rpcprobe run`.
fn in_terminals(command: &[&str], mut act: impl FnMut(&mut Terminal)) -> [(String, ExitStatus); 2] {
    let parent = TempDir::new().unwrap();
    let mut plain = Command::new(command[0]);
    plain.args(&command[1..]);
    [plain, run(parent.path(), &[], command)].map(|command| {
        let mut terminal = Terminal::with(command);
        act(&mut terminal);
        terminal.end()
    })
}

#[test]
fn the_target_is_in_the_foreground_of_its_terminal() {
    let Some(_turn) = needs_kernel() else { return };
    let script = "test -t 0 && test -t 1 && test -t 2 && echo terminal; \
                  read -r a b c d group session tty foreground rest < /proc/self/stat; \
                  test $group = $foreground && echo foreground; echo > /dev/tty && echo own; \
                  stty -a; echo ready; read -r line; echo \"read $line\"";
    let [without, with] = in_terminals(&["sh", "-c", script], |terminal| {
        assert!(terminal.shows("ready"), "{}", terminal.seen);
        terminal.press(b"x\n");
    });
    assert_eq!(without, with);
    for sign in ["terminal", "foreground", "own", "read x"] {
        assert!(with.0.contains(sign), "{sign}: {}", with.0);
    }
}

/// The target counts interrupts, and prints the count on USR1. `rpcprobe` forwards USR1 just as it
/// would forward a second interrupt, so a second interrupt would arrive before USR1.
#[test]
fn ctrl_c_reaches_the_target_once() {
    let Some(_turn) = needs_kernel() else { return };
    let script = "$| = 1; my $n = 0; $SIG{INT} = sub { $n++; print \"interrupt $n\\n\" }; \
                  $SIG{USR1} = sub { print \"total $n\\n\"; exit 5 }; print \"ready\\n\"; \
                  sleep 1 while 1";
    for (screen, status) in in_terminals(&["perl", "-e", script], |terminal| {
        assert!(terminal.shows("ready"), "{}", terminal.seen);
        for count in 1..=3 {
            terminal.press(&[3]);
            assert!(terminal.shows(&format!("interrupt {count}")), "{}", terminal.seen);
        }
        kill(terminal.child.id() as i32, libc::SIGUSR1);
    }) {
        assert_eq!(status.code(), Some(5), "{screen}");
        assert!(screen.contains("total 3"), "{screen}");
    }
}

#[test]
fn ctrl_c_leaves_a_finished_capture() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let (program, input) = (frpc("frpc"), frpc("expressions.txt"));
    let script = format!("'{program}' -m 3 < '{input}' && echo ready && exec sleep 1000");
    let mut terminal = Terminal::with(run(parent.path(), &[], &["sh", "-c", &script]));
    assert!(terminal.shows("ready"), "{}", terminal.seen);
    // Once the shell has become `sleep`, the interrupt kills it.
    child_named(terminal.child.id() as i32, "sleep");
    terminal.press(&[3]);
    let (screen, status) = terminal.end();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{screen}");
    let output = Output { status, stdout: screen.into_bytes(), stderr: Vec::new() };
    let capture = Capture::in_directory(parent, output);
    let complete = capture.checked().iter().filter(|(request, _)| request.complete).count();
    assert!(complete >= 300, "{complete} complete requests");
    assert!(capture.report().contains("pipe: 300 requests"), "{}", capture.report());
}
