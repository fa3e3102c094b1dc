//! Which threads took the capture. Waiting for a CPU that these threads have is a cost of the
//! probe.

use std::collections::HashSet;

use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::By;

/// The name of our threads, for captures that do not list them.
const NAME: &str = "rpcprobe";

/// Which threads took the capture.
#[derive(Clone, Debug, Default)]
pub struct ProbeThreads {
    /// Empty in captures of earlier versions; there, the threads are recognised by name.
    tids: HashSet<u32>,
}

impl ProbeThreads {
    pub fn of(manifest: &Manifest) -> ProbeThreads {
        ProbeThreads { tids: manifest.probe.tids.iter().copied().collect() }
    }

    pub fn have(&self, by: &By) -> bool {
        match self.tids.is_empty() {
            true => &*by.comm == NAME,
            false => by.tid.is_some_and(|tid| self.tids.contains(&tid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_number_or_else_by_name() {
        let have = |threads: &ProbeThreads, by: &str| threads.have(&by.into());
        let listed = ProbeThreads { tids: [7].into() };
        assert!(have(&listed, "rpcprobe/7"));
        assert!(!have(&listed, "rpcprobe/8") && !have(&listed, "7"));
        let old = ProbeThreads::default();
        assert!(have(&old, "rpcprobe/8"));
        assert!(!have(&old, "sh/8") && !have(&old, "rpcprobe-x/8"));
    }
}
