//! What the end-to-end tests share: a check that they can run here, the program, its targets, and readers of captures.
#![allow(dead_code)] // each test file is its own crate and uses only a part

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

/// An unprivileged user id that exists on every system.
pub const NOBODY: u32 = 65534;

/// The right to capture. A capture covers the whole machine, so tests capture one at a time: otherwise one test's work
/// would appear as another's CPU competition.
pub type Turn = MutexGuard<'static, ()>;

/// Waits for a turn to capture. Returns `None`, after printing the reason, where captures are not possible; the test
/// must then return.
pub fn needs_kernel() -> Option<Turn> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static HINDRANCE: OnceLock<Option<String>> = OnceLock::new();
    // A poisoned lock is harmless: a failed test leaves nothing behind that affects the next.
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match HINDRANCE.get_or_init(hindrance) {
        None => Some(turn),
        Some(why) => {
            skip(why);
            None
        }
    }
}

/// As [`needs_kernel`], for tests that need root but no hooks.
pub fn needs_root() -> bool {
    if !is_root() {
        skip("not root");
    }
    is_root()
}

/// Prints why a test is skipped. `RPCPROBE_REQUIRE_KERNEL=1`, set where captures are known to work, makes skipping a
/// failure.
fn skip(why: &str) {
    let required = std::env::var_os("RPCPROBE_REQUIRE_KERNEL").is_some_and(|value| value == "1");
    assert!(!required, "captures are required to work here, but: {why}");
    println!("skipped: {why}");
}

/// The reason captures are not possible here, if any.
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

/// `rpcprobe` with these arguments, independent of the environment of the tests.
pub fn rpcprobe<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(arguments: I) -> Command {
    let mut command = Command::new(RPCPROBE);
    command.args(arguments);
    unaffected(&mut command);
    command
}

/// Removes the environment variables that set the invoking user, colours and the BTF file.
pub fn unaffected(command: &mut Command) {
    for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "NO_COLOR", "RPCPROBE_BTF"] {
        command.env_remove(name);
    }
}

/// Builds a folder of `targets/` and returns its path.
fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets").join(name);
    let folder = folder.canonicalize().expect("the target is there");
    // A make that runs the tests must not pass its jobs and flags to this make.
    let mut make = Command::new("make");
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").arg("-C").arg(&folder);
    let made = make.output().expect("make runs");
    assert!(made.status.success(), "make -C targets/{name}: {}", text(&made.stderr));
    folder
}

/// The folder of the evaluator (frpc), built.
pub fn frpc_folder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("frpc"))
}

/// The echo server and its clients, built.
pub fn echo() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| built("echo").join("echo").to_str().expect("paths are UTF-8").to_string())
}

/// Path of a Python interpreter that has grpcio.
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

/// Compiles a program of `tests/peers` into a temporary directory. Returns the directory and the program's path.
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

/// Builds a Go program of `tests/peers` with these flags. Returns its temporary directory and its path, or `None`, with
/// a message, if Go is not installed.
pub fn peer_in_go(name: &str, flags: &[&str]) -> Option<(TempDir, String)> {
    let directory = open_directory();
    let program = directory.path().join(name);
    let mut compiler = Command::new("go");
    compiler.arg("build").args(flags).arg("-o").arg(&program).arg(peer(&format!("{name}.go")));
    // The compiler caches next to the repository's other build results, and downloads nothing.
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

/// A fresh directory that belongs to [`NOBODY`], with a copy of the program: the build directory may be closed to other
/// users.
pub fn directory_of_nobody() -> (TempDir, PathBuf) {
    let directory = open_directory();
    let program = directory.path().join("rpcprobe");
    // Another process makes the copy: a child that another thread of this process forks meanwhile would inherit the
    // copy open for writing, and executing the copy would fail.
    let copied = Command::new("cp").arg(RPCPROBE).arg(&program).status();
    assert!(copied.expect("cp runs").success(), "copying the program");
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("chown");
    (directory, program)
}

/// `program` with these arguments, run as an unprivileged user.
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

/// Prefix of the messages that say hooks are not attached yet. On a busy machine attaching takes a while.
pub const ATTACHING: &str = "rpcprobe: checking and attaching hooks, ";

/// Prefix of the messages about detaching at the end.
const DETACHING: &str = "rpcprobe: detaching hooks, ";

/// Standard error without these progress messages.
pub fn said(stderr: &[u8]) -> String {
    let is_progress = |line: &&str| [ATTACHING, DETACHING].iter().any(|of| line.starts_with(of));
    text(stderr).split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Fails if standard error shows a panic or a dump of internals instead of a message to the user.
pub fn assert_no_crash(stderr: &str) {
    for sign in ["panicked", "RUST_BACKTRACE", "stack backtrace", "src/", "fatal runtime error"] {
        assert!(!stderr.contains(sign), "{sign:?} in: {stderr}");
    }
}

/// Fails unless the program ended with `code` and printed the reason in one line that contains all of `words`.
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
