//! Task tracking: what each request of a server in Go, asyncio, tokio or Node waits for, whatever the server's threads
//! do.

mod common;

use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::capture::{check_numbers, run, time_in, Capture, NAME};
use common::process::{hear_attached, kill, Talking};
use common::{needs_kernel, peer, peer_in_go, python, rpcprobe};
use rpcprobe::model::{Category, Evidence, Kind, Rule, Segment, FIRST_RUNTIME_TASK};
use tempfile::TempDir;

const METHODS: [&str; 3] = ["sleep", "lock", "hand"];
const CONNECTIONS: usize = 8;
/// Number of requests of each method on each connection.
const ROUNDS: usize = 10;
const MS: u64 = 1_000_000;
/// The name that Go before 1.20 uses for waits for locks and for wait groups alike.
const BEFORE_GO_1_20: &str = "asleep in semacquire";

/// Sends all requests on all connections at once. Neighbouring connections start with different methods.
fn ask(port: &str) {
    let port: u16 = port.parse().expect("a port");
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
                for number in 0..METHODS.len() * ROUNDS {
                    let method = METHODS[(number + connection) % METHODS.len()];
                    // In one write: of several writes, Nagle's algorithm holds the later ones back, and the connections
                    // seldom contend.
                    let request = format!("GET /{method} HTTP/1.1\r\nHost: x\r\n\r\n");
                    stream.write_all(request.as_bytes()).expect("it reads");
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"\r\n\r\nok\n") {
                        let mut bytes = [0; 512];
                        let count = stream.read(&mut bytes).expect("it answers");
                        assert!(count > 0, "it closed the connection");
                        answer.extend_from_slice(&bytes[..count]);
                    }
                }
            });
        }
    });
}

/// Attaches to the server and sends it the requests during the capture.
fn attached(words: &[&str], options: &[&str]) -> Capture {
    let parent = TempDir::new().expect("a temporary directory");
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let mut server = Talking::to(command);
    let port = server.hear();
    let mut attach = rpcprobe(["attach", "--pid", &server.pid().to_string(), "-o"]);
    attach.arg(parent.path().join(NAME)).args(options);
    attach.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut attach = attach.spawn().expect("rpcprobe starts");
    let mut stderr = BufReader::new(attach.stderr.take().expect("piped"));
    hear_attached(&mut stderr);
    ask(&port);
    kill(attach.id() as i32, libc::SIGTERM);
    std::io::copy(&mut stderr, &mut std::io::sink()).expect("text");
    let output = attach.wait_with_output().expect("rpcprobe ends");
    server.end();
    Capture::in_directory(parent, output).succeeded()
}

/// The segments of each request, by method.
fn by_method(capture: &Capture) -> BTreeMap<String, Vec<Vec<Segment>>> {
    check_numbers(capture);
    let mut found: BTreeMap<String, Vec<Vec<Segment>>> = BTreeMap::new();
    for (request, segments) in capture.checked() {
        if request.kind == Kind::Http1 {
            assert!(request.complete, "{request:?}");
            found.entry(request.method.expect("it has one")).or_default().push(segments);
        }
    }
    for method in METHODS {
        let count = found.get(&format!("GET /{method}")).map_or(0, Vec::len);
        assert_eq!(count, CONNECTIONS * ROUNDS, "{method}: {found:#?}");
    }
    found
}

/// Total time that the requests of a method spent in these categories.
fn sum(found: &BTreeMap<String, Vec<Vec<Segment>>>, method: &str, categories: &[Category]) -> u64 {
    let each =
        |segments: &Vec<Segment>| categories.iter().map(|of| time_in(*of, segments)).sum::<u64>();
    found[&format!("GET /{method}")].iter().map(each).sum()
}

/// How the threads of a runtime affect each other.
#[derive(PartialEq)]
enum Threads {
    OnlyRunTasks,
    /// Threads that run tasks wait for each other inside the runtime, as tokio's workers do at its timers
    /// (`Handle::inner.lock()`, tokio/src/runtime/time/mod.rs). They use mutexes of the standard library, which the
    /// kernel sees as futexes.
    ShareMutexes,
    /// The loop may read the first request of a connection before the task begins that answers it. The request is then
    /// handed over in memory, unseen.
    ReadAhead,
    /// Helper threads work for the thread that runs tasks. They may take its CPU or make it wait for them.
    HaveHelpers,
}

/// Checks what the requests of each method waited for. Totals are compared, since a busy machine may take a CPU away
/// between reading the clock and the sleep. `is_lock`: whether this detail and evidence are right for a wait for the
/// server's lock.
fn check(
    found: &BTreeMap<String, Vec<Vec<Segment>>>,
    is_lock: impl Fn(Option<&str>, Evidence) -> bool,
    threads: Threads,
) {
    let has_helpers = threads == Threads::HaveHelpers;
    let count = (CONNECTIONS * ROUNDS) as u64;
    let (sleep, lock) = ([Category::Sleep], [Category::Lock]);
    assert!(sum(found, "sleep", &sleep) > count * 3 * MS * 9 / 10);
    // net/http also takes locks.
    assert!(sum(found, "sleep", &lock) < sum(found, "sleep", &sleep) / 10);
    assert!(sum(found, "lock", &sleep) > count * MS * 9 / 10);
    let locks = found["GET /lock"].iter().flatten();
    let locks = locks.filter(|segment| segment.category == Category::Lock);
    let mut told_ns = 0;
    for lock in locks {
        let detail = lock.detail.as_deref();
        // The kernel also takes locks.
        let of_kernel = detail.is_some_and(|detail| detail.starts_with("kernel "));
        let is_told = is_lock(detail, lock.evidence);
        let of_runtime = match threads {
            Threads::OnlyRunTasks | Threads::ReadAhead => false,
            Threads::ShareMutexes => asleep_in_futex(lock),
            Threads::HaveHelpers => for_helper(lock),
        };
        assert!(of_kernel || is_told || of_runtime, "{lock:?}");
        told_ns += if is_told { lock.duration_ns } else { 0 };
    }
    // At least 2.6 ms per request in 42 runs, 21 of them next to four busy loops.
    assert!(told_ns > count * MS, "they wait for each other: {told_ns} ns of {count}");
    // A worker's time, running or preempted, belongs to the request that was handed to it.
    let worked = [Category::User, Category::RunqueuePreempted, Category::Interrupt];
    let hand = sum(found, "hand", &worked);
    assert!(hand > count * MS * 9 / 10, "{hand} of {count}: {:#?}", found["GET /hand"]);
    // This holds for each request, even if it waited in the worker's channel until the work of other requests was done.
    for segments in &found["GET /hand"] {
        let of_work = |category: Category| category.is_on_cpu() || worked.contains(&category);
        let work = segments.iter().filter(|segment| of_work(segment.category));
        let work_ns = work.map(|segment| segment.duration_ns).sum::<u64>();
        assert!(work_ns > MS / 2, "{work_ns}: {segments:#?}");
    }
    assert!(sum(found, "hand", &sleep) < count * MS / 10);
    // The runtime itself reports its timers, so no sleep is inferred, except when the loop was busy as a timer became
    // due.
    let requests = || METHODS[..2].iter().flat_map(|method| &found[&format!("GET /{method}")]);
    let all = || requests().flatten();
    let is_told = |sleep: &&Segment| {
        let told = sleep.detail.as_deref().unwrap_or_default();
        sleep.evidence == Evidence::Measured || told.ends_with("the loop busy")
    };
    let mut handed_unseen = 0;
    for segments in requests() {
        let sleeps = segments.iter().filter(|segment| segment.category == Category::Sleep);
        let inferred: Vec<&Segment> = sleeps.filter(|sleep| !is_told(sleep)).collect();
        let unseen =
            |sleep: &&Segment| sleep.cause.as_deref() == Some("handed over in memory, unseen");
        assert!(
            inferred.iter().all(|sleep| threads == Threads::ReadAhead && unseen(sleep)),
            "{inferred:?}"
        );
        handed_unseen += usize::from(!inferred.is_empty());
    }
    assert!(handed_unseen <= CONNECTIONS, "{handed_unseen}");
    // The work of these requests is done by tasks.
    for work in all().filter(|segment| segment.category == Category::User) {
        let by_task = work.tid >= FIRST_RUNTIME_TASK;
        // Any thread other than the main thread, which runs the tasks. The request may have been handed to it and
        // waited for it.
        let by_another = !by_task && work.tid != work.pid;
        let by_helper = has_helpers && (by_another || work.rule == Some(Rule::Helper));
        assert!(by_task || by_helper || work.duration_ns < MS / 2, "{work:?}");
    }
}

/// Whether the thread that runs tasks waited for one of the runtime's own threads, as V8's main thread waits for
/// threads that collect garbage or compile with it (`DefaultJobState::Join()`, src/libplatform/default-job.cc): on a
/// condition variable, or on a mutex that is recognized as one.
fn for_helper(lock: &Segment) -> bool {
    let by_helper =
        lock.by.as_ref().and_then(|by| by.tid).is_some_and(|tid| tid < FIRST_RUNTIME_TASK);
    let detail = lock.detail.as_deref().unwrap_or_default();
    let is_marked = match detail.starts_with("mutex ") {
        true => lock.evidence == Evidence::Measured,
        false => asleep_in_futex(lock),
    };
    by_helper && is_marked
}

/// Whether this is a futex wait that may be for a mutex, but is not recognized as one.
fn asleep_in_futex(lock: &Segment) -> bool {
    let detail = lock.detail.as_deref().unwrap_or_default();
    detail.starts_with("asleep in futex ") && lock.evidence == Evidence::Modelled
}

/// Go reports what a goroutine waits for, but before 1.20 uses one name for locks and wait groups. The runtime's own
/// locks also contend on a busy machine.
fn gos_lock(detail: Option<&str>, evidence: Evidence) -> bool {
    let of_runtime = detail.is_some_and(|detail| detail.starts_with("a mutex of Go's runtime"));
    detail == Some(BEFORE_GO_1_20)
        || (detail == Some("sync.Mutex.Lock") || of_runtime) && evidence == Evidence::Measured
}

/// Locks, semaphores, events and conditions cannot be told apart.
fn perhaps_lock(detail: Option<&str>, evidence: Evidence) -> bool {
    const WAITERS: &str = "asleep in await (a lock, semaphore, event or condition)";
    detail == Some(WAITERS) && evidence == Evidence::Modelled
}

/// For Go, the waits of these requests are measured, not inferred, including waits for kernel locks: the runtime
/// reports them. Only the name used before Go 1.20 is unclear.
fn check_measured(found: &BTreeMap<String, Vec<Vec<Segment>>>) {
    let waits = [Category::Sleep, Category::Lock];
    let all = METHODS[..2].iter().flat_map(|method| &found[&format!("GET /{method}")]).flatten();
    let mut waits = all.filter(|segment| waits.contains(&segment.category));
    assert!(waits.all(|segment| {
        let unclear = segment.detail.as_deref() == Some(BEFORE_GO_1_20);
        unclear || segment.evidence == Evidence::Measured
    }));
}

/// Names of the attached user-space hooks.
fn hooked(capture: &Capture) -> Vec<String> {
    let is_hooked = |hook: &&rpcprobe::capture::manifest::Hook| {
        hook.attached_as.as_deref().is_some_and(|means| means.starts_with("uprobe"))
    };
    capture.manifest().hooks.iter().filter(is_hooked).map(|hook| hook.name.clone()).collect()
}

#[test]
fn each_request_of_a_go_server_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    let Some((_directory, program)) = peer_in_go("goroutines", &[]) else { return };
    let capture = attached(&[&program], &["--tasks"]);
    let found = by_method(&capture);
    check(&found, gos_lock, Threads::OnlyRunTasks);
    check_measured(&found);
    let manifest = capture.manifest();
    assert_eq!(
        hooked(&capture),
        ["runtime.gopark of goroutines", "runtime.casgstatus of goroutines"]
    );
    assert!(manifest.calibration.breakpoint_ns > 0.0 && manifest.programs.breakpoints > 1_000);
    let report = capture.report();
    let counted = report.lines().find(|line| line.starts_with("CPU time of "));
    assert!(counted.is_some_and(|line| line.contains(" tasks: ")), "{report}");
}

/// A server that starts during the capture, has no symbols, and is position-independent.
#[test]
fn a_stripped_program_is_followed_from_its_begin() {
    let Some(_turn) = needs_kernel() else { return };
    let flags = ["-buildmode=pie", "-ldflags=-s -w"];
    let Some((_directory, program)) = peer_in_go("goroutines", &flags) else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Talking::to(run(parent.path(), &["--tasks"], &[&program]));
    let port = server.hear();
    // Gives its hooks time to be attached.
    std::thread::sleep(std::time::Duration::from_millis(200));
    ask(&port);
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    let found = by_method(&capture);
    check(&found, gos_lock, Threads::OnlyRunTasks);
    check_measured(&found);
}

#[test]
fn without_the_option_nothing_is_hooked_and_without_a_runtime_it_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--tasks"], &["true"], Stdio::null()).succeeded();
    let told = "--tasks found no tasks: no program has a runtime that can be followed (Go, tokio with symbols, \
                Python, Node with symbols)";
    assert!(capture.report().contains(told), "{}", capture.report());
    let Some((_directory, program)) = peer_in_go("goroutines", &[]) else { return };
    let capture = attached(&[&program], &[]);
    let manifest = capture.manifest();
    assert!(manifest.hooks.iter().all(|hook| !hook.name.contains("runtime.")));
    assert_eq!(manifest.programs.breakpoints, 0);
    let all = by_method(&capture);
    let mut segments = all.values().flatten().flatten();
    assert!(segments.all(|segment| segment.tid < FIRST_RUNTIME_TASK));
}

#[test]
fn each_request_of_asyncio_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = attached(&["python3", &peer("asyncio_tasks.py")], &["--tasks"]);
    let names = [
        "deque.append()",
        "PyContext_CopyCurrent()",
        "deque.remove()",
        "PyContext_Enter()",
        "Context.run()",
    ];
    let hooked = hooked(&capture);
    assert!(hooked.iter().zip(names).all(|(hook, name)| hook.starts_with(name)), "{hooked:?}");
    assert_eq!(hooked.len(), names.len());
    check(&by_method(&capture), perhaps_lock, Threads::OnlyRunTasks);
}

/// The interpreter may be in a library that is loaded only after the program has started.
#[test]
fn asyncio_is_followed_from_its_begin() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let server = peer("asyncio_tasks.py");
    let mut server = Talking::to(run(parent.path(), &["--tasks"], &["python3", &server]));
    let port = server.hear();
    std::thread::sleep(std::time::Duration::from_millis(200));
    ask(&port);
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    check(&by_method(&capture), perhaps_lock, Threads::OnlyRunTasks);
}

/// uvloop is a library that is loaded still later, and stands for asyncio's own loop.
#[test]
fn each_request_of_uvloop_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    let words = [python(), &peer("asyncio_tasks.py"), "uvloop"];
    let capture = attached(&words, &["--tasks"]);
    let hooked = hooked(&capture);
    assert!(
        hooked.iter().any(|hook| hook.starts_with("uvloop's TimerHandle._run()")),
        "{hooked:?}"
    );
    check(&by_method(&capture), perhaps_lock, Threads::ReadAhead);
}

#[test]
fn uvloop_is_followed_from_its_begin() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let server = peer("asyncio_tasks.py");
    let mut server = Talking::to(run(parent.path(), &["--tasks"], &[python(), &server, "uvloop"]));
    let port = server.hear();
    std::thread::sleep(std::time::Duration::from_secs(1));
    ask(&port);
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    check(&by_method(&capture), perhaps_lock, Threads::ReadAhead);
}

#[test]
fn each_request_of_tokio_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    // An example of this crate. `cargo test` also builds examples, unless it is told which test to build.
    let program = std::env::current_exe().expect("a program");
    let program = program.ancestors().nth(2).expect("a folder").join("examples/tokio_tasks");
    assert!(program.exists(), "cargo build --example tokio_tasks makes {}", program.display());
    let capture = attached(&[program.to_str().expect("UTF-8")], &["--tasks"]);
    assert!(hooked(&capture).iter().any(|hook| hook.starts_with("transition_to_idle")));
    check(&by_method(&capture), perhaps_lock, Threads::ShareMutexes);
}

/// Whether Node is installed and its libuv has symbols. Prints a message if not.
fn has_node() -> bool {
    use object::{Object, ObjectSymbol};
    let asked = Command::new("node").args(["-p", "process.execPath"]).output();
    let Some(path) = asked.ok().filter(|of| of.status.success()).map(|of| of.stdout) else {
        println!("skipped: node does not run here");
        return false;
    };
    let program = std::fs::read(String::from_utf8_lossy(&path).trim()).expect("node's program");
    let file = object::File::parse(&*program).expect("node's program");
    let has_symbols = file.symbols().any(|symbol| symbol.name() == Ok("uv__stream_io"));
    if !has_symbols {
        println!("skipped: the libuv of node has no symbols");
    }
    has_symbols
}

/// The callback that ends such a wait does not show what was waited for.
fn handed_on(detail: Option<&str>, evidence: Evidence) -> bool {
    let told = "until what another request had waited for was over: what for is not seen";
    detail == Some(told) && evidence == Evidence::Modelled
}

/// Checks a capture of the Node server. A watchpoint must watch Node's timers.
fn check_node(capture: &Capture) {
    let manifest = capture.manifest();
    let timers = manifest.hooks.iter().find(|hook| hook.name.starts_with("timers of Node"));
    let how = timers.and_then(|timers| timers.attached_as.as_deref());
    assert_eq!(how, Some("watchpoint"), "{:?}", manifest.hooks);
    assert!(manifest.programs.watchpoints > 0, "{:?}", manifest.programs);
    check(&by_method(capture), handed_on, Threads::HaveHelpers);
}

#[test]
fn each_request_of_node_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    if has_node() {
        check_node(&attached(&["node", &peer("node_tasks.js")], &["--tasks"]));
    }
}

#[test]
fn node_is_followed_from_its_begin() {
    let Some(_turn) = needs_kernel() else { return };
    if !has_node() {
        return;
    }
    let parent = TempDir::new().expect("a temporary directory");
    let server = peer("node_tasks.js");
    let mut server = Talking::to(run(parent.path(), &["--tasks"], &["node", &server]));
    let port = server.hear();
    // Node's executable is a hundred megabytes, and searching it takes a while.
    std::thread::sleep(std::time::Duration::from_secs(3));
    ask(&port);
    check_node(&Capture::in_directory(parent, server.end()).succeeded());
}
