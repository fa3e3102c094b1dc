//! Totals of what each end of a request moved for it by system calls: bytes, and the CPU time of those calls. Calls
//! that are not on the request's critical path are included (a server that reads while the bytes come in has made most
//! of its reads before the last bytes come).

use crate::calibration::Rates;
use crate::event::Call;
use crate::timeline::gallop::count_before;
use crate::timeline::{Channel, Thread, Transfer, World};
use crate::walk::Goal;
use rpcprobe_model::{Moved, Samples};

/// The client's and the server's totals; `None`: no transfer of this end is known.
pub fn moved(world: &World, goal: &Goal, rates: &Rates) -> [Option<Moved>; 2] {
    let mut sums = [None::<Moved>; 2];
    let Some(asked) = goal.messages.first().map(|message| message.object) else { return sums };
    for message in &goal.messages {
        let Some(channel) = world.channels.get(&message.object) else { continue };
        let by_server = message.object != asked;
        for (list, end) in [(&channel.writes, by_server), (&channel.reads, !by_server)] {
            for transfer in Channel::overlapping(list, message.from, message.to) {
                let until = transfer.to.min(message.to);
                let bytes = until.saturating_sub(transfer.from.max(message.from));
                let part = part_of(world, transfer, bytes, rates);
                let sum = sums[usize::from(end)].get_or_insert_default();
                sum.bytes = sum.bytes.saturating_add(part.bytes);
                sum.cpu_ns = sum.cpu_ns.saturating_add(part.cpu_ns);
                sum.copy_ns = sum.copy_ns.saturating_add(part.copy_ns);
                sum.samples.all += part.samples.all;
                sum.samples.copying += part.samples.copying;
            }
        }
    }
    sums
}

/// The share of a transfer's cost that belongs to `bytes` of its bytes. If the call moved other bytes, too, its cost is
/// divided in proportion to bytes.
fn part_of(world: &World, transfer: &Transfer, bytes: u64, rates: &Rates) -> Moved {
    let thread = world.thread(transfer.thread);
    let call = thread.call_before(transfer.enter_ns.saturating_add(1));
    let Some(call) = call.filter(|call| call.enter_ns == transfer.enter_ns) else {
        return Moved { bytes, ..Moved::default() };
    };
    let all = call.transfers().map(|io| io.bytes).fold(0, u64::saturating_add);
    let cpu_ns = cpu_ns(thread, call);
    // The modelled interval includes what interrupts and faults took.
    let modelled_ns = rates.copied(thread, call).map_or(0, |(from_ns, to_ns)| to_ns - from_ns);
    let seen_ns = thread.functions.copied_ns(call.enter_ns, call.exit_ns);
    let copied = modelled_ns.saturating_add(seen_ns);
    let share = |ns: u64| {
        if bytes == all && all > 0 {
            return ns;
        }
        let part = u128::from(ns) * u128::from(bytes) / u128::from(all.max(bytes).max(1));
        part as u64 // at most ns
    };
    // A sample counts for one request only: the request with most of the bytes.
    let samples = match bytes >= all / 2 {
        true => world.stacks.copying(transfer.thread, call.enter_ns, call.exit_ns),
        false => Samples::default(),
    };
    Moved {
        // A datagram without payload counts as a byte of its channel.
        bytes: if transfer.empty { 0 } else { bytes },
        cpu_ns: share(cpu_ns),
        copy_ns: share(copied.min(cpu_ns)),
        samples,
    }
}

/// CPU time of the thread in the call, without interrupts and page faults.
fn cpu_ns(thread: &Thread, call: &Call) -> u64 {
    let (from_ns, to_ns) = (call.enter_ns, call.exit_ns);
    let within =
        |start_ns: u64, end_ns: u64| end_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
    let first = count_before(&thread.off, |off| off.end_ns <= from_ns);
    let mut away_ns = 0;
    let mut off = (first..).map_while(|at| thread.off.get(at));
    while let Some(off) = off.next().filter(|off| off.start_ns < to_ns) {
        away_ns += within(off.start_ns, off.end_ns);
    }
    for list in [&thread.hardirqs, &thread.softirqs, &thread.faults] {
        // The usual case: all were over before.
        if list.back().is_none_or(|last| last.end_ns <= from_ns) {
            continue;
        }
        let first = count_before(list, |span| span.end_ns <= from_ns);
        let spans = list.range(first..).take_while(|span| span.start_ns < to_ns);
        away_ns += spans.map(|span| within(span.start_ns, span.end_ns)).sum::<u64>();
    }
    (to_ns.saturating_sub(from_ns)).saturating_sub(away_ns)
}
