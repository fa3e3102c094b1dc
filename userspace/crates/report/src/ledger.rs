//! What traced threads' CPU time was used for: see [`rpcprobe_engine::ownership::ledger`].

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::layout::wrap;
use super::text::{escape, indented, table};
use super::units::{count, format_ns, format_share};
use super::Style;
use rpcprobe_engine::ownership::ledger::Account;
use rpcprobe_model::FIRST_RUNTIME_TASK;

/// Maximum number of threads listed.
const MOST_LISTED: usize = 20;

/// A thread's account, as shown in JSON.
#[derive(Serialize)]
pub(super) struct Told<'a> {
    comm: &'a str,
    pid: u32,
    tid: u32,
    start_ns: u64,
    duration_ns: u64,
    cpu_ns: u64,
    own_ns: u64,
    shared_ns: u64,
    none_ns: u64,
}

pub(super) fn told(accounts: &[Account]) -> Vec<Told<'_>> {
    let told = |account| {
        let Account { pid, tid, comm, since_ns, until_ns, cpu_ns, own_ns, shared_ns }: &Account =
            account;
        Told {
            comm,
            pid: *pid,
            tid: *tid,
            start_ns: *since_ns,
            duration_ns: until_ns - since_ns,
            cpu_ns: *cpu_ns,
            own_ns: *own_ns,
            shared_ns: *shared_ns,
            none_ns: account.none_ns(),
        }
    };
    accounts.iter().map(told).collect()
}

/// Returns a line about what all threads' CPU time was used for; `None` if there was none.
pub fn ledger_line(accounts: &[Account]) -> Option<String> {
    let ran: Vec<&Account> = accounts.iter().filter(|account| account.cpu_ns > 0).collect();
    let sum = |of: fn(&Account) -> u64| ran.iter().map(|account| u128::from(of(account))).sum();
    let cpu_ns: u128 = sum(|account| account.cpu_ns);
    if cpu_ns == 0 {
        return None;
    }
    let shared_ns = sum(|account| account.shared_ns);
    let share = |ns: u128| format_share(ns, cpu_ns);
    let mut parts = vec![format!("{} requests' own", share(sum(|account| account.own_ns)))];
    if shared_ns > 0 {
        parts.push(format!("{} shared by several", share(shared_ns)));
    }
    parts.push(format!("{} no request's", share(sum(Account::none_ns))));
    let tasks = ran.iter().filter(|account| account.tid >= FIRST_RUNTIME_TASK).count();
    let mut threads = count((ran.len() - tasks) as u64, "traced thread");
    if tasks > 0 {
        threads = format!("{threads} and {}", count(tasks as u64, "task"));
    }
    Some(format!("CPU time of {threads}: {}, {}.", format_ns(cpu_ns), parts.join(", ")))
}

/// Writes a line about what all threads' time was used for; with `all`, also a row for each of the threads that ran
/// most.
///
/// # Errors
/// When `out` cannot be written.
pub(super) fn ledger(
    out: &mut dyn Write,
    accounts: &[Account],
    all: bool,
    style: Style,
) -> Result<()> {
    let Some(text) = ledger_line(accounts) else { return Ok(()) };
    write!(out, "{}", wrap(&text, "  ", style))?;
    if !all {
        return Ok(());
    }
    let mut most: Vec<&Account> = accounts.iter().filter(|account| account.cpu_ns > 0).collect();
    most.sort_by_key(|account| (std::cmp::Reverse(account.cpu_ns), account.tid));
    let header = ["thread", "on CPU", "own", "shared", "no request's"];
    let mut rows = table(&header, &[1, 2, 3, 4], style);
    for account in most.iter().take(MOST_LISTED) {
        rows.add_row([
            format!("{}/{}", escape(&account.comm), account.tid),
            format_ns(account.cpu_ns),
            format_ns(account.own_ns),
            format_ns(account.shared_ns),
            format_ns(account.none_ns()),
        ]);
    }
    writeln!(out)?;
    write!(out, "{}", indented(&rows, "  "))?;
    if most.len() > MOST_LISTED {
        writeln!(out, "  and {} that ran less", most.len() - MOST_LISTED)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::PLAIN;
    use super::*;

    #[test]
    fn time_is_own_shared_or_nobodys() {
        let account = |tid, cpu_ns, own_ns, shared_ns| Account {
            pid: 7,
            tid,
            comm: "server".into(),
            since_ns: 5,
            until_ns: 10_000,
            cpu_ns,
            own_ns,
            shared_ns,
        };
        let accounts = [account(8, 1000, 250, 50), account(7, 3000, 2000, 0), account(9, 0, 0, 0)];
        let text = |all| {
            let mut out = Vec::new();
            ledger(&mut out, &accounts, all, PLAIN).expect("memory takes everything");
            String::from_utf8(out).expect("text")
        };
        let line = "CPU time of 2 traced threads: 4.00 us, 56.3 % requests' own, \
                    1.3 % shared by several, 42.5 % no request's.\n";
        assert_eq!(text(false), line);
        let task = account(FIRST_RUNTIME_TASK + 3, 4000, 4000, 0);
        let line = ledger_line(&[accounts[0].clone(), task]).expect("they ran");
        assert!(line.starts_with("CPU time of 1 traced thread and 1 task: 5.00 us"), "{line}");
        assert!(
            text(true).contains("server/7  3.00 us  2.00 us    0 ns       1.00 us"),
            "{}",
            text(true)
        );
        assert_eq!(told(&accounts)[0].none_ns, 700);
    }
}
