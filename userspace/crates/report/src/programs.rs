//! Names of programs whose threads have names of their own (such as a JVM's "pool-1-thread-1").

use std::collections::HashMap;

use rpcprobe_engine::ownership::ledger::Account;
use rpcprobe_model::End;

/// The names of traced processes, by process id. A process is named like its main thread.
#[derive(Clone, Debug, Default)]
pub struct Programs(HashMap<u32, String>);

impl Programs {
    /// Takes the names from the ledger of a capture. If several processes had the same id in turn, the last one's name
    /// counts.
    pub fn of(accounts: &[Account]) -> Programs {
        let leaders = accounts.iter().filter(|account| account.pid == account.tid);
        Programs(leaders.map(|leader| (leader.pid, leader.comm.clone())).collect())
    }

    /// Returns the program at this end of a request, or the thread's own name if the program's is not known.
    pub(super) fn at<'a>(&'a self, end: &'a End) -> &'a str {
        self.0.get(&end.pid).unwrap_or(&end.comm)
    }
}
