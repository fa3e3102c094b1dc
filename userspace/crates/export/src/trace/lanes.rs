//! Tracks for requests of one kind: slices on a track must nest, so requests that overlap are on different ones.

use std::collections::BTreeSet;

use anyhow::Result;

use super::packets::{Packets, Track};

/// Tracks of one name: as many as requests that overlap.
#[derive(Default)]
pub struct Lanes {
    /// Each with the time from which on it is free.
    free: BTreeSet<(u64, Track)>,
}

impl Lanes {
    /// A track on which nothing lies after `start_ns`, which is then taken until `end_ns`. Of those that are free, the
    /// one that became so last: requests in a row share a track.
    pub fn take(
        &mut self,
        packets: &mut Packets,
        (start_ns, end_ns): (u64, u64),
        name: &str,
        parent: Track,
    ) -> Result<Track> {
        let found = self.free.range(..=(start_ns, Track::MAX)).next_back().copied();
        let track = match found {
            Some(lane) => {
                self.free.remove(&lane);
                lane.1
            }
            None => packets.named(name, Some(parent))?,
        };
        self.free.insert((end_ns, track));
        Ok(track)
    }
}
