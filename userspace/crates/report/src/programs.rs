//! Names of programs, where a program's threads have names of their own (a JVM's "pool-1-thread-1").

use std::collections::HashMap;

use rpcprobe_engine::ownership::ledger::Account;
use rpcprobe_model::End;

/// The main thread of a process: when it was there, CLOCK_MONOTONIC, and its name.
#[derive(Clone, Debug)]
struct Leader {
    since_ns: u64,
    until_ns: u64,
    comm: String,
}

/// The names of traced processes, by process id. A process is named like its main thread.
#[derive(Clone, Debug, Default)]
pub struct Programs(HashMap<u32, Vec<Leader>>);

impl Programs {
    /// From the ledger of a capture.
    pub fn of(accounts: &[Account]) -> Programs {
        let mut programs: HashMap<u32, Vec<Leader>> = HashMap::new();
        for account in accounts.iter().filter(|account| account.pid == account.tid) {
            let Account { pid, since_ns, until_ns, ref comm, .. } = *account;
            let leader = Leader { since_ns, until_ns, comm: comm.clone() };
            programs.entry(pid).or_default().push(leader);
        }
        Programs(programs)
    }

    /// The program at this end of a request that began at `at_ns`. Of several processes that had the id one after the other,
    /// the one of that time. The thread's own name if the program's is not known.
    pub(super) fn at<'a>(&'a self, end: &'a End, at_ns: u64) -> &'a str {
        let leaders = self.0.get(&end.pid).map_or(&[][..], Vec::as_slice);
        let mut there =
            leaders.iter().filter(|leader| leader.since_ns <= at_ns && at_ns <= leader.until_ns);
        match (leaders, there.next()) {
            (_, Some(leader)) => &leader.comm,
            ([only], None) => &only.comm,
            _ => &end.comm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(pid: u32, tid: u32, comm: &str, (since_ns, until_ns): (u64, u64)) -> Account {
        let comm = comm.to_owned();
        Account { pid, tid, comm, since_ns, until_ns, cpu_ns: 0, own_ns: 0, shared_ns: 0 }
    }

    #[test]
    fn a_program_has_the_name_of_its_main_thread_at_that_time() {
        let programs = Programs::of(&[
            account(7, 7, "configure", (0, 100)),
            account(7, 8, "pool-1-thread-1", (0, 100)),
            account(7, 7, "cc1", (200, 300)),
            account(9, 9, "java", (50, 300)),
        ]);
        let end = |pid| End { pid, tid: pid + 1, comm: "worker".into() };
        let name = |pid, at_ns| programs.at(&end(pid), at_ns).to_owned();
        assert_eq!([name(7, 50), name(7, 250), name(7, 150)], ["configure", "cc1", "worker"]);
        assert_eq!([name(9, 60), name(9, 10), name(10, 60)], ["java", "java", "worker"]);
    }
}
