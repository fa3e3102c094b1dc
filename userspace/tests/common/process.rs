//! Processes that the tests start, watch and end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rpcprobe::model::By;

use super::{text, ATTACHING};

/// Time after which a test gives up waiting for something that must happen. Only a failing test
/// waits this long.
const NEVER: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < NEVER, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads one line and nothing beyond it.
pub fn line(from: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while from.read(&mut byte).expect("readable") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    text(&line)
}

/// Skips progress messages and returns the message of `attach` that says all hooks are attached. No
/// event after it is missed.
pub fn hear_attached(stderr: &mut impl Read) -> String {
    let said = loop {
        let said = line(stderr);
        if !said.starts_with(ATTACHING) {
            break said;
        }
    };
    assert!(said.starts_with("rpcprobe: attached (processes: "), "{said}");
    said
}

/// A process that the test talks to over pipes. It is killed if the test fails first.
pub struct Talking {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Talking {
    /// Starts `command` with pipes for its three standard descriptors.
    pub fn to(mut command: Command) -> Talking {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        Talking { child, stdin, stdout }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("still open");
        writeln!(stdin, "{line}").expect("the process reads");
    }

    /// Reads the next line of its standard output, without the newline; empty at the end of file.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        line.trim_end_matches('\n').to_string()
    }

    /// Closes its standard input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Closes its standard input and waits for it to end. `stdout` is the output that `hear` has
    /// not returned yet.
    pub fn end(mut self) -> Output {
        use std::io::Read;
        self.hang_up();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.stdout.read_to_end(&mut stdout).expect("output");
        let mut pipe = self.child.stderr.take().expect("a pipe");
        pipe.read_to_end(&mut stderr).expect("errors");
        let status = self.child.wait().expect("a status");
        Output { status, stdout, stderr }
    }
}

impl Drop for Talking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that compete for the CPUs until dropped.
pub struct Competitors(Vec<Child>);

impl Competitors {
    pub fn start(count: usize) -> Competitors {
        // Each process watches the test process, so that none outlives it even if the test is
        // killed.
        let script = "while kill -0 $PPID 2>/dev/null; do :; done";
        let start = |_| Command::new("sh").args(["-c", script]).spawn().expect("sh starts");
        Competitors((0..count).map(start).collect())
    }

    /// Whether `by` of a segment (`comm/tid`) names one of these processes.
    pub fn is_one(&self, by: &By) -> bool {
        self.0.iter().any(|child| &*by.comm == "sh" && by.tid == Some(child.id()))
    }
}

impl Drop for Competitors {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill {pid}: {}", std::io::Error::last_os_error());
}

/// Waits until a process has a child of this name, and returns that child.
pub fn child_named(parent: i32, comm: &str) -> i32 {
    let mut found = None;
    until(&format!("process {parent} has a child {comm}"), || {
        found = children(parent).into_iter().find(|&pid| stat(pid).is_some_and(|s| s.0 == comm));
        found.is_some()
    });
    found.expect("just found")
}

fn children(parent: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| field(pid, 1).is_some_and(|ppid| ppid == parent.to_string())).collect()
}

/// The state of a process as proc(5) has it, such as `S` or `T`.
pub fn state(pid: i32) -> Option<String> {
    field(pid, 0)
}

/// A field of /proc/PID/stat, counted from the state.
fn field(pid: i32, index: usize) -> Option<String> {
    stat(pid)?.1.split_ascii_whitespace().nth(index).map(str::to_string)
}

/// The name and the fields after it in /proc/PID/stat.
fn stat(pid: i32) -> Option<(String, String)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    Some((name.to_string(), rest.to_string()))
}

/// Whether the process is in read() on a descriptor other than its standard input.
pub fn reads_elsewhere(pid: i32) -> bool {
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let mut words = call.split_ascii_whitespace();
    words.next() == Some("0") && words.next().is_some_and(|fd| fd != "0x0")
}

/// Makes the command a session leader whose controlling terminal is `terminal`.
pub fn in_session_of(command: &mut Command, terminal: i32) {
    // SAFETY: the closure only makes async-signal-safe calls.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() == -1 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}
