//! Requests with a connection of their own: opening and closing it is part of the request.
//!
//! This holds if nothing else was sent on the connection and the client's thread did nothing else in between.
//! A thread that waits for something else (a pool's next use, the user) has not opened the connection for
//! this request only, or is done with it.

use crate::classify::syscall::{waits, Waits, NR_CLOSE};
use crate::detect::half_duplex::turn::{Ended, Turn};
use crate::event::Object;
use crate::timeline::gallop::{count_before, latest_before};
use crate::timeline::{Thread, ThreadId, Why, World};

impl Turn {
    /// The earliest instant whose history the turn may need.
    pub(super) fn since_ns(&self) -> u64 {
        let since_ns = self.life.since_ns();
        self.opened.map_or(since_ns, |opened| opened.enter_ns.min(since_ns))
    }

    /// When the request begins and ends, and the thread whose call ends it. `reader` had the answer at `answered_ns`.
    pub(super) fn window(
        &self,
        world: &World,
        answered_ns: u64,
        reader: ThreadId,
    ) -> (u64, u64, ThreadId) {
        let mut start_ns = self.life.since_ns();
        let ended = self.life.over().map(|(how, _)| how);
        let (Some(opened), Some(ended @ (Ended::Closed { .. } | Ended::Exited))) =
            (self.opened, ended)
        else {
            return (start_ns, answered_ns, reader);
        };
        let t = world.thread(opened.thread);
        if opened.thread == self.client
            && opened.enter_ns < start_ns
            && t.known_from_ns <= opened.enter_ns
            && !self.waits_elsewhere(t, opened.exit_ns, start_ns, opened.pending)
            && !serves_others(t, opened.exit_ns, start_ns)
        {
            start_ns = opened.enter_ns;
        }
        match ended {
            Ended::Closed { thread, enter_ns, exit_ns }
                if thread == reader
                    && enter_ns >= answered_ns
                    && !self.waits_elsewhere(
                        world.thread(thread),
                        answered_ns,
                        enter_ns,
                        false,
                    )
                    && !serves_others(world.thread(thread), answered_ns, enter_ns) =>
            {
                (start_ns, exit_ns, thread)
            }
            _ => (start_ns, answered_ns, reader),
        }
    }

    /// Whether the thread slept in `[from_ns, to_ns)` for anything but this connection. Sleeps in calls on this
    /// connection do not count. A sleep in a poll does not count if `may_poll`, or if a later read found the end of
    /// this connection.
    fn waits_elsewhere(&self, t: &Thread, from_ns: u64, to_ns: u64, may_poll: bool) -> bool {
        let is_own = |ino| ino == u64::from(self.socket);
        let mut sleeps = latest_before(&t.off, |off| off.start_ns < to_ns)
            .take_while(|off| off.end_ns > from_ns);
        sleeps.any(|off| {
            let Why::Slept { uninterruptible: false, .. } = off.why else { return false };
            let Some(call) = off.call else { return true };
            // A poll of a connection names the connection, other calls name the socket.
            let on_it = |object: &Object| match object.is_channel() {
                true => *object == self.object || Some(*object) == self.reverse,
                false => is_own(object.ino),
            };
            if call.object.filter(Object::is_socket).as_ref().is_some_and(on_it) {
                return false;
            }
            let polls = waits(call.nr, None) == Waits::Readiness;
            let ended = || {
                let calls = latest_before(&t.calls, |call| call.enter_ns < to_ns);
                let mut calls = calls.take_while(|call| call.enter_ns >= off.end_ns);
                calls.any(|call| {
                    let own = call.io.is_some_and(|io| is_own(io.object.ino));
                    own && call.ret == 0 && call.nr != NR_CLOSE
                })
            };
            !(polls && (may_poll || ended()))
        })
    }
}

/// Whether the thread moved messages between the two times.
fn serves_others(t: &Thread, after_ns: u64, before_ns: u64) -> bool {
    let marks = &t.marks.list;
    let until = count_before(marks, |mark| mark.exit_ns <= before_ns);
    until.checked_sub(1).is_some_and(|last| marks[last].exit_ns > after_ns)
}
