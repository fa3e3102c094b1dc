//! Forgets what no open request can reach, so that memory is bounded by what is in flight.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::event::{Object, Packet};
use crate::timeline::gallop::count_before;
use crate::timeline::{Channel, ProcessId, ThreadId, World, IDLE};

/// Threads, processes and channels that open requests refer to, whether they have ended or not.
#[derive(Debug, Default)]
pub struct Held {
    pub threads: FxHashSet<ThreadId>,
    pub processes: FxHashSet<ProcessId>,
    pub channels: FxHashSet<Object>,
}

/// Drops items from the front, oldest first, except the last `keep`. Returns whether any were dropped.
pub(super) fn trim<T>(list: &mut VecDeque<T>, keep: usize, gone: impl Fn(&T) -> bool) -> bool {
    let before = list.len();
    while list.len() > keep && list.front().is_some_and(&gone) {
        list.pop_front();
    }
    give_back(list);
    list.len() < before
}

/// Drops the first item as long as the next one is `gone`: for lists in which an item holds until the next one.
fn trim_followed<T>(list: &mut VecDeque<T>, gone: impl Fn(&T) -> bool) {
    while list.get(1).is_some_and(&gone) {
        list.pop_front();
    }
    give_back(list);
}

/// Releases the memory of a burst.
fn give_back<T>(list: &mut VecDeque<T>) {
    if list.capacity() > 64 && list.capacity() / 8 > list.len() {
        list.shrink_to(list.len() * 2);
    }
}

/// Limit of a thread's polls that are kept in any case: those before its last steps ([`rpcprobe_assign::Turn`]).
const POLLS_KEPT: usize = 2 * rpcprobe_assign::TURNS;

/// A connection without any transfer for this long is at rest: once closed, it is forgotten.
const CONNECTION_RESTS_NS: u64 = 60_000_000_000;

/// Limit of the channels of resting connections that are remembered, though they may have been closed unseen. The
/// kernel side remembers as many on the smallest machine (`channels` in docs/limits.md), and names those anew that it
/// has forgotten. Each takes about a kilobyte.
const MOST_RESTING: usize = 32_768;

impl World {
    /// The arrival time of the earliest bytes that were read after `horizon_ns`, or that are unread on a connection in
    /// use.
    pub fn oldest_arrival_ns(&self, horizon_ns: u64) -> u64 {
        let rested_ns = horizon_ns.saturating_sub(CONNECTION_RESTS_NS);
        let oldest = |channel: &Channel| {
            channel.arrivals.front().filter(|_| channel.is_used_since(rested_ns))?;
            let before = count_before(&channel.reads, |read| read.exit_ns < horizon_ns);
            let read = channel.reads.get(before).map(|read| read.from);
            let read = read.or_else(|| channel.reads.back().map(|read| read.to)).unwrap_or(0);
            let first = count_before(&channel.arrivals, |(end, _)| *end <= read);
            channel.arrivals.get(first).map(|(_, at_ns)| *at_ns)
        };
        self.channels.values().filter_map(oldest).min().unwrap_or(u64::MAX)
    }

    /// How many threads and channels are kept.
    pub fn kept(&self) -> u64 {
        (self.threads.iter().count() + self.channels.len()) as u64
    }

    /// Forgets what no walk that begins at or after `horizon_ns` can reach, except what is `held`. Returns whether that
    /// included channels.
    pub fn forget_before(&mut self, horizon_ns: u64, held: Held) -> bool {
        for thread in self.threads.iter_mut() {
            let mut trimmed = trim(&mut thread.off, 1, |off| off.end_ns < horizon_ns);
            trimmed |= trim(&mut thread.calls, 1, |call| call.exit_ns < horizon_ns);
            trim(&mut thread.marks.list, 1, |mark| mark.exit_ns < horizon_ns);
            trim(&mut thread.polled, POLLS_KEPT, |(_, exit_ns)| *exit_ns < horizon_ns);
            trim(&mut thread.marks.opens, 0, |enter_ns| *enter_ns < horizon_ns);
            trim(&mut thread.accepts, 0, |(enter_ns, _)| *enter_ns < horizon_ns);
            trim(&mut thread.woke, 0, |(at_ns, _)| *at_ns < horizon_ns);
            trim(&mut thread.woken_again, 0, |(at_ns, _)| *at_ns < horizon_ns);
            trim(&mut thread.faults, 1, |span| span.end_ns < horizon_ns);
            trim(&mut thread.softirqs, 1, |span| span.end_ns < horizon_ns);
            trim(&mut thread.steals, 1, |span| span.end_ns < horizon_ns);
            trim(&mut thread.hardirqs, 1, |span| span.end_ns < horizon_ns);
            trim(&mut thread.contentions, 0, |span| span.end_ns < horizon_ns);
            thread.functions.forget_before(horizon_ns);
            trim(&mut thread.throttles, 0, |at_ns| *at_ns < horizon_ns);
            trim(&mut thread.checkpoints, 0, |at_ns| *at_ns < horizon_ns);
            trim(&mut thread.moves, 0, |queue| queue.at_ns < horizon_ns);
            trim(&mut thread.works, 0, |work| work.ended_ns < horizon_ns);
            trim_followed(&mut thread.cpus, |(since_ns, _)| *since_ns < horizon_ns);
            trim_followed(&mut thread.names, |(since_ns, _)| *since_ns < horizon_ns);
            if trimmed {
                thread.known_from_ns = thread.known_from_ns.max(horizon_ns);
            }
        }
        for process in self.processes.iter_mut() {
            trim_followed(&mut process.programs, |program| program.exec_ns < horizon_ns);
        }
        for runs in &mut self.cpus {
            trim_followed(runs, |(since_ns, _)| *since_ns < horizon_ns);
        }
        self.blocks.retain(|_, block| block.done_ns >= horizon_ns);
        self.losses.forget_before(horizon_ns);
        for journal in self.journals.values_mut() {
            trim_followed(&mut journal.phases, |(since_ns, ..)| *since_ns < horizon_ns);
        }
        for channel in self.channels.values_mut() {
            trim(&mut channel.writes, 1, |t| t.exit_ns < horizon_ns);
            let ended_ns = |p: &Packet| p.received_ns.unwrap_or(p.sent_ns);
            trim(&mut channel.packets, 0, |packet| ended_ns(packet) < horizon_ns);
            trim(&mut channel.reads, 1, |t| t.exit_ns < horizon_ns);
            trim(&mut channel.sakes, 0, |sake| sake.exit_ns < horizon_ns);
            trim(&mut channel.asked_at_will, 1, |enter_ns| *enter_ns < horizon_ns);
            let kept = channel.writes.front().into_iter().chain(channel.reads.front());
            let kept = kept.map(|moved| moved.from).min().unwrap_or(0);
            trim_followed(&mut channel.heads, |head| *head <= kept);
            // Arrivals wait for their reader, however long.
            let read = channel.reads.front().map_or(0, |read| read.from);
            trim(&mut channel.arrivals, 0, |(end, _)| *end <= read);
        }
        self.stacks.forget_before(horizon_ns);
        let before = self.channels.len();
        self.drop_the_dead(horizon_ns, held);
        self.channels.len() < before
    }

    /// The other direction of the channel's connection.
    fn other_way(&self, channel: &Channel) -> Option<&Channel> {
        channel.reverse.and_then(|reverse| self.channels.get(&reverse))
    }

    /// Channels of connections that are over, as far as is known: closed, and at rest since before `rested_ns`. If too
    /// many connections are remembered that are not closed, the ones that have rested longest count as over, too. Only
    /// a connection's begin shows which end asks, and its name, so both its channels stay as long as one of them is
    /// used.
    fn resting(&self, rested_ns: u64) -> Vec<Object> {
        let other_used_ns = |channel: &Channel| self.other_way(channel).map_or(0, Channel::used_ns);
        // No call closes a flow of datagrams. Of a channel that was never used, only the name is known.
        let is_over = |object: &Object, channel: &Channel| {
            let is_unused = channel.reverse.is_none() && channel.role.is_none();
            channel.closed || object.is_datagram() || is_unused
        };
        // The number of connections that are older than the capture does not grow.
        let was_told = |channel: &Channel| {
            let mut both = std::iter::once(channel).chain(self.other_way(channel));
            channel.role.is_some() && both.all(|c| c.connected.is_none() && c.accepted.is_none())
        };
        let connections = self.channels.iter().filter(|(object, _)| object.is_socket());
        let mut open = Vec::new();
        let mut resting = Vec::new();
        for (object, channel) in connections {
            if channel.is_used_since(rested_ns) {
                continue;
            }
            let used_ns = channel.used_ns().max(other_used_ns(channel));
            match is_over(object, channel) {
                _ if used_ns >= rested_ns => {}
                true => resting.push(*object),
                false if was_told(channel) => {}
                false => open.push((used_ns, *object)),
            }
        }
        let more = open.len().saturating_sub(MOST_RESTING);
        if more > 0 {
            open.select_nth_unstable(more);
            let both = |object: &Object| [Some(*object), self.channels[object].reverse];
            let eldest = open[..more].iter().flat_map(|(_, object)| both(object));
            resting.extend(eldest.flatten());
        }
        resting
    }

    /// Channels whose ends were both used only by processes that do not stay. A pipe's dead end still shows who used
    /// it, as long as the other end lives.
    fn deserted<'a>(&'a self, stay: &'a FxHashSet<ProcessId>) -> impl Iterator<Item = Object> + 'a {
        let stays = |thread: ThreadId| stay.contains(&self.threads[thread as usize].process);
        let lives = move |channel: &Channel| {
            let both = std::iter::once(channel).chain(self.other_way(channel));
            let mut ends = both.flat_map(|c| c.writes.iter().chain(&c.reads)).peekable();
            // A channel is named just before it is first used.
            ends.peek().is_none() || ends.any(|end| stays(end.thread))
        };
        let deserted = self.channels.iter().filter(move |(_, channel)| !lives(channel));
        deserted.map(|(object, _)| *object)
    }

    /// Threads that opened, wrote to or read from a channel that is kept.
    fn users_of_channels(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.channels.values().flat_map(|channel| {
            let openings = channel.connected.iter().chain(&channel.accepted);
            let ends = channel.writes.iter().chain(&channel.reads).map(|end| end.thread);
            // The thread is nearly always that of the transfer before.
            let mut last = None;
            let ends = ends.filter(move |thread| last.replace(*thread) != Some(*thread));
            openings.map(|opening| opening.thread).chain(ends)
        })
    }

    /// Drops threads and processes that ended before `horizon_ns`, and the channels that only they used.
    fn drop_the_dead(&mut self, horizon_ns: u64, held: Held) {
        let Held { mut threads, mut processes, channels } = held;
        threads.insert(IDLE);
        processes.insert(self.threads[IDLE as usize].process);
        for (id, thread) in self.threads.iter() {
            if thread.gone_ns >= horizon_ns {
                threads.insert(id as ThreadId);
                processes.insert(thread.process);
            }
        }
        let rested_ns = horizon_ns.saturating_sub(CONNECTION_RESTS_NS);
        let mut gone: FxHashSet<Object> = self.resting(rested_ns).into_iter().collect();
        if !self.processes.iter().all(|(id, _)| processes.contains(&(id as ProcessId))) {
            gone.extend(self.deserted(&processes));
        }
        if !gone.is_empty() {
            let is_held = |object: &Object| channels.contains(object);
            self.channels.retain(|object, channel| {
                is_held(object)
                    || channel.reverse.as_ref().is_some_and(is_held)
                    || !gone.contains(object)
            });
            self.datagram_roles.forget(&self.channels);
            self.sockets.retain(|_, end| self.channels.contains_key(&end.channel));
        }
        for openings in [&mut self.connected, &mut self.accepted] {
            openings.retain(|_, opening| opening.exit_ns >= rested_ns);
            threads.extend(openings.values().map(|opening| opening.thread));
        }
        if !self.threads.iter().all(|(id, _)| threads.contains(&(id as ThreadId))) {
            threads.extend(self.users_of_channels());
        }
        processes.extend(threads.iter().map(|&id| self.threads[id as usize].process));
        for &id in &processes {
            let process = &self.processes[id as usize];
            threads.insert(process.leader);
            threads.extend(process.last_exited);
            threads.extend(process.group_exit.map(|(_, thread)| thread));
        }
        processes.extend(threads.iter().map(|&id| self.threads[id as usize].process));

        self.adopt_orphans(&processes);
        self.threads.retain(|id, _| threads.contains(&(id as ThreadId)));
        self.processes.retain(|id, _| processes.contains(&(id as ProcessId)));
        for process in self.processes.iter_mut() {
            process.threads.retain(|id| threads.contains(id));
        }
        self.by_tid.retain(|_, id| threads.contains(id));
        self.by_tgid.retain(|_, id| processes.contains(id));
        self.journals.retain(|id, _| threads.contains(id));
        self.sums.forget_before(horizon_ns, |id| threads.contains(&id));
        self.work_sums.forget_before(horizon_ns, |id| threads.contains(&id));
        self.stacks.retain(|id| threads.contains(&id), |id| processes.contains(&id));
    }

    /// A process whose parent goes gets its nearest ancestor that stays as parent, if there is one, so that its line of
    /// descent is not cut.
    fn adopt_orphans(&mut self, stay: &FxHashSet<ProcessId>) {
        for &id in stay {
            let mut parent = self.processes[id as usize].parent;
            while let Some(ancestor) = parent.filter(|ancestor| !stay.contains(ancestor)) {
                parent = self.processes[ancestor as usize].parent;
            }
            if parent.is_some() {
                self.processes[id as usize].parent = parent;
            }
        }
    }
}
