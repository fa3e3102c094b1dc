//! Detects `exec` requests, from a fork whose child ran a program to the wait that collected the child, and
//! the `process` request, the life of the target itself.

use crate::classify::syscall::{makes_thread, NR_EXECVE, NR_EXECVEAT, NR_WAIT4};
use crate::detect::book::Book;
use crate::detect::causality::Heard;
use crate::detect::found::{end_of, Found, MadeFor};
use crate::detect::programs::{Child, Programs};
use crate::detect::{Detect, Recent, Seen};
use crate::event::Call;
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, Why, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Reason, Request};

/// What is known of the target without any record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTarget {
    pub pid: u32,
    /// When it was released, just before it called execve().
    pub released_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Exec {
    /// The thread with the first recorded execve(), and when that call began.
    root: Option<(ThreadId, u64)>,
    /// What is known of the target from starting it, in case the records of its begin are lost.
    target: Option<KnownTarget>,
}

impl Detect for Exec {
    #[inline]
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        match *seen {
            Seen::Forked { child, parent, enter_ns }
                if world.processes[child as usize].traced && enter_ns != 0 =>
            {
                let asking = book.causality.asks(world, (parent, enter_ns), None, None);
                let born = Child::new(parent, enter_ns, asking);
                book.causality.programs.forked(world, child, born);
            }
            Seen::Executed { process } => book.causality.programs.executed(process),
            Seen::Called { thread, call, .. } if !call.unfinished => {
                if (call.nr == NR_EXECVE || call.nr == NR_EXECVEAT) && call.ret == 0 {
                    self.root.get_or_insert((thread, call.enter_ns));
                }
                if makes_thread(call.nr) {
                    book.causality.programs.numbered(world, thread, call);
                }
                if call.reaped || (call.nr == NR_WAIT4 && call.ret > 0) {
                    reap(world, thread, call, book);
                }
            }
            _ => {}
        }
    }

    fn horizon_ns(&self, recent: Recent, book: &Book) -> Option<u64> {
        let released_ns = self.target.map(|target| target.released_ns);
        let life = released_ns.or(self.root.map(|(_, start_ns)| start_ns));
        let life = life.filter(|_| !book.has_primary());
        life.into_iter().chain(book.causality.programs.horizon_ns(recent)).min()
    }

    fn hold(&self, held: &mut Held) {
        held.threads.extend(self.root.map(|(thread, _)| thread));
    }

    fn forget(&mut self, world: &World, book: &mut Book) {
        let abandoned = book.causality.programs.abandoned(world);
        for (process, child, exited_ns) in &abandoned {
            let ended = (*exited_ns, Reason::NotWaitedFor);
            not_reaped(world, (*process, child), ended, book);
        }
        // Only now: each may be what another one was started in.
        for (process, _, exited_ns) in abandoned {
            book.causality.programs.leave(process, exited_ns);
        }
        book.causality.programs.forget_numbers();
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        for (process, child) in book.causality.programs.running() {
            let abandoned_ns = Programs::abandoned_ns(world, process, world.now_ns);
            let ended = match (abandoned_ns, world.processes[process as usize].exited_ns) {
                (Some(exited_ns), _) => (exited_ns, Reason::NotWaitedFor),
                (None, Some(exited_ns)) => (exited_ns, Reason::NeverWaitedFor),
                (None, None) => (world.now_ns, Reason::CaptureEndedBefore),
            };
            not_reaped(world, (process, &child), ended, book);
        }
        book.causality.programs.end();
        if !book.has_primary() {
            self.whole_life(world, book);
        }
    }
}

#[inline(never)] // most calls are none
fn reap(world: &World, thread: ThreadId, call: &Call, book: &mut Book) {
    let Ok(pid) = u32::try_from(call.ret) else { return };
    let by = world.thread(thread).process;
    let causality = &mut book.causality;
    let reaped = causality.programs.reap((by, pid), call.exit_ns, &mut causality.ids);
    let Some((process, child, id)) = reaped else { return };
    // As if nothing had come of it: what is reported must not depend on when history is forgotten.
    if let Some(exited_ns) = Programs::abandoned_ns(world, process, call.exit_ns) {
        return not_reaped(world, (process, &child), (exited_ns, Reason::NotWaitedFor), book);
    }
    let request = Request {
        request_id: id,
        complete: true,
        reason: None,
        ..exec_request(world, process, thread, &child, call.exit_ns)
    };
    let goal = exec_goal(world, process, thread, &child, call.exit_ns);
    let heard = Some(Heard { thread, exit_ns: call.exit_ns, channel: None });
    let made_for = MadeFor { heard, ..made_for(world, &child, book) };
    book.found(world, Found { made_for, ..Found::without_channels(request, goal) });
}

/// Reports a program that no process waited for, with the reason why its request is incomplete.
fn not_reaped(
    world: &World,
    (process, child): (ProcessId, &Child),
    (end_ns, reason): (u64, Reason),
    book: &mut Book,
) {
    let causality = &mut book.causality;
    let Some(id) = causality.programs.id(process, &mut causality.ids) else { return };
    let request = Request {
        request_id: id,
        complete: false,
        reason: Some(reason),
        ..exec_request(world, process, child.parent, child, end_ns)
    };
    let goal = exec_goal(world, process, child.parent, child, end_ns);
    let made_for = made_for(world, child, book);
    book.found(world, Found { made_for, ..Found::without_channels(request, goal) });
}

fn made_for(world: &World, child: &Child, book: &Book) -> MadeFor {
    let process = world.thread(child.parent).process;
    let program = book.causality.programs.enclosing(world, process);
    MadeFor { asking: child.asking, program, ..MadeFor::default() }
}

fn exec_request(
    world: &World,
    process: ProcessId,
    client: ThreadId,
    child: &Child,
    end_ns: u64,
) -> Request {
    let p = &world.processes[process as usize];
    Request {
        complete: false,
        client: Some(end_of(world, client, child.start_ns)),
        server: Some(end_of(world, p.leader, end_ns)),
        method: p.programs.back().and_then(|program| program.path.as_deref().map(Into::into)),
        status: p.exit_code,
        ..Request::new(Kind::Exec, child.start_ns, end_ns)
    }
}

impl Exec {
    pub(super) fn expect_target(&mut self, target: KnownTarget) {
        self.target = Some(target);
    }

    /// The life of the target, from its execve() to the end of its main thread.
    fn whole_life(&self, world: &World, book: &mut Book) {
        let Some(Begin { thread: root, at_ns: start_ns, recorded }) = self.begin(world) else {
            return;
        };
        let thread = world.thread(root);
        let process = world.process_of(root);
        let died_ns = thread.off.back().filter(|off| off.why == Why::Dead).map(|off| off.start_ns);
        let end_ns = died_ns.or(thread.exited_ns).unwrap_or(world.now_ns).max(start_ns);
        let reason = match (recorded, thread.exited_ns) {
            (false, _) => Some(Reason::ExecLost),
            (true, None) => Some(Reason::CaptureEndedBefore),
            (true, Some(_)) => None,
        };
        let request = Request {
            complete: reason.is_none(),
            reason,
            server: Some(end_of(world, root, end_ns)),
            method: process.programs.back().and_then(|p| p.path.as_deref().map(Into::into)),
            status: process.exit_code,
            ..Request::new(Kind::Process, start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(thread.process),
            ..Goal::new(start_ns, end_ns, (root, thread.process))
        };
        book.found_fallback(Found::without_channels(request, goal));
    }

    /// The begin of the target's life.
    fn begin(&self, world: &World) -> Option<Begin> {
        let Some(KnownTarget { pid, released_ns }) = self.target else {
            let (thread, at_ns) = self.root?;
            return Some(Begin { thread, at_ns, recorded: true });
        };
        let target = world.first_thread_of_tid(pid);
        let process_of = |thread| world.thread(thread).process;
        // If the record of the target's execve() was lost, the first recorded execve() is another process's. In a PID
        // namespace, the kernel side has another number for the target, and no traced task has the number `pid`.
        let root = self.root.filter(|(root, _)| {
            target.is_none_or(|target| {
                process_of(target) == process_of(*root) || !world.thread(target).traced
            })
        });
        // It may be the target's second execve(). Then a record was lost before it.
        let first = |at_ns| world.losses.first(0, at_ns).is_none();
        match root {
            Some((thread, at_ns)) if first(at_ns) => Some(Begin { thread, at_ns, recorded: true }),
            Some((thread, _)) => Some(Begin { thread, at_ns: released_ns, recorded: false }),
            None => target.map(|thread| Begin { thread, at_ns: released_ns, recorded: false }),
        }
    }
}

/// The thread and time at which the target's life begins, and whether its execve() was recorded.
struct Begin {
    thread: ThreadId,
    at_ns: u64,
    recorded: bool,
}

fn exec_goal(
    world: &World,
    process: ProcessId,
    client: ThreadId,
    child: &Child,
    end_ns: u64,
) -> Goal {
    Goal {
        server_process: Some(process),
        child: Some(process),
        ..Goal::new(child.start_ns, end_ns, (client, world.thread(child.parent).process))
    }
}

#[cfg(test)]
mod tests {
    use crate::classify::syscall::{NR_EXECVE, NR_EXIT_GROUP};
    use crate::event::{Call, Event, What};
    use crate::{Engine, Rates};
    use rpcprobe_model::Loss;
    use rpcprobe_model::{check_conservation, Kind, Reason, Request, Segments};

    const RELEASED_NS: u64 = 1_000;
    const TARGET: u32 = 100;

    fn event(ts_ns: u64, what: What) -> Event {
        Event { ts_ns, cpu: 0, what }
    }

    fn call(tid: u32, nr: u16, enter_ns: u64, exit_ns: u64) -> Event {
        let call =
            Call { unfinished: nr == NR_EXIT_GROUP, ..Call::new(nr, (enter_ns, exit_ns), 0) };
        event(exit_ns, What::Call { tid, call })
    }

    fn task(tid: u32) -> Event {
        event(0, What::Task { tid, tgid: tid, kthread: false, comm: "frpc".into() })
    }

    fn exit(tid: u32, ts_ns: u64) -> Event {
        event(ts_ns, What::Exit { tid, tgid: tid, code: 0, traced: true })
    }

    /// The only request of a capture with these events and losses.
    fn process(events: &[Event], losses: &[Loss]) -> Request {
        let mut engine = Engine::new(1, RELEASED_NS, Rates::default());
        engine.expect_target(TARGET);
        engine.world.losses = losses.to_vec().into();
        let mut found = Vec::new();
        let mut sink = |request: Request, segments: Segments| {
            check_conservation(&request, &segments.list).expect("the law of conservation");
            found.push(request);
            Ok(())
        };
        for event in events {
            engine.push(event, &mut sink).unwrap();
        }
        engine.finish(Some(9_000), &mut sink).unwrap();
        let [request] = &found[..] else { panic!("not one request: {found:?}") };
        assert_eq!(request.kind, Kind::Process);
        assert_eq!(request.server.as_ref().map(|end| end.pid), Some(TARGET));
        request.clone()
    }

    #[test]
    fn a_target_whose_begin_was_recorded_is_complete() {
        let events = [
            task(TARGET),
            call(TARGET, NR_EXECVE, 1_100, 1_500),
            call(TARGET, NR_EXIT_GROUP, 4_000, 5_000),
            exit(TARGET, 5_000),
        ];
        let request = process(&events, &[]);
        assert_eq!((request.start_ns, request.latency_ns), (1_100, 3_900));
        assert_eq!((request.complete, request.reason), (true, None));
    }

    #[test]
    fn a_target_whose_begin_was_lost_counts_from_its_release() {
        let loss = Loss { cpu: 0, count: 3, first_ns: 1_200, last_ns: 1_600 };
        let end = [call(TARGET, NR_EXIT_GROUP, 4_000, 5_000), exit(TARGET, 5_000)];
        let lost = |middle: &[Event]| {
            let events = [&[task(TARGET)], middle, &end].concat();
            let request = process(&events, std::slice::from_ref(&loss));
            assert_eq!((request.start_ns, request.latency_ns), (RELEASED_NS, 4_000));
            assert_eq!((request.complete, request.reason), (false, Some(Reason::ExecLost)));
            assert_eq!(request.records_lost, 3);
        };
        lost(&[]);
        // First another process's execve(), whose fork was lost too; then the target's own second execve().
        lost(&[call(TARGET, 39, 1_700, 1_800), call(200, NR_EXECVE, 2_000, 2_500)]);
        lost(&[call(TARGET, NR_EXECVE, 2_000, 2_500)]);
    }

    #[test]
    fn a_target_of_which_nothing_was_recorded_is_listed() {
        let request = process(&[task(TARGET)], &[]);
        assert_eq!((request.start_ns, request.latency_ns), (RELEASED_NS, 8_000));
        assert_eq!((request.complete, request.reason), (false, Some(Reason::ExecLost)));
    }

    /// In a PID namespace, the kernel side has another number for the target, and may use the target's number for
    /// another task.
    #[test]
    fn another_number_for_the_target_does_not_matter() {
        let events = [task(7), call(TARGET, NR_EXECVE, 1_100, 1_500), exit(TARGET, 5_000)];
        let mut engine = Engine::new(1, RELEASED_NS, Rates::default());
        engine.expect_target(7);
        let mut found = Vec::new();
        let mut sink = |request: Request, _: Segments| {
            found.push((request.start_ns, request.complete));
            Ok(())
        };
        for event in &events {
            engine.push(event, &mut sink).unwrap();
        }
        engine.finish(Some(9_000), &mut sink).unwrap();
        assert_eq!(found, [(1_100, true)]);
    }
}
