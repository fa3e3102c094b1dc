//! `requests.parquet` and `segments.parquet`: streaming writers, and readers that trust nothing.
//!
//! The files are plain Parquet: INT64 for every number (one type, so that pandas, polars, DuckDB
//! and Spark agree on it), UTF-8 strings, snappy. Readers check names and types first and name the
//! file and the row in every error.

mod levels;
mod number_column;
mod pages;
mod parents;
mod requests;
mod segments;
mod stacks;
mod text_column;
mod threads;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::panic::{catch_unwind, set_hook, take_hook, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{anyhow, bail, ensure, Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch, RecordBatchReader, StringArray};
use arrow_schema::{DataType, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use rpcprobe_model::{Category, Request, Segments};

pub use parents::{renumber_parents, ParentRow};
pub use requests::{read_requests, request_batches, stream_requests};
pub use segments::{read_segments_of, segment_batches, stream_segments};
pub use stacks::{read_stacks, read_symbols, write_stacks, write_symbols, ShownFrame};
pub use threads::{read_threads, ThreadWriter};

/// Name of the file of requests in a capture directory.
pub const REQUESTS_FILE: &str = "requests.parquet";
/// Name of the file of segments in a capture directory.
pub const SEGMENTS_FILE: &str = "segments.parquet";

/// Rows collected before they are encoded.
const BATCH_ROWS: usize = 4096;
/// Memory the rows of a row group may take before it is closed. Small: of long captures only the footer
/// is to grow, kept in memory until the end, by some hundred bytes a column and group. A reader of one
/// request has to look through a group.
const REQUESTS_HELD_BYTES: usize = 2 << 20;
/// Likewise for segments, of which there are many more: reached within about a million events.
const SEGMENTS_HELD_BYTES: usize = 8 << 20;

/// Sums of a request's segments by category, indexed as [`Category::ALL`]; nanoseconds.
/// `None` where a category does not apply.
pub type CategorySums = [Option<u64>; Category::ALL.len()];

/// One row of `requests.parquet`.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    pub request: Request,
    pub category_ns: CategorySums,
}

/// Writes both files as requests come; holds at most one row group of each in memory.
///
/// Nothing can be read back before [`Writer::finish`]: without it the files lack their footers.
pub struct Writer {
    requests: requests::RequestWriter,
    segments: segments::SegmentWriter,
}

impl Writer {
    /// Starts both files.
    ///
    /// # Errors
    /// When a file's first bytes cannot be written.
    pub fn new(
        requests: impl Write + Send + 'static,
        segments: impl Write + Send + 'static,
    ) -> Result<Writer> {
        Ok(Writer {
            requests: requests::RequestWriter::new(Box::new(requests))?,
            segments: segments::SegmentWriter::new(Box::new(segments))?,
        })
    }

    /// Adds a request and its segments, in time order. The segments of one request stay together.
    ///
    /// # Errors
    /// When a number does not fit in INT64, or a file cannot be written. After an error the files
    /// are of no use.
    pub fn push(&mut self, request: &Request, segments: &Segments) -> Result<()> {
        self.requests
            .push(request, &segments.list)
            .with_context(|| format!("{REQUESTS_FILE}: request {}", request.request_id))?;
        self.segments
            .push(request.request_id, segments)
            .with_context(|| format!("{SEGMENTS_FILE}: request {}", request.request_id))
    }

    /// Writes what is left, and the footers.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(self) -> Result<()> {
        self.requests.finish().context(REQUESTS_FILE)?;
        self.segments.finish().context(SEGMENTS_FILE)
    }
}

/// Rows of a Parquet file, one by one; ends after the first error.
pub struct Rows<T> {
    path: PathBuf,
    batches: ParquetRecordBatchReader,
    decode: fn(&RecordBatch, u64) -> Result<Vec<T>>,
    rows_read: u64,
    pending: std::vec::IntoIter<T>,
    ended: bool,
}

impl<T> Rows<T> {
    fn next_batch(&mut self) -> Option<Result<Vec<T>>> {
        let batch = guarded(|| Ok(self.batches.next().transpose()?)).transpose()?;
        Some(batch.and_then(|batch| {
            let first_row = self.rows_read;
            self.rows_read += batch.num_rows() as u64;
            (self.decode)(&batch, first_row)
        }))
    }
}

impl<T> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        loop {
            if let Some(row) = self.pending.next() {
                return Some(Ok(row));
            }
            if self.ended {
                return None;
            }
            match self.next_batch() {
                Some(Ok(rows)) => self.pending = rows.into_iter(),
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error.context(self.path.display().to_string())));
                }
                None => self.ended = true,
            }
        }
    }
}

/// A file's columns as they are, in batches of rows.
pub struct Batches {
    pub schema: SchemaRef,
    pub rows: Rows<RecordBatch>,
}

fn batches(path: &Path, builder: ParquetRecordBatchReaderBuilder<File>) -> Result<Batches> {
    let rows = rows(path, builder, |batch, _| Ok(vec![batch.clone()]))?;
    Ok(Batches { schema: rows.batches.schema(), rows })
}

type FileWriter = ArrowWriter<Box<dyn Write + Send>>;

/// Encodings that cost little to write. Numbers hardly repeat: a dictionary of them is a waste.
/// Texts do; but the least and greatest of them, asked of every page, help nobody.
fn file_writer(sink: Box<dyn Write + Send>, schema: Arc<Schema>) -> Result<FileWriter> {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("rpcprobe ", env!("CARGO_PKG_VERSION")).to_string())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true) // would be kept in memory until the end
        .set_max_row_group_row_count(None); // see write_batch()
    for field in schema.fields() {
        // Not parsed as a path: dots in category names are no nesting.
        let column = ColumnPath::new(vec![field.name().clone()]);
        properties = match field.data_type() {
            DataType::Int64 => properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED),
            _ => properties.set_column_statistics_enabled(column, EnabledStatistics::None),
        };
    }
    ArrowWriter::try_new(sink, schema, Some(properties.build())).map_err(told)
}

/// Adds rows; closes the row group when it takes more memory than it may.
fn write_batch(writer: &mut FileWriter, batch: &RecordBatch, held_bytes: usize) -> Result<()> {
    writer.write(batch).map_err(told)?;
    if writer.memory_size() > held_bytes {
        writer.flush().map_err(told)?;
    }
    Ok(())
}

/// The system's own error where the Parquet library only passes one on: its wrapper repeats what
/// the error in it says.
fn told(error: ParquetError) -> anyhow::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => (*error).into(),
            Err(inner) => anyhow::Error::from_boxed(inner),
        },
        error => error.into(),
    }
}

/// Opens a file and checks that the wanted columns are there with their types.
fn open(path: &Path, wanted: &Schema) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    open_with(path, wanted, wanted)
}

/// Likewise; of `wanted` only what is `required` must be there.
fn open_with(
    path: &Path,
    required: &Schema,
    wanted: &Schema,
) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let open = || -> Result<_> {
        let file = File::open(path)?;
        // Types from the Parquet schema alone: files rewritten by other tools stay readable.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .context("not a whole Parquet file")?;
        check_schema(builder.schema(), required)?;
        // By position: a lookup by path would take the dots in category names for nesting.
        let found = builder.schema();
        let roots = wanted.fields().iter().filter_map(|field| found.index_of(field.name()).ok());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        Ok(builder.with_projection(mask).with_batch_size(BATCH_ROWS))
    };
    guarded(open).with_context(|| path.display().to_string())
}

/// The Parquet library panics on some damaged files; that must not end a program that merely read
/// one, nor put a backtrace on its screen. What the closure borrows is not used again after an error.
fn guarded<T>(read: impl FnOnce() -> Result<T>) -> Result<T> {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let result = catch_unwind(AssertUnwindSafe(read));
    set_hook(hook);
    result.unwrap_or_else(|_| Err(anyhow!("damaged: the Parquet library failed on its contents")))
}

fn check_schema(found: &Schema, wanted: &Schema) -> Result<()> {
    let types: HashMap<_, _> =
        found.fields().iter().map(|field| (field.name(), field.data_type())).collect();
    ensure!(types.len() == found.fields().len(), "two columns have the same name");
    let missing: Vec<_> = wanted
        .fields()
        .iter()
        .filter(|field| !types.contains_key(field.name()))
        .map(|field| format!("`{}`", field.name()))
        .collect();
    ensure!(missing.is_empty(), "missing columns: {}", missing.join(", "));
    for field in wanted.fields() {
        let is = types[field.name()];
        ensure!(
            is == field.data_type(),
            "column `{}` has type {is}, expected {}",
            field.name(),
            field.data_type()
        );
    }
    Ok(())
}

fn rows<T>(
    path: &Path,
    builder: ParquetRecordBatchReaderBuilder<File>,
    decode: fn(&RecordBatch, u64) -> Result<Vec<T>>,
) -> Result<Rows<T>> {
    let batches = guarded(|| Ok(builder.build()?)).with_context(|| path.display().to_string())?;
    Ok(Rows {
        path: path.to_path_buf(),
        batches,
        decode,
        rows_read: 0,
        pending: Vec::new().into_iter(),
        ended: false,
    })
}

/// Decodes the rows of a batch; `first_row` is the number of its first row in the file.
fn decode_rows<T>(
    batch: &RecordBatch,
    first_row: u64,
    row: impl Fn(usize) -> Result<T>,
) -> Result<Vec<T>> {
    (0..batch.num_rows())
        .map(|i| row(i).with_context(|| format!("row {}", first_row + i as u64)))
        .collect()
}

fn to_i64(name: &str, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| anyhow!("{name} {value} is too large for INT64"))
}

/// A column of numbers of a batch.
struct Ints {
    name: &'static str,
    array: Int64Array,
}

impl Ints {
    fn of(batch: &RecordBatch, name: &'static str) -> Result<Ints> {
        let array = column(batch, name)?.as_primitive_opt::<Int64Type>();
        Ok(Ints { name, array: array.with_context(|| not(name, &DataType::Int64))?.clone() })
    }

    /// The value as `T`, `None` when null.
    fn get<T: TryFrom<i64>>(&self, row: usize) -> Result<Option<T>> {
        if self.array.is_null(row) {
            return Ok(None);
        }
        let value = self.array.value(row);
        match T::try_from(value) {
            Ok(value) => Ok(Some(value)),
            Err(_) => bail!("`{}` is {value}, out of range", self.name),
        }
    }

    fn need<T: TryFrom<i64>>(&self, row: usize) -> Result<T> {
        self.get(row)?.ok_or_else(|| anyhow!("`{}` is null", self.name))
    }
}

/// A column of strings of a batch.
struct Texts {
    name: &'static str,
    array: StringArray,
}

impl Texts {
    fn of(batch: &RecordBatch, name: &'static str) -> Result<Texts> {
        let array = column(batch, name)?.as_string_opt::<i32>();
        Ok(Texts { name, array: array.with_context(|| not(name, &DataType::Utf8))?.clone() })
    }

    fn get(&self, row: usize) -> Option<&str> {
        (!self.array.is_null(row)).then(|| self.array.value(row))
    }

    fn owned(&self, row: usize) -> Option<String> {
        self.get(row).map(str::to_owned)
    }

    fn need(&self, row: usize) -> Result<&str> {
        self.get(row).ok_or_else(|| anyhow!("`{}` is null", self.name))
    }

    /// The value of the enumeration that has this name.
    fn named<T>(&self, row: usize, from_name: fn(&str) -> Option<T>) -> Result<T> {
        let text = self.need(row)?;
        from_name(text).ok_or_else(|| anyhow!("`{}` is {text:?}, which is not known", self.name))
    }
}

fn bools(batch: &RecordBatch, name: &str) -> Result<BooleanArray> {
    let array = column(batch, name)?.as_boolean_opt();
    Ok(array.with_context(|| not(name, &DataType::Boolean))?.clone())
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a dyn Array> {
    let column = batch.column_by_name(name);
    Ok(column.with_context(|| format!("missing column `{name}`"))?.as_ref())
}

fn not(name: &str, wanted: &DataType) -> String {
    format!("column `{name}` is not {wanted}")
}

#[cfg(test)]
mod tests {
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
            Writer::new(File::create(&requests).unwrap(), File::create(&segments).unwrap())
                .unwrap();
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

    /// Requests for more than one row group of each file, if their numbers do not compress.
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

    /// In runs of all lengths, present and missing, alone in their row group and among thousands.
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
        let error =
            format!("{:#}", writer.push(&request, &segments.as_slice().into()).unwrap_err());
        assert_eq!(
            error,
            "requests.parquet: request 1: start_ns 18446744073709551615 is too large for INT64"
        );
    }

    /// A file with room for so many bytes.
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
        // At a row group, and at the end.
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
        assert!(
            error.contains("segments.parquet: missing columns: `parent_request_id`"),
            "{error}"
        );
        let error = format!("{:#}", read_requests(Path::new("none")).unwrap_err());
        assert!(error.starts_with("none: "), "{error}");
    }

    /// Cut short, or with a byte changed, a file gives an error or rows: no panic.
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
            for (at, flip) in
                (0..whole.len()).step_by(29).zip([0x01, 0x80, 0xff].into_iter().cycle())
            {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                fs::write(&damaged, &bytes).unwrap();
                if *path == files.segments {
                    let _ = stream_segments(&damaged).map(|rows| rows.count());
                    let _ = read_segments_of(&damaged, 1);
                } else {
                    let _ = read_requests(&damaged);
                }
            }
        }
    }
}
