//! Emits segments and gives them their names.

use crate::walk::names::push_thread;
use crate::walk::*;

/// The thread whose time a segment shows.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    pub thread: ThreadId,
    /// It belongs to the request's server.
    pub serves: bool,
    /// The thread's messages show that it worked for the request; otherwise only the path led there.
    pub by_marks: bool,
}

/// The result of a walk.
#[derive(Default)]
pub struct Walked {
    /// The segments in order of time, and the thread of each.
    pub segments: Segments,
    pub workers: Vec<Worker>,
    pub steps: usize,
    pub begin: Option<Begin>,
}

/// The thread of segments that follow each other, looked up once for all of them.
struct Whose<'w> {
    id: ThreadId,
    thread: &'w Thread,
    process: &'w Process,
    side: Side,
    /// Its last name, and since when it has had that name.
    name: Option<(u64, TextId)>,
}

impl<'w> Walk<'w> {
    /// The segments found, in order of time, and the thread of each.
    pub(super) fn into_segments(mut self) -> (Segments, Vec<Worker>) {
        let world = self.world;
        let raws = std::mem::take(&mut self.output.out);
        let mut segments: Vec<Told> = Vec::with_capacity(raws.len());
        let mut workers: Vec<Worker> = Vec::with_capacity(raws.len());
        let mut whose = self.whose(self.goal.client);
        for raw in raws.iter().rev() {
            if raw.thread != whose.id {
                whose = self.whose(raw.thread);
            }
            let Raw { thread, serves, by_marks, .. } = *raw;
            let worker = Worker { thread, serves, by_marks };
            let segment = self.name(raw, &whose);
            match segments.last_mut().zip(workers.last_mut()) {
                Some((last, by)) if joins(last, &segment) => {
                    last.duration_ns += segment.duration_ns;
                    by.by_marks |= worker.by_marks;
                }
                _ => {
                    segments.push(segment);
                    workers.push(worker);
                }
            }
        }
        self.output.give_back(raws);
        let mut texts = self.output.names.texts.compact();
        if world.stacks.any() {
            for (segment, &Worker { thread, .. }) in segments.iter_mut().zip(&workers) {
                let (start_ns, end_ns) = (segment.start_ns, segment.end_ns());
                segment.stack = world.stack_of(thread, segment.category, start_ns, end_ns);
                if segment.category == Category::Interrupt
                    && world.stacks.sampled_by_interrupt_at(thread, start_ns)
                {
                    let detail = segment.detail.map_or("", |detail| texts.get(detail));
                    let detail = format!("{detail}, taking a sample");
                    segment.detail = Some(texts.add(&detail));
                }
            }
        }
        (Segments { list: segments, texts }, workers)
    }

    /// Emits the rest of the request, from its start to `end_ns`, as `unattributed`.
    pub(super) fn give_up(&mut self, thread: ThreadId, end_ns: u64, why: &str) {
        self.note_more();
        let start_ns = self.goal.start_ns;
        let category = Category::Unattributed;
        let detail = Some(self.output.names.texts.add(why));
        let evidence = Evidence::Measured;
        self.emit(thread, start_ns, end_ns, category, detail, None, None, None, evidence);
    }

    #[allow(clippy::too_many_arguments)] // the columns of a segment
    pub(super) fn emit(
        &mut self,
        thread: ThreadId,
        start_ns: u64,
        end_ns: u64,
        category: Category,
        detail: Option<TextId>,
        cause: Option<TextId>,
        by: Option<ThreadId>,
        cpu: Option<u32>,
        evidence: Evidence,
    ) {
        let start_ns = start_ns.max(self.goal.start_ns);
        let wait_rule = self.output.wait_rule.take();
        if start_ns < end_ns {
            let t = self.world.thread(thread);
            let rule = wait_rule.unwrap_or(match category {
                Category::RunqueueWakeup | Category::RunqueuePreempted => Rule::RunQueue,
                Category::WireQdisc | Category::WireLink | Category::WireStack => Rule::Wire,
                Category::Unattributed => Rule::Lost,
                category if category.is_on_cpu() || category == Category::Steal => self.output.rule,
                _ => Rule::Charge,
            });
            use Category::{QueueSocket, RunqueuePreempted, RunqueueWakeup};
            // A wait of a thread that worked for several requests is shared by them like the work.
            let together = self.output.shared > 1 && rule == Rule::Charge;
            let shared = if category.is_on_cpu() || together { self.output.shared } else { 1 };
            let is_thread = category.is_on_cpu()
                || together
                || matches!(category, RunqueueWakeup | RunqueuePreempted | QueueSocket);
            let evidence = match self.output.likely && is_thread {
                true => Evidence::Modelled,
                false => evidence,
            };
            let cpu = cpu.or_else(|| t.cpu_at(end_ns - 1));
            self.output.out.push(Raw {
                start_ns,
                end_ns,
                thread,
                category,
                detail,
                cause,
                by,
                cpu,
                evidence,
                rule,
                shared,
                serves: self.goal.is_served_by(t.process),
                by_marks: self.output.by_marks,
            });
        }
    }

    /// Unless it is sure that the path leads through them, the segments since `mark` are inferred.
    pub(super) fn infer_since(&mut self, mark: usize, sure: bool) {
        let since = self.output.out[mark..].iter_mut().filter(|_| !sure);
        since.for_each(|raw| raw.evidence = Evidence::Modelled);
    }

    fn whose(&mut self, id: ThreadId) -> Whose<'w> {
        let thread = self.world.thread(id);
        let process = &self.world.processes[thread.process as usize];
        let side = if thread.kthread {
            Side::Kernel
        } else if self.goal.is_served_by(thread.process) {
            // Checked first: a request without a client has its server at both ends.
            Side::Server
        } else if thread.process == self.goal.client_process {
            Side::Client
        } else {
            Side::Middle
        };
        let named = thread.names.back().map(|(since_ns, _)| *since_ns);
        let name = named.map(|since_ns| (since_ns, self.output.names.of_thread(thread, since_ns)));
        Whose { id, thread, process, side, name }
    }

    fn name(&mut self, raw: &Raw, whose: &Whose) -> Told {
        let &Whose { thread, process, side, name, .. } = whose;
        let name = name.filter(|(since_ns, _)| raw.start_ns >= *since_ns);
        let by =
            raw.by.map(|by| self.output.names.with_number(by, self.world.thread(by), raw.end_ns));
        Told {
            start_ns: raw.start_ns,
            duration_ns: raw.end_ns - raw.start_ns,
            category: raw.category,
            side,
            pid: process.tgid,
            tid: thread.tid,
            comm: match name {
                Some((_, name)) => name,
                None => self.output.names.of_thread(thread, raw.start_ns),
            },
            cpu: raw.cpu,
            phase: match self.goal.handed {
                Some((_, had_ns)) if raw.start_ns >= had_ns => Some(HAND_OVER),
                _ => thread.phase_at(process, raw.start_ns),
            },
            detail: raw.detail,
            cause: raw.cause,
            by,
            evidence: raw.evidence,
            rule: Some(raw.rule),
            shared: raw.shared,
            stack: None,
        }
    }

    /// A thread as `by` names it: `comm/tid`.
    pub(super) fn name_of(&self, thread: ThreadId, at_ns: u64) -> String {
        let by = self.world.thread(thread);
        let name = by.name_at(at_ns);
        let mut text = String::with_capacity(name.len() + 12);
        push_thread(&mut text, thread, name, by.tid);
        text
    }
}
