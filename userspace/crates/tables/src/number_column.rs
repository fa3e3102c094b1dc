//! A column of numbers, of which some may be null.
//!
//! The Parquet library makes the same pages, byte for byte, but takes each number through a builder, an array and a list
//! of levels before it packs it. Here a number is its difference to the one before at once, and a row only adds
//! to a run of rows that are there or null.
//! See <https://parquet.apache.org/docs/file-format/data-pages/encodings/>, `DELTA_BINARY_PACKED`.

use anyhow::{ensure, Context, Result};
use parquet::basic::{Encoding, PageType};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{LevelHistogram, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::schema::types::ColumnDescPtr;

use crate::pages::{put_varint, Pages};

/// Rows of a data page: where the library ends one.
const PAGE_ROWS: usize = 20_480;
/// Differences packed together, in parts that have a number of bits each.
const BLOCK: usize = 256;
const PARTS: usize = 4;
const PART: usize = BLOCK / PARTS;

/// A column of numbers of the row group under way.
pub struct NumberColumn {
    nullable: bool,
    page: NumberPage,
    pages: Pages,
    nulls: u64,
    rows: u64,
    /// The least and the greatest, if there is any.
    range: Option<(i64, i64)>,
}

/// The data page under way.
struct NumberPage {
    first: i64,
    last: i64,
    values: usize,
    /// Differences, of which the first so many are not packed yet.
    differences: Box<[i64; BLOCK]>,
    in_block: usize,
    packed: Vec<u8>,
    /// Runs of rows that are there or not.
    present: Vec<(bool, usize)>,
    rows: usize,
}

impl NumberColumn {
    pub fn new(nullable: bool) -> NumberColumn {
        let pages = Pages::new(Encoding::DELTA_BINARY_PACKED);
        NumberColumn { nullable, page: NumberPage::new(), pages, nulls: 0, rows: 0, range: None }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When a page cannot be compressed.
    pub fn push(&mut self, number: i64) -> Result<()> {
        let (least, greatest) = self.range.unwrap_or((number, number));
        self.range = Some((least.min(number), greatest.max(number)));
        self.page.push(number);
        self.end_row()
    }

    /// Adds a row, perhaps a null one.
    ///
    /// # Errors
    /// As [`NumberColumn::push`], and when a column that may not be null is to be so.
    pub fn push_option(&mut self, number: Option<i64>) -> Result<()> {
        match number {
            Some(number) => self.push(number),
            None => {
                ensure!(self.nullable, "a number is missing");
                self.nulls += 1;
                self.page.push_null();
                self.end_row()
            }
        }
    }

    fn end_row(&mut self) -> Result<()> {
        match self.page.rows {
            PAGE_ROWS => self.end_page(),
            _ => Ok(()),
        }
    }

    /// What it takes, in bytes.
    pub fn memory_size(&self) -> usize {
        self.pages.memory_size() + self.page.packed.len() + size_of::<[i64; BLOCK]>()
    }

    fn end_page(&mut self) -> Result<()> {
        if self.page.rows == 0 {
            return Ok(());
        }
        self.rows += self.page.rows as u64;
        let page = self.page.take(self.nullable)?;
        self.pages.push(&page, self.page.rows)?;
        self.page.rows = 0;
        Ok(())
    }

    /// The column's chunk of the row group, and what its footer tells of it; begins the next.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish(&mut self, column: ColumnDescPtr) -> Result<(Vec<u8>, ColumnCloseResult)> {
        self.end_page()?;
        let encoding = PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding: Encoding::DELTA_BINARY_PACKED,
            count: i32::try_from(self.pages.len())?,
        };
        let range = self.range.unzip();
        let told = ValueStatistics::new(range.0, range.1, None, Some(self.nulls), false)
            .with_backwards_compatible_min_max(true);
        let there = self.rows - self.nulls;
        let levels = [i64::try_from(self.nulls)?, i64::try_from(there)?];
        let levels = self.nullable.then(|| LevelHistogram::from(levels.to_vec()));
        let finished = self.pages.finish(column, None, |metadata| {
            metadata
                .set_page_encoding_stats(vec![encoding])
                .set_statistics(Statistics::Int64(told))
                .set_definition_level_histogram(levels)
        })?;
        (self.nulls, self.rows, self.range) = (0, 0, None);
        Ok(finished)
    }
}

impl NumberPage {
    fn new() -> NumberPage {
        NumberPage {
            first: 0,
            last: 0,
            values: 0,
            differences: Box::new([0; BLOCK]),
            in_block: 0,
            packed: Vec::new(),
            present: Vec::new(),
            rows: 0,
        }
    }

    fn push(&mut self, number: i64) {
        if self.values == 0 {
            self.first = number;
        } else {
            self.differences[self.in_block] = number.wrapping_sub(self.last);
            self.in_block += 1;
            if self.in_block == BLOCK {
                self.pack();
            }
        }
        self.last = number;
        self.values += 1;
        self.add_row(true);
    }

    fn push_null(&mut self) {
        self.add_row(false);
    }

    fn add_row(&mut self, present: bool) {
        self.rows += 1;
        match self.present.last_mut() {
            Some((same, rows)) if *same == present => *rows += 1,
            _ => self.present.push((present, 1)),
        }
    }

    /// Packs the differences of a block: each as what it is above the least of them.
    fn pack(&mut self) {
        let all = &mut self.differences[..self.in_block];
        let Some(least) = all.iter().copied().min() else { return };
        put_varint(&mut self.packed, zigzag(least));
        let bits_at = self.packed.len();
        self.packed.extend([0; PARTS]);
        for difference in all.iter_mut() {
            *difference = difference.wrapping_sub(least);
        }
        self.differences[self.in_block..].fill(0);
        for part in 0..self.in_block.div_ceil(PART) {
            let values = &self.differences[part * PART..][..PART];
            let all = values.iter().fold(0, |all, value| all | *value as u64);
            let bits = u64::BITS - all.leading_zeros();
            self.packed[bits_at + part] = bits as u8; // at most 64
            put_bits(&mut self.packed, values, bits);
        }
        self.in_block = 0;
    }

    /// The page, but for its rows' number, which is left.
    fn take(&mut self, nullable: bool) -> Result<Vec<u8>> {
        self.pack();
        let mut page = Vec::with_capacity(self.packed.len() + 64);
        if nullable {
            page.extend([0; 4]);
            put_levels(&mut page, &self.present);
            let length = u32::try_from(page.len() - 4).context("a page too long")?;
            page[..4].copy_from_slice(&length.to_le_bytes());
        }
        for number in [BLOCK, PARTS, self.values] {
            put_varint(&mut page, number as u64);
        }
        put_varint(&mut page, zigzag(self.first));
        page.append(&mut self.packed);
        self.present.clear();
        (self.first, self.last, self.values) = (0, 0, 0);
        Ok(page)
    }
}

/// A number with its sign in the lowest bit.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// Adds values of so many bits each, as many values as a word has bits.
fn put_bits(out: &mut Vec<u8>, values: &[i64], bits: u32) {
    if bits == 0 {
        return;
    }
    let (mut held, mut held_bits) = (0u64, 0);
    for value in values {
        let value = *value as u64;
        held |= value << held_bits;
        let left = u64::BITS - held_bits;
        if bits >= left {
            out.extend_from_slice(&held.to_le_bytes());
            held = value.checked_shr(left).unwrap_or(0);
            held_bits = bits - left;
        } else {
            held_bits += bits;
        }
    }
}

/// Groups of eight levels that are packed in one run at most.
const MOST_GROUPS: usize = 63;

/// Adds definition levels, 1 where a row is there, in runs of eight and more that are the same and packed groups of eight:
/// those that the library makes.
fn put_levels(out: &mut Vec<u8>, runs: &[(bool, usize)]) {
    let mut packed: Vec<bool> = Vec::new();
    let mut run = (false, 0);
    for &(level, times) in runs {
        let mut left = times;
        while left > 0 {
            if run.1 >= 8 && run.0 == level {
                run.1 += left;
                break;
            }
            left -= 1;
            if run.0 == level {
                run.1 += 1;
            } else {
                if run.1 >= 8 {
                    put_run(out, run);
                    packed.clear();
                }
                run = (level, 1);
            }
            packed.push(level);
            if !packed.len().is_multiple_of(8) {
                continue;
            }
            if run.1 >= 8 {
                packed.truncate(packed.len() - 8);
                put_packed(out, &mut packed);
            } else {
                if packed.len() / 8 == MOST_GROUPS {
                    put_packed(out, &mut packed);
                }
                run.1 = 0;
            }
        }
    }
    let begun = packed.len() % 8;
    if run.1 > 0 && packed.len() == begun && (run.1 == begun || begun == 0) {
        put_run(out, run);
    } else {
        packed.resize(packed.len().next_multiple_of(8), false);
        put_packed(out, &mut packed);
    }
}

fn put_run(out: &mut Vec<u8>, (level, times): (bool, usize)) {
    put_varint(out, (times as u64) << 1);
    out.push(level.into());
}

/// Adds whole groups, and takes them out.
fn put_packed(out: &mut Vec<u8>, levels: &mut Vec<bool>) {
    if levels.is_empty() {
        return;
    }
    put_varint(out, (levels.len() as u64 / 8) << 1 | 1);
    for group in levels.chunks(8) {
        out.push(group.iter().rev().fold(0, |byte, level| byte << 1 | u8::from(*level)));
    }
    levels.clear();
}
