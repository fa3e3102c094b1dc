//! Which write brought the bytes that woke a task or that it found, and which request the bytes belong to.

use super::*;

impl<'t> Walk<'t> {
    /// If a message came in here, found ready or while it was being written: its write.
    pub(super) fn arrival(&mut self, task: TaskNo, no: CallNo) -> Option<CallNo> {
        let read = &self.truth.calls[no];
        let (bytes, write) = self.brought(read)?;
        if read.exit_ns > self.asked.end_ns {
            // What a read brings is known only at its end.
            self.saw_unended = true;
            return None;
        }
        let slept =
            self.truth.tasks[task].aways.iter().map(|&away| &self.truth.aways[away]).any(|away| {
                away.from_ns >= read.enter_ns
                    && away.from_ns < read.exit_ns
                    && matches!(away.why, Why::Pipe | Why::Readiness)
            });
        let ours = self.is_ours(&bytes);
        // Bytes of a hand-off lead back to a member.
        let explored = !self.members.contains(&task);
        let row =
            explored && !slept && !ours && !self.of_member(write) && self.leads_back(write, task);
        self.met_a_row |= row;
        let back = explored && (self.of_member(write) || self.in_a_row && row);
        if slept || !(ours || back) || (ours && self.reads_on(task, &bytes)) {
            return None;
        }
        // Was the task woken for these bytes, to read them later?
        let w = &self.truth.calls[write];
        let woken = self.truth.tasks[task].aways.iter().map(|&away| &self.truth.aways[away]).rfind(
            |away| (w.enter_ns..=read.enter_ns).contains(&away.to_ns) && self.woke(away, write),
        );
        if let Some(away) = woken {
            self.expected.insert(task, write);
            if ours && self.read_others(task, away.to_ns, read.enter_ns) {
                self.behind_others.insert(no, away.to_ns);
            }
            return None;
        }
        Some(write)
    }

    /// Whether a member made this write, and not before it had read the request.
    pub(super) fn of_member(&self, write: CallNo) -> bool {
        let write = &self.truth.calls[write];
        self.members.contains(&write.task) && !self.unasked(write.task, write.exit_ns)
    }

    /// Whether a member wrote what the writer had read before, or a thread of the same process for which the same
    /// holds.
    pub(super) fn leads_back(&self, write: CallNo, reader: TaskNo) -> bool {
        let mut write = &self.truth.calls[write];
        for _ in 0..MOST_HANDED_ON {
            if self.truth.tasks[write.task].tgid != self.truth.tasks[reader].tgid {
                return false;
            }
            let before = |call: &&Call| {
                call.task == write.task
                    && call.enter_ns < write.enter_ns
                    && call.exit_ns > self.asked.start_ns
            };
            let mut calls: Vec<&Call> = self.truth.calls.iter().filter(before).collect();
            calls.sort_by_key(|call| std::cmp::Reverse(call.enter_ns));
            calls.truncate(MOST_CALLS_BETWEEN);
            let Some(got) = calls.into_iter().find_map(|call| self.written(call)) else {
                return false;
            };
            let from = &self.truth.calls[got];
            if [write.task, reader].contains(&from.task) || from.enter_ns < self.asked.start_ns {
                return false;
            }
            if self.of_member(got) {
                return true;
            }
            write = from;
        }
        false
    }

    /// Goes to the writer of what a read brought. The writer joins if the bytes are the request's or if it is a member;
    /// otherwise the walk has yet to find where the bytes came from.
    pub(super) fn to_writer(&self, read: &Call, write: &Call, ns: u64) -> Step {
        let ours = read.transfer.is_some_and(|bytes| self.is_ours(&bytes));
        match ours || self.members.contains(&write.task) {
            true => Step::Joined(write.task, ns),
            false => Step::Go(write.task, ns),
        }
    }

    /// Whether a task began to read messages of other requests in `[from_ns, to_ns)`.
    pub(super) fn read_others(&self, task: TaskNo, from_ns: u64, to_ns: u64) -> bool {
        self.truth.calls.iter().any(|call| {
            call.task == task
                && (from_ns..to_ns).contains(&call.enter_ns)
                && self.brought_by_any(call).is_some_and(|bytes| !self.is_ours(&bytes))
        })
    }

    /// For a read: its bytes, if a traced task wrote them.
    pub(super) fn brought_by_any(&self, read: &Call) -> Option<Transfer> {
        let bytes = read.transfer.filter(|transfer| !transfer.is_write)?;
        let write = self.truth.writer(bytes.pipe, bytes.to - 1)?;
        self.truth.tasks[self.truth.calls[write].task].traced.then_some(bytes)
    }

    /// For a read: its bytes, and the write of the last of them (of the request's, if there are any), if another task
    /// made it within this request.
    pub(super) fn brought(&self, read: &Call) -> Option<(Transfer, CallNo)> {
        let (bytes, write) = (read.transfer?, self.written(read)?);
        let w = &self.truth.calls[write];
        (w.task != read.task && w.enter_ns >= self.asked.start_ns).then_some((bytes, write))
    }

    /// The write of the last byte that a read brought: the last of the request's, if there are any.
    pub(super) fn written(&self, read: &Call) -> Option<CallNo> {
        let bytes = read.transfer.filter(|transfer| !transfer.is_write)?;
        let ours =
            self.asked.messages.iter().filter(|(pipe, from, to)| {
                *pipe == bytes.pipe && *from < bytes.to && bytes.from < *to
            });
        let last = ours.map(|(_, _, to)| bytes.to.min(*to) - 1).max().unwrap_or(bytes.to - 1);
        let write = self.truth.writer(bytes.pipe, last)?;
        let w = &self.truth.calls[write];
        (self.truth.tasks[w.task].traced && w.enter_ns < read.exit_ns).then_some(write)
    }

    pub(super) fn is_ours(&self, bytes: &Transfer) -> bool {
        let message = |(pipe, from, to): &(usize, u64, u64)| {
            *pipe == bytes.pipe && *from < bytes.to && bytes.from < *to
        };
        self.asked.messages.iter().any(message)
    }

    /// Whether the task reads the request only later, so that nothing it did before was for it.
    pub(super) fn unasked(&self, task: TaskNo, at_ns: u64) -> bool {
        let Some((pipe, from, to)) = self.asked.messages.first() else { return false };
        let first = self.truth.calls.iter().filter(|call| call.task == task).filter(|call| {
            call.transfer
                .is_some_and(|t| t.pipe == *pipe && !t.is_write && t.from < *to && t.to > *from)
        });
        first.map(|call| call.enter_ns).min().is_some_and(|enter_ns| at_ns <= enter_ns)
    }

    /// Whether the task read earlier bytes of the request on this pipe before.
    pub(super) fn reads_on(&self, task: TaskNo, bytes: &Transfer) -> bool {
        let earlier =
            |(pipe, from, _): &&(usize, u64, u64)| *pipe == bytes.pipe && *from < bytes.from;
        self.asked.messages.iter().filter(earlier).any(|(pipe, from, to)| {
            self.truth.calls.iter().filter(|call| call.task == task).any(|call| {
                call.transfer.is_some_and(|t| {
                    t.pipe == *pipe && !t.is_write && t.to > *from && t.from < bytes.from.min(*to)
                })
            })
        })
    }

    /// Whether the writer itself, inside this write, woke a task that may have waited for its bytes. A task that waited
    /// for a device does not count: its softirq ran there.
    pub(super) fn woke(&self, away: &Away, write: CallNo) -> bool {
        let write = &self.truth.calls[write];
        away.wakeup.is_some_and(|wakeup| {
            wakeup.own
                && !matches!(away.why, Why::Disk { .. } | Why::Other)
                && wakeup.waker == write.task
                && (write.enter_ns..=write.exit_ns).contains(&wakeup.at_ns)
        })
    }
}
