//! Exports a table of the capture as text, with the columns and rows of the file.

use std::io::Write;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;

use crate::GoOn;
use rpcprobe_report::ids::Ids;
use rpcprobe_tables::Batches;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A line of column names, then a line per row; null values are empty.
    Csv,
    /// An object per line; null values are left out.
    JsonLines,
}

impl Format {
    /// File name extension of the format.
    pub fn ending(self) -> &'static str {
        match self {
            Format::Csv => "csv",
            Format::JsonLines => "jsonl",
        }
    }
}

/// Writes the rows of the requests in `ids`.
///
/// # Errors
/// The table cannot be read, `out` cannot be written, or `go_on` fails.
pub fn write(
    out: &mut dyn Write,
    table: Batches,
    ids: &Ids,
    format: Format,
    go_on: GoOn,
) -> Result<()> {
    let Batches { schema, rows } = table;
    // The first batch has no rows, so the column names are written even if the table has no rows.
    let batches = std::iter::once(Ok(RecordBatch::new_empty(schema))).chain(rows);
    let batches = batches.map(|batch| {
        go_on()?;
        wanted(&batch?, ids)
    });
    match format {
        Format::Csv => {
            let mut writer = arrow_csv::Writer::new(out);
            for batch in batches {
                writer.write(&batch?)?;
            }
        }
        Format::JsonLines => {
            let mut writer = arrow_json::LineDelimitedWriter::new(out);
            for batch in batches {
                writer.write(&batch?)?;
            }
            writer.finish()?;
        }
    }
    Ok(())
}

fn wanted(batch: &RecordBatch, ids: &Ids) -> Result<RecordBatch> {
    let column = batch.column_by_name("request_id").context("missing column `request_id`")?;
    let numbers = column.as_primitive_opt::<Int64Type>().context("`request_id` is no INT64")?;
    let is_wanted = |id: Option<i64>| {
        Some(id.and_then(|id| u64::try_from(id).ok()).is_some_and(|id| ids.contains(id)))
    };
    let wanted: BooleanArray = numbers.iter().map(is_wanted).collect();
    Ok(filter_record_batch(batch, &wanted)?)
}
