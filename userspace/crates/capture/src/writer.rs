//! Writes `events.bin`: collects records per CPU and compresses them in blocks.

use std::io::{self, Write};

use zerocopy::IntoBytes;

use super::format::*;

/// A block being filled.
#[derive(Default)]
struct Open {
    raw: Vec<u8>,
    records: u64,
    /// The watermark already on disk, so that an idle CPU still tells the reader that it is idle.
    written_ns: u64,
}

pub struct Writer<W: Write> {
    out: W,
    open: Vec<Open>,
    packed: Vec<u8>,
    pub records: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a file for `cpus` CPUs.
    pub fn new(mut out: W, cpus: u32, start_ns: u64) -> io::Result<Self> {
        let header = FileHeader { magic: MAGIC, version: VERSION, cpus, start_ns };
        out.write_all(header.as_bytes())?;
        let open = (0..cpus).map(|_| Open::default()).collect();
        let stored_bytes = size_of::<FileHeader>() as u64;
        Ok(Writer { out, open, packed: Vec::new(), records: 0, raw_bytes: 0, stored_bytes })
    }

    /// Adds one record of `cpu`. Nothing is written before [`Writer::flush`].
    ///
    /// # Panics
    /// If `cpu` is not below the number of CPUs, or the record exceeds 65,535 bytes.
    pub fn push(&mut self, cpu: u32, record: &[u8]) {
        let length = u16::try_from(record.len()).expect("records are small");
        let open = &mut self.open[cpu as usize];
        open.raw.extend_from_slice(&length.to_le_bytes());
        open.raw.extend_from_slice(record);
        open.records += 1;
    }

    /// Writes the open block of `cpu` if it is large, or if its watermark on disk lags by
    /// `max_lag_ns` or more. All records of this CPU before `watermark_ns` must have been pushed.
    pub fn flush(&mut self, cpu: u32, watermark_ns: u64, max_lag_ns: u64) -> io::Result<()> {
        let open = &self.open[cpu as usize];
        let lag_ns = watermark_ns.saturating_sub(open.written_ns);
        if open.raw.len() < BLOCK_TARGET_BYTES && lag_ns < max_lag_ns {
            return Ok(());
        }
        let raw = std::mem::take(&mut self.open[cpu as usize].raw);
        let records = std::mem::take(&mut self.open[cpu as usize].records);
        // A drain can leave more than one block's worth; only the last carries the watermark.
        let mut rest = &raw[..];
        let mut left = records;
        while rest.len() > BLOCK_TARGET_BYTES {
            let (bytes, count) = whole_records(rest, BLOCK_TARGET_BYTES);
            let before_ns = self.open[cpu as usize].written_ns;
            self.block(cpu, &rest[..bytes], count, before_ns)?;
            rest = &rest[bytes..];
            left -= count;
        }
        self.block(cpu, rest, left, watermark_ns)?;
        let open = &mut self.open[cpu as usize];
        open.written_ns = watermark_ns;
        open.raw = raw;
        open.raw.clear();
        Ok(())
    }

    /// Writes records that user space made, all of which hold at the start of the capture.
    pub fn user_records<'a>(&mut self, records: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let (mut raw, mut count) = (Vec::new(), 0);
        for record in records {
            let length = u16::try_from(record.len()).expect("records are small");
            raw.extend_from_slice(&length.to_le_bytes());
            raw.extend_from_slice(record);
            count += 1;
            if raw.len() > BLOCK_TARGET_BYTES {
                self.block(CPU_USER, &raw, count, 0)?;
                (raw, count) = (Vec::new(), 0);
            }
        }
        self.block(CPU_USER, &raw, count, 0)
    }

    /// Writes every open block; `watermark_ns` as for [`Writer::flush`].
    pub fn flush_all(&mut self, watermark_ns: u64) -> io::Result<()> {
        for cpu in 0..self.open.len() as u32 {
            self.flush(cpu, watermark_ns, 0)?;
        }
        Ok(())
    }

    /// Writes what is left and the end block, which makes the file complete.
    pub fn finish(mut self, end_ns: u64) -> io::Result<W> {
        self.flush_all(end_ns)?;
        let header = BlockHeader {
            magic: BLOCK_MAGIC,
            cpu: CPU_END,
            watermark_ns: end_ns,
            records: self.records,
            raw_bytes: 0,
            stored_bytes: 0,
            crc32: 0,
            pad: 0,
        };
        self.out.write_all(header.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn block(&mut self, cpu: u32, raw: &[u8], records: u64, watermark_ns: u64) -> io::Result<()> {
        self.packed.resize(lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let stored = lz4_flex::block::compress_into(raw, &mut self.packed)
            .expect("the output is as large as the worst case");
        let payload = &self.packed[..stored];
        let header = BlockHeader {
            magic: BLOCK_MAGIC,
            cpu,
            watermark_ns,
            records,
            raw_bytes: raw.len() as u32,
            stored_bytes: stored as u32,
            crc32: crc32fast::hash(payload),
            pad: 0,
        };
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(payload)?;
        self.records += records;
        self.raw_bytes += raw.len() as u64;
        self.stored_bytes += (size_of::<BlockHeader>() + stored) as u64;
        Ok(())
    }
}

/// Measures the longest run of whole records within about `limit` bytes: (bytes, records), at least
/// one record.
fn whole_records(raw: &[u8], limit: usize) -> (usize, u64) {
    let (mut at, mut count) = (0, 0);
    while at < limit && at + 2 <= raw.len() {
        at += 2 + usize::from(u16::from_le_bytes([raw[at], raw[at + 1]]));
        count += 1;
    }
    (at, count)
}
