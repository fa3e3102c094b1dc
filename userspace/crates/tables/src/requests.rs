//! `requests.parquet`: one row a request.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::{bail, Result};
use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

use super::{
    bools, decode_rows, file_writer, open_with, rows, to_i64, told, write_batch, CategorySums,
    FileWriter, Ints, RequestRow, Rows, Texts, BATCH_ROWS, REQUESTS_HELD_BYTES,
};
use rpcprobe_model::{
    category_ns, Category, Certainty, End, HeldBy, Kind, Moved, Reason, Request, Samples, Segment,
};

/// Every request of a file, in its order.
///
/// # Errors
/// When the file cannot be read, is not a whole Parquet file, or lacks a column.
pub fn stream_requests(path: &Path) -> Result<Rows<RequestRow>> {
    rows(path, open_with(path, &required(), &schema())?, decode)
}

/// All requests of a file at once.
///
/// # Errors
/// As [`stream_requests`], and when a row holds what no request can have.
pub fn read_requests(path: &Path) -> Result<Vec<RequestRow>> {
    stream_requests(path)?.collect()
}

/// Of the client and of the server, all five or none.
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

/// How long an answer was held back, and why: in a file both or none.
const HELD_BACK: [&str; 2] = ["held_back_ns", "held_back_by"];

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
        int("request_id", false),
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

/// Without what captures of earlier versions lack.
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

#[derive(Default)]
struct EndColumns {
    pid: Int64Builder,
    tid: Int64Builder,
    comm: StringBuilder,
}

impl EndColumns {
    fn append(&mut self, end: Option<&End>) {
        self.pid.append_option(end.map(|end| i64::from(end.pid)));
        self.tid.append_option(end.map(|end| i64::from(end.tid)));
        self.comm.append_option(end.map(|end| &end.comm));
    }

    fn take(&mut self) -> [ArrayRef; 3] {
        [Arc::new(self.pid.finish()), Arc::new(self.tid.finish()), Arc::new(self.comm.finish())]
    }
}

/// Rows not yet encoded.
#[derive(Default)]
struct Columns {
    request_id: Int64Builder,
    parent_request_id: Int64Builder,
    kind: StringBuilder,
    start_ns: Int64Builder,
    latency_ns: Int64Builder,
    complete: BooleanBuilder,
    reason: StringBuilder,
    records_lost: Int64Builder,
    client: EndColumns,
    server: EndColumns,
    channel: StringBuilder,
    stream_id: Int64Builder,
    xid: Int64Builder,
    retransmissions: Int64Builder,
    method: StringBuilder,
    status: Int64Builder,
    request_bytes: Int64Builder,
    response_bytes: Int64Builder,
    certainty: StringBuilder,
    parent_certainty: StringBuilder,
    detached: BooleanBuilder,
    moved: [Int64Builder; MOVED.len()],
    held_back_ns: Int64Builder,
    held_back_by: StringBuilder,
    categories: [Int64Builder; Category::ALL.len()],
}

pub(super) struct RequestWriter {
    file: FileWriter,
    schema: Arc<Schema>,
    columns: Columns,
    rows: usize,
}

impl RequestWriter {
    pub(super) fn new(sink: Box<dyn Write + Send>) -> Result<RequestWriter> {
        let schema = Arc::new(schema());
        let file = file_writer(sink, schema.clone())?;
        Ok(RequestWriter { file, schema, columns: Columns::default(), rows: 0 })
    }

    pub(super) fn push(&mut self, request: &Request, segments: &[Segment]) -> Result<()> {
        let opt = |name, value: Option<u64>| value.map(|value| to_i64(name, value)).transpose();
        let c = &mut self.columns;
        c.request_id.append_value(to_i64("request_id", request.request_id)?);
        c.parent_request_id.append_option(opt(PARENT, request.parent_request_id)?);
        c.kind.append_value(request.kind.name());
        c.start_ns.append_value(to_i64(START, request.start_ns)?);
        c.latency_ns.append_value(to_i64(LATENCY, request.latency_ns)?);
        c.complete.append_value(request.complete);
        c.reason.append_option(request.reason.as_ref().map(Reason::to_string));
        c.records_lost.append_value(to_i64("records_lost", request.records_lost)?);
        c.client.append(request.client.as_ref());
        c.server.append(request.server.as_ref());
        c.channel.append_option(request.channel.as_ref());
        c.stream_id.append_option(opt("stream_id", request.stream_id)?);
        c.xid.append_option(request.xid.map(i64::from));
        c.retransmissions.append_option(request.retransmissions.map(i64::from));
        c.method.append_option(request.method.as_ref());
        c.status.append_option(request.status.map(i64::from));
        c.request_bytes.append_option(opt("request_bytes", request.request_bytes)?);
        c.response_bytes.append_option(opt("response_bytes", request.response_bytes)?);
        c.certainty.append_value(request.certainty.name());
        c.parent_certainty.append_option(request.parent_certainty.map(Certainty::name));
        c.detached.append_value(request.detached);
        let ends = [request.client_moved, request.server_moved];
        let moved = ends.into_iter().flat_map(|end| match end {
            Some(Moved { bytes, cpu_ns, copy_ns, samples: Samples { all, copying } }) => {
                [bytes, cpu_ns, copy_ns, all, copying].map(Some)
            }
            None => [None; MOVED.len() / 2],
        });
        for ((column, name), value) in c.moved.iter_mut().zip(MOVED).zip(moved) {
            column.append_option(opt(name, value)?);
        }
        c.held_back_ns.append_option(opt(HELD_BACK[0], request.held_back_ns)?);
        c.held_back_by.append_option(request.held_back_by.map(HeldBy::name));
        let known = request.complete || !segments.is_empty();
        for (column, sum_ns) in c.categories.iter_mut().zip(category_ns(segments)) {
            column.append_option(if known { Some(to_i64("a sum", sum_ns)?) } else { None });
        }
        self.rows += 1;
        if self.rows == BATCH_ROWS {
            self.encode()?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.encode()?;
        self.file.close().map_err(told)?;
        Ok(())
    }

    fn encode(&mut self) -> Result<()> {
        self.rows = 0;
        let c = &mut self.columns;
        let [client_pid, client_tid, client_comm] = c.client.take();
        let [server_pid, server_tid, server_comm] = c.server.take();
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(c.request_id.finish()),
            Arc::new(c.parent_request_id.finish()),
            Arc::new(c.kind.finish()),
            Arc::new(c.start_ns.finish()),
            Arc::new(c.latency_ns.finish()),
            Arc::new(c.complete.finish()),
            Arc::new(c.reason.finish()),
            Arc::new(c.records_lost.finish()),
            client_pid,
            client_tid,
            client_comm,
            server_pid,
            server_tid,
            server_comm,
            Arc::new(c.channel.finish()),
            Arc::new(c.stream_id.finish()),
            Arc::new(c.xid.finish()),
            Arc::new(c.retransmissions.finish()),
            Arc::new(c.method.finish()),
            Arc::new(c.status.finish()),
            Arc::new(c.request_bytes.finish()),
            Arc::new(c.response_bytes.finish()),
        ];
        arrays.push(Arc::new(c.certainty.finish()));
        arrays.push(Arc::new(c.parent_certainty.finish()));
        arrays.push(Arc::new(c.detached.finish()));
        arrays.extend(c.moved.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        arrays.push(Arc::new(c.held_back_ns.finish()));
        arrays.push(Arc::new(c.held_back_by.finish()));
        arrays.extend(c.categories.iter_mut().map(|column| Arc::new(column.finish()) as ArrayRef));
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        write_batch(&mut self.file, &batch, REQUESTS_HELD_BYTES)
    }
}

struct EndReader {
    pid: Ints,
    tid: Ints,
    comm: Texts,
}

impl EndReader {
    /// All three or none.
    fn get(&self, row: usize) -> Result<Option<End>> {
        match (self.pid.get(row)?, self.tid.get(row)?, self.comm.owned(row)) {
            (Some(pid), Some(tid), Some(comm)) => Ok(Some(End { pid, tid, comm })),
            (None, None, None) => Ok(None),
            _ => bail!(
                "of `{}`, `{}`, `{}` some are null",
                self.pid.name,
                self.tid.name,
                self.comm.name
            ),
        }
    }
}

struct Reader {
    request_id: Ints,
    parent_request_id: Ints,
    kind: Texts,
    start_ns: Ints,
    latency_ns: Ints,
    complete: BooleanArray,
    reason: Texts,
    records_lost: Ints,
    client: EndReader,
    server: EndReader,
    channel: Texts,
    stream_id: Ints,
    xid: Ints,
    retransmissions: Ints,
    method: Texts,
    status: Ints,
    request_bytes: Ints,
    response_bytes: Ints,
    /// These, what was moved and what was held back are missing in captures of before there were any.
    certainty: Option<Texts>,
    parent_certainty: Option<Texts>,
    detached: Option<BooleanArray>,
    moved: Option<Vec<Ints>>,
    held_back: Option<(Ints, Texts)>,
    categories: Vec<Ints>,
}

impl Reader {
    fn of(batch: &RecordBatch) -> Result<Reader> {
        let int = |name| Ints::of(batch, name);
        let text = |name| Texts::of(batch, name);
        let has_moved = MOVED.iter().all(|name| batch.column_by_name(name).is_some());
        let has_held_back = HELD_BACK.iter().all(|name| batch.column_by_name(name).is_some());
        let held_back = || Ok::<_, anyhow::Error>((int(HELD_BACK[0])?, text(HELD_BACK[1])?));
        let moved = || MOVED.iter().map(|name| int(name)).collect::<Result<_>>();
        Ok(Reader {
            request_id: int("request_id")?,
            parent_request_id: int(PARENT)?,
            kind: text("kind")?,
            start_ns: int(START)?,
            latency_ns: int(LATENCY)?,
            complete: bools(batch, "complete")?,
            reason: text("reason")?,
            records_lost: int("records_lost")?,
            client: EndReader {
                pid: int("client_pid")?,
                tid: int("client_tid")?,
                comm: text("client_comm")?,
            },
            server: EndReader {
                pid: int("server_pid")?,
                tid: int("server_tid")?,
                comm: text("server_comm")?,
            },
            channel: text("channel")?,
            stream_id: int("stream_id")?,
            xid: int("xid")?,
            retransmissions: int("retransmissions")?,
            method: text("method")?,
            status: int("status")?,
            request_bytes: int("request_bytes")?,
            response_bytes: int("response_bytes")?,
            certainty: batch.column_by_name(CERTAINTY).map(|_| text(CERTAINTY)).transpose()?,
            parent_certainty: (batch.column_by_name(PARENT_CERTAINTY))
                .map(|_| text(PARENT_CERTAINTY))
                .transpose()?,
            detached: batch.column_by_name(DETACHED).map(|_| bools(batch, DETACHED)).transpose()?,
            moved: has_moved.then(moved).transpose()?,
            held_back: has_held_back.then(held_back).transpose()?,
            categories: Category::ALL.iter().map(|c| int(c.name())).collect::<Result<_>>()?,
        })
    }

    /// What an end moved, the client (0) or the server (1).
    fn moved(&self, end: usize, row: usize) -> Result<Option<Moved>> {
        let Some(columns) = &self.moved else { return Ok(None) };
        let each = MOVED.len() / 2;
        let of: Vec<Option<u64>> = (columns.iter().skip(each * end).take(each))
            .map(|ints| ints.get(row))
            .collect::<Result<_>>()?;
        match of[..] {
            [Some(bytes), Some(cpu_ns), Some(copy_ns), Some(all), Some(copying)] => {
                let samples = Samples { all, copying };
                Ok(Some(Moved { bytes, cpu_ns, copy_ns, samples }))
            }
            [None, None, None, None, None] => Ok(None),
            _ => bail!("of what the {} moved some is null", ["client", "server"][end]),
        }
    }

    fn parent_certainty(&self, row: usize) -> Result<Option<Certainty>> {
        match &self.parent_certainty {
            Some(column) if column.owned(row).is_some() => {
                column.named(row, Certainty::from_name).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn held_back_by(&self, row: usize) -> Result<Option<HeldBy>> {
        match &self.held_back {
            Some((_, by)) if by.owned(row).is_some() => by.named(row, HeldBy::from_name).map(Some),
            _ => Ok(None),
        }
    }

    fn row(&self, row: usize) -> Result<RequestRow> {
        if self.complete.is_null(row) {
            bail!("`complete` is null");
        }
        let request = Request {
            request_id: self.request_id.need(row)?,
            parent_request_id: self.parent_request_id.get(row)?,
            parent_certainty: self.parent_certainty(row)?,
            detached: self.detached.as_ref().is_some_and(|d| d.is_valid(row) && d.value(row)),
            kind: self.kind.named(row, Kind::from_name)?,
            certainty: match &self.certainty {
                Some(column) => column.named(row, Certainty::from_name)?,
                None => Certainty::Likely,
            },
            start_ns: self.start_ns.need(row)?,
            latency_ns: self.latency_ns.need(row)?,
            complete: self.complete.value(row),
            reason: self.reason.get(row).map(Reason::from),
            records_lost: self.records_lost.need(row)?,
            client: self.client.get(row)?,
            server: self.server.get(row)?,
            channel: self.channel.owned(row),
            stream_id: self.stream_id.get(row)?,
            xid: self.xid.get(row)?,
            retransmissions: self.retransmissions.get(row)?,
            method: self.method.owned(row),
            status: self.status.get(row)?,
            request_bytes: self.request_bytes.get(row)?,
            response_bytes: self.response_bytes.get(row)?,
            client_moved: self.moved(0, row)?,
            server_moved: self.moved(1, row)?,
            held_back_ns: match &self.held_back {
                Some((ns, _)) => ns.get(row)?,
                None => None,
            },
            held_back_by: self.held_back_by(row)?,
        };
        let mut category_ns: CategorySums = [None; Category::ALL.len()];
        for (sum_ns, column) in category_ns.iter_mut().zip(&self.categories) {
            *sum_ns = column.get(row)?;
        }
        Ok(RequestRow { request, category_ns })
    }
}

fn decode(batch: &RecordBatch, first_row: u64) -> Result<Vec<RequestRow>> {
    let reader = Reader::of(batch)?;
    decode_rows(batch, first_row, |row| reader.row(row))
}
