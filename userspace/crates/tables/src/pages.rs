//! Builds pages of a column directly, and assembles them into a column chunk. See
//! <https://parquet.apache.org/docs/file-format/data-pages/>.

use anyhow::{Context, Result};
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnChunkMetaDataBuilder, PageEncodingStats};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::told;

/// Number of rows after which a data page ends, as in the library.
pub const PAGE_ROWS: usize = 20_480;

/// Level of compression by zstd: the fastest with a positive number.
const ZSTD_LEVEL: i32 = 1;

/// How pages are compressed: by Snappy, which only finds what repeats, or by zstd, which also uses how often each byte
/// occurs.
pub enum Codec {
    Snappy(Box<snap::raw::Encoder>),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Codec {
    pub fn snappy() -> Codec {
        Codec::Snappy(Box::new(snap::raw::Encoder::new()))
    }

    /// # Errors
    /// When zstd has no memory.
    pub fn zstd() -> Result<Codec> {
        Ok(Codec::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL).context("zstd")?))
    }

    fn compression(&self) -> Compression {
        match self {
            Codec::Snappy(_) => Compression::SNAPPY,
            Codec::Zstd(_) => Compression::ZSTD(ZstdLevel::default()),
        }
    }

    /// Size that a compressed page of so many bytes may get.
    fn most_bytes(&self, bytes: usize) -> usize {
        match self {
            Codec::Snappy(_) => snap::raw::max_compress_len(bytes),
            Codec::Zstd(_) => zstd::zstd_safe::compress_bound(bytes),
        }
    }

    /// Compresses a page into `room`; returns how much of it the page takes.
    fn compress(&mut self, page: &[u8], room: &mut [u8]) -> Result<usize> {
        let compressed = match self {
            Codec::Snappy(encoder) => encoder.compress(page, room).map_err(anyhow::Error::from),
            Codec::Zstd(encoder) => {
                encoder.compress_to_buffer(page, room).map_err(anyhow::Error::from)
            }
        };
        compressed.context("a page does not compress")
    }
}

/// The finished data pages of a column chunk.
pub struct Pages {
    encoding: Encoding,
    codec: Codec,
    ready: Vec<DataPage>,
    bytes: usize,
    /// Buffer for a compressed page, as large as such a page can get.
    room: Vec<u8>,
}

struct DataPage {
    compressed: Vec<u8>,
    uncompressed_bytes: usize,
    rows: usize,
}

/// The dictionary page of a chunk: the texts one after the other, and their number.
pub struct Dictionary<'a> {
    pub texts: &'a [u8],
    pub entries: u32,
}

impl Pages {
    pub fn new(encoding: Encoding, codec: Codec) -> Pages {
        Pages { encoding, codec, ready: Vec::new(), bytes: 0, room: Vec::new() }
    }

    fn compressed(&mut self, page: &[u8]) -> Result<Vec<u8>> {
        let most = self.codec.most_bytes(page.len());
        self.room.resize(most.max(self.room.len()), 0);
        let length = self.codec.compress(page, &mut self.room)?;
        Ok(self.room[..length].to_vec())
    }

    /// Adds a page.
    ///
    /// # Errors
    /// When the page cannot be compressed.
    pub fn push(&mut self, page: &[u8], rows: usize) -> Result<()> {
        let compressed = self.compressed(page)?;
        self.bytes += compressed.len();
        self.ready.push(DataPage { compressed, uncompressed_bytes: page.len(), rows });
        Ok(())
    }

    /// Memory size in bytes.
    pub fn memory_size(&self) -> usize {
        self.bytes
    }

    /// As [`Pages::finish`], of numbers within `range`.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish_numbers(
        &mut self,
        column: ColumnDescPtr,
        range: Option<(i64, i64)>,
        nulls: u64,
        tell: impl FnOnce(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
    ) -> Result<(Vec<u8>, ColumnCloseResult)> {
        let encoding = PageEncodingStats {
            page_type: PageType::DATA_PAGE,
            encoding: self.encoding,
            count: i32::try_from(self.ready.len())?,
        };
        let (least, greatest) = range.unzip();
        let told = ValueStatistics::new(least, greatest, None, Some(nulls), false)
            .with_backwards_compatible_min_max(true);
        self.finish(column, None, |metadata| {
            let numbers = metadata.set_page_encoding_stats(vec![encoding]);
            tell(numbers.set_statistics(Statistics::Int64(told)))
        })
    }

    /// Returns the column's chunk of the row group and its metadata for the footer, to which `tell` may add. Then a new
    /// chunk begins.
    ///
    /// # Errors
    /// When a page is too large for the format.
    pub fn finish(
        &mut self,
        column: ColumnDescPtr,
        dictionary: Option<Dictionary<'_>>,
        tell: impl FnOnce(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
    ) -> Result<(Vec<u8>, ColumnCloseResult)> {
        let mut chunk = TrackedWrite::new(Vec::with_capacity(self.bytes));
        let mut writer = SerializedPageWriter::new(&mut chunk);
        let (mut bytes, mut rows, mut data_from) = (0, 0, 0);
        let mut encodings = vec![Encoding::RLE, self.encoding];
        let has_dictionary = dictionary.is_some();
        if let Some(Dictionary { texts, entries }) = dictionary {
            let page = Page::DictionaryPage {
                buf: self.compressed(texts)?.into(),
                num_values: entries,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let page = CompressedPage::new(page, texts.len());
            let written = writer.write_page(page).map_err(told)?;
            (bytes, data_from) = (written.uncompressed_size, written.bytes_written);
            encodings.push(Encoding::PLAIN);
        }
        for page in self.ready.drain(..) {
            rows += page.rows;
            let data = Page::DataPage {
                buf: page.compressed.into(),
                num_values: u32::try_from(page.rows)?,
                encoding: self.encoding,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            };
            let page = CompressedPage::new(data, page.uncompressed_bytes);
            bytes += writer.write_page(page).map_err(told)?.uncompressed_size;
        }
        self.bytes = 0;
        let chunk = chunk.into_inner().map_err(told)?;
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(self.codec.compression())
            .set_encodings(encodings)
            .set_total_compressed_size(i64::try_from(chunk.len())?)
            .set_total_uncompressed_size(i64::try_from(bytes)?)
            .set_num_values(i64::try_from(rows)?)
            .set_dictionary_page_offset(has_dictionary.then_some(0))
            .set_data_page_offset(i64::try_from(data_from)?);
        let told = ColumnCloseResult {
            bytes_written: chunk.len() as u64,
            rows_written: rows as u64,
            metadata: tell(metadata).build().map_err(told)?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((chunk, told))
    }
}

/// Appends a number with seven bits per byte.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
