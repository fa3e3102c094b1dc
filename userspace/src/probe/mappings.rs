//! Code mappings of processes, recorded when the kernel reports them: so addresses can be looked up
//! long after their process has ended.
//!
//! The kernel's side band of perf events covers the whole machine; only records of traced processes
//! are kept.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use zerocopy::IntoBytes;

use super::{online_cpus, perf_event};
use crate::clock;
use crate::records::{
    self, RecFork, RecHdr, RecLost, RecMapping, BUILD_ID_BYTES, MAPPING_EXEC, MAPPING_PATH_BYTES,
    REC_EXIT, REC_FORK, REC_LOST, REC_MAPPING, TASK_TRACED,
};

/// Buffer of each CPU's side band; a power of two pages. A record has about 120 bytes.
const BUFFER_BYTES: usize = 128 << 10;

/// One event of the side band.
#[derive(Debug, PartialEq)]
enum Told {
    /// `record` ([`RecMapping`]) of process `tgid`.
    Mapping { tgid: u32, record: Vec<u8> },
    /// This number of records found no room.
    Lost(u64),
}

/// The side bands of all CPUs, and which processes are traced.
pub struct Mappings {
    bands: Vec<(u32, Band)>,
    keep_paths: bool,
    taken: Vec<(u32, Told)>,
    /// Time of the last two calls of [`Mappings::take`].
    taken_ns: [u64; 2],
    traced: HashSet<u32>,
    ended: HashSet<u32>,
}

impl Mappings {
    /// Begins to listen. `tgids` are the traced processes; their descendants will be traced, too.
    /// Without `keep_paths` only the last parts of paths are kept.
    ///
    /// # Errors
    /// The kernel refuses the events or their memory.
    pub fn listen(tgids: impl IntoIterator<Item = u32>, keep_paths: bool) -> Result<Mappings> {
        let bands = online_cpus()?.into_iter().map(|cpu| Ok((cpu, Band::on(cpu)?)));
        Ok(Mappings {
            bands: bands.collect::<Result<_>>()?,
            keep_paths,
            taken: Vec::new(),
            taken_ns: [clock::monotonic_ns(); 2],
            traced: tgids.into_iter().collect(),
            ended: HashSet::new(),
        })
    }

    /// Takes out the events so far. Events after the returned time come with the next call.
    pub fn take(&mut self) -> u64 {
        let now_ns = clock::monotonic_ns();
        self.taken_ns = [self.taken_ns[1], now_ns];
        for (cpu, band) in &mut self.bands {
            let (taken, keep_paths) = (&mut self.taken, self.keep_paths);
            band.consume(|record| taken.extend(decode(record, keep_paths).map(|t| (*cpu, t))));
        }
        now_ns
    }

    /// Must be given every record of the rings: they tell which processes are traced.
    pub fn see(&mut self, record: &[u8]) {
        let Some((hdr, _)) = records::read::<RecHdr>(record) else { return };
        if hdr.kind == REC_FORK && hdr.flags & TASK_TRACED != 0 {
            if let Some((fork, _)) = records::read::<RecFork>(record) {
                self.traced.insert(fork.child_tgid);
                self.ended.remove(&fork.child_tgid);
            }
        } else if hdr.kind == REC_EXIT {
            self.ended.insert(hdr.tid);
        }
    }

    /// The records taken of traced processes, by CPU. Call when the rings have been drained after
    /// [`Mappings::take`]: then the forks before it have all been seen.
    pub fn records(&mut self) -> Vec<(u32, Vec<u8>)> {
        let [first_ns, last_ns] = self.taken_ns;
        let of_traced = std::mem::take(&mut self.taken).into_iter().filter_map(|(cpu, told)| {
            let record = match told {
                Told::Mapping { tgid, record } => self.traced.contains(&tgid).then_some(record)?,
                Told::Lost(count) => {
                    let hdr = RecHdr { ts_ns: last_ns, tid: 0, kind: REC_LOST, flags: 0, aux: 0 };
                    RecLost { hdr, count, first_ns, last_ns }.as_bytes().to_vec()
                }
            };
            Some((cpu, record))
        });
        let records = of_traced.collect();
        for tgid in self.ended.drain() {
            self.traced.remove(&tgid);
        }
        records
    }
}

/// The records of the code that a process has mapped already; `Err` if it has ended.
pub fn present(tgid: u32, keep_paths: bool) -> Result<Vec<Vec<u8>>> {
    let maps = Process::new(tgid as i32)?.maps()?;
    let executable = maps.into_iter().filter(|map| map.perms.contains(MMPermissions::EXECUTE));
    let record = |map: MemoryMap| {
        let MMapPath::Path(path) = &map.pathname else { return None };
        let mut path = path.as_os_str().as_bytes();
        if !keep_paths {
            path = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
        }
        path = &path[..path.len().min(MAPPING_PATH_BYTES)];
        let (start, end) = map.address;
        let mapping = RecMapping {
            hdr: RecHdr { ts_ns: 0, tid: tgid, kind: REC_MAPPING, flags: 0, aux: 0 },
            tgid,
            path_bytes: path.len() as u32,
            start,
            bytes: end.saturating_sub(start),
            file_offset: map.offset,
            ino: map.inode,
            dev: (map.dev.0 as u32) << 20 | map.dev.1 as u32,
            build_id_bytes: 0,
            build_id: [0; BUILD_ID_BYTES],
            pad: [0; 4],
        };
        Some([mapping.as_bytes(), path].concat())
    };
    Ok(executable.filter_map(record).collect())
}

/// One CPU's event with its buffer: a page of positions, then the ring.
struct Band {
    _event: OwnedFd,
    pages: *mut u8,
    copied: Vec<u8>,
}

const PAGE_BYTES: usize = 4096;
/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

impl Band {
    fn on(cpu: u32) -> Result<Band> {
        let event = perf_event::mappings(cpu)?;
        // SAFETY: a new mapping of the event just opened; the kernel chooses the address.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES + BUFFER_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("cannot map a perf event");
        }
        Ok(Band { _event: event, pages: pages.cast(), copied: Vec::new() })
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both positions are aligned 64-bit words of the first page, which stays mapped as
        // long as `self`, and which the kernel accesses atomically as well.
        unsafe { &*self.pages.add(offset).cast::<AtomicU64>() }
    }

    /// Passes all present records to `take`, and frees their room.
    fn consume(&mut self, mut take: impl FnMut(&[u8])) {
        let head = self.position(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let bytes = (head.wrapping_sub(tail) as usize).min(BUFFER_BYTES);
        let begin = tail as usize % BUFFER_BYTES;
        let first = bytes.min(BUFFER_BYTES - begin);
        self.copied.clear();
        // SAFETY: both parts lie in the ring, between tail and head: the kernel is done with them
        // and writes there no more before the tail moves.
        unsafe {
            let ring = self.pages.add(PAGE_BYTES);
            self.copied.extend_from_slice(std::slice::from_raw_parts(ring.add(begin), first));
            self.copied.extend_from_slice(std::slice::from_raw_parts(ring, bytes - first));
        }
        self.position(DATA_TAIL).store(head, Ordering::Release);
        let mut rest = &self.copied[..];
        while let Some(length) = word::<2>(rest, 6).map(|w| usize::from(u16::from_ne_bytes(w))) {
            let Some((record, after)) = rest.split_at_checked(length).filter(|_| length >= 8)
            else {
                break;
            };
            take(record);
            rest = after;
        }
    }
}

impl Drop for Band {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of that length, used by nobody after this.
        unsafe { libc::munmap(self.pages.cast(), PAGE_BYTES + BUFFER_BYTES) };
    }
}

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_MMAP2: u32 = 10;
const MISC_COMM_EXEC: u16 = 1 << 13;
const MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// Bytes of `record` at `at`.
fn word<const N: usize>(record: &[u8], at: usize) -> Option<[u8; N]> {
    record.get(at..at + N)?.try_into().ok()
}

/// Decodes a record of the side band: header (type, misc, size), contents, and the time at the end
/// (include/uapi/linux/perf_event.h, PERF_RECORD_* with PERF_SAMPLE_TIME).
fn decode(record: &[u8], keep_paths: bool) -> Option<Told> {
    let u32_at = |at| word(record, at).map(u32::from_ne_bytes);
    let u64_at = |at| word(record, at).map(u64::from_ne_bytes);
    let kind = u32_at(0)?;
    let misc = u16::from_ne_bytes(word(record, 4)?);
    if kind == PERF_RECORD_LOST {
        return Some(Told::Lost(u64_at(16)?));
    }
    let end = record.len().checked_sub(8)?;
    let (tgid, tid) = (u32_at(8)?, u32_at(12)?);
    let mut mapping = RecMapping {
        hdr: RecHdr { ts_ns: u64_at(end)?, tid, kind: REC_MAPPING, flags: 0, aux: 0 },
        tgid,
        path_bytes: 0,
        start: 0,
        bytes: 0,
        file_offset: 0,
        ino: 0,
        dev: 0,
        build_id_bytes: 0,
        build_id: [0; BUILD_ID_BYTES],
        pad: [0; 4],
    };
    let mut path: &[u8] = &[];
    match kind {
        PERF_RECORD_COMM if misc & MISC_COMM_EXEC != 0 => mapping.hdr.flags = MAPPING_EXEC,
        PERF_RECORD_MMAP2 => {
            mapping.start = u64_at(16)?;
            mapping.bytes = u64_at(24)?;
            mapping.file_offset = u64_at(32)?;
            if misc & MISC_MMAP_BUILD_ID != 0 {
                mapping.build_id_bytes = u32::from(*record.get(40)?).min(BUILD_ID_BYTES as u32);
                mapping.build_id = word(record, 44)?;
            } else {
                mapping.dev = (u32_at(40)? << 20) | u32_at(44)?;
                mapping.ino = u64_at(48)?;
            }
            path = record.get(72..end)?;
            path = &path[..path.iter().position(|&b| b == 0).unwrap_or(path.len())];
            if !keep_paths {
                path = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
            }
            path = &path[..path.len().min(MAPPING_PATH_BYTES)];
            mapping.path_bytes = path.len() as u32;
        }
        _ => return None,
    }
    Some(Told::Mapping { tgid, record: [mapping.as_bytes(), path].concat() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As the kernel writes it: header, fields, path padded to eight bytes, time.
    fn mmap2(misc: u16, file: [u8; 24], path: &[u8]) -> Vec<u8> {
        let mut record = PERF_RECORD_MMAP2.to_ne_bytes().to_vec();
        let path_bytes = (path.len() + 1).next_multiple_of(8);
        record.extend(misc.to_ne_bytes());
        record.extend((72 + path_bytes as u16 + 8).to_ne_bytes());
        record.extend([7_u32, 8].map(u32::to_ne_bytes).concat());
        record.extend([0x1000_u64, 0x2000, 0x3000].map(u64::to_ne_bytes).concat());
        record.extend(file);
        record.extend([0; 8]);
        record.extend(path);
        record.resize(72 + path_bytes, 0);
        record.extend(99_u64.to_ne_bytes());
        record
    }

    fn told(record: &[u8], keep_paths: bool) -> (RecMapping, Vec<u8>) {
        match decode(record, keep_paths) {
            Some(Told::Mapping { tgid: 7, record }) => {
                let (mapping, path) = records::read::<RecMapping>(&record).unwrap();
                (mapping, path.to_vec())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn mappings() {
        let mut inode = [0; 24];
        inode[0] = 8;
        inode[4] = 1;
        inode[8] = 42;
        let (mapping, path) = told(&mmap2(0, inode, b"/bin/x\x1b"), true);
        assert_eq!((mapping.hdr.ts_ns, mapping.hdr.tid, mapping.hdr.kind), (99, 8, REC_MAPPING));
        let extent = (mapping.start, mapping.bytes, mapping.file_offset);
        assert_eq!(extent, (0x1000, 0x2000, 0x3000));
        assert_eq!((mapping.dev, mapping.ino, mapping.build_id_bytes), (8 << 20 | 1, 42, 0));
        assert_eq!(path, b"/bin/x\x1b");
        let (mapping, path) = told(&mmap2(0, inode, b"/bin/x"), false);
        assert_eq!((mapping.path_bytes, &path[..]), (1, &b"x"[..]));

        let mut build_id = [0xab; 24];
        build_id[0] = 255; // more than there is room for
        let (mapping, path) = told(&mmap2(MISC_MMAP_BUILD_ID, build_id, b""), true);
        assert_eq!((mapping.build_id_bytes, mapping.build_id), (20, [0xab; 20]));
        assert_eq!((mapping.ino, &path[..]), (0, &b""[..]));
    }

    #[test]
    fn new_address_spaces_and_losses() {
        let mut comm = PERF_RECORD_COMM.to_ne_bytes().to_vec();
        comm.extend(MISC_COMM_EXEC.to_ne_bytes());
        comm.extend(32_u16.to_ne_bytes());
        comm.extend([7_u32, 8].map(u32::to_ne_bytes).concat());
        comm.extend(b"name\0\0\0\0");
        comm.extend(99_u64.to_ne_bytes());
        assert_eq!(told(&comm, true).0.hdr.flags, MAPPING_EXEC);
        comm[4..6].fill(0);
        assert_eq!(decode(&comm, true), None, "a thread that renames itself");

        let mut lost = PERF_RECORD_LOST.to_ne_bytes().to_vec();
        lost.extend([0; 12]);
        lost.extend(5_u64.to_ne_bytes());
        assert_eq!(decode(&lost, true), Some(Told::Lost(5)));
    }

    proptest! {
        #[test]
        fn any_bytes(kind in 0_u32..12, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let record = [&kind.to_ne_bytes()[..], &bytes].concat();
            decode(&record, false);
        }
    }
}
