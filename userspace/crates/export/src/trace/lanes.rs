//! Tracks for requests of one kind. Slices on a track must nest, so overlapping requests are on different tracks.

use std::collections::BTreeSet;

use anyhow::Result;

use super::packets::{Packets, Track};

/// Tracks of one name: as many as there are overlapping requests at a time.
#[derive(Default)]
pub struct Lanes {
    /// The tracks, each with the time from which it is free.
    free: BTreeSet<(u64, Track)>,
}

impl Lanes {
    /// Returns a track on which nothing lies after `start_ns` and marks it as taken until `end_ns`. Of the free tracks,
    /// takes the one that became free last, so that successive requests share a track.
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
