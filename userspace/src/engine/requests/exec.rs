//! `exec` requests: a fork whose child ran a program, up to the wait that collected it; and the
//! life of the target itself.

use super::{end_of, Detector, Found};
use crate::engine::event::Call;
use crate::engine::walk::Goal;
use crate::engine::world::{ProcessId, ThreadId, Why, World};
use crate::model::{Kind, Request};

#[derive(Debug)]
pub(super) struct Child {
    pub(super) parent: ThreadId,
    pub(super) start_ns: u64,
    pub(super) request_id: Option<u64>,
    pub(super) runs_program: bool,
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
        let parent_request_id =
            self.enclosing(world, parent).and_then(|process| self.exec_id(process));
        Request {
            request_id: 0,
            parent_request_id,
            kind: Kind::Exec,
            start_ns: child.start_ns,
            latency_ns: end_ns.saturating_sub(child.start_ns),
            complete: false,
            reason: None,
            client: Some(end_of(world, client, child.start_ns)),
            server: Some(end_of(world, p.leader, end_ns)),
            channel: None,
            stream_id: None,
            xid: None,
            method: p.programs.back().and_then(|program| program.path.as_deref().map(Into::into)),
            status: p.exit_code,
            request_bytes: None,
            response_bytes: None,
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

    /// The id of a process's exec request, given out when first asked for.
    pub(super) fn exec_id(&mut self, process: ProcessId) -> Option<u64> {
        let child = self.children.get(&process)?;
        if child.request_id.is_none() {
            let id = self.new_id();
            self.children.get_mut(&process)?.request_id = Some(id);
        }
        self.children.get(&process)?.request_id
    }

    /// The life of the target, from its execve() to the end of its main thread.
    pub(super) fn whole_life(&mut self, world: &World) {
        let Some((root, start_ns)) = self.root else { return };
        let thread = world.thread(root);
        let process = world.process_of(root);
        let died_ns = thread.off.back().filter(|off| off.why == Why::Dead).map(|off| off.start_ns);
        let end_ns = died_ns.or(thread.exited_ns).unwrap_or(world.now_ns);
        let request = Request {
            request_id: 0,
            parent_request_id: None,
            kind: Kind::Process,
            start_ns,
            latency_ns: end_ns.saturating_sub(start_ns),
            complete: thread.exited_ns.is_some(),
            reason: thread.exited_ns.is_none().then(|| "the capture ended before it did".into()),
            client: None,
            server: Some(end_of(world, root, end_ns)),
            channel: None,
            stream_id: None,
            xid: None,
            method: process.programs.back().and_then(|p| p.path.as_deref().map(Into::into)),
            status: process.exit_code,
            request_bytes: None,
            response_bytes: None,
        };
        let goal = Goal {
            start_ns,
            end_ns,
            client: root,
            client_process: thread.process,
            server_process: Some(thread.process),
            messages: Vec::new(),
            child: None,
        };
        self.fallback.insert(0, Found { request, goal });
    }
}

pub(super) fn exec_goal(
    world: &World,
    process: ProcessId,
    client: ThreadId,
    child: &Child,
    end_ns: u64,
) -> Goal {
    Goal {
        start_ns: child.start_ns,
        end_ns,
        client,
        client_process: world.thread(child.parent).process,
        server_process: Some(process),
        messages: Vec::new(),
        child: Some(process),
    }
}
