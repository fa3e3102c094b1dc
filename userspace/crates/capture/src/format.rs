//! The layout of `events.bin`, little-endian:
//!
//! ```text
//! FileHeader  BlockHeader payload  BlockHeader payload  ...  BlockHeader(END)
//! ```
//!
//! A block holds records of one CPU, each preceded by its length in two bytes, compressed as one
//! LZ4 block. Within a CPU, records are in the order in which the ring delivered them. This is time
//! order, except for interrupts that fall between a program's clock read and its reservation. The
//! end block carries the totals. A file without an end block is truncated.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const MAGIC: [u8; 8] = *b"rpcprobe";
pub const VERSION: u32 = 5;
pub const BLOCK_MAGIC: u32 = 0x4b4c_4252; // "RBLK"

/// `BlockHeader::cpu` of records that user space wrote (tasks that existed before the capture).
pub const CPU_USER: u32 = 0xffff_fffe;
/// `BlockHeader::cpu` of the end block.
pub const CPU_END: u32 = 0xffff_ffff;

/// Maximum size of an unpacked block in bytes; a header that claims more means a damaged file.
pub const MAX_BLOCK_BYTES: usize = 4 << 20;
/// A block larger than this is closed.
pub const BLOCK_TARGET_BYTES: usize = 256 << 10;

#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FileHeader {
    pub magic: [u8; 8],
    pub version: u32,
    pub cpus: u32,
    /// CLOCK_MONOTONIC when the target was released.
    pub start_ns: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct BlockHeader {
    pub magic: u32,
    pub cpu: u32,
    /// Every record of this CPU before this instant is in this block or an earlier one. In the end
    /// block: when the capture ended.
    pub watermark_ns: u64,
    pub records: u64,
    pub raw_bytes: u32,
    pub stored_bytes: u32,
    /// CRC-32 of the stored payload.
    pub crc32: u32,
    pub pad: u32,
}
