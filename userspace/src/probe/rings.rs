//! The consumer of the per-CPU rings (bpf/ring.h): reads the records where the kernel side wrote them, and is never
//! woken for a record.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use libbpf_rs::{Map, MapCore};

use crate::clock;

// bpf/ring.h
const PIECE_BYTES: usize = 256 << 10;
const BEYOND_BYTES: usize = 4096;
const MARK_BYTES: usize = 8;
/// Size of a `struct ring_head` and of a `struct ring_tail`.
const ENDS_BYTES: usize = 64;
/// Bytes that programs may take beyond the limit, as a program that interrupts another sees the same room.
const SLACK_BYTES: u64 = 16 << 10;
/// Bytes that are read before their room is given back.
const ROOM_BYTES: u64 = 64 << 10;

/// The layout of the rings of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub cpus: u32,
    /// Pieces per CPU.
    pub pieces: u32,
    /// Most bytes that may be under way on a CPU.
    pub bytes: u64,
    /// Makes the marks of this run unlike those of any other.
    pub secret: u32,
}

impl Layout {
    /// The layout for rings of `bytes_per_cpu` bytes, a power of two.
    pub fn new(cpus: u32, bytes_per_cpu: u32, secret: u32) -> Layout {
        let pieces = (bytes_per_cpu / PIECE_BYTES as u32).max(1);
        let room = u64::from(pieces) * PIECE_BYTES as u64 - SLACK_BYTES;
        Layout { cpus, pieces, bytes: room.min(u64::from(bytes_per_cpu)), secret }
    }

    /// Elements of the map `rings`.
    pub fn entries(&self) -> u32 {
        self.cpus * self.pieces
    }

    /// The mark before a complete record of `bytes` bytes at this position.
    fn mark(&self, position: u64, bytes: u32) -> u64 {
        let lap = ((position >> 3) as u32).wrapping_add(self.secret);
        u64::from(lap) << 32 | u64::from(bytes)
    }
}

/// All rings, mapped.
pub struct Rings {
    layout: Layout,
    records: Mapping,
    /// The kernel side's variables, and the offsets of the positions in them.
    variables: Mapping,
    heads: usize,
    tails: usize,
}

/// Shared memory of a BPF map.
pub(super) struct Mapping {
    pages: *mut u8,
    length: usize,
}

impl Mapping {
    fn of(map: BorrowedFd<'_>, length: usize) -> Result<Mapping> {
        // SAFETY: a new mapping; the kernel chooses the address and checks the length.
        let pages = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let null = std::ptr::null_mut();
            libc::mmap(null, length, protection, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        if pages == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map the rings");
        }
        Ok(Mapping { pages: pages.cast(), length })
    }

    /// Maps a map with one element, the kernel side's global variables.
    pub(super) fn of_variables(map: &Map<'_>) -> Result<Mapping> {
        Mapping::of(map.as_fd(), map.value_size() as usize)
    }

    /// The aligned word at `offset`.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length);
        // SAFETY: within the mapping, which lives as long as `self`, aligned as pages are, and
        // accessed by the kernel side in single words as well.
        unsafe { &*self.pages.add(offset).cast::<AtomicU64>() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by mmap with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.pages.cast(), self.length) };
    }
}

impl Rings {
    /// Maps the rings: the map `rings`, and the map of the kernel side's variables, which has `ring_heads` and
    /// `ring_tails` at these offsets.
    pub fn new(
        layout: Layout,
        records: BorrowedFd<'_>,
        variables: &Map<'_>,
        (heads, tails): (usize, usize),
    ) -> Result<Rings> {
        let entries = layout.entries() as usize;
        let records = Mapping::of(records, entries * (PIECE_BYTES + BEYOND_BYTES))?;
        let variables = Mapping::of_variables(variables)?;
        Ok(Rings { layout, records, variables, heads, tails })
    }

    fn head(&self, cpu: u32) -> &AtomicU64 {
        self.variables.word(self.heads + cpu as usize * ENDS_BYTES)
    }

    fn tail(&self, cpu: u32) -> &AtomicU64 {
        self.variables.word(self.tails + cpu as usize * ENDS_BYTES)
    }

    /// The whole record at a position below the head; `None` while a program is still filling it.
    fn record(&self, cpu: u32, position: u64) -> Option<&[u8]> {
        let piece = cpu * self.layout.pieces
            + ((position / PIECE_BYTES as u64) as u32 & (self.layout.pieces - 1));
        let offset = piece as usize * (PIECE_BYTES + BEYOND_BYTES)
            + (position as usize & (PIECE_BYTES - MARK_BYTES));
        let mark = self.records.word(offset).load(Ordering::Acquire);
        let bytes = mark as u32;
        if mark != self.layout.mark(position, bytes) || bytes as usize > BEYOND_BYTES - MARK_BYTES {
            return None;
        }
        // SAFETY: the record lies within its piece and what is beyond; it is whole, as its mark was
        // read first, and the kernel side leaves it alone until the tail has passed it.
        Some(unsafe {
            std::slice::from_raw_parts(self.records.pages.add(offset + MARK_BYTES), bytes as usize)
        })
    }

    /// Hands every record now in the rings to `take(cpu, record)`, then calls
    /// `drained(cpu, watermark_ns)`: all records of that CPU before the watermark have been taken.
    /// The watermark is `None` when a program was still filling a record.
    pub fn drain<E>(
        &self,
        mut take: impl FnMut(u32, &[u8]),
        mut drained: impl FnMut(u32, Option<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        for cpu in 0..self.layout.cpus {
            let now_ns = clock::monotonic_ns();
            let wanted = self.head(cpu).load(Ordering::Acquire);
            let mut reached = self.tail(cpu).load(Ordering::Relaxed);
            let mut given_back = reached;
            while reached < wanted {
                let Some(record) = self.record(cpu, reached) else { break };
                take(cpu, record);
                reached += (MARK_BYTES + record.len()).next_multiple_of(8) as u64;
                if reached - given_back >= ROOM_BYTES {
                    self.tail(cpu).store(reached, Ordering::Release);
                    given_back = reached;
                }
            }
            self.tail(cpu).store(reached, Ordering::Release);
            drained(cpu, (reached >= wanted).then_some(now_ns))?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Rings {
    /// No record finds room from now on, until this ring is drained.
    pub fn fill(&self, cpu: u32) {
        let full = self.head(cpu).load(Ordering::Acquire).wrapping_sub(self.layout.bytes);
        self.tail(cpu).store(full, Ordering::Release);
    }
}
