//! Fills in the parents of requests when their rows are known: a parent's row comes after the rows of the requests that
//! it waited for.

use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch, StringArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::requests::{schema, DETACHED, LATENCY, PARENT, PARENT_CERTAINTY, START};

use super::{file_writer, told, write_batch, BATCH_ROWS, REQUESTS_FILE, REQUESTS_HELD_BYTES};

/// The row of a request that other requests name as their parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentRow {
    /// The request's number in the table.
    pub number: u64,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Copies a finished file of requests and replaces the ids of parents: `row_of` returns the row of the request that an
/// id stands for, if there is one. A request that does not begin within its parent gets no parent. A request that ends
/// after its parent is detached.
///
/// # Errors
/// When `from` cannot be read or `to` cannot be written.
pub fn renumber_parents(
    from: File,
    to: impl Write + Send + 'static,
    row_of: impl Fn(u64) -> Option<ParentRow>,
) -> Result<()> {
    let row_of = |id: i64| row_of(u64::try_from(id).ok()?);
    let renumber = || -> Result<()> {
        let mut from = from;
        from.rewind()?;
        let schema = Arc::new(schema());
        let [parent_at, certainty_at, detached_at] = [
            schema.index_of(PARENT)?,
            schema.index_of(PARENT_CERTAINTY)?,
            schema.index_of(DETACHED)?,
        ];
        let [start_at, latency_at] = [schema.index_of(START)?, schema.index_of(LATENCY)?];
        let mut writer = file_writer(Box::new(to), schema.clone())?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(from)?;
        for batch in reader.with_batch_size(BATCH_ROWS).build()? {
            let mut columns = batch?.columns().to_vec();
            let ints = |at: usize| columns[at].as_primitive::<Int64Type>();
            let (parents, starts, latencies) = (ints(parent_at), ints(start_at), ints(latency_at));
            let detached = columns[detached_at].as_boolean();
            let window = |row: usize| {
                let start_ns = u64::try_from(starts.value(row)).ok()?;
                Some((start_ns, start_ns.saturating_add(u64::try_from(latencies.value(row)).ok()?)))
            };
            let linked = |row: usize| {
                let parent = parents.is_valid(row).then(|| row_of(parents.value(row))).flatten()?;
                let (start_ns, end_ns) = window(row)?;
                let within = parent.start_ns <= start_ns && start_ns <= parent.end_ns;
                let late = detached.value(row) || parent.end_ns < end_ns;
                within.then_some((i64::try_from(parent.number).ok()?, late))
            };
            let linked: Vec<Option<(i64, bool)>> = (0..parents.len()).map(linked).collect();
            let of_parents: Int64Array = linked.iter().map(|link| link.map(|(id, _)| id)).collect();
            let late = linked.iter().map(|link| Some(link.is_some_and(|(_, late)| late)));
            let late: BooleanArray = late.collect();
            let certainties = columns[certainty_at].as_string::<i32>().iter().enumerate();
            let certainties = certainties.map(|(row, name)| name.filter(|_| linked[row].is_some()));
            columns[certainty_at] = Arc::new(certainties.collect::<StringArray>());
            columns[parent_at] = Arc::new(of_parents);
            columns[detached_at] = Arc::new(late);
            let batch = RecordBatch::try_new(schema.clone(), columns)?;
            write_batch(&mut writer, &batch, REQUESTS_HELD_BYTES)?;
        }
        writer.close().map_err(told)?;
        Ok(())
    };
    renumber().context(REQUESTS_FILE)
}

#[cfg(test)]
mod tests {
    use super::super::{read_requests, Writer};
    use super::*;
    use rpcprobe_model::{Certainty, Kind, Request, Segments};

    /// 10,000 requests of 5 ns that begin every 10 ns. One quarter each has no parent, a parent whose window covers all
    /// requests, a parent that ended in the middle of the 2,002nd request, and a parent that is in no row.
    #[test]
    fn only_parents_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut writer = Writer::new(File::create(at("first")).unwrap(), std::io::sink()).unwrap();
        let requests: Vec<Request> = (1..=10_000)
            .map(|request_id| Request {
                request_id,
                parent_request_id: [None, Some(7), Some(1 << 62), Some(8)][request_id as usize % 4],
                parent_certainty: (request_id % 4 > 0).then_some(Certainty::Sure),
                ..Request::new(Kind::Tcp, 10 * request_id, 10 * request_id + 5)
            })
            .collect();
        requests.iter().for_each(|request| writer.push(request, &Segments::default()).unwrap());
        writer.finish().unwrap();
        let row_of = |id| match id {
            7 => Some(ParentRow { number: 3, start_ns: 0, end_ns: 200_000 }),
            id if id == 1 << 62 => {
                Some(ParentRow { number: 9_999, start_ns: 1_000, end_ns: 20_022 })
            }
            _ => None,
        };
        let (from, to) = (File::open(at("first")).unwrap(), File::create(at("second")).unwrap());
        renumber_parents(from, to, row_of).unwrap();
        let (first, second) = (read_requests(&at("first")), read_requests(&at("second")));
        let mut expected = first.unwrap();
        for row in &mut expected {
            let request = &mut row.request;
            request.parent_request_id = match request.parent_request_id {
                Some(7) => Some(3),
                Some(id) if id == 1 << 62 && (1_000..=20_022).contains(&request.start_ns) => {
                    Some(9_999)
                }
                _ => None,
            };
            request.parent_certainty = request.parent_request_id.map(|_| Certainty::Sure);
            request.detached = request.request_id == 2_002;
        }
        assert_eq!(expected[2_001].request.parent_request_id, Some(9_999));
        assert_eq!(second.unwrap(), expected);
    }
}
