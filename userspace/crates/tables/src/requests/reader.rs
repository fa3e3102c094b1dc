//! Reads rows of `requests.parquet`, in which any value may be wrong.

use anyhow::{bail, Result};
use arrow_array::{Array, BooleanArray, RecordBatch};

use super::{CERTAINTY, DETACHED, HELD_BACK, LATENCY, MOVED, PARENT, PARENT_CERTAINTY, START};
use crate::{bools, decode_rows, CategorySums, Ints, RequestRow, Texts};
use rpcprobe_model::{Category, Certainty, End, HeldBy, Kind, Moved, Reason, Request, Samples};

struct EndReader {
    pid: Ints,
    tid: Ints,
    comm: Texts,
}

impl EndReader {
    /// Returns the end if all three columns have values; fails if only some have.
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
    /// This column and the four after it are missing in captures that are older than them.
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

    /// What an end moved: the client (0) or the server (1).
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

pub(super) fn decode(batch: &RecordBatch, first_row: u64) -> Result<Vec<RequestRow>> {
    let reader = Reader::of(batch)?;
    decode_rows(batch, first_row, |row| reader.row(row))
}
