//! Reads `events.bin` in time order across CPUs, streaming.
//!
//! Every byte is treated as hostile: sizes are checked before anything is allocated, payloads are
//! checksummed, and damage is an error that names the offset.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::Read;

use anyhow::{bail, Context, Result};
use zerocopy::FromBytes;

use super::format::*;
use crate::records::RecHdr;

/// How far a record may lie behind its CPU's watermark: the time between a program's clock read
/// and its reservation, which on preemptible kernels can include a preemption.
const SLACK_NS: u64 = 5_000_000;

/// Records of one CPU that wait for their turn.
#[derive(Default)]
struct Queue {
    heap: BinaryHeap<Reverse<Pending>>,
    watermark_ns: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    ts_ns: u64,
    /// Order of arrival: ties keep the ring's order.
    sequence: u64,
    record: Vec<u8>,
}

/// A record and where it came from.
pub struct Item {
    pub cpu: u32,
    pub record: Vec<u8>,
}

pub struct Reader<R: Read> {
    input: R,
    offset: u64,
    pub header: FileHeader,
    queues: HashMap<u32, Queue>,
    user: std::collections::VecDeque<Vec<u8>>,
    sequence: u64,
    ended: Option<BlockHeader>,
    last_ns: u64,
    /// Records read so far.
    pub records: u64,
    /// Records that came after a later one had been handed out; see [`SLACK_NS`].
    pub late: u64,
    /// Accept a file without its end block.
    allow_truncated: bool,
    /// Set when the file had no end block: where it broke off.
    pub truncated_at: Option<u64>,
}

impl<R: Read> Reader<R> {
    /// Reads and checks the file header.
    ///
    /// # Errors
    /// Not a capture, another version, or (unless `allow_truncated`) found truncated on the way.
    pub fn new(mut input: R, allow_truncated: bool) -> Result<Self> {
        let mut bytes = [0; size_of::<FileHeader>()];
        let got = read_fully(&mut input, &mut bytes)?;
        if got == 0 {
            bail!("the file is empty");
        }
        if got < bytes.len() || bytes[..8] != MAGIC {
            bail!("not an rpcprobe event file (it does not begin with \"rpcprobe\")");
        }
        let header = FileHeader::read_from_bytes(&bytes).expect("sizes match");
        if header.version != VERSION {
            bail!("event format version {}, this program reads {VERSION}", header.version);
        }
        if header.cpus == 0 || header.cpus > 65_536 {
            bail!("damaged header: {} CPUs", header.cpus);
        }
        let queues = (0..header.cpus).map(|cpu| (cpu, Queue::default())).collect();
        Ok(Reader {
            input,
            offset: bytes.len() as u64,
            header,
            queues,
            user: Default::default(),
            sequence: 0,
            ended: None,
            last_ns: 0,
            records: 0,
            late: 0,
            allow_truncated,
            truncated_at: None,
        })
    }

    /// When the capture ended; known once all records have been read.
    pub fn end_ns(&self) -> Option<u64> {
        self.ended.map(|end| end.watermark_ns)
    }

    /// The next record in time order, `None` at the end.
    ///
    /// # Errors
    /// Damage or truncation, naming the offset.
    pub fn next_record(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(record) = self.user.pop_front() {
                return Ok(Some(Item { cpu: CPU_USER, record }));
            }
            if let Some(cpu) = self.ready_cpu() {
                let queue = self.queues.get_mut(&cpu).expect("known CPU");
                let Reverse(pending) = queue.heap.pop().expect("ready");
                if pending.ts_ns < self.last_ns {
                    self.late += 1;
                } else {
                    self.last_ns = pending.ts_ns;
                }
                return Ok(Some(Item { cpu, record: pending.record }));
            }
            if self.ended.is_some() {
                return Ok(None);
            }
            self.read_block()?;
        }
    }

    /// The CPU with the oldest record, if no CPU can still deliver an older one.
    fn ready_cpu(&self) -> Option<u32> {
        let mut oldest: Option<(u64, u64, u32)> = None;
        let mut safe_ns = u64::MAX;
        for (&cpu, queue) in &self.queues {
            if let Some(Reverse(first)) = queue.heap.peek() {
                let key = (first.ts_ns, first.sequence, cpu);
                if oldest.is_none_or(|o| key < o) {
                    oldest = Some(key);
                }
            }
            safe_ns = safe_ns.min(queue.watermark_ns.saturating_sub(SLACK_NS));
        }
        let (ts_ns, _, cpu) = oldest?;
        (self.ended.is_some() || ts_ns < safe_ns).then_some(cpu)
    }

    fn read_block(&mut self) -> Result<()> {
        let at = self.offset;
        let mut bytes = [0; size_of::<BlockHeader>()];
        let got = read_fully(&mut self.input, &mut bytes)?;
        if got < bytes.len() {
            return self.truncated(at, at + got as u64);
        }
        let header = BlockHeader::read_from_bytes(&bytes).expect("sizes match");
        if header.magic != BLOCK_MAGIC {
            bail!("damaged at byte {at}: no block begins here");
        }
        self.offset += bytes.len() as u64;
        if header.cpu == CPU_END {
            if header.records != self.records {
                bail!("damaged: {} records found, {} written", self.records, header.records);
            }
            self.ended = Some(header);
            return Ok(());
        }
        let (raw_bytes, stored_bytes) = (header.raw_bytes as usize, header.stored_bytes as usize);
        let most_stored = lz4_flex::block::get_maximum_output_size(MAX_BLOCK_BYTES);
        if raw_bytes > MAX_BLOCK_BYTES || stored_bytes > most_stored {
            bail!("damaged at byte {at}: a block of {raw_bytes} bytes");
        }
        if header.cpu != CPU_USER && header.cpu >= self.header.cpus {
            bail!("damaged at byte {at}: CPU {} of {}", header.cpu, self.header.cpus);
        }
        let mut stored = vec![0; stored_bytes];
        let got = read_fully(&mut self.input, &mut stored)?;
        if got < stored.len() {
            return self.truncated(at, self.offset + got as u64);
        }
        self.offset += stored.len() as u64;
        if crc32fast::hash(&stored) != header.crc32 {
            bail!("damaged at byte {at}: checksum of the block does not match");
        }
        let raw = lz4_flex::block::decompress(&stored, raw_bytes)
            .with_context(|| format!("damaged at byte {at}: the block does not unpack"))?;
        self.take_records(&header, &raw).with_context(|| format!("damaged at byte {at}"))
    }

    fn take_records(&mut self, header: &BlockHeader, raw: &[u8]) -> Result<()> {
        let mut rest = raw;
        let mut count = 0;
        while !rest.is_empty() {
            let Some((length, after)) = rest.split_at_checked(2) else { bail!("half a record") };
            let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
            let Some((record, after)) = after.split_at_checked(length) else {
                bail!("half a record");
            };
            let Ok((hdr, _)) = RecHdr::read_from_prefix(record) else {
                bail!("a record of {length} bytes");
            };
            rest = after;
            count += 1;
            if header.cpu == CPU_USER {
                self.user.push_back(record.to_vec());
                continue;
            }
            self.sequence += 1;
            let pending =
                Pending { ts_ns: hdr.ts_ns, sequence: self.sequence, record: record.to_vec() };
            let queue = self.queues.get_mut(&header.cpu).expect("checked");
            queue.heap.push(Reverse(pending));
        }
        if count != header.records {
            bail!("{count} records where {} were written", header.records);
        }
        self.records += count;
        if let Some(queue) = self.queues.get_mut(&header.cpu) {
            queue.watermark_ns = queue.watermark_ns.max(header.watermark_ns);
        }
        Ok(())
    }

    fn truncated(&mut self, at: u64, end: u64) -> Result<()> {
        if !self.allow_truncated {
            bail!(
                "truncated: the file breaks off at byte {end}, inside the block at byte {at}; \
                 `rpcprobe attribute --allow-truncated` reads what is there"
            );
        }
        self.truncated_at = Some(at);
        self.ended = Some(BlockHeader {
            magic: BLOCK_MAGIC,
            cpu: CPU_END,
            watermark_ns: self.queues.values().map(|q| q.watermark_ns).min().unwrap_or(0),
            records: self.records,
            raw_bytes: 0,
            stored_bytes: 0,
            crc32: 0,
            pad: 0,
        });
        Ok(())
    }
}

/// Fills `buffer` as far as the input goes; returns how far.
fn read_fully(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("cannot read the events"),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::writer::Writer;
    use super::*;

    fn record(ts_ns: u64, tid: u32) -> Vec<u8> {
        RecHdr { ts_ns, tid, kind: 99, flags: 0, aux: 0 }.as_bytes().to_vec()
    }

    fn sample() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), 2, 1).unwrap();
        writer.user_records([record(0, 7)].iter().map(|r| &r[..])).unwrap();
        for i in 0..1000u64 {
            writer.push((i % 2) as u32, &record(10 * i, i as u32));
            if i % 100 == 99 {
                writer.flush(0, 10 * i, 0).unwrap();
                writer.flush(1, 10 * i, 0).unwrap();
            }
        }
        writer.finish(10_000).unwrap()
    }

    fn read_all(bytes: &[u8], allow_truncated: bool) -> Result<Vec<u32>> {
        let mut reader = Reader::new(bytes, allow_truncated)?;
        let mut tids = Vec::new();
        while let Some(item) = reader.next_record()? {
            tids.push(RecHdr::read_from_prefix(&item.record).unwrap().0.tid);
        }
        Ok(tids)
    }

    #[test]
    fn records_come_back_in_time_order_across_cpus() {
        let mut expected = vec![7];
        expected.extend(0..1000);
        assert_eq!(read_all(&sample(), false).unwrap(), expected);
    }

    #[test]
    fn every_truncation_is_an_error_or_a_prefix_when_allowed() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(read_all(&bytes[..length], false).is_err(), "{length} bytes read as whole");
            if let Ok(tids) = read_all(&bytes[..length], true) {
                assert!(tids.len() <= 1001);
            }
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let bytes = sample();
        let whole = read_all(&bytes, false).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x5a;
            // The start time, the padding and the watermarks carry no checksum; what is read must
            // then still be the same records.
            if let Ok(tids) = read_all(&damaged, false) {
                let mut sorted = tids.clone();
                sorted.sort_unstable();
                let mut expected = whole.clone();
                expected.sort_unstable();
                assert_eq!(sorted, expected, "byte {at}");
            }
        }
    }
}
