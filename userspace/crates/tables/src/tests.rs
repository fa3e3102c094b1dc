use std::fs;

use tempfile::TempDir;

use super::*;
use rpcprobe_model::{
    category_ns, Certainty, End, Evidence, HeldBy, Kind, Moved, Rule, Samples, Segment, Side,
    StackUse, Taken,
};

struct Files {
    _directory: TempDir,
    requests: PathBuf,
    segments: PathBuf,
}

fn write(rows: &[(Request, Vec<Segment>)]) -> Files {
    let directory = TempDir::new().unwrap();
    let (requests, segments) =
        (directory.path().join(REQUESTS_FILE), directory.path().join(SEGMENTS_FILE));
    let mut writer =
        Writer::new(File::create(&requests).unwrap(), File::create(&segments).unwrap()).unwrap();
    for (request, segments) in rows {
        writer.push(request, &segments.as_slice().into()).unwrap();
    }
    writer.finish().unwrap();
    Files { _directory: directory, requests, segments }
}

fn full(id: u64) -> (Request, Vec<Segment>) {
    let end = |comm: &str| Some(End { pid: u32::MAX, tid: 7, comm: comm.into() });
    let request = Request {
        request_id: id,
        parent_request_id: Some(1),
        parent_certainty: Some(Certainty::Likely),
        detached: true,
        kind: Kind::Http2,
        certainty: Certainty::Guessed,
        start_ns: i64::MAX as u64 - 1_000,
        latency_ns: 30,
        complete: true,
        reason: None,
        records_lost: 0,
        client: end("клиент"),
        server: end("漢\x1b"),
        channel: Some("tcp".into()),
        stream_id: Some(3),
        xid: Some(u32::MAX),
        retransmissions: Some(u32::MAX),
        method: Some("/a.B/C".into()),
        status: Some(-1),
        request_bytes: Some(0),
        response_bytes: Some(i64::MAX as u64),
        client_moved: Some(Moved {
            bytes: 3,
            cpu_ns: 2,
            copy_ns: 1,
            samples: Samples { all: 5, copying: 4 },
        }),
        server_moved: Some(Moved::default()),
        held_back_ns: Some(i64::MAX as u64),
        held_back_by: Some(HeldBy::Nagle),
    };
    let segment = Segment {
        start_ns: request.start_ns,
        duration_ns: 10,
        category: Category::RunqueueWakeup,
        side: Side::Server,
        pid: 1,
        tid: 2,
        comm: "".into(),
        cpu: Some(0),
        phase: Some("dynamic linking"),
        detail: Some("read(0) é".into()),
        cause: Some("x".into()),
        by: Some("kworker/0:1/33".into()),
        evidence: Evidence::Sampled,
        rule: Some(Rule::Charge),
        shared: 1,
        stack: Some(StackUse { stack_id: 7, taken: Taken::Sampled { same: 2, all: 3 } }),
    };
    let bare = Segment {
        start_ns: request.start_ns + 10,
        duration_ns: 20,
        category: Category::Unattributed,
        cpu: None,
        phase: None,
        detail: None,
        cause: None,
        by: None,
        stack: Some(StackUse { stack_id: 1, taken: Taken::AtSleep }),
        ..segment.clone()
    };
    (request, vec![segment, bare])
}

fn empty(id: u64) -> (Request, Vec<Segment>) {
    let request = Request {
        request_id: id,
        complete: false,
        reason: Some("records lost".into()),
        records_lost: 12,
        ..Request::new(Kind::Http2, full(id).0.start_ns, full(id).0.start_ns + 30)
    };
    (request, Vec::new())
}

#[test]
fn what_is_written_is_read() {
    let mut partial = full(5);
    partial.0.complete = false;
    let rows = [full(3), empty(4), partial];
    let files = write(&rows);
    let read = read_requests(&files.requests).unwrap();
    for (read, (request, segments)) in read.iter().zip(&rows) {
        assert_eq!(read.request, *request);
        let sums = category_ns(segments).map(Some);
        let none = [None; Category::ALL.len()];
        assert_eq!(read.category_ns, if segments.is_empty() { none } else { sums });
        assert_eq!(read_segments_of(&files.segments, request.request_id).unwrap(), *segments);
    }
    assert_eq!(read.len(), rows.len());
    let outlines = stream_outlines(&files.requests).unwrap().map(Result::unwrap);
    assert!(outlines.eq(rows.iter().map(|(request, _)| RequestOutline::from(request))));
    let all: Vec<_> = stream_segments(&files.segments).unwrap().map(Result::unwrap).collect();
    assert_eq!(all.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3, 3, 5, 5]);
    assert_eq!(read_segments_of(&files.segments, 99).unwrap(), []);
    assert_eq!(read_segments_of(&files.segments, u64::MAX).unwrap(), []);
}

#[test]
fn no_requests_are_a_valid_file() {
    let files = write(&[]);
    assert_eq!(read_requests(&files.requests).unwrap(), []);
    assert_eq!(stream_segments(&files.segments).unwrap().count(), 0);
}

/// Enough requests for more than one row group of each file, if their numbers do not compress.
const MANY: u64 = 300_000;

fn varied(id: u64) -> (Request, Vec<Segment>) {
    let number = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (mut request, mut segments) = full(id);
    request.start_ns = number >> 2;
    request.request_bytes = Some(number >> 1);
    for segment in &mut segments {
        segment.start_ns = request.start_ns;
        (segment.pid, segment.tid) = (number as u32, (number >> 32) as u32);
        segment.detail = Some(format!("read({number})"));
    }
    (request, segments)
}

#[test]
fn many_row_groups() {
    let rows: Vec<_> = (0..MANY).map(varied).collect();
    let files = write(&rows);
    for file in [&files.requests, &files.segments] {
        let groups = open(file, &Schema::empty()).unwrap().metadata().num_row_groups();
        assert!(groups >= 2, "{groups} in {}", file.display());
    }
    for id in [0, 32_767, 32_768, MANY - 1] {
        assert_eq!(read_segments_of(&files.segments, id).unwrap(), varied(id).1);
    }
    assert_eq!(stream_requests(&files.requests).unwrap().count(), rows.len());
}

/// Texts in runs of all lengths, present and missing, alone in their row group and among thousands.
#[test]
fn texts_come_back_in_their_order() {
    for different in [1u64, 2, 3, 200, 5000] {
        let text = |row: u64| match row % 11 {
            3 | 4 if row % 2_000 < 1_000 => None,
            _ => Some(format!("read({})", row * row / 97 % different)),
        };
        let segments: Vec<Segment> = (0..40_000u64)
            .map(|row| Segment {
                start_ns: row,
                duration_ns: 1,
                detail: text(row),
                cause: text(row / 100).filter(|_| row > 20_000),
                category: Category::ALL[(row / 40 % 7) as usize],
                phase: None,
                ..full(1).1[0].clone()
            })
            .collect();
        let request = Request { start_ns: 0, latency_ns: 40_000, ..full(1).0 };
        let files = write(&[(request, segments.clone())]);
        assert!(read_segments_of(&files.segments, 1).unwrap() == segments, "{different}");
    }
}

#[test]
fn numbers_too_large_are_errors() {
    let mut writer = Writer::new(Vec::new(), Vec::new()).unwrap();
    let (mut request, segments) = full(1);
    request.start_ns = u64::MAX;
    let error = format!("{:#}", writer.push(&request, &segments.as_slice().into()).unwrap_err());
    assert_eq!(
        error,
        "requests.parquet: request 1: start_ns 18446744073709551615 is too large for INT64"
    );
}

/// A file with limited space, in bytes.
struct Disk {
    left_bytes: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let Some(left_bytes) = self.left_bytes.checked_sub(bytes.len()) else {
            return Err(std::io::Error::from_raw_os_error(libc::ENOSPC));
        };
        self.left_bytes = left_bytes;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_told_once() {
    let error = |left_bytes, rows: u64| {
        let written = Writer::new(Vec::new(), Disk { left_bytes }).and_then(|mut writer| {
            for id in 0..rows {
                let (request, segments) = varied(id);
                writer.push(&request, &segments.as_slice().into())?;
            }
            writer.finish()
        });
        format!("{:#}", written.expect_err("there is no room"))
    };
    // The space runs out at a row group, and at the end.
    let full = "No space left on device (os error 28)";
    let while_pushing = error(100, MANY);
    assert!(while_pushing.starts_with("segments.parquet: request "), "{while_pushing}");
    assert!(while_pushing.ends_with(&format!(": {full}")), "{while_pushing}");
    assert_eq!(while_pushing.matches("No space").count(), 1, "{while_pushing}");
    assert_eq!(error(100, 1), format!("segments.parquet: {full}"));
}

#[test]
fn files_of_the_wrong_kind() {
    let files = write(&[full(1)]);
    let error = format!("{:#}", read_requests(&files.segments).unwrap_err());
    assert!(error.contains("segments.parquet: missing columns: `parent_request_id`"), "{error}");
    let outlines = stream_outlines(&files.segments).err().expect("columns are missing");
    assert_eq!(format!("{outlines:#}"), error);
    let error = format!("{:#}", read_requests(Path::new("none")).unwrap_err());
    assert!(error.starts_with("none: "), "{error}");
}

/// A file that is cut short or has a changed byte gives an error or rows, but no panic.
#[test]
fn damaged_files() {
    let files = write(&[full(1), empty(2)]);
    let whole = fs::read(&files.segments).unwrap();
    let damaged = files.segments.with_file_name("damaged");
    for length in (0..whole.len()).step_by(11) {
        fs::write(&damaged, &whole[..length]).unwrap();
        let error = format!("{:#}", read_segments_of(&damaged, 1).unwrap_err());
        assert!(error.contains("damaged: not a whole Parquet file"), "{error}");
    }
    for (path, whole) in
        [(&files.segments, whole), (&files.requests, fs::read(&files.requests).unwrap())]
    {
        for (at, flip) in (0..whole.len()).step_by(29).zip([0x01, 0x80, 0xff].into_iter().cycle()) {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(&damaged, &bytes).unwrap();
            if *path == files.segments {
                let _ = stream_segments(&damaged).map(|rows| rows.count());
                let _ = read_segments_of(&damaged, 1);
            } else {
                let _ = read_requests(&damaged);
                let _ = stream_outlines(&damaged).map(|rows| rows.count());
            }
        }
    }
}
