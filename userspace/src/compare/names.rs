//! Names in waits: the thread that had the CPU or the lock, the device's phase.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::Part;
use crate::model::Segment;

/// Maximum number of different names kept per capture. Times of further names are left out of the
/// comparison of names.
const MOST: usize = 10_000;

/// The meaning of a name in a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Says {
    /// The thread that had the CPU, the lock, or the answer.
    By,
    /// What was done in the meantime.
    Cause,
}

/// A name in the waits of one part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub part: Part,
    pub says: Says,
    pub name: String,
}

/// Times by name, and the number of names.
#[derive(Default)]
pub struct Names(FxHashMap<(Part, Says), FxHashMap<String, u128>>, usize);

impl Names {
    pub fn add(&mut self, segment: &Segment) {
        let part = (segment.category, segment.side);
        let by = segment.by.as_ref().map(|by| &*by.comm);
        for (says, name) in [(Says::By, by), (Says::Cause, segment.waited_because())] {
            let Some(name) = name else { continue };
            let of_part = self.0.entry((part, says)).or_default();
            let ns = u128::from(segment.duration_ns);
            // Looks the name up before it copies it: most segments repeat a name.
            match of_part.get_mut(name) {
                Some(sum) => *sum += ns,
                None if self.1 < MOST => {
                    of_part.insert(name.to_owned(), ns);
                    self.1 += 1;
                }
                None => {}
            }
        }
    }

    /// Returns the time per name, in ns per request.
    pub fn finish(self, requests: f64) -> BTreeMap<Name, f64> {
        let all = self.0.into_iter().flat_map(|((part, says), names)| {
            names.into_iter().map(move |(name, ns)| (Name { part, says, name }, ns))
        });
        all.map(|(name, ns)| (name, ns as f64 / requests)).collect()
    }
}
