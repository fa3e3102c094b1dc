//! Encodes a column of numbers, some of which may be null.
//!
//! The Parquet library produces the same pages, byte for byte, but passes each number through a builder, an array and a
//! list of levels before it packs it. Here each number is turned into its difference to the previous number at once,
//! and a row only extends a run of rows that are present or null. See
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>, `DELTA_BINARY_PACKED`.

use anyhow::{ensure, Context, Result};
use parquet::basic::Encoding;
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::LevelHistogram;
use parquet::schema::types::ColumnDescPtr;

use crate::levels::{put_levels, Presence};
use crate::pages::{put_varint, Codec, Pages, PAGE_ROWS};

/// Number of differences packed together. They are packed in parts, each with its own number of bits.
const BLOCK: usize = 256;
const PARTS: usize = 4;
const PART: usize = BLOCK / PARTS;

/// A number column of the current row group.
pub struct NumberColumn {
    nullable: bool,
    page: NumberPage,
    pages: Pages,
    nulls: u64,
    rows: u64,
}

/// The current data page.
struct NumberPage {
    /// Numbers that are not packed yet. The first one is only the base of the differences.
    numbers: Box<[i64; BLOCK + 1]>,
    held: usize,
    /// The first number of the page; set once numbers have been packed.
    first: Option<i64>,
    packed: Vec<u8>,
    present: Presence,
    /// Minimum and maximum in the row group.
    range: Option<(i64, i64)>,
}

impl NumberColumn {
    pub fn new(nullable: bool) -> NumberColumn {
        let pages = Pages::new(Encoding::DELTA_BINARY_PACKED, Codec::snappy());
        NumberColumn { nullable, page: NumberPage::new(), pages, nulls: 0, rows: 0 }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When a page cannot be compressed.
    pub fn push(&mut self, number: i64) -> Result<()> {
        self.page.hold(number);
        self.page.present.add(true, 1);
        self.end_full_page()
    }

    /// Adds a row that may be null.
    ///
    /// # Errors
    /// As [`NumberColumn::push`], and when a null is added to a column that must not have any.
    pub fn push_option(&mut self, number: Option<i64>) -> Result<()> {
        match number {
            Some(number) => self.push(number),
            None => self.push_nulls(1),
        }
    }

    /// Adds null rows.
    ///
    /// # Errors
    /// As [`NumberColumn::push_option`].
    pub fn push_nulls(&mut self, rows: usize) -> Result<()> {
        ensure!(self.nullable, "a number is missing");
        let mut left = rows;
        while left > 0 {
            let now = left.min(PAGE_ROWS - self.page.present.rows);
            self.page.present.add(false, now);
            self.end_full_page()?;
            left -= now;
        }
        Ok(())
    }

    /// Adds rows.
    ///
    /// # Errors
    /// As [`NumberColumn::push`].
    pub fn extend(&mut self, mut numbers: impl ExactSizeIterator<Item = i64>) -> Result<()> {
        while numbers.len() > 0 {
            let now = numbers.len().min(PAGE_ROWS - self.page.present.rows);
            numbers.by_ref().take(now).for_each(|number| self.page.hold(number));
            self.page.present.add(true, now);
            self.end_full_page()?;
        }
        Ok(())
    }

    fn end_full_page(&mut self) -> Result<()> {
        match self.page.present.rows {
            PAGE_ROWS => self.end_page(),
            _ => Ok(()),
        }
    }

    /// Memory size in bytes.
    pub fn memory_size(&self) -> usize {
        self.pages.memory_size() + self.page.packed.len() + size_of::<[i64; BLOCK]>()
    }

    fn end_page(&mut self) -> Result<()> {
        let (rows, nulls) = (self.page.present.rows, self.page.present.absent);
        if rows == 0 {
            return Ok(());
        }
        self.rows += rows as u64;
        self.nulls += nulls as u64;
        let page = self.page.take(self.nullable)?;
        self.pages.push(&page, rows)
    }

    /// Returns the column's chunk of the row group and its metadata for the footer. The column then begins a new chunk.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish(&mut self, column: ColumnDescPtr) -> Result<(Vec<u8>, ColumnCloseResult)> {
        self.end_page()?;
        let there = self.rows - self.nulls;
        let levels = [i64::try_from(self.nulls)?, i64::try_from(there)?];
        let levels = self.nullable.then(|| LevelHistogram::from(levels.to_vec()));
        let range = self.page.range.take();
        let finished = self.pages.finish_numbers(column, range, self.nulls, |metadata| {
            metadata.set_definition_level_histogram(levels)
        })?;
        (self.nulls, self.rows) = (0, 0);
        Ok(finished)
    }
}

impl NumberPage {
    fn new() -> NumberPage {
        NumberPage {
            numbers: Box::new([0; BLOCK + 1]),
            held: 0,
            first: None,
            packed: Vec::new(),
            present: Presence::default(),
            range: None,
        }
    }

    #[inline]
    fn hold(&mut self, number: i64) {
        self.numbers[self.held] = number;
        self.held += 1;
        if self.held == self.numbers.len() {
            self.pack();
            (self.numbers[0], self.held) = (number, 1);
        }
    }

    /// Packs the differences of a block, each as its excess over the smallest difference.
    fn pack(&mut self) {
        let Some(count) = self.held.checked_sub(1) else { return };
        let first = self.numbers[0];
        self.first.get_or_insert(first);
        let (mut least, mut greatest) = self.range.unwrap_or((first, first));
        let mut differences = [0; BLOCK];
        let mut step = i64::MAX;
        let mut before = first;
        (least, greatest) = (least.min(first), greatest.max(first));
        for (number, difference) in self.numbers[1..].iter().zip(&mut differences).take(count) {
            *difference = number.wrapping_sub(before);
            step = step.min(*difference);
            (least, greatest) = (least.min(*number), greatest.max(*number));
            before = *number;
        }
        self.range = Some((least, greatest));
        if count == 0 {
            return;
        }
        put_varint(&mut self.packed, zigzag(step));
        let bits_at = self.packed.len();
        self.packed.extend([0; PARTS]);
        for (number, part) in differences[..count].chunks_mut(PART).enumerate() {
            let all = part.iter_mut().fold(0, |all, difference| {
                *difference = difference.wrapping_sub(step);
                all | *difference as u64
            });
            let bits = u64::BITS - all.leading_zeros();
            self.packed[bits_at + number] = bits as u8; // at most 64
            put_bits(&mut self.packed, part, bits);
        }
    }

    /// Returns the finished page and begins a new one.
    fn take(&mut self, nullable: bool) -> Result<Vec<u8>> {
        self.pack();
        let mut page = Vec::with_capacity(self.packed.len() + 64);
        let present = std::mem::take(&mut self.present);
        if nullable {
            page.extend([0; 4]);
            put_levels(&mut page, present.runs());
            let length = u32::try_from(page.len() - 4).context("a page too long")?;
            page[..4].copy_from_slice(&length.to_le_bytes());
        }
        for number in [BLOCK, PARTS, present.rows - present.absent] {
            put_varint(&mut page, number as u64);
        }
        put_varint(&mut page, zigzag(self.first.take().unwrap_or(0)));
        page.append(&mut self.packed);
        self.held = 0;
        Ok(page)
    }
}

/// Encodes a number with its sign in the lowest bit.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Appends the values of a part with `bits` bits each, padded with zeros.
fn put_bits(out: &mut Vec<u8>, values: &[i64], bits: u32) {
    if bits == 0 {
        return;
    }
    // A part takes as many words as its values have bits. The last word may be written to without being needed.
    let mut words = [0u64; PART + 1];
    let mut at = 0;
    for value in values {
        let (word, shift) = (at / 64, at % 64);
        let wide = u128::from(*value as u64) << shift;
        words[word] |= wide as u64;
        words[word + 1] = (wide >> 64) as u64;
        at += bits as usize;
    }
    out.extend(words[..bits as usize].iter().flat_map(|word| word.to_le_bytes()));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};
    use bytes::Bytes;

    use super::*;
    use crate::{file_writer, BATCH_ROWS};

    /// Writes a file with one column, once with the library and once with this module.
    fn both(numbers: &[Option<i64>], nullable: bool) -> [Vec<u8>; 2] {
        let directory = tempfile::tempdir().unwrap();
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, nullable)]));
        let made = |name: &str, make: &dyn Fn(Box<dyn std::io::Write + Send>)| {
            let path = directory.path().join(name);
            make(Box::new(fs::File::create(&path).unwrap()));
            fs::read(path).unwrap()
        };
        let library = made("library", &|sink| {
            let mut writer = file_writer(sink, schema.clone()).unwrap();
            for batch in numbers.chunks(BATCH_ROWS) {
                let column = Arc::new(Int64Array::from(batch.to_vec())) as ArrayRef;
                let batch = RecordBatch::try_new(schema.clone(), vec![column]).unwrap();
                writer.write(&batch).unwrap();
            }
            writer.close().unwrap();
        });
        let ours = made("ours", &|sink| {
            let (mut file, _) =
                file_writer(sink, schema.clone()).unwrap().into_serialized_writer().unwrap();
            let mut column = NumberColumn::new(nullable);
            numbers.iter().for_each(|number| column.push_option(*number).unwrap());
            let described = file.schema_descr().columns()[0].clone();
            let mut group = file.next_row_group().unwrap();
            let (chunk, close) = column.finish(described).unwrap();
            group.append_column(&Bytes::from(chunk), close).unwrap();
            group.close().unwrap();
            file.finish().unwrap();
        });
        [library, ours]
    }

    #[test]
    fn pages_are_those_that_the_library_makes() {
        let extremes = [i64::MIN, i64::MAX, 0, -1, 1, i64::MAX - 7];
        let number = |at: usize| match at / 700 % 4 {
            0 => at as i64 * 1_000_003,
            1 => 7,
            2 => extremes[at % extremes.len()],
            _ => ((at * at) % 1013) as i64 - 500,
        };
        for rows in [1, 2, 63, 64, 65, 257, 258, 4096, PAGE_ROWS, PAGE_ROWS + 1, 50_000] {
            let all: Vec<_> = (0..rows).map(|at| Some(number(at))).collect();
            let [library, ours] = both(&all, false);
            assert!(library == ours, "{rows} rows");
            // Nulls: none, all, in runs of any length, and irregularly.
            let runs = |at: usize| at.isqrt().is_multiple_of(2);
            let scattered = |at: usize| at * at % 11 < 4;
            let present: [&dyn Fn(usize) -> bool; 5] =
                [&|_| true, &|_| false, &runs, &scattered, &|at| at / 3000 % 2 == 0 || runs(at)];
            for (which, is_present) in present.iter().enumerate() {
                let some = |at: usize| is_present(at).then(|| number(at));
                let some: Vec<_> = (0..rows).map(some).collect();
                let [library, ours] = both(&some, true);
                assert!(library == ours, "{rows} rows, nulls {which}");
            }
        }
    }

    #[test]
    fn columns_filled_at_once_are_the_same() {
        let described = |column: &mut NumberColumn| {
            column.end_page().unwrap();
            (column.rows, column.nulls, column.pages.memory_size(), column.page.range)
        };
        let rows = 2 * PAGE_ROWS + 100;
        let (mut one, mut all) = (NumberColumn::new(true), NumberColumn::new(true));
        (0..rows).for_each(|at| one.push(at as i64 * 3).unwrap());
        all.extend((0..rows).map(|at| at as i64 * 3)).unwrap();
        (0..rows).for_each(|_| one.push_option(None).unwrap());
        all.push_nulls(rows).unwrap();
        assert_eq!(described(&mut one), described(&mut all));
        assert!(NumberColumn::new(false).push_option(None).is_err());
    }
}
