//! Reads a few columns of `requests.parquet`, for what must be known about all requests before the first is read.

use std::path::Path;

use anyhow::{ensure, Result};
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::Schema;

use super::{required, schema, LATENCY, PARENT};
use crate::{bools, decode_rows, open_with, rows, Ints, Rows, Texts};
use rpcprobe_model::{Kind, Request};

/// The data that shows how a request is related to others, and which methods take the most time.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOutline {
    pub parent_request_id: Option<u64>,
    pub kind: Kind,
    pub latency_ns: u64,
    pub complete: bool,
    pub server_pid: Option<u32>,
    pub method: Option<String>,
}

impl From<&Request> for RequestOutline {
    fn from(request: &Request) -> RequestOutline {
        RequestOutline {
            parent_request_id: request.parent_request_id,
            kind: request.kind,
            latency_ns: request.latency_ns,
            complete: request.complete,
            server_pid: request.server.as_ref().map(|end| end.pid),
            method: request.method.clone(),
        }
    }
}

const KIND: &str = "kind";
const COMPLETE: &str = "complete";
const SERVER_PID: &str = "server_pid";
const METHOD: &str = "method";

/// Returns the outline of every request of a file, in the file's order. The other columns must exist but are not read.
///
/// # Errors
/// As [`super::stream_requests`].
pub fn stream_outlines(path: &Path) -> Result<Rows<RequestOutline>> {
    let wanted = [PARENT, KIND, LATENCY, COMPLETE, SERVER_PID, METHOD];
    let all = schema();
    let wanted = all.fields().iter().filter(|field| wanted.contains(&field.name().as_str()));
    let wanted = Schema::new(wanted.cloned().collect::<Vec<_>>());
    rows(path, open_with(path, &required(), &wanted)?, decode)
}

struct Reader {
    parent_request_id: Ints,
    kind: Texts,
    latency_ns: Ints,
    complete: BooleanArray,
    server_pid: Ints,
    method: Texts,
}

impl Reader {
    fn of(batch: &RecordBatch) -> Result<Reader> {
        Ok(Reader {
            parent_request_id: Ints::of(batch, PARENT)?,
            kind: Texts::of(batch, KIND)?,
            latency_ns: Ints::of(batch, LATENCY)?,
            complete: bools(batch, COMPLETE)?,
            server_pid: Ints::of(batch, SERVER_PID)?,
            method: Texts::of(batch, METHOD)?,
        })
    }

    fn row(&self, row: usize) -> Result<RequestOutline> {
        ensure!(self.complete.is_valid(row), "`complete` is null");
        Ok(RequestOutline {
            parent_request_id: self.parent_request_id.get(row)?,
            kind: self.kind.named(row, Kind::from_name)?,
            latency_ns: self.latency_ns.need(row)?,
            complete: self.complete.value(row),
            server_pid: self.server_pid.get(row)?,
            method: self.method.owned(row),
        })
    }
}

fn decode(batch: &RecordBatch, first_row: u64) -> Result<Vec<RequestOutline>> {
    let reader = Reader::of(batch)?;
    decode_rows(batch, first_row, |row| reader.row(row))
}
