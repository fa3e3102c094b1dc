//! A column of texts of which most come again and again: each different one is kept, hashed and copied once a
//! row group, and a row is its number, as it is in the file.
//!
//! The Parquet library makes the same of a column of strings, but hashes and copies that of every row. Here its
//! pages are made by hand: a dictionary page, then data pages of numbers and, for a column that may be null, of
//! definition levels, both in the hybrid of runs and packed bits that the format has for them.
//! See <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

use std::iter::repeat_n;

use anyhow::{ensure, Context, Result};
use parquet::basic::Encoding;
use parquet::column::writer::ColumnCloseResult;
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;

use rpcprobe_model::{TextId, Texts};

use crate::levels::Presence;
use crate::pages::{put_varint, Dictionary, Pages};

/// Rows of a data page.
const PAGE_ROWS: usize = 16_384;
/// What a text takes besides its bytes: its length in the dictionary page, and its place among those known.
const ENTRY_BYTES: usize = 48;
/// Not in the dictionary of this row group yet.
const NONE: u32 = u32::MAX;

/// A text column of the row group under way.
pub struct TextColumn {
    nullable: bool,
    numbers: FxHashMap<Box<str>, u32>,
    /// By the index of a value of an enumeration.
    of_values: Vec<u32>,
    /// By where a text lies that is there for ever; and by the number among those of the request under way.
    of_statics: Vec<((usize, usize), u32)>,
    of_texts: Vec<u32>,
    /// The dictionary page as it will be: lengths and bytes.
    dictionary: Vec<u8>,
    entries: u32,
    /// Of the page under way: the numbers of the texts there are, and of all rows whether there is one.
    rows: Vec<u32>,
    present: Presence,
    pages: Pages,
}

impl TextColumn {
    pub fn new(nullable: bool) -> TextColumn {
        TextColumn {
            nullable,
            numbers: FxHashMap::default(),
            of_values: Vec::new(),
            of_statics: Vec::new(),
            of_texts: Vec::new(),
            dictionary: Vec::new(),
            entries: 0,
            rows: Vec::with_capacity(PAGE_ROWS),
            present: Presence::default(),
            pages: Pages::new(Encoding::RLE_DICTIONARY),
        }
    }

    /// Adds rows, each a text of a request's or null.
    ///
    /// # Errors
    /// When a page cannot be compressed, there are more texts than can be numbered, or a column that may not be null is
    /// to be so.
    pub fn extend(
        &mut self,
        texts: &Texts,
        rows: impl Iterator<Item = Option<TextId>>,
    ) -> Result<()> {
        self.of_texts.clear();
        self.of_texts.resize(texts.len(), NONE);
        for row in rows {
            let Some(id) = row else {
                self.push_null()?;
                continue;
            };
            if self.of_texts[id.index()] == NONE {
                self.of_texts[id.index()] = self.number(texts.get(id))?;
            }
            self.push_number(self.of_texts[id.index()])?;
        }
        Ok(())
    }

    /// Adds a row that is null.
    ///
    /// # Errors
    /// As [`TextColumn::extend`].
    pub fn push_null(&mut self) -> Result<()> {
        ensure!(self.nullable, "a text is missing");
        self.present.add(false, 1);
        self.end_full_page()
    }

    /// Adds a row, perhaps a null one, with one of a few texts that lie where they are as long as the program runs.
    ///
    /// # Errors
    /// As [`TextColumn::extend`].
    pub fn push_static(&mut self, text: Option<&'static str>) -> Result<()> {
        let Some(text) = text else { return self.push_null() };
        let place = (text.as_ptr() as usize, text.len());
        match self.of_statics.iter().find(|(known, _)| *known == place) {
            Some((_, number)) => self.push_number(*number),
            None => {
                let number = self.number(text)?;
                self.of_statics.push((place, number));
                self.push_number(number)
            }
        }
    }

    /// Adds rows, each with the name of the value that has that index in an enumeration, always the same one, or null.
    ///
    /// # Errors
    /// As [`TextColumn::extend`].
    pub fn extend_values(
        &mut self,
        rows: impl Iterator<Item = Option<(usize, &'static str)>>,
    ) -> Result<()> {
        for row in rows {
            let Some((index, name)) = row else {
                self.push_null()?;
                continue;
            };
            match self.of_values.get(index) {
                Some(number) if *number != NONE => self.push_number(*number)?,
                _ => {
                    let number = self.number(name)?;
                    self.of_values.resize(self.of_values.len().max(index + 1), NONE);
                    self.of_values[index] = number;
                    self.push_number(number)?;
                }
            }
        }
        Ok(())
    }

    /// The number of a text in the dictionary.
    fn number(&mut self, text: &str) -> Result<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Ok(*number);
        }
        let length = u32::try_from(text.len()).context("a text too long for a table")?;
        ensure!(self.entries < NONE, "too many texts for a row group");
        let number = self.entries;
        self.numbers.insert(text.into(), number);
        self.dictionary.extend_from_slice(&length.to_le_bytes());
        self.dictionary.extend_from_slice(text.as_bytes());
        self.entries += 1;
        Ok(number)
    }

    #[inline]
    fn push_number(&mut self, number: u32) -> Result<()> {
        self.rows.push(number);
        self.present.add(true, 1);
        self.end_full_page()
    }

    #[inline]
    fn end_full_page(&mut self) -> Result<()> {
        match self.present.rows {
            PAGE_ROWS => self.end_page(),
            _ => Ok(()),
        }
    }

    /// What it takes, in bytes.
    pub fn memory_size(&self) -> usize {
        let texts = 2 * self.dictionary.len() + self.entries as usize * ENTRY_BYTES;
        self.pages.memory_size() + texts + self.rows.len() * 4 + self.present.rows
    }

    fn end_page(&mut self) -> Result<()> {
        let present = std::mem::take(&mut self.present);
        if present.rows == 0 {
            return Ok(());
        }
        let mut page = Vec::with_capacity(PAGE_ROWS);
        if self.nullable {
            let levels = present.runs().flat_map(|(level, rows)| repeat_n(u8::from(level), rows));
            page.extend([0; 4]);
            put_runs(&mut page, &levels.collect::<Vec<_>>(), 1);
            let length = u32::try_from(page.len() - 4).context("a page too long")?;
            page[..4].copy_from_slice(&length.to_le_bytes());
        }
        let bits = (u32::BITS - self.entries.saturating_sub(1).leading_zeros()).max(1);
        page.push(bits as u8); // at most 32
        put_runs(&mut page, &self.rows, bits);
        self.pages.push(&page, present.rows)?;
        self.rows.clear(); // its room stays
        Ok(())
    }

    /// The column's chunk of the row group, and what its footer tells of it; begins the next.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish(&mut self, column: ColumnDescPtr) -> Result<(Vec<u8>, ColumnCloseResult)> {
        self.end_page()?;
        let dictionary = Dictionary { texts: &self.dictionary, entries: self.entries };
        let finished = self.pages.finish(column, Some(dictionary), |metadata| metadata)?;
        self.numbers.clear();
        self.of_values.clear();
        self.of_statics.clear();
        self.dictionary.clear();
        self.entries = 0;
        Ok(finished)
    }
}

/// Adds numbers of so many bits each, as runs of eight and more that are the same and packed groups of eight.
fn put_runs<T: Copy + PartialEq + Into<u32>>(out: &mut Vec<u8>, numbers: &[T], bits: u32) {
    let (mut at, mut packed_from) = (0, 0);
    while at < numbers.len() {
        let first = numbers[at];
        let same = numbers[at..].iter().take_while(|number| **number == first).count();
        if same >= 8 {
            put_packed(out, &numbers[packed_from..at], bits);
            put_varint(out, (same as u64) << 1);
            let bytes = bits.div_ceil(8) as usize;
            out.extend_from_slice(&first.into().to_le_bytes()[..bytes]);
            at += same;
            packed_from = at;
        } else {
            at = (at + 8).min(numbers.len());
        }
    }
    put_packed(out, &numbers[packed_from..], bits);
}

/// Adds numbers in packed groups of eight, the last of them filled up.
fn put_packed<T: Copy + Into<u32>>(out: &mut Vec<u8>, numbers: &[T], bits: u32) {
    if numbers.is_empty() {
        return;
    }
    put_varint(out, (numbers.len().div_ceil(8) as u64) << 1 | 1);
    for group in numbers.chunks(8) {
        let end = out.len() + bits as usize;
        let (mut held, mut held_bits) = (0u64, 0);
        for number in group {
            let number = u64::from((*number).into());
            held |= number << held_bits;
            held_bits += bits;
            if held_bits >= u64::BITS {
                out.extend_from_slice(&held.to_le_bytes());
                held_bits -= u64::BITS;
                held = number >> (bits - held_bits);
            }
        }
        out.extend_from_slice(&held.to_le_bytes());
        out.resize(end, 0);
    }
}
