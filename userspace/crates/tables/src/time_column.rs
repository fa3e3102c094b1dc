//! Encodes a column of times, none of which is null.
//!
//! Most of a request's segments last microseconds, some last milliseconds. Packed with one number of bits for many of
//! them, as differences are ([`crate::number_column`]), all take as many bits as the longest. Here they stay as they are
//! (`PLAIN`), and the compressor finds which of their bytes are alike.

use anyhow::Result;
use parquet::basic::Encoding;
use parquet::column::writer::ColumnCloseResult;
use parquet::schema::types::ColumnDescPtr;

use crate::pages::{Codec, Pages, PAGE_ROWS};

/// A column of times of the current row group.
pub struct TimeColumn {
    /// The current data page.
    page: Vec<u8>,
    pages: Pages,
    /// Minimum and maximum in the row group.
    range: Option<(i64, i64)>,
}

impl TimeColumn {
    /// # Errors
    /// When zstd has no memory.
    pub fn new() -> Result<TimeColumn> {
        let pages = Pages::new(Encoding::PLAIN, Codec::zstd()?);
        Ok(TimeColumn { page: Vec::new(), pages, range: None })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When a page cannot be compressed.
    pub fn extend(&mut self, times: impl Iterator<Item = i64>) -> Result<()> {
        for time in times {
            let (least, greatest) = self.range.unwrap_or((time, time));
            self.range = Some((least.min(time), greatest.max(time)));
            self.page.extend(time.to_le_bytes());
            if self.page.len() == PAGE_ROWS * size_of::<i64>() {
                self.end_page()?;
            }
        }
        Ok(())
    }

    /// Memory size in bytes.
    pub fn memory_size(&self) -> usize {
        self.pages.memory_size() + self.page.len()
    }

    fn end_page(&mut self) -> Result<()> {
        let rows = self.page.len() / size_of::<i64>();
        if rows > 0 {
            self.pages.push(&self.page, rows)?;
            self.page.clear();
        }
        Ok(())
    }

    /// Returns the column's chunk of the row group and its metadata for the footer. The column then begins a new chunk.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish(&mut self, column: ColumnDescPtr) -> Result<(Vec<u8>, ColumnCloseResult)> {
        self.end_page()?;
        self.pages.finish_numbers(column, self.range.take(), 0, |metadata| metadata)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_schema::{DataType, Field, Schema};
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::statistics::Statistics;

    use super::*;
    use crate::file_writer;

    #[test]
    fn the_library_reads_what_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("times");
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        for rows in [1, 7, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS] {
            let times = |seed: i64| (0..rows as i64).map(move |n| (n * seed) % 1_000_003 - 17);
            let sink = Box::new(File::create(&path).unwrap());
            let (mut file, _) =
                file_writer(sink, schema.clone()).unwrap().into_serialized_writer().unwrap();
            let mut column = TimeColumn::new().unwrap();
            // Two row groups by one column.
            for seed in [7_919, 104_729] {
                column.extend(times(seed)).unwrap();
                let described = file.schema_descr().columns()[0].clone();
                let (chunk, close) = column.finish(described).unwrap();
                let mut group = file.next_row_group().unwrap();
                group.append_column(&Bytes::from(chunk), close).unwrap();
                group.close().unwrap();
            }
            file.finish().unwrap();
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&path).unwrap());
            let reader = reader.unwrap();
            for (group, seed) in reader.metadata().row_groups().iter().zip([7_919, 104_729]) {
                let Some(Statistics::Int64(told)) = group.column(0).statistics() else { panic!() };
                let range = (times(seed).min(), times(seed).max());
                assert_eq!((told.min_opt().copied(), told.max_opt().copied()), range);
            }
            let read: Vec<i64> = { reader.build().unwrap() }
                .flat_map(|batch| {
                    batch.unwrap().column(0).as_primitive::<Int64Type>().values().to_vec()
                })
                .collect();
            assert!(read.into_iter().eq(times(7_919).chain(times(104_729))), "{rows} rows");
        }
    }
}
