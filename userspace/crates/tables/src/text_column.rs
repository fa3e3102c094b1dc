//! Encodes a column of texts, most of which repeat. Each different text is kept, hashed and copied once per row group,
//! and a row is the text's number, as in the file.
//!
//! The Parquet library produces the same from a column of strings, but hashes and copies the text of every row. Here
//! the pages are built directly: a dictionary page, then data pages of numbers and, for a nullable column, of
//! definition levels. Both are in the format's hybrid of runs and packed bits. See
//! <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

use std::iter::repeat_n;

use anyhow::{ensure, Context, Result};
use parquet::basic::Encoding;
use parquet::column::writer::ColumnCloseResult;
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;

use rpcprobe_model::{TextId, Texts};

use crate::levels::Presence;
use crate::pages::{put_varint, Codec, Dictionary, Pages};

/// Number of rows of a data page.
const PAGE_ROWS: usize = 16_384;
/// Memory that a text takes besides its bytes: its length in the dictionary page, and its entry in the map of known
/// texts.
const ENTRY_BYTES: usize = 48;
/// Not in the dictionary of this row group yet.
const NONE: u32 = u32::MAX;

/// A text column of the current row group.
pub struct TextColumn {
    nullable: bool,
    numbers: FxHashMap<Box<str>, u32>,
    /// Numbers by the index of an enumeration's value.
    of_values: Vec<u32>,
    /// Numbers by the address and length of a static text; then numbers by the id of a text in the current request.
    of_statics: Vec<((usize, usize), u32)>,
    of_texts: Vec<u32>,
    /// The dictionary page as it will be written: lengths and bytes.
    dictionary: Vec<u8>,
    entries: u32,
    /// Rows of the current page: the numbers of the texts that are present, and which rows have a text.
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
            pages: Pages::new(Encoding::RLE_DICTIONARY, Codec::snappy()),
        }
    }

    /// Adds rows, each with a text of the request or null.
    ///
    /// # Errors
    /// When a page cannot be compressed, when there are more texts than can be numbered, or when a null is added to a
    /// column that must not have any.
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

    /// Adds a null row.
    ///
    /// # Errors
    /// As [`TextColumn::extend`].
    pub fn push_null(&mut self) -> Result<()> {
        ensure!(self.nullable, "a text is missing");
        self.present.add(false, 1);
        self.end_full_page()
    }

    /// Adds a row that may be null, with one of a few static texts.
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

    /// Adds rows, each null or with the name of an enumeration value. The index of a value must always have the same
    /// name.
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

    /// Returns the number of a text in the dictionary, adding the text if it is new.
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

    /// Memory size in bytes.
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
        self.rows.clear(); // keeps its memory
        Ok(())
    }

    /// Returns the column's chunk of the row group and its metadata for the footer. The column then begins a new chunk.
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

/// Appends numbers with `bits` bits each, as runs of eight or more equal numbers and packed groups of eight.
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

/// Appends numbers in packed groups of eight; the last group is padded.
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
