//! Programs that were started: children from their fork to the wait that collects them.

use rustc_hash::FxHashMap;

use crate::detect::causality::Asking;
use crate::detect::ids::{Ids, Parent};
use crate::detect::lifecycle::Patience;
use crate::detect::Recent;
use crate::event::Call;
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, World};

#[derive(Debug, Clone, Copy)]
pub(super) struct Child {
    pub(super) parent: ThreadId,
    pub(super) start_ns: u64,
    request_id: Option<u64>,
    /// What was known about the request for which its parent process started it.
    pub(super) asking: Option<Asking>,
    runs_program: bool,
    /// It has served a request without running a program of its own: it is a worker, and will hardly run one.
    has_served: bool,
}

impl Child {
    pub(super) fn new(parent: ThreadId, start_ns: u64, asking: Option<Asking>) -> Child {
        Child { parent, start_ns, request_id: None, asking, runs_program: false, has_served: false }
    }
}

/// An exec request that has been found.
#[derive(Debug, Clone, Copy)]
struct Reaped {
    id: u64,
    start_ns: u64,
    end_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct Programs {
    children: FxHashMap<ProcessId, Child>,
    /// A process's child by the number that the process was told. When a wait for the child returns, another process may
    /// have this number already. In a PID namespace, the kernel has another number for the child.
    by_told_number: FxHashMap<(ProcessId, u32), ProcessId>,
    /// The same by the kernel's number, for children whose number the process has not been told yet.
    by_kernel_number: FxHashMap<(ProcessId, u32), ProcessId>,
    /// The child that a thread is creating.
    being_made: FxHashMap<ThreadId, ProcessId>,
    /// Exec requests that were found, as long as open requests may have them as parents.
    reaped: FxHashMap<ProcessId, Reaped>,
}

impl Programs {
    pub(super) fn forked(&mut self, world: &World, process: ProcessId, child: Child) {
        self.children.insert(process, child);
        self.by_kernel_number.insert(kernel_number(world, process, &child), process);
        self.being_made.insert(child.parent, process);
    }

    /// The call that created a child has returned the child's number to the thread.
    pub(super) fn numbered(&mut self, world: &World, by: ThreadId, call: &Call) {
        let Some(process) = self.being_made.remove(&by) else { return };
        let Some(child) = self.children.get(&process) else { return };
        let Some(told) = u32::try_from(call.ret).ok().filter(|told| *told != 0) else { return };
        let number = kernel_number(world, process, child);
        if child.start_ns == call.enter_ns {
            if self.by_kernel_number.get(&number) == Some(&process) {
                self.by_kernel_number.remove(&number);
            }
            self.by_told_number.insert((number.0, told), process);
        }
    }

    /// The process runs a program of its own.
    pub(super) fn executed(&mut self, process: ProcessId) {
        if let Some(child) = self.children.get_mut(&process) {
            child.runs_program = true;
        }
    }

    /// A request was found that the process served.
    pub(super) fn served(&mut self, process: ProcessId) {
        if let Some(child) = self.children.get_mut(&process) {
            child.has_served = true;
        }
    }

    /// A thread of the parent process has waited, until `end_ns`, for the child with number `pid`. Returns the child's
    /// process, what is known of the child, and the id of its request, if it ran a program.
    pub(super) fn reap(
        &mut self,
        (parent, pid): (ProcessId, u32),
        end_ns: u64,
        ids: &mut Ids,
    ) -> Option<(ProcessId, Child, u64)> {
        let number = (parent, pid);
        let process = self.by_told_number.remove(&number);
        let process = process.or_else(|| self.by_kernel_number.remove(&number))?;
        let child = self.children.remove(&process).filter(|child| child.runs_program)?;
        let id = child.request_id.unwrap_or_else(|| ids.ahead());
        self.reaped.insert(process, Reaped { id, start_ns: child.start_ns, end_ns });
        Some((process, child, id))
    }

    /// Children that run programs and were never waited for, in order of their begin.
    pub(super) fn running(&self) -> Vec<(ProcessId, Child)> {
        let running = self.children.iter().filter(|(_, child)| child.runs_program);
        let mut running: Vec<_> = running.map(|(process, child)| (*process, *child)).collect();
        running.sort_by_key(|(_, child)| child.start_ns);
        running
    }

    /// Returns when a process exited, if at `at_ns` that was so long ago that its parent is no longer expected to wait for
    /// it ([`Patience::Program`]): a parent that ignores SIGCHLD never waits.
    pub(super) fn abandoned_ns(world: &World, process: ProcessId, at_ns: u64) -> Option<u64> {
        let exits = world.processes[process as usize].threads.iter();
        let exits: Option<Vec<u64>> = exits.map(|&id| world.thread(id).exited_ns).collect();
        exits?.into_iter().max().filter(|exited_ns| Patience::Program.until_ns(*exited_ns) < at_ns)
    }

    /// Forgets the children that ran no program and have been abandoned. Returns those that ran programs, in order of their
    /// begin, each with the time of its exit.
    pub(super) fn abandoned(&mut self, world: &World) -> Vec<(ProcessId, Child, u64)> {
        let mut abandoned = Vec::new();
        self.children.retain(|&process, child| {
            let exited_ns = Programs::abandoned_ns(world, process, world.now_ns);
            abandoned
                .extend(exited_ns.filter(|_| child.runs_program).map(|ns| (process, *child, ns)));
            exited_ns.is_none() || child.runs_program
        });
        abandoned.sort_unstable_by_key(|(process, child, _)| (child.start_ns, *process));
        abandoned
    }

    /// The request of an abandoned child has been reported.
    pub(super) fn leave(&mut self, process: ProcessId, end_ns: u64) {
        let Some(Child { request_id: Some(id), start_ns, .. }) = self.children.remove(&process)
        else {
            return;
        };
        self.reaped.insert(process, Reaped { id, start_ns, end_ns });
    }

    /// Forgets the numbers of children that are forgotten.
    pub(super) fn forget_numbers(&mut self) {
        let is_known = |process: &ProcessId| self.children.contains_key(process);
        self.by_told_number.retain(|_, process| is_known(process));
        self.by_kernel_number.retain(|_, process| is_known(process));
        self.being_made.retain(|_, process| is_known(process));
    }

    /// No more events of any child will come.
    pub(super) fn end(&mut self) {
        self.children.clear();
        self.forget_numbers();
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

    /// The exec request of a process, open or just found, if a request with the given window begins within it.
    pub(super) fn around(
        &mut self,
        world: &World,
        process: ProcessId,
        (start_ns, end_ns): (u64, u64),
        ids: &mut Ids,
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
        let id = self.id(process, ids)?;
        Some(Parent { id, detached: ended_ns < end_ns })
    }

    /// The id of a process's exec request, assigned when it is first asked for.
    pub(super) fn id(&mut self, process: ProcessId, ids: &mut Ids) -> Option<u64> {
        match self.children.get_mut(&process) {
            Some(child) => Some(*child.request_id.get_or_insert_with(|| ids.ahead())),
            None => self.reaped.get(&process).map(|reaped| reaped.id),
        }
    }

    pub(super) fn horizon_ns(&self, recent: Recent) -> Option<u64> {
        let may_be_one = |child: &&Child| {
            let young = Patience::Program.until_ns(child.start_ns) > recent.now_ns;
            let in_the_making = young && !child.has_served && child.start_ns >= recent.busy_ns;
            child.runs_program || in_the_making
        };
        self.children.values().filter(may_be_one).map(|child| child.start_ns).min()
    }

    pub(super) fn hold(&self, held: &mut Held) {
        held.processes.extend(self.children.keys());
        held.threads.extend(self.children.values().map(|child| child.parent));
    }

    /// Forgets exec requests that no request since `horizon_ns` can have as parent.
    pub(super) fn forget(&mut self, horizon_ns: u64) {
        self.reaped.retain(|_, reaped| reaped.end_ns >= horizon_ns);
    }
}

/// The process that created a child, and the kernel's number of the child.
fn kernel_number(world: &World, process: ProcessId, child: &Child) -> (ProcessId, u32) {
    (world.thread(child.parent).process, world.processes[process as usize].tgid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_has_served_is_no_program_in_the_making() {
        let recent = Recent { now_ns: 200, busy_ns: 0 };
        let mut programs = Programs::default();
        programs.children.insert(7, Child::new(1, 100, None));
        assert_eq!(programs.horizon_ns(recent), Some(100));
        programs.served(7);
        assert_eq!(programs.horizon_ns(recent), None);
        programs.executed(7);
        assert_eq!(programs.horizon_ns(recent), Some(100), "it runs one after all");
    }
}
