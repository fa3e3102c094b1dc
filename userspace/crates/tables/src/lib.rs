//! `requests.parquet` and `segments.parquet`: streaming writers, and readers that trust no input.
//!
//! The files are plain Parquet: INT64 for every number (one type, so that pandas, polars, DuckDB and Spark agree on
//! it), UTF-8 strings, snappy. Readers check names and types first, and name the file and the row in every error.

mod levels;
mod number_column;
mod pages;
mod parents;
mod requests;
mod segments;
mod stacks;
mod text_column;
mod threads;
mod time_column;

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
pub use requests::{
    read_requests, request_batches, stream_outlines, stream_requests, RequestOutline,
};
pub use segments::{read_segments_of, segment_batches, stream_segments};
pub use stacks::{read_stacks, read_symbols, write_stacks, write_symbols, ShownFrame};
pub use threads::{read_threads, ThreadWriter};

/// Name of the file of requests in a capture directory.
pub const REQUESTS_FILE: &str = "requests.parquet";
/// Name of the file of segments in a capture directory.
pub const SEGMENTS_FILE: &str = "segments.parquet";

/// Number of rows collected before they are encoded.
const BATCH_ROWS: usize = 4096;
/// Maximum memory of a row group's rows; beyond it, the row group is closed. The limit is small for two reasons. In
/// long captures only the footer grows: it is kept in memory until the end and takes some hundred bytes per column and
/// group. And a reader of one request has to search a whole group.
const REQUESTS_HELD_BYTES: usize = 2 << 20;
/// The limit for segments, which are far more numerous: reached within about a million events.
const SEGMENTS_HELD_BYTES: usize = 8 << 20;

/// Sums of a request's segments by category, indexed as [`Category::ALL`], in nanoseconds. `None` if a category does
/// not apply.
pub type CategorySums = [Option<u64>; Category::ALL.len()];

/// One row of `requests.parquet`.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRow {
    pub request: Request,
    pub category_ns: CategorySums,
}

/// Writes both files as requests come in; holds at most one row group of each in memory.
///
/// Nothing can be read back before [`Writer::finish`], because the files lack their footers until then.
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

    /// Adds a request and its segments, which must be in time order. The segments of one request stay together.
    ///
    /// # Errors
    /// When a number does not fit in INT64, or a file cannot be written. After an error the files are unusable.
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

/// The rows of a Parquet file, one by one. The iterator ends after the first error.
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

/// The columns of a file as they are, in batches of rows.
pub struct Batches {
    pub schema: SchemaRef,
    pub rows: Rows<RecordBatch>,
}

fn batches(path: &Path, builder: ParquetRecordBatchReaderBuilder<File>) -> Result<Batches> {
    let rows = rows(path, builder, |batch, _| Ok(vec![batch.clone()]))?;
    Ok(Batches { schema: rows.batches.schema(), rows })
}

type FileWriter = ArrowWriter<Box<dyn Write + Send>>;

/// Makes a writer with encodings that are cheap to write. Numbers rarely repeat, so a dictionary for them would be a
/// waste. Texts do repeat, but nobody needs the minimum and maximum text of every page.
fn file_writer(sink: Box<dyn Write + Send>, schema: Arc<Schema>) -> Result<FileWriter> {
    let mut properties = WriterProperties::builder()
        .set_created_by(concat!("rpcprobe ", env!("CARGO_PKG_VERSION")).to_string())
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true) // it would be kept in memory until the end
        .set_max_row_group_row_count(None); // see write_batch()
    for field in schema.fields() {
        // Not parsed as a path: dots in category names do not mean nesting.
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

/// Adds rows; closes the row group if it takes more memory than `held_bytes`.
fn write_batch(writer: &mut FileWriter, batch: &RecordBatch, held_bytes: usize) -> Result<()> {
    writer.write(batch).map_err(told)?;
    if writer.memory_size() > held_bytes {
        writer.flush().map_err(told)?;
    }
    Ok(())
}

/// Returns the system's own error if the Parquet library only passes one on, because the library's wrapper repeats the
/// text of the inner error.
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

/// As [`open`], but only the `required` columns of `wanted` must be present.
fn open_with(
    path: &Path,
    required: &Schema,
    wanted: &Schema,
) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let open = || -> Result<_> {
        let file = File::open(path)?;
        // Takes types from the Parquet schema alone, so that files rewritten by other tools stay readable.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .context("not a whole Parquet file")?;
        check_schema(builder.schema(), required)?;
        // Selected by position: a lookup by path would take the dots in category names for nesting.
        let found = builder.schema();
        let roots = wanted.fields().iter().filter_map(|field| found.index_of(field.name()).ok());
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        Ok(builder.with_projection(mask).with_batch_size(BATCH_ROWS))
    };
    guarded(open).with_context(|| path.display().to_string())
}

/// Turns panics of the Parquet library on damaged files into errors. They must not end a program that merely read a
/// file, nor print a backtrace. After an error, nothing that the closure borrows is used again.
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

/// A number column of a batch.
struct Ints {
    name: &'static str,
    array: Int64Array,
}

impl Ints {
    fn of(batch: &RecordBatch, name: &'static str) -> Result<Ints> {
        let array = column(batch, name)?.as_primitive_opt::<Int64Type>();
        Ok(Ints { name, array: array.with_context(|| not(name, &DataType::Int64))?.clone() })
    }

    /// The value as `T`; `None` if it is null.
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

/// A string column of a batch.
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

    /// The enumeration value with this name.
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
mod tests;
