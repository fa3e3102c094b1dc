//! Detects `exec` requests, from a fork whose child ran a program to the wait that collected the child, and
//! the `process` request, the life of the target itself.

use crate::detect::causality::{Link, Parent};
use crate::detect::{end_of, Detector, Found, KnownTarget};
use crate::event::Call;
use crate::timeline::{ProcessId, ThreadId, Why, World};
use crate::walk::Goal;
use rpcprobe_model::{Kind, Request};

#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) parent: ThreadId,
    pub(super) start_ns: u64,
    pub(super) request_id: Option<u64>,
    /// The request for which its parent seems to have started it.
    pub(super) made_for: Option<Link>,
    pub(super) runs_program: bool,
}

/// An exec request that has been found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reaped {
    id: u64,
    start_ns: u64,
    pub(super) end_ns: u64,
}

impl Detector {
    pub(super) fn reap(&mut self, world: &World, thread: ThreadId, call: &Call) {
        let Ok(pid) = u32::try_from(call.ret) else { return };
        let Some(process) = world.process_of_tgid(pid) else { return };
        let Some(child) = self.children.get(&process) else { return };
        let parent_process = world.thread(thread).process;
        if world.thread(child.parent).process != parent_process {
            return;
        }
        if !child.runs_program {
            self.children.remove(&process);
            return;
        }
        let id = self.exec_id(process).expect("present");
        let child = self.children.remove(&process).expect("present");
        let reaped = Reaped { id, start_ns: child.start_ns, end_ns: call.exit_ns };
        self.reaped.insert(process, reaped);
        self.found_primary = true;
        let request = Request {
            request_id: id,
            complete: true,
            reason: None,
            ..self.exec_request(world, process, thread, &child, call.exit_ns)
        };
        let goal = exec_goal(world, process, thread, &child, call.exit_ns);
        self.found.push(Found { request, goal });
    }

    pub(super) fn exec_request(
        &mut self,
        world: &World,
        process: ProcessId,
        client: ThreadId,
        child: &Child,
        end_ns: u64,
    ) -> Request {
        let p = &world.processes[process as usize];
        let parent = world.thread(child.parent).process;
        let enclosing = self.enclosing(world, parent);
        let asker = self.parent_of(world, child.made_for, enclosing, (child.start_ns, end_ns));
        Request {
            parent_request_id: asker.map(|asker| asker.id),
            detached: asker.is_some_and(|asker| asker.detached),
            complete: false,
            client: Some(end_of(world, client, child.start_ns)),
            server: Some(end_of(world, p.leader, end_ns)),
            method: p.programs.back().and_then(|program| program.path.as_deref().map(Into::into)),
            status: p.exit_code,
            ..Request::new(Kind::Exec, child.start_ns, end_ns)
        }
    }

    /// The nearest process, this one or an ancestor, whose own exec request is open.
    pub(super) fn enclosing(&self, world: &World, process: ProcessId) -> Option<ProcessId> {
        let mut at = Some(process);
        while let Some(process) = at {
            if self.children.get(&process).is_some_and(|child| child.runs_program) {
                return Some(process);
            }
            at = world.processes[process as usize].parent;
        }
        None
    }

    /// The exec request of a process, if a request of that window begins within it; open or just found.
    pub(super) fn exec_around(
        &mut self,
        world: &World,
        process: ProcessId,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<Parent> {
        let (begun_ns, ended_ns) = match (self.children.get(&process), self.reaped.get(&process)) {
            (Some(child), _) => {
                (child.start_ns, world.processes[process as usize].exited_ns.unwrap_or(u64::MAX))
            }
            (None, Some(reaped)) => (reaped.start_ns, reaped.end_ns),
            (None, None) => return None,
        };
        if start_ns < begun_ns || ended_ns < start_ns {
            return None;
        }
        let id = self.exec_id(process)?;
        Some(Parent { id, detached: ended_ns < end_ns })
    }

    /// The id of a process's exec request, given out when first asked for.
    pub(super) fn exec_id(&mut self, process: ProcessId) -> Option<u64> {
        let Some(child) = self.children.get(&process) else {
            return self.reaped.get(&process).map(|reaped| reaped.id);
        };
        if child.request_id.is_none() {
            let id = self.id_ahead();
            self.children.get_mut(&process)?.request_id = Some(id);
        }
        self.children.get(&process)?.request_id
    }

    /// The life of the target, from its execve() to the end of its main thread.
    pub(super) fn whole_life(&mut self, world: &World) {
        let Some(Begin { thread: root, at_ns: start_ns, recorded }) = self.begin(world) else {
            return;
        };
        let thread = world.thread(root);
        let process = world.process_of(root);
        let died_ns = thread.off.back().filter(|off| off.why == Why::Dead).map(|off| off.start_ns);
        let end_ns = died_ns.or(thread.exited_ns).unwrap_or(world.now_ns).max(start_ns);
        let reason = match (recorded, thread.exited_ns) {
            (false, _) => Some("the record of its execve() was lost, it counts from its release"),
            (true, None) => Some("the capture ended before it did"),
            (true, Some(_)) => None,
        };
        let request = Request {
            complete: reason.is_none(),
            reason: reason.map(Into::into),
            server: Some(end_of(world, root, end_ns)),
            method: process.programs.back().and_then(|p| p.path.as_deref().map(Into::into)),
            status: process.exit_code,
            ..Request::new(Kind::Process, start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(thread.process),
            ..Goal::new(start_ns, end_ns, (root, thread.process))
        };
        self.fallback.insert(0, Found { request, goal });
    }

    /// The begin of the target's life.
    fn begin(&self, world: &World) -> Option<Begin> {
        let Some(KnownTarget { pid, released_ns }) = self.target else {
            let (thread, at_ns) = self.root?;
            return Some(Begin { thread, at_ns, recorded: true });
        };
        let target = world.first_thread_of_tid(pid);
        let process_of = |thread| world.thread(thread).process;
        // The first execve() on record is another's if the target's was lost. Seen from inside a
        // PID namespace the target has another number: nothing that is traced has this one.
        let root = self.root.filter(|(root, _)| {
            target.is_none_or(|target| {
                process_of(target) == process_of(*root) || !world.thread(target).traced
            })
        });
        // It may be the target's second one: then a record was lost before it.
        let first = |at_ns| world.losses.first(0, at_ns).is_none();
        match root {
            Some((thread, at_ns)) if first(at_ns) => Some(Begin { thread, at_ns, recorded: true }),
            Some((thread, _)) => Some(Begin { thread, at_ns: released_ns, recorded: false }),
            None => target.map(|thread| Begin { thread, at_ns: released_ns, recorded: false }),
        }
    }
}

/// Where and when the target's life begins, and whether its execve() is on record.
struct Begin {
    thread: ThreadId,
    at_ns: u64,
    recorded: bool,
}

pub(super) fn exec_goal(
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
    use rpcprobe_model::{check_conservation, Kind, Request};

    const RELEASED_NS: u64 = 1_000;
    const TARGET: u32 = 100;

    fn event(ts_ns: u64, what: What) -> Event {
        Event { ts_ns, cpu: 0, what }
    }

    fn call(tid: u32, nr: u16, enter_ns: u64, exit_ns: u64) -> Event {
        let call = Call {
            nr,
            enter_ns,
            exit_ns,
            ret: 0,
            unfinished: nr == NR_EXIT_GROUP,
            reaped: false,
            io: None,
            more: Box::default(),
            accepted_of_ns: None,
            opened: None,
            path: None,
        };
        event(exit_ns, What::Call { tid, call: Box::new(call) })
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
        let mut sink = |request: Request, segments: Vec<_>| {
            check_conservation(&request, &segments).expect("the law of conservation");
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

    const LOST: Option<&str> =
        Some("the record of its execve() was lost, it counts from its release");

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
            assert_eq!((request.complete, request.reason.as_deref()), (false, LOST));
            assert_eq!(request.records_lost, 3);
        };
        lost(&[]);
        // Another process's execve(), whose fork was lost too; the target's own second one.
        lost(&[call(TARGET, 39, 1_700, 1_800), call(200, NR_EXECVE, 2_000, 2_500)]);
        lost(&[call(TARGET, NR_EXECVE, 2_000, 2_500)]);
    }

    #[test]
    fn a_target_of_which_nothing_was_recorded_is_listed() {
        let request = process(&[task(TARGET)], &[]);
        assert_eq!((request.start_ns, request.latency_ns), (RELEASED_NS, 8_000));
        assert_eq!((request.complete, request.reason.as_deref()), (false, LOST));
    }

    /// In a PID namespace the target's number is another task's for the kernel side.
    #[test]
    fn another_number_for_the_target_does_not_matter() {
        let events = [task(7), call(TARGET, NR_EXECVE, 1_100, 1_500), exit(TARGET, 5_000)];
        let mut engine = Engine::new(1, RELEASED_NS, Rates::default());
        engine.expect_target(7);
        let mut found = Vec::new();
        let mut sink = |request: Request, _: Vec<_>| {
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
