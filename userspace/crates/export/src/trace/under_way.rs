//! Counts the requests of each kind under way, at instants evenly spread over the capture.

use std::collections::BTreeMap;

use anyhow::Result;

use super::packets::{Packets, Track};
use rpcprobe_model::{Kind, Request};

/// Number of instants at which requests are counted.
const INSTANTS: u64 = 1_000;

pub struct UnderWay {
    start_ns: u64,
    step_ns: u64,
    /// For each kind and instant: the change in the number of requests since the previous instant.
    changes: BTreeMap<Kind, Vec<i64>>,
}

impl UnderWay {
    pub fn new(start_ns: u64, duration_ns: u64) -> UnderWay {
        let step_ns = (duration_ns / INSTANTS).max(1);
        UnderWay { start_ns, step_ns, changes: BTreeMap::new() }
    }

    /// The first instant at or after `at_ns`.
    fn instant(&self, at_ns: u64) -> usize {
        at_ns.saturating_sub(self.start_ns).div_ceil(self.step_ns).min(INSTANTS + 1) as usize
    }

    pub fn add(&mut self, request: &Request) {
        let first = self.instant(request.start_ns);
        let after = self.instant(request.start_ns.saturating_add(request.latency_ns));
        let none = || vec![0; INSTANTS as usize + 2];
        let changes = self.changes.entry(request.kind).or_insert_with(none);
        changes[first] += 1;
        changes[after] -= 1;
    }

    /// Writes a track for each kind, with only those instants at which the number changes.
    pub fn write(self, packets: &mut Packets, parent: Track) -> Result<()> {
        for (kind, changes) in &self.changes {
            let track = packets.counter(&format!("{kind} requests under way"), parent)?;
            let mut count = 0;
            for (instant, change) in changes.iter().enumerate().take(INSTANTS as usize + 1) {
                count += change;
                if *change != 0 || instant == 0 {
                    let at_ns = self.start_ns.saturating_add(instant as u64 * self.step_ns);
                    packets.count(at_ns, track, count)?;
                }
            }
        }
        Ok(())
    }
}
