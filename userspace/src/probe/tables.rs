//! Tables of the kernel side, which are as large as the machine's memory allows, and how many of their elements found
//! no room or were evicted (`bpf/tables.h`).

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, OpenObject};

use super::{bss_offset, Probe, MAX_CPUS};
use crate::capture::manifest::TableUse;

/// How a map makes room when it is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Full {
    /// The elements used least recently are evicted, uncounted.
    Evicts,
    /// The same, counted as dropped by the programs.
    TakesAway,
    /// It accepts no more elements.
    Refuses,
}

struct Table {
    map: &'static str,
    /// What an element is.
    holds: &'static str,
    full: Full,
    /// The longest time for which an element is usually of use, or `TOLD`.
    use_ns: u64,
    /// Least and most elements, and the machine's memory per element.
    least: u64,
    most: u64,
    bytes_each: u64,
}

/// For what is under way, and for what lasts as long as a connection.
const SHORT_NS: u64 = 1_000_000_000;
const LONG_NS: u64 = 10_000_000_000;
/// Each element that is evicted too early is reported.
const TOLD: u64 = 0;

const fn table(
    map: &'static str,
    holds: &'static str,
    full: Full,
    use_ns: u64,
    (least, most): (u64, u64),
    bytes_each: u64,
) -> Table {
    Table { map, holds, full, use_ns, least, most, bytes_each }
}

const MOST_TRACED: u64 = 65_536; // bpf/tasks.h

/// In the order of `enum table`, bpf/tables.h; docs/limits.md says what is missing where one is full.
const TABLES: [Table; 17] = [
    table("pipes", "pipes and eventfds", Full::Evicts, TOLD, (16_384, 65_536), 128 << 10),
    table("channels", "directions of connections", Full::Evicts, TOLD, (32_768, 262_144), 32 << 10),
    table(
        "framers",
        "streams with known framing",
        Full::TakesAway,
        TOLD,
        (8_192, 131_072),
        64 << 10,
    ),
    table(
        "mid_lives",
        "channels older than the capture",
        Full::Refuses,
        LONG_NS,
        (65_536, 262_144),
        64 << 10,
    ),
    table("states", "traced threads", Full::Refuses, LONG_NS, (MOST_TRACED, MOST_TRACED), 1),
    table(
        "unaccepted",
        "connections not accepted yet",
        Full::Evicts,
        SHORT_NS,
        (16_384, 65_536),
        128 << 10,
    ),
    table("datagrams", "datagrams under way", Full::Evicts, SHORT_NS, (16_384, 65_536), 128 << 10),
    table("heads", "queues of datagrams", Full::Evicts, LONG_NS, (16_384, 65_536), 128 << 10),
    table(
        "copied",
        "threads that read datagrams",
        Full::Evicts,
        SHORT_NS,
        (16_384, 65_536),
        128 << 10,
    ),
    table("flows", "senders of datagrams", Full::Evicts, LONG_NS, (16_384, 65_536), 128 << 10),
    table("ports", "ports that hear datagrams", Full::Evicts, LONG_NS, (16_384, 65_536), 128 << 10),
    table(
        "wired",
        "sockets that send through devices",
        Full::Evicts,
        LONG_NS,
        (16_384, 65_536),
        128 << 10,
    ),
    table("packets", "packets under way", Full::Evicts, SHORT_NS, (16_384, 65_536), 128 << 10),
    table(
        "requests_in_flight",
        "block requests",
        Full::Refuses,
        SHORT_NS,
        (16_384, 65_536),
        128 << 10,
    ),
    table(
        "queued_works",
        "work queued for the kernel",
        Full::Evicts,
        SHORT_NS,
        (4_096, 16_384),
        512 << 10,
    ),
    table(
        "running_works",
        "work the kernel does",
        Full::Evicts,
        SHORT_NS,
        (4_096, 16_384),
        512 << 10,
    ),
    table(
        "holding",
        "sockets with unsent bytes",
        Full::Evicts,
        SHORT_NS,
        (4_096, 65_536),
        128 << 10,
    ),
];

/// An LRU map moves its elements in batches of this size for each CPU: it may evict some while this many places are
/// left.
const BATCH: u64 = 128; // LOCAL_FREE_TARGET, kernel/bpf/bpf_lru_list.c

/// Makes every table as large as the given memory allows.
pub(super) fn make(open: &mut OpenObject, memory_bytes: u64) -> Result<()> {
    for table in TABLES.iter().filter(|table| table.least != table.most) {
        let bound = table.bound(memory_bytes);
        let maps: &[&str] =
            if table.map == "framers" { &["framers", "framer_places"] } else { &[table.map] };
        for name in maps {
            let mut map = open
                .maps_mut()
                .find(|map| map.name() == *name)
                .with_context(|| format!("the BPF object has no map `{name}`"))?;
            map.set_max_entries(bound).with_context(|| format!("{name} is too large"))?;
        }
    }
    Ok(())
}

/// The number of streams whose framing is followed, with the given memory.
pub(super) fn most_framers(memory_bytes: u64) -> u32 {
    let framers = TABLES.iter().find(|table| table.map == "framers");
    framers.map_or(0, |table| table.bound(memory_bytes))
}

impl Table {
    fn bound(&self, memory_bytes: u64) -> u32 {
        if let Some(bound) = self.bound_for_tests() {
            return bound;
        }
        (memory_bytes / self.bytes_each).clamp(self.least, self.most) as u32
    }

    /// RPCPROBE_TABLES=framers=64,channels=128 makes tables this small, for tests of what is reported then.
    fn bound_for_tests(&self) -> Option<u32> {
        let given = std::env::var("RPCPROBE_TABLES").ok()?;
        let mut bounds = given.split(',').filter_map(|bound| bound.split_once('='));
        bounds.find(|(name, _)| *name == self.map)?.1.parse().ok()
    }
}

/// `made`, `dropped`, `refused` of each table.
pub type Counted = [[u64; 3]; TABLES.len()];

impl Probe {
    /// What the programs have counted so far.
    pub fn table_counts(&self) -> Result<Counted> {
        let at = bss_offset("table_counts").context("the BPF object has no `table_counts`")?;
        let value = self.variables()?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("empty .bss")?;
        let mut counted = [[0u64; 3]; TABLES.len()];
        let of_cpu = size_of::<Counted>();
        for cpu in 0..MAX_CPUS as usize {
            for (table, counts) in counted.iter_mut().enumerate() {
                for (kind, sum) in counts.iter_mut().enumerate() {
                    let at = at + cpu * of_cpu + (kind * TABLES.len() + table) * 8;
                    let word = value.get(at..).and_then(|rest| rest.first_chunk::<8>());
                    *sum = sum.wrapping_add(word.map_or(0, |word| u64::from_ne_bytes(*word)));
                }
            }
        }
        Ok(counted)
    }

    /// The use of every table. `before`: the counts when the capture began.
    pub fn tables(&self, before: &Counted) -> Result<Vec<TableUse>> {
        let counted = self.table_counts()?;
        let each = TABLES.iter().zip(counted.iter().zip(before));
        each.map(|(table, (now, before))| {
            let map = self.map(table.map)?;
            let bound = u64::from(map.max_entries());
            let [made, dropped, refused] = *now;
            let there = made.saturating_sub(dropped);
            let let_go = match table.full {
                Full::Refuses => 0,
                Full::TakesAway => dropped.saturating_sub(before[1]),
                Full::Evicts if there <= bound.saturating_sub(BATCH * u64::from(self.cpus())) => 0,
                Full::Evicts => there.saturating_sub(map.keys().count() as u64),
            };
            Ok(TableUse {
                name: table.map.into(),
                holds: table.holds.into(),
                bound,
                use_ns: table.use_ns,
                made: made.saturating_sub(before[0]),
                let_go,
                refused: refused.saturating_sub(before[2]),
            })
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_memory_between_bounds() {
        let of = |map: &str, memory_bytes| {
            let table = TABLES.iter().find(|table| table.map == map).expect("a table");
            table.bound(memory_bytes)
        };
        assert_eq!(of("framers", 0), 8_192);
        assert_eq!(of("framers", 2 << 30), 32_768);
        assert_eq!(of("framers", 1 << 40), 131_072);
        assert_eq!(of("states", 1 << 40), 65_536);
        assert_eq!(most_framers(2 << 30), 32_768);
    }

    /// The order is that of bpf/tables.h.
    #[test]
    fn tables_have_the_kernel_sides_numbers() {
        let header = include_str!("../../../bpf/tables.h");
        let names = header.lines().filter_map(|line| {
            let rest = line.trim().strip_prefix("TABLE_")?;
            let (name, comment) = rest.split_once(',')?;
            let named = comment.split("/* ").nth(1).map(|map| map.trim_end_matches(" */").into());
            Some(named.unwrap_or_else(|| name.to_lowercase()))
        });
        let names: Vec<String> = names.collect();
        assert_eq!(names, TABLES.map(|table| table.map));
    }
}
