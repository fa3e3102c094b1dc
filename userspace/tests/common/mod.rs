//! What the end-to-end tests share: whether they can run here, the program, its targets, and
//! captures read back.
#![allow(dead_code)] // each test file is a crate of its own and uses a part

pub mod capture;
pub mod made_up;
pub mod process;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{chown, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::TempDir;

/// The program under test.
pub const RPCPROBE: &str = env!("CARGO_BIN_EXE_rpcprobe");

/// A user without any privilege, on every system.
pub const NOBODY: u32 = 65534;

/// The right to capture. Captures cover the whole machine: one at a time, so that no test's work
/// shows up as another's competition.
pub type Turn = MutexGuard<'static, ()>;

/// Waits for a turn to capture; `None`, after saying why, where that is not possible. Then it is
/// up to the test to return.
pub fn needs_kernel() -> Option<Turn> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static HINDRANCE: OnceLock<Option<String>> = OnceLock::new();
    // A test that failed has left nothing behind that could harm the next.
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match HINDRANCE.get_or_init(hindrance) {
        None => Some(turn),
        Some(why) => {
            skip(why);
            None
        }
    }
}

/// For tests that need root but no hooks: as [`needs_kernel`].
pub fn needs_root() -> bool {
    if !is_root() {
        skip("not root");
    }
    is_root()
}

/// Where captures are known to work, `RPCPROBE_REQUIRE_KERNEL=1` makes skipping a failure.
fn skip(why: &str) {
    let required = std::env::var_os("RPCPROBE_REQUIRE_KERNEL").is_some_and(|value| value == "1");
    assert!(!required, "captures are required to work here, but: {why}");
    println!("skipped: {why}");
}

/// Why captures are not possible here.
fn hindrance() -> Option<String> {
    if !is_root() {
        return Some("not root".into());
    }
    let output = rpcprobe(["doctor"]).output().expect("rpcprobe runs");
    let said = [text(&output.stdout), text(&output.stderr)].concat();
    let first = said.lines().next().unwrap_or("no output").to_string();
    (!output.status.success()).then(|| format!("rpcprobe doctor, {}: {first}", output.status))
}

fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// `rpcprobe` with these arguments, whoever started the tests and however.
pub fn rpcprobe<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(RPCPROBE);
    command.args(arguments);
    unaffected(&mut command);
    command
}

/// Takes away what the surroundings of the tests say about users, colours and where BTF is.
pub fn unaffected(command: &mut Command) {
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "NO_COLOR", "RPCPROBE_BTF"] {
        command.env_remove(name);
    }
}

/// A folder of `targets/`, built.
fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets").join(name);
    let folder = folder.canonicalize().expect("the target is there");
    // Jobs and flags of a make that runs the tests are not for this one.
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").arg("-C").arg(&folder);
    let made = make.output().expect("make runs");
    assert!(made.status.success(), "make -C targets/{name}: {}", text(&made.stderr));
    folder
}

/// The folder of the evaluator, built.
pub fn frpc_folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("frpc"))
}

/// The echo server and its clients, built.
pub fn echo() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| built("echo").join("echo").to_str().expect("paths are UTF-8").to_string())
}

/// A Python with grpcio.
pub fn python() -> &'static str {
    static READY: OnceLock<String> = OnceLock::new();
    READY.get_or_init(|| {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let root = root.canonicalize().expect("the repository");
        let mut make = Command::new("make");
        make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").arg("-C").arg(&root);
        let made = make.arg(".cache/test-venv/ready").output().expect("make runs");
        assert!(made.status.success(), "{}", text(&made.stderr));
        let python = root.join(".cache/test-venv/bin/python");
        python.to_str().expect("paths are UTF-8").to_string()
    })
}

/// Path of a program of `tests/peers`.
pub fn peer(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A program of `tests/peers`, compiled, in a directory of its own.
pub fn peer_in_c(name: &str) -> (TempDir, String) {
    let directory = open_directory();
    let program = directory.path().join("peer");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(peer(name)).arg("-o");
    let compiled = compiler.arg(&program).output().expect("cc runs");
    assert!(compiled.status.success(), "{name}: {}", text(&compiled.stderr));
    let program = program.to_str().expect("paths are UTF-8").to_string();
    (directory, program)
}

/// A program of `tests/peers` in Go, built with these flags, and the directory in which it is. `None`, said aloud: there is no Go
/// here.
pub fn peer_in_go(name: &str, flags: &[&str]) -> Option<(TempDir, String)> {
    let directory = open_directory();
    let program = directory.path().join(name);
    let mut compiler = Command::new("go");
    compiler.arg("build").args(flags).arg("-o").arg(&program).arg(peer(&format!("{name}.go")));
    // What it has compiled, it keeps beside what else is built here; and it downloads nothing.
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(".cache").join("go");
    compiler.env("GOCACHE", cache).env("GOTOOLCHAIN", "local");
    match compiler.output() {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
        Err(error) => {
            println!("skipped: go does not run here: {error}");
            return None;
        }
    }
    let path = program.to_str().expect("a path of letters").to_owned();
    Some((directory, path))
}

/// Path of a file in the folder of the evaluator.
pub fn frpc(name: &str) -> String {
    frpc_folder().join(name).to_str().expect("paths are UTF-8").to_string()
}

/// The lines of `expressions.txt`.
pub fn expressions() -> Vec<String> {
    let text = fs::read_to_string(frpc("expressions.txt")).expect("expressions.txt");
    text.lines().map(str::to_string).collect()
}

/// A fresh directory that every user may enter.
pub fn open_directory() -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(directory.path(), permissions).expect("chmod");
    directory
}

/// A fresh directory that belongs to [`NOBODY`], with a copy of the program: where it was built
/// may be closed to other users.
pub fn directory_of_nobody() -> (TempDir, PathBuf) {
    let directory = open_directory();
    let program = directory.path().join("rpcprobe");
    // By another process: a child that some thread forks meanwhile would hold a copy of ours open for
    // writing, and then it cannot be executed.
    let copied = Command::new("cp").arg(RPCPROBE).arg(&program).status();
    assert!(copied.expect("cp runs").success(), "copying the program");
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
    (directory, program)
}

/// `program` with these arguments as a user without privilege.
pub fn as_nobody(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    command.arg(program).args(arguments);
    unaffected(&mut command);
    command
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How lines begin that say that hooks are not in place yet: on a busy machine that takes a while.
pub const ATTACHING: &str = "rpcprobe: checking and attaching hooks, ";

/// Likewise at the end.
const DETACHING: &str = "rpcprobe: detaching hooks, ";

/// Standard error without those.
pub fn said(stderr: &[u8]) -> String {
    let is_progress = |line: &&str| [ATTACHING, DETACHING].iter().any(|of| line.starts_with(of));
    text(stderr).split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Fails when a message to the user is none: a panic or a dump of internals.
pub fn assert_no_crash(stderr: &str) {
    for sign in ["panicked", "RUST_BACKTRACE", "stack backtrace", "src/", "fatal runtime error"] {
        assert!(!stderr.contains(sign), "{sign:?} in: {stderr}");
    }
}

/// Fails unless the program ended with `code` and said why, in one line that has all of `words`.
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let stderr = said(&output.stderr);
    assert_no_crash(&stderr);
    assert_eq!(output.status.code(), Some(code), "{}: {stderr}", output.status);
    assert_eq!(stderr.lines().count(), 1, "not one line: {stderr}");
    assert!(stderr.starts_with("rpcprobe: "), "{stderr}");
    for word in words {
        assert!(stderr.contains(word), "no {word:?} in: {stderr}");
    }
}
