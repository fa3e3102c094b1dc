//! Parents of requests, put in when their rows are known: a parent's row comes after those of the
//! requests that it waited for.

use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::requests::{schema, PARENT};
use super::{file_writer, told, write_batch, BATCH_ROWS, REQUESTS_FILE, REQUESTS_HELD_BYTES};

/// Copies a finished file of requests, with other ids of parents: `number_of` gives the request for
/// which each stands, if there is one.
///
/// # Errors
/// When `from` cannot be read or `to` cannot be written.
pub fn renumber_parents(
    from: File,
    to: impl Write + Send + 'static,
    number_of: impl Fn(u64) -> Option<u64>,
) -> Result<()> {
    let number_of = |id: i64| i64::try_from(number_of(u64::try_from(id).ok()?)?).ok();
    let renumber = || -> Result<()> {
        let mut from = from;
        from.rewind()?;
        let schema = Arc::new(schema());
        let at = schema.index_of(PARENT)?;
        let mut writer = file_writer(Box::new(to), schema.clone())?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(from)?;
        for batch in reader.with_batch_size(BATCH_ROWS).build()? {
            let mut columns = batch?.columns().to_vec();
            let parents = columns[at].as_primitive::<Int64Type>();
            let parents: Int64Array = parents.iter().map(|id| id.and_then(number_of)).collect();
            columns[at] = Arc::new(parents);
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
    use crate::model::{Kind, Request};

    #[test]
    fn only_parents_change() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let mut writer = Writer::new(File::create(at("first")).unwrap(), std::io::sink()).unwrap();
        let requests: Vec<Request> = (1..=10_000)
            .map(|request_id| Request {
                request_id,
                parent_request_id: [None, Some(7), Some(1 << 62), Some(8)][request_id as usize % 4],
                ..Request::new(Kind::Tcp, 10 * request_id, 10 * request_id + 5)
            })
            .collect();
        requests.iter().for_each(|request| writer.push(request, &[]).unwrap());
        writer.finish().unwrap();
        let number_of = |id| match id {
            7 => Some(3),
            id if id == 1 << 62 => Some(9_999),
            _ => None,
        };
        let (from, to) = (File::open(at("first")).unwrap(), File::create(at("second")).unwrap());
        renumber_parents(from, to, number_of).unwrap();
        let (first, second) = (read_requests(&at("first")), read_requests(&at("second")));
        let mut expected = first.unwrap();
        for row in &mut expected {
            row.request.parent_request_id = row.request.parent_request_id.and_then(number_of);
        }
        assert!(expected.iter().any(|row| row.request.parent_request_id == Some(9_999)));
        assert_eq!(second.unwrap(), expected);
    }
}
