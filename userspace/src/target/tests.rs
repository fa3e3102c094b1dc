use std::env;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn spec<const N: usize>(argv: [&str; N]) -> Spec {
    Spec { argv: argv.map(OsString::from).to_vec(), user: None }
}

fn shell(script: &str) -> Spec {
    spec(["/bin/sh", "-c", script])
}

fn run_to_end(target: &mut Target) -> WaitStatus {
    let start = Instant::now();
    loop {
        if let State::Exited(status) = target.poll(Duration::from_millis(10)).unwrap() {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "the target does not end");
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn statuses_are_those_of_the_target() {
    for (script, text) in [
        ("exit 0", "exited with status 0"),
        ("exit 3", "exited with status 3"),
        ("kill -KILL $$", "killed by SIGKILL"),
        ("kill -TERM $$", "killed by SIGTERM"),
    ] {
        let mut target = Target::spawn(&shell(script)).unwrap();
        target.release().unwrap();
        let status = run_to_end(&mut target);
        assert_eq!(status.to_string(), text);
        assert_eq!(target.poll(Duration::ZERO).unwrap(), State::Exited(status));
        assert_eq!(target.interrupted(), None);
    }
}

#[test]
fn nothing_runs_before_the_release() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("ran");
    let touch = || spec(["touch", file.to_str().unwrap()]);

    let mut target = Target::spawn(&touch()).unwrap();
    assert_eq!(target.poll(Duration::from_millis(50)).unwrap(), State::Running);
    assert!(!file.exists());
    target.release().unwrap();
    assert!(run_to_end(&mut target).success());
    assert!(file.exists());

    fs::remove_file(&file).unwrap();
    let target = Target::spawn(&touch()).unwrap();
    let pid = target.pid();
    drop(target);
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    assert!(!file.exists());
}

#[test]
fn a_target_killed_before_its_release_has_ended() {
    let mut target = Target::spawn(&spec(["true"])).unwrap();
    // SAFETY: takes numbers only.
    unsafe { libc::kill(target.pid(), libc::SIGTERM) };
    target.release().unwrap();
    assert_eq!(run_to_end(&mut target).to_string(), "killed by SIGTERM");
}

#[test]
fn programs_that_cannot_run_are_told() {
    let scratch = tempfile::tempdir().unwrap();
    let script = scratch.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let script = script.to_str().unwrap();
    let refused = |program: &str| {
        let mut target = Target::spawn(&spec([program])).unwrap();
        let error = target.release().unwrap_err();
        assert!(matches!(target.poll(Duration::ZERO).unwrap(), State::Exited(_)));
        (error.to_string(), error.exit_code())
    };
    assert_eq!(
        refused("./no-such-program"),
        ("cannot run ./no-such-program: No such file or directory".into(), 127)
    );
    assert_eq!(refused("/etc"), ("cannot run /etc: Permission denied".into(), 126));
    assert_eq!(refused(script), (format!("cannot run {script}: Permission denied"), 126));
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(script, mode).unwrap();
    assert_eq!(
        refused(script),
        (format!("cannot run {script}: the interpreter that it names does not exist"), 127)
    );
    // Tested separately, because the system reports something else if PATH has directories that we
    // may not read.
    let error = io::Error::from_raw_os_error(libc::ENOENT);
    let error = SpawnError::NotFound { program: "no-such-program".into(), error };
    assert_eq!(error.to_string(), "cannot run no-such-program: not found in PATH");
    assert!(Target::spawn(&Spec { argv: vec![], user: None }).is_err());
    assert!(Target::spawn(&spec(["a\0b"])).is_err());
}

#[test]
fn the_target_runs_as_the_user() {
    let daemon = User::lookup("daemon").unwrap();
    let check = format!(
        r#"[ "$(id -u)/$(id -ru)/$(id -g)/$(id -G)" = "{0}/{0}/{1}/{1}" ]"#,
        daemon.uid, daemon.gid
    );
    let mut target = Target::spawn(&Spec { user: Some(daemon), ..shell(&check) }).unwrap();
    // SAFETY: only a query.
    if unsafe { libc::geteuid() } != 0 {
        let error = target.release().unwrap_err();
        assert_eq!(error.to_string(), "cannot run programs as daemon: Operation not permitted");
        assert_eq!(error.exit_code(), 125);
        eprintln!("the rest is skipped: needs root");
        return;
    }
    target.release().unwrap();
    assert!(run_to_end(&mut target).success());
}

// Most of what the target must not notice depends on how our process was started, and signals must
// not hit the test harness. So these tests run this test program again, only as `stand_in`, and in
// a process of its own.

const COMMAND: &str = "RPCPROBE_TEST_COMMAND";
const DIRECTORY: &str = "RPCPROBE_TEST_DIRECTORY";

/// Not a test by itself: runs a command as the program does, when another test needs it.
#[test]
#[ignore = "a part of other tests"]
fn stand_in() {
    let (Some(script), Some(directory)) = (env::var_os(COMMAND), env::var_os(DIRECTORY)) else {
        return;
    };
    let directory = PathBuf::from(directory);
    // SAFETY: the only other thread of this process waits for the test; the child has no other.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // A separate group, so that signals to it do not reach the harness.
        // SAFETY: takes numbers only.
        unsafe { libc::setpgid(0, 0) };
        let argv = ["/bin/sh".into(), "-c".into(), script].to_vec();
        // Changes that a library might make to this process.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is valid.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = 100;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        let mut target = Target::spawn(&Spec { argv, user: None }).unwrap();
        target.release().unwrap();
        let status = run_to_end(&mut target);
        fs::write(directory.join("interrupted"), format!("{:?}", target.interrupted())).unwrap();
        drop(target);
        if status.code().is_some() {
            // SAFETY: takes a number only; the harness must not end twice.
            unsafe { libc::_exit(status.code().unwrap_or(99)) };
        }
        status.exit_like();
    }
    let status = wait(pid, 0).unwrap().unwrap();
    fs::write(directory.join("status"), status.to_string()).unwrap();
}

/// Makes a command that runs the shell script `prologue` and then becomes the arguments added to
/// it.
fn prepared(prologue: &str, directory: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("{prologue}\nexec \"$@\""), "sh"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: signal() may be called between fork and exec, and touches no memory.
    unsafe { command.pre_exec(signals_as_usual) };
    command
}

/// Undoes what a test inherits under `nohup`.
fn signals_as_usual() -> std::io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: no handler is set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Like [`prepared`], but runs [`stand_in`] with this target.
fn prepared_stand_in(prologue: &str, directory: &Path, script: &str) -> Command {
    let (_crate, name) = concat!(module_path!(), "::stand_in").split_once("::").unwrap();
    let mut command = prepared(prologue, directory);
    command
        .arg(env::current_exe().unwrap())
        .args(["--ignored", "--exact", name])
        .env(COMMAND, script);
    command
}

struct StandIn {
    process: Child,
    directory: tempfile::TempDir,
}

impl StandIn {
    /// Runs a shell script as target. It has a directory `$RPCPROBE_TEST_DIRECTORY` to write to,
    /// and must write `$PPID $$` to `ready` in it.
    fn start(prologue: &str, script: &str) -> StandIn {
        let directory = tempfile::tempdir().unwrap();
        let process = prepared_stand_in(prologue, directory.path(), script).spawn().unwrap();
        StandIn { process, directory }
    }

    /// The content of a file; empty if there is none.
    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.path().join(file)).unwrap_or_default()
    }

    /// Ids of our process and of the target, once it runs.
    fn ids(&self) -> [pid_t; 2] {
        until("the target starts", || self.read("ready").ends_with('\n'));
        let text = self.read("ready");
        let mut ids = text.split_whitespace().map(|id| id.parse().unwrap());
        [ids.next().unwrap(), ids.next().unwrap()]
    }

    /// Waits for the end; returns how it ended and by what it was interrupted.
    fn end(&mut self) -> (String, String) {
        let mut ended = None;
        until("the stand-in ends", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().into_raw(), 0);
        (self.read("status"), self.read("interrupted"))
    }
}

fn kill(pid: pid_t, signal: c_int) {
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn the_target_inherits_what_we_inherited() {
    const SHOW: &str = r#"
        open=
        for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
            [ -e /proc/$$/fd/$fd ] && open="$open $fd"
        done
        unset RPCPROBE_TEST_COMMAND
        {
            echo "open:$open"; umask; pwd; env | sort | cksum; cat /proc/$$/limits
            cut -d' ' -f 6,7,18,19 /proc/$$/stat
        } >"$RPCPROBE_TEST_DIRECTORY/shown"
        # In the same process, as the shell blocks signals while it waits for commands.
        exec grep -E '^Sig(Blk|Ign)' /proc/self/status >>"$RPCPROBE_TEST_DIRECTORY/shown"
    "#;
    for prologue in [
        "",
        "exec <&- >&- 2>&-",
        "exec 2>&- 5</dev/null; trap '' PIPE USR1; umask 027; ulimit -n 600",
        "exec <&-; trap '' CHLD HUP; cd /",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut plain = prepared(prologue, directory.path());
        let mut ours = prepared_stand_in(prologue, directory.path(), SHOW);
        let show = |command: &mut Command| {
            assert!(command.status().unwrap().success());
            fs::read_to_string(directory.path().join("shown")).unwrap()
        };
        let expected = show(plain.args(["/bin/sh", "-c", SHOW]));
        assert!(expected.contains("SigBlk:"));
        fs::remove_file(directory.path().join("shown")).unwrap();
        assert_eq!(show(&mut ours), expected, "after {prologue:?}");
    }
}

/// A target that appends a line to `got` for each signal that it receives, and ends on SIGUSR2.
const COUNTS: &str = r#"
    trap 'echo INT >>"$RPCPROBE_TEST_DIRECTORY/got"' INT
    trap 'echo TERM >>"$RPCPROBE_TEST_DIRECTORY/got"' TERM
    trap 'echo USR1 >>"$RPCPROBE_TEST_DIRECTORY/got"' USR1
    trap 'exit 5' USR2
    echo $PPID $$ >"$RPCPROBE_TEST_DIRECTORY/ready"
    while :; do sleep 0.01; done"#;

#[test]
fn signals_to_us_are_passed_on() {
    let mut stand_in = StandIn::start("", COUNTS);
    let [we, target] = stand_in.ids();
    assert_ne!(we, target);
    let mut expected = String::new();
    for (signal, line) in
        [(libc::SIGUSR1, "USR1\n"), (libc::SIGTERM, "TERM\n"), (libc::SIGINT, "INT\n")]
    {
        kill(we, signal);
        expected += line;
        until("the signal arrives", || stand_in.read("got") == expected);
    }
    kill(we, libc::SIGUSR2);
    let end = stand_in.end();
    assert_eq!(end, ("exited with status 5".into(), format!("Some({})", libc::SIGTERM)));
    assert_eq!(stand_in.read("got"), expected);
}

#[test]
fn signals_to_the_group_arrive_once() {
    let mut stand_in = StandIn::start("", COUNTS);
    let [we, target] = stand_in.ids();
    let mut expected = String::new();
    for (signal, line) in [(libc::SIGTERM, "TERM\n"), (libc::SIGTERM, "TERM\n")] {
        kill(-we, signal);
        expected += line;
        until("the signal arrives", || stand_in.read("got") == expected);
        std::thread::sleep(20 * SETTLE);
        assert_eq!(stand_in.read("got"), expected);
    }
    // After that, a signal to us alone is still recognised.
    kill(we, libc::SIGTERM);
    expected += "TERM\n";
    until("the signal arrives", || stand_in.read("got") == expected);
    kill(target, libc::SIGUSR2);
    assert_eq!(stand_in.end().0, "exited with status 5");
    assert_eq!(stand_in.read("got"), expected);
}

#[test]
fn a_target_that_signals_its_own_group_gets_the_signal_once() {
    let script = r#"
        trap 'echo TERM >>"$RPCPROBE_TEST_DIRECTORY/got"' TERM
        kill -TERM 0; kill -TERM $PPID; sleep 0.3; exit 4"#;
    let mut stand_in = StandIn::start("", script);
    assert_eq!(stand_in.end().0, "exited with status 4");
    assert_eq!(stand_in.read("got"), "TERM\n");
}

#[test]
fn we_die_as_the_target_did() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let script = r#"echo $PPID $$ >"$RPCPROBE_TEST_DIRECTORY/ready"; exec sleep 60"#;
        let mut stand_in = StandIn::start("", script);
        let [we, _] = stand_in.ids();
        kill(we, signal);
        let name = signals::name(signal).unwrap();
        assert_eq!(stand_in.end(), (format!("killed by {name}"), format!("Some({signal})")));
    }
}

#[test]
fn an_ignored_signal_interrupts_nothing() {
    let mut stand_in = StandIn::start("trap '' HUP", COUNTS);
    let [we, _] = stand_in.ids();
    kill(we, libc::SIGHUP);
    std::thread::sleep(5 * SETTLE);
    kill(we, libc::SIGUSR2);
    assert_eq!(stand_in.end(), ("exited with status 5".into(), "None".into()));
}

#[test]
fn the_target_does_not_run_when_we_die_before_its_release() {
    // SAFETY: the child makes a target, which does not start threads, and ends.
    let pid = unsafe { libc::fork() };
    let scratch = env::temp_dir().join(format!("rpcprobe-test-{}", std::process::id()));
    if pid == 0 {
        let target = Target::spawn(&spec(["mkdir", scratch.to_str().unwrap()]));
        let code = if target.is_ok() { 0 } else { 1 };
        std::mem::forget(target);
        // SAFETY: takes a number only.
        unsafe { libc::_exit(code) };
    }
    assert!(wait(pid, 0).unwrap().unwrap().success());
    std::thread::sleep(Duration::from_millis(100));
    assert!(!scratch.exists());
}
