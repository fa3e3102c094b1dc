//! Threads as segments name them (`comm/tid`); and which of them took the capture: waiting for a CPU
//! that those have is a cost of the probe.

use std::collections::HashSet;

use rpcprobe_capture::manifest::Manifest;

/// The name of our threads in captures that do not list them.
const NAME: &str = "rpcprobe";

/// The name in `comm/tid`: threads of one name count as one.
pub fn without_tid(by: &str) -> &str {
    match by.rsplit_once('/') {
        Some((comm, tid)) if !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit()) => comm,
        _ => by,
    }
}

/// Which threads took the capture.
#[derive(Clone, Debug, Default)]
pub struct ProbeThreads {
    /// Empty in captures of earlier versions: then by name.
    tids: HashSet<u32>,
}

impl ProbeThreads {
    pub fn of(manifest: &Manifest) -> ProbeThreads {
        ProbeThreads { tids: manifest.probe.tids.iter().copied().collect() }
    }

    /// Whether `by` (`comm/tid`, as a segment has it) is one of them.
    pub fn have(&self, by: &str) -> bool {
        let (comm, tid) = by.rsplit_once('/').unwrap_or((by, ""));
        match self.tids.is_empty() {
            true => comm == NAME,
            false => tid.parse().is_ok_and(|tid| self.tids.contains(&tid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_name() {
        assert_eq!(without_tid("kworker/0:1/33"), "kworker/0:1");
        assert_eq!(without_tid("a/b"), "a/b");
        assert_eq!(without_tid("a/"), "a/");
    }

    #[test]
    fn by_number_or_else_by_name() {
        let listed = ProbeThreads { tids: [7].into() };
        assert!(listed.have("rpcprobe/7") && !listed.have("rpcprobe/8") && !listed.have("7"));
        let old = ProbeThreads::default();
        assert!(old.have("rpcprobe/8") && !old.have("sh/8") && !old.have("rpcprobe-x/8"));
    }
}
