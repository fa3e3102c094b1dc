//! Runs captures for the tests and reads them back with the program's own readers.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rpcprobe::capture::manifest::Manifest;
use rpcprobe::laws::{check_exclusive, check_parents};
use rpcprobe::model::{category_ns, check_conservation, Category, Kind, Request, Segment};
use rpcprobe::output::{self, RequestRow};
use tempfile::TempDir;

use super::{rpcprobe, text};

/// Name of the capture in its directory.
pub const NAME: &str = "capture";

/// A temporary directory. It is removed on drop; with `RPCPROBE_KEEP_FAILED=1` it is kept if its test fails.
struct Parent(TempDir);

impl Drop for Parent {
    fn drop(&mut self) {
        let wanted = std::env::var_os("RPCPROBE_KEEP_FAILED").is_some_and(|value| value == "1");
        if wanted && std::thread::panicking() {
            self.0.disable_cleanup(true);
            eprintln!("kept: {}", self.0.path().display());
        }
    }
}

/// A capture in its own temporary directory, which is removed with it.
pub struct Capture {
    parent: Parent,
    /// Output and exit status of `rpcprobe run`.
    pub output: Output,
}

impl Capture {
    /// Runs `rpcprobe run OPTIONS -- COMMAND` with standard input from `stdin`.
    pub fn of(options: &[&str], command: &[&str], stdin: Stdio) -> Capture {
        let parent = TempDir::new().expect("a temporary directory");
        let output = run(parent.path(), options, command).stdin(stdin).output();
        Capture { parent: Parent(parent), output: output.expect("rpcprobe runs") }
    }

    /// Wraps a run that the test itself started with [`run`] and ended: `output` is what `rpcprobe` printed and
    /// returned.
    pub fn in_directory(parent: TempDir, output: Output) -> Capture {
        Capture { parent: Parent(parent), output }
    }

    /// The directory of the capture.
    pub fn path(&self) -> PathBuf {
        self.parent.0.path().join(NAME)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Fails unless target and capture succeeded.
    pub fn succeeded(self) -> Capture {
        let stderr = text(&self.output.stderr);
        assert!(self.output.status.success(), "{}: {stderr}", self.output.status);
        self
    }

    pub fn manifest(&self) -> Manifest {
        let file = File::open(self.file("manifest.json")).expect("manifest.json");
        serde_json::from_reader(BufReader::new(file)).expect("manifest.json is JSON")
    }

    pub fn rows(&self) -> Vec<RequestRow> {
        output::read_requests(&self.file("requests.parquet")).expect("requests.parquet")
    }

    /// The segments by request, in the order of the file.
    pub fn segments(&self) -> HashMap<u64, Vec<Segment>> {
        let mut segments: HashMap<u64, Vec<Segment>> = HashMap::new();
        let stream = output::stream_segments(&self.file("segments.parquet"));
        for row in stream.expect("segments.parquet") {
            let (request, segment) = row.expect("a row of segments.parquet");
            segments.entry(request).or_default().push(segment);
        }
        segments
    }

    /// Requests and segments as the files contain them, independent of the Parquet encoding.
    pub fn tables(&self) -> (Vec<RequestRow>, Vec<(u64, Segment)>) {
        let stream = output::stream_segments(&self.file("segments.parquet"));
        let segments = stream.expect("segments.parquet").collect::<Result<_, _>>();
        (self.rows(), segments.expect("segments.parquet"))
    }

    /// The report as `rpcprobe report` prints it.
    pub fn report(&self) -> String {
        let output = rpcprobe([OsStr::new("report"), self.path().as_os_str()]).output();
        let output = output.expect("rpcprobe runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Checks what must hold for every capture, and returns the requests with their segments.
    pub fn checked(&self) -> Vec<(Request, Vec<Segment>)> {
        let accounts = output::read_threads(&self.file("threads.parquet"));
        for account in accounts.expect("threads.parquet") {
            let booked_ns = account.own_ns + account.shared_ns;
            assert!(booked_ns <= account.cpu_ns, "more is booked than it ran: {account:?}");
        }
        self.checked_requests()
    }

    /// As [`Capture::checked`], without the CPU-time ledger: a damaged event file may claim a start time later than its
    /// records.
    pub fn checked_requests(&self) -> Vec<(Request, Vec<Segment>)> {
        check_numbers(self);
        let rows = self.rows();
        let mut segments = self.segments();
        let mut by_kind: BTreeMap<String, u64> = BTreeMap::new();
        let mut checked = Vec::new();
        for RequestRow { request, category_ns: columns } in rows {
            *by_kind.entry(request.kind.name().into()).or_default() += 1;
            let segments = segments.remove(&request.request_id).unwrap_or_default();
            check_request(&request, &segments, &columns);
            checked.push((request, segments));
        }
        assert!(segments.is_empty(), "segments without request: {:?}", segments.keys());
        let counts = self.manifest().counts;
        assert_eq!(counts.requests_by_kind, by_kind);
        assert_eq!(counts.requests, checked.len() as u64);
        let incomplete = checked.iter().filter(|(request, _)| !request.complete).count();
        assert_eq!(counts.requests_incomplete, incomplete as u64);
        check_exclusive(&checked).expect("law 6");
        check_parents(checked.iter().map(|(request, _)| request)).expect("parents");
        checked
    }
}

/// Checks that request ids are 1, 2, ... in both files and that every parent has a row and does not begin later.
pub fn check_numbers(capture: &Capture) {
    let (rows, segments) = capture.tables();
    let ids: Vec<u64> = rows.iter().map(|row| row.request.request_id).collect();
    assert!(ids.iter().copied().eq(1..=rows.len() as u64), "{ids:?}");
    let mut explained: Vec<u64> = segments.iter().map(|(id, _)| *id).collect();
    explained.dedup();
    assert!(explained.is_sorted(), "{explained:?}");
    for RequestRow { request, .. } in &rows {
        let Some(parent) = request.parent_request_id else { continue };
        let parent = rows.get(parent as usize - 1).expect("the parent has a row");
        assert!(parent.request.start_ns <= request.start_ns, "{request:?} {parent:?}");
        assert_ne!(parent.request.request_id, request.request_id);
    }
}

/// Checks conservation, and that the two files agree.
fn check_request(request: &Request, segments: &[Segment], columns: &[Option<u64>]) {
    if request.complete {
        assert_eq!(request.reason, None, "a complete request with a reason: {request:?}");
        check_conservation(request, segments).expect("the law of conservation");
    } else {
        assert!(request.reason.is_some(), "incomplete without reason: {request:?}");
    }
    if request.complete || !segments.is_empty() {
        let sums = category_ns(segments).map(Some);
        assert_eq!(columns, sums, "columns of request {}", request.request_id);
    }
}

/// `rpcprobe run -q -o PARENT/capture OPTIONS -- COMMAND`.
pub fn run(parent: &Path, options: &[&str], command: &[&str]) -> Command {
    let mut run = rpcprobe(["run", "-q", "-o"]);
    run.arg(parent.join(NAME)).args(options).arg("--").args(command);
    run
}

/// Opens a file for use as standard input.
pub fn stdin_from(path: impl AsRef<Path>) -> Stdio {
    File::open(path).expect("the input").into()
}

/// Number of requests of each kind.
pub fn kinds(requests: &[(Request, Vec<Segment>)]) -> BTreeMap<Kind, usize> {
    let mut kinds = BTreeMap::new();
    for (request, _) in requests {
        *kinds.entry(request.kind).or_default() += 1;
    }
    kinds
}

/// Total time of a category in these segments.
pub fn time_in(category: Category, segments: &[Segment]) -> u64 {
    segments.iter().filter(|s| s.category == category).map(|s| s.duration_ns).sum()
}

/// Every file of a directory with its content, used to check that nothing changed.
pub fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), fs::read(&path).expect("a file"))).collect()
}
