//! Reads `events.bin` in time order across CPUs, streaming.
//!
//! Every byte is treated as hostile: sizes are checked before anything is allocated, payloads are
//! checksummed, and damage is an error that names the offset.

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::collections::VecDeque;
use std::io::Read;

use anyhow::{bail, Context, Result};
use zerocopy::FromBytes;

use super::format::*;
use rpcprobe_record::RecHdr;

/// How far a record may lie behind its CPU's watermark: the time between a program's clock read
/// and its reservation, which on preemptible kernels can include a preemption.
const SLACK_NS: u64 = 5_000_000;

/// Maximum of unpacked bytes held back because some CPU may still deliver an older record. The
/// limit is far above what the largest rings hold, so only a damaged file reaches it.
const MOST_WAITING_BYTES: u64 = 4 << 30;

/// A record that waits for its turn. Ordered by `ts_ns`, then by arrival (ties keep the ring's
/// order).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    ts_ns: u64,
    sequence: u64,
    place: Place,
}

/// Position of a record: its block, and the offset of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: u32,
    at: u32,
}

/// Records of one CPU.
#[derive(Default)]
struct Queue {
    /// Records that arrived in time order: nearly all of them.
    in_order: VecDeque<Pending>,
    /// Records older than the last record in `in_order` when they arrived.
    stragglers: BinaryHeap<Reverse<Pending>>,
    watermark_ns: u64,
}

impl Queue {
    fn push(&mut self, pending: Pending) {
        match self.in_order.back() {
            Some(last) if pending.ts_ns < last.ts_ns => self.stragglers.push(Reverse(pending)),
            _ => self.in_order.push_back(pending),
        }
    }

    fn first(&self) -> Option<Pending> {
        match (self.in_order.front(), self.stragglers.peek()) {
            (Some(first), Some(Reverse(straggler))) => Some(*first.min(straggler)),
            (first, straggler) => first.or(straggler.map(|Reverse(s)| s)).copied(),
        }
    }

    fn pop(&mut self) {
        match (self.in_order.front(), self.stragglers.peek()) {
            (Some(first), Some(Reverse(straggler))) if straggler < first => {
                self.stragglers.pop();
            }
            (None, _) => {
                self.stragglers.pop();
            }
            _ => {
                self.in_order.pop_front();
            }
        }
    }
}

/// Unpacked blocks that still hold records to hand out. Their memory is reused.
#[derive(Default)]
struct Blocks {
    /// The bytes of each block, and the number of its records not yet handed out.
    blocks: Vec<(Vec<u8>, u64)>,
    free: Vec<u32>,
    waiting_bytes: u64,
}

impl Blocks {
    /// Returns a block with a buffer of `bytes` bytes, to be filled.
    fn take(&mut self, bytes: usize) -> u32 {
        let block = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(Default::default());
            self.blocks.len() as u32 - 1
        });
        self.blocks[block as usize].0.resize(bytes, 0);
        self.waiting_bytes += bytes as u64;
        block
    }

    /// Counts one record as handed out; frees the block's memory with the last one.
    fn release(&mut self, block: u32) {
        let (bytes, left) = &mut self.blocks[block as usize];
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.waiting_bytes -= bytes.len() as u64;
            self.free.push(block);
        }
    }

    fn record(&self, place: Place) -> &[u8] {
        let rest = &self.blocks[place.block as usize].0[place.at as usize..];
        let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        &rest[2..2 + length]
    }
}

/// A record and where it came from.
pub struct Item<'r> {
    pub cpu: u32,
    pub record: &'r [u8],
}

pub struct Reader<R: Read> {
    input: R,
    offset: u64,
    pub header: FileHeader,
    queues: Vec<Queue>,
    /// The first record of each queue, with its CPU. May also hold records that were handed out
    /// since.
    firsts: BinaryHeap<Reverse<(Pending, u32)>>,
    /// No CPU will deliver a record older than this.
    safe_ns: u64,
    user: VecDeque<Place>,
    blocks: Blocks,
    /// The block of the record that was handed out last.
    lent: Option<u32>,
    stored: Vec<u8>,
    sequence: u64,
    ended: Option<BlockHeader>,
    last_ns: u64,
    /// Records read so far.
    pub records: u64,
    /// Records that arrived after a later one had been handed out; see [`SLACK_NS`].
    pub late: u64,
    /// Accept a file without its end block.
    allow_truncated: bool,
    /// If the file had no end block: the offset at which it breaks off.
    pub truncated_at: Option<u64>,
    most_waiting_bytes: u64,
}

impl<R: Read> Reader<R> {
    /// Reads and checks the file header.
    ///
    /// # Errors
    /// The input is not a capture, is of another version, or has a damaged header.
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
        if header.start_ns > i64::MAX as u64 {
            bail!("damaged header: a start at {} ns", header.start_ns);
        }
        Ok(Reader {
            input,
            offset: bytes.len() as u64,
            header,
            queues: (0..header.cpus).map(|_| Queue::default()).collect(),
            firsts: BinaryHeap::new(),
            safe_ns: 0,
            user: VecDeque::new(),
            blocks: Blocks::default(),
            lent: None,
            stored: Vec::new(),
            sequence: 0,
            ended: None,
            last_ns: 0,
            records: 0,
            late: 0,
            allow_truncated,
            truncated_at: None,
            most_waiting_bytes: MOST_WAITING_BYTES,
        })
    }

    /// When the capture ended; `None` until all records have been read.
    pub fn end_ns(&self) -> Option<u64> {
        self.ended.map(|end| end.watermark_ns.min(i64::MAX as u64))
    }

    /// Returns the next record in time order, `None` at the end.
    ///
    /// # Errors
    /// Damage or truncation, naming the offset.
    pub fn next_record(&mut self) -> Result<Option<Item<'_>>> {
        if let Some(block) = self.lent.take() {
            self.blocks.release(block);
        }
        let (cpu, place) = loop {
            if let Some(place) = self.user.pop_front() {
                break (CPU_USER, place);
            }
            if let Some((pending, cpu)) = self.next_in_time() {
                if pending.ts_ns < self.last_ns {
                    self.late += 1;
                } else {
                    self.last_ns = pending.ts_ns;
                }
                break (cpu, pending.place);
            }
            if self.ended.is_some() {
                return Ok(None);
            }
            self.read_block()?;
        };
        self.lent = Some(place.block);
        Ok(Some(Item { cpu, record: self.blocks.record(place) }))
    }

    /// Returns the oldest record and its CPU, if no CPU can still deliver an older one.
    fn next_in_time(&mut self) -> Option<(Pending, u32)> {
        loop {
            let mut top = self.firsts.peek_mut()?;
            let Reverse((pending, cpu)) = *top;
            let queue = &mut self.queues[cpu as usize];
            if queue.first() != Some(pending) {
                PeekMut::pop(top); // handed out already
                continue;
            }
            if pending.ts_ns >= self.safe_ns && self.ended.is_none() {
                return None;
            }
            queue.pop();
            match queue.first() {
                Some(next) => *top = Reverse((next, cpu)),
                None => {
                    PeekMut::pop(top);
                }
            }
            return Some((pending, cpu));
        }
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
        self.stored.resize(stored_bytes, 0);
        let got = read_fully(&mut self.input, &mut self.stored)?;
        if got < stored_bytes {
            return self.truncated(at, self.offset + got as u64);
        }
        self.offset += stored_bytes as u64;
        if crc32fast::hash(&self.stored) != header.crc32 {
            bail!("damaged at byte {at}: checksum of the block does not match");
        }
        if self.blocks.waiting_bytes > self.most_waiting_bytes {
            bail!("damaged at byte {at}: some CPU's records never come");
        }
        let block = self.blocks.take(raw_bytes);
        let raw = &mut self.blocks.blocks[block as usize].0;
        let unpacked = lz4_flex::block::decompress_into(&self.stored, raw)
            .with_context(|| format!("damaged at byte {at}: the block does not unpack"))?;
        if unpacked != raw_bytes {
            bail!("damaged at byte {at}: {unpacked} bytes where {raw_bytes} were packed");
        }
        self.take_records(&header, block).with_context(|| format!("damaged at byte {at}"))
    }

    fn take_records(&mut self, header: &BlockHeader, block: u32) -> Result<()> {
        let (raw, left) = &mut self.blocks.blocks[block as usize];
        let mut queue = self.queues.get_mut(header.cpu as usize);
        let former = queue.as_ref().and_then(|queue| queue.first());
        let mut rest = &raw[..];
        let mut count = 0;
        while !rest.is_empty() {
            let place = Place { block, at: (raw.len() - rest.len()) as u32 };
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
            match &mut queue {
                Some(queue) => {
                    self.sequence += 1;
                    let sequence = self.sequence;
                    queue.push(Pending { ts_ns: hdr.ts_ns, sequence, place });
                }
                None => self.user.push_back(place),
            }
        }
        if count != header.records {
            bail!("{count} records where {} were written", header.records);
        }
        self.records += count;
        *left = count;
        if count == 0 {
            self.blocks.release(block);
        }
        if let Some(queue) = queue {
            queue.watermark_ns = queue.watermark_ns.max(header.watermark_ns);
            if let Some(first) = queue.first().filter(|first| Some(*first) != former) {
                self.firsts.push(Reverse((first, header.cpu)));
            }
        }
        let watermark_ns = self.queues.iter().map(|queue| queue.watermark_ns).min();
        self.safe_ns = watermark_ns.unwrap_or(0).saturating_sub(SLACK_NS);
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
            watermark_ns: self.queues.iter().map(|q| q.watermark_ns).min().unwrap_or(0),
            records: self.records,
            raw_bytes: 0,
            stored_bytes: 0,
            crc32: 0,
            pad: 0,
        });
        Ok(())
    }
}

/// Fills `buffer` until it is full or the input ends; returns the number of bytes read.
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
            tids.push(RecHdr::read_from_prefix(item.record).unwrap().0.tid);
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
    fn records_out_of_order_come_back_in_order() {
        let mut writer = Writer::new(Vec::new(), 1, 1).unwrap();
        // In two blocks; in each, some records are older than the last record of the other.
        for (number, ts_ns) in [5, 3, 9, 4, 8, 3, 1, 7].into_iter().enumerate() {
            writer.push(0, &record(ts_ns, 10 * ts_ns as u32 + number as u32));
            if number == 3 {
                writer.flush(0, 0, 0).unwrap();
            }
        }
        let tids = read_all(&writer.finish(10).unwrap(), false).unwrap();
        assert_eq!(tids, [16, 31, 35, 43, 50, 77, 84, 92]);
    }

    #[test]
    fn a_cpu_that_stays_silent_does_not_take_all_memory() {
        let mut writer = Writer::new(Vec::new(), 2, 1).unwrap();
        for ts_ns in 0..1000 {
            writer.push(0, &record(ts_ns, 1));
            writer.flush(0, ts_ns, 0).unwrap();
        }
        let bytes = writer.finish(1000).unwrap();
        let mut reader = Reader::new(&bytes[..], false).unwrap();
        reader.most_waiting_bytes = 500;
        let error = reader.next_record().err().expect("too much waits").to_string();
        assert!(error.contains("never come"), "{error}");
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
            // The start time, the padding and the watermarks have no checksum. If reading succeeds,
            // the records must still be the same.
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
