//! `requests.parquet`: one row per request.

mod outline;
mod reader;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::builder::{BooleanBuilder, StringBuilder};
use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_writer::{compute_leaves, ArrowColumnWriter, ArrowRowGroupWriterFactory};
use parquet::file::writer::SerializedFileWriter;

use super::{
    batches, file_writer, open_with, rows, to_i64, told, Batches, RequestRow, Rows, BATCH_ROWS,
    REQUESTS_HELD_BYTES,
};
use crate::number_column::NumberColumn;
pub use outline::{stream_outlines, RequestOutline};
use reader::decode;
use rpcprobe_model::{
    category_ns, Category, Certainty, End, HeldBy, Moved, Reason, Request, Samples, Told,
};

/// Returns every request of a file, in the file's order.
///
/// # Errors
/// When the file cannot be read, is not a whole Parquet file, or lacks a column.
pub fn stream_requests(path: &Path) -> Result<Rows<RequestRow>> {
    rows(path, open_with(path, &required(), &schema())?, decode)
}

/// Returns the file's columns, in the order of its rows.
///
/// # Errors
/// As [`stream_requests`].
pub fn request_batches(path: &Path) -> Result<Batches> {
    batches(path, open_with(path, &required(), &schema())?)
}

/// Returns all requests of a file at once.
///
/// # Errors
/// As [`stream_requests`], and when a row holds values that no request can have.
pub fn read_requests(path: &Path) -> Result<Vec<RequestRow>> {
    stream_requests(path)?.collect()
}

/// Columns of the client and of the server. For each, either all five have values or none.
const MOVED: [&str; 10] = [
    "client_moved_bytes",
    "client_moved_cpu_ns",
    "client_moved_copy_ns",
    "client_moved_samples",
    "client_moved_copy_samples",
    "server_moved_bytes",
    "server_moved_cpu_ns",
    "server_moved_copy_ns",
    "server_moved_samples",
    "server_moved_copy_samples",
];

/// How long an answer was held back, and why. A file has both columns or neither.
const HELD_BACK: [&str; 2] = ["held_back_ns", "held_back_by"];

pub(super) const ID: &str = "request_id";
const CERTAINTY: &str = "certainty";
pub(super) const PARENT: &str = "parent_request_id";
pub(super) const PARENT_CERTAINTY: &str = "parent_certainty";
pub(super) const DETACHED: &str = "detached";
pub(super) const START: &str = "start_ns";
pub(super) const LATENCY: &str = "latency_ns";

pub(super) fn schema() -> Schema {
    let int = |name: &str, null| Field::new(name, DataType::Int64, null);
    let text = |name: &str, null| Field::new(name, DataType::Utf8, null);
    let mut fields = vec![
        int(ID, false),
        int(PARENT, true),
        text("kind", false),
        int(START, false),
        int(LATENCY, false),
        Field::new("complete", DataType::Boolean, false),
        text("reason", true),
        int("records_lost", false),
        int("client_pid", true),
        int("client_tid", true),
        text("client_comm", true),
        int("server_pid", true),
        int("server_tid", true),
        text("server_comm", true),
        text("channel", true),
        int("stream_id", true),
        int("xid", true),
        int("retransmissions", true),
        text("method", true),
        int("status", true),
        int("request_bytes", true),
        int("response_bytes", true),
    ];
    fields.push(text(CERTAINTY, true));
    fields.push(text(PARENT_CERTAINTY, true));
    fields.push(Field::new(DETACHED, DataType::Boolean, true));
    fields.extend(MOVED.iter().map(|name| int(name, true)));
    fields.extend([int(HELD_BACK[0], true), text(HELD_BACK[1], true)]);
    fields.extend(Category::ALL.iter().map(|category| int(category.name(), true)));
    Schema::new(fields)
}

/// The schema without columns that captures of earlier versions lack.
fn required() -> Schema {
    let all = schema();
    let fields = all.fields().iter().filter(|field| {
        let name = field.name().as_str();
        name != CERTAINTY
            && name != PARENT_CERTAINTY
            && name != DETACHED
            && !MOVED.contains(&name)
            && !HELD_BACK.contains(&name)
    });
    Schema::new(fields.cloned().collect::<Vec<_>>())
}

/// Index of a file's column among the columns of its type.
#[derive(Clone, Copy)]
enum Column {
    Number(usize),
    Text(usize),
    Flag(usize),
}

pub(super) struct RequestWriter {
    file: SerializedFileWriter<Box<dyn Write + Send>>,
    schema: Arc<Schema>,
    /// The columns of the file, in order.
    columns: Vec<Column>,
    numbers: Vec<NumberColumn>,
    /// Rows that are not encoded yet, and the encoder of each column of the file.
    texts: Vec<StringBuilder>,
    flags: Vec<BooleanBuilder>,
    encoders: Vec<ArrowColumnWriter>,
    factory: ArrowRowGroupWriterFactory,
    rows: usize,
    /// Number of encoded rows in the current row group.
    encoded_rows: usize,
    groups: usize,
}

/// Fills a row, column by column, separately for each type.
struct Row<'w> {
    numbers: std::slice::IterMut<'w, NumberColumn>,
    texts: std::slice::IterMut<'w, StringBuilder>,
    flags: std::slice::IterMut<'w, BooleanBuilder>,
}

impl Row<'_> {
    fn number(&mut self, name: &str, number: Option<u64>) -> Result<()> {
        let number = number.map(|number| to_i64(name, number)).transpose()?;
        self.signed(number)
    }

    fn signed(&mut self, number: Option<i64>) -> Result<()> {
        self.numbers.next().context("more numbers than columns")?.push_option(number)
    }

    fn text(&mut self, text: Option<&str>) -> Result<()> {
        self.texts.next().context("more texts than columns")?.append_option(text);
        Ok(())
    }

    fn flag(&mut self, flag: bool) -> Result<()> {
        self.flags.next().context("more flags than columns")?.append_value(flag);
        Ok(())
    }

    fn end(&mut self, end: Option<&End>) -> Result<()> {
        self.signed(end.map(|end| end.pid.into()))?;
        self.signed(end.map(|end| end.tid.into()))?;
        self.text(end.map(|end| end.comm.as_str()))
    }
}

impl RequestWriter {
    pub(super) fn new(sink: Box<dyn Write + Send>) -> Result<RequestWriter> {
        let schema = Arc::new(schema());
        let (file, factory) =
            file_writer(sink, schema.clone())?.into_serialized_writer().map_err(told)?;
        let (mut numbers, mut texts, mut flags) = (Vec::new(), Vec::new(), Vec::new());
        let columns = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Int64 => {
                numbers.push(NumberColumn::new(field.is_nullable()));
                Column::Number(numbers.len() - 1)
            }
            DataType::Boolean => {
                flags.push(BooleanBuilder::new());
                Column::Flag(flags.len() - 1)
            }
            _ => {
                texts.push(StringBuilder::new());
                Column::Text(texts.len() - 1)
            }
        });
        let columns = columns.collect();
        let (encoders, rows, encoded_rows, groups) = (Vec::new(), 0, 0, 0);
        Ok(RequestWriter {
            file,
            schema,
            columns,
            numbers,
            texts,
            flags,
            encoders,
            factory,
            rows,
            encoded_rows,
            groups,
        })
    }

    pub(super) fn push(&mut self, request: &Request, segments: &[Told]) -> Result<()> {
        let mut row = Row {
            numbers: self.numbers.iter_mut(),
            texts: self.texts.iter_mut(),
            flags: self.flags.iter_mut(),
        };
        row.number(ID, Some(request.request_id))?;
        row.number(PARENT, request.parent_request_id)?;
        row.text(Some(request.kind.name()))?;
        row.number(START, Some(request.start_ns))?;
        row.number(LATENCY, Some(request.latency_ns))?;
        row.flag(request.complete)?;
        row.text(request.reason.as_ref().map(Reason::to_string).as_deref())?;
        row.number("records_lost", Some(request.records_lost))?;
        row.end(request.client.as_ref())?;
        row.end(request.server.as_ref())?;
        row.text(request.channel.as_deref())?;
        row.number("stream_id", request.stream_id)?;
        row.signed(request.xid.map(i64::from))?;
        row.signed(request.retransmissions.map(i64::from))?;
        row.text(request.method.as_deref())?;
        row.signed(request.status.map(i64::from))?;
        row.number("request_bytes", request.request_bytes)?;
        row.number("response_bytes", request.response_bytes)?;
        row.text(Some(request.certainty.name()))?;
        row.text(request.parent_certainty.map(Certainty::name))?;
        row.flag(request.detached)?;
        let ends = [request.client_moved, request.server_moved];
        let moved = ends.into_iter().flat_map(|end| match end {
            Some(Moved { bytes, cpu_ns, copy_ns, samples: Samples { all, copying } }) => {
                [bytes, cpu_ns, copy_ns, all, copying].map(Some)
            }
            None => [None; MOVED.len() / 2],
        });
        for (name, value) in MOVED.iter().zip(moved) {
            row.number(name, value)?;
        }
        row.number(HELD_BACK[0], request.held_back_ns)?;
        row.text(request.held_back_by.map(HeldBy::name))?;
        let known = request.complete || !segments.is_empty();
        for sum_ns in category_ns(segments) {
            row.number("a sum", known.then_some(sum_ns))?;
        }
        self.rows += 1;
        match self.rows {
            BATCH_ROWS => self.encode(),
            _ => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.encode()?;
        self.end_group()?;
        self.file.finish().map_err(told)?;
        Ok(())
    }

    /// Encodes texts and flags; ends the row group if it takes more memory than it may.
    fn encode(&mut self) -> Result<()> {
        if self.encoders.is_empty() {
            self.encoders = self.factory.create_column_writers(self.groups).map_err(told)?;
        }
        let mut bytes = 0;
        let columns = self.columns.iter().zip(self.schema.fields()).zip(&mut self.encoders);
        for ((column, field), encoder) in columns {
            let values: ArrayRef = match column {
                Column::Number(number) => {
                    bytes += self.numbers[*number].memory_size();
                    continue;
                }
                Column::Text(text) => Arc::new(self.texts[*text].finish()),
                Column::Flag(flag) => Arc::new(self.flags[*flag].finish()),
            };
            for leaf in compute_leaves(field, &values).map_err(told)? {
                encoder.write(&leaf).map_err(told)?;
            }
            bytes += encoder.memory_size();
        }
        self.encoded_rows += std::mem::take(&mut self.rows);
        match bytes > REQUESTS_HELD_BYTES {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    fn end_group(&mut self) -> Result<()> {
        if self.encoded_rows == 0 {
            return Ok(());
        }
        let described = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group().map_err(told)?;
        let encoders = std::mem::take(&mut self.encoders).into_iter();
        for ((column, described), encoder) in self.columns.iter().zip(described).zip(encoders) {
            match column {
                Column::Number(number) => {
                    let (chunk, close) = self.numbers[*number].finish(described)?;
                    group.append_column(&Bytes::from(chunk), close).map_err(told)?;
                }
                Column::Text(_) | Column::Flag(_) => {
                    let chunk = encoder.close().map_err(told)?;
                    chunk.append_to_row_group(&mut group).map_err(told)?;
                }
            }
        }
        group.close().map_err(told)?;
        self.groups += 1;
        self.encoded_rows = 0;
        Ok(())
    }
}
