//! How often accept queues were full. A connection that meets a full queue waits until it is tried again, and only the
//! kernel's count of a network namespace shows it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// `/proc/PID/net/netstat` of each network namespace, and its count at the begin. An open file keeps its namespace,
/// whatever becomes of the process.
#[derive(Default)]
pub(super) struct AcceptQueues(Vec<(File, u64)>);

impl AcceptQueues {
    /// Begins to count for the namespaces in which these processes are now. A namespace that cannot be read is left
    /// out.
    pub(super) fn of(pids: impl IntoIterator<Item = u32>) -> AcceptQueues {
        let mut seen = BTreeSet::new();
        let is_new = |pid: &u32| {
            let namespace = fs::read_link(format!("/proc/{pid}/ns/net"));
            namespace.is_ok_and(|namespace| seen.insert(namespace))
        };
        let open = |pid: u32| File::open(format!("/proc/{pid}/net/netstat")).ok();
        let files = pids.into_iter().filter(is_new).filter_map(open);
        let counted = files.filter_map(|file| read(&file).map(|count| (file, count)));
        AcceptQueues(counted.collect())
    }

    /// How often a queue was full since the begin.
    pub(super) fn overflows(&self) -> u64 {
        let since = |(file, before): &(File, u64)| Some(read(file)?.saturating_sub(*before));
        self.0.iter().filter_map(since).sum()
    }
}

fn read(file: &File) -> Option<u64> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        match file.read_at(&mut part, bytes.len() as u64).ok()? {
            0 => return count(std::str::from_utf8(&bytes).ok()?),
            more => bytes.extend_from_slice(&part[..more]),
        }
    }
}

/// The count `ListenOverflows` (net/ipv4/proc.c): a line of names, then a line of values.
fn count(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "ListenOverflows")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_has_a_name_in_the_line_before() {
        let text = "IpExt: A B\nIpExt: 1 2\nTcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 4 17 18\n";
        assert_eq!(count(text), Some(17));
        assert_eq!(count("TcpExt: SyncookiesSent\nTcpExt: 4\n"), None);
        assert_eq!(count(""), None);
    }

    #[test]
    fn a_namespace_counts_once() {
        let us = std::process::id();
        assert_eq!(AcceptQueues::of([us, us]).0.len(), 1);
        assert_eq!(AcceptQueues::of([u32::MAX]).overflows(), 0, "there is no such process");
    }
}
