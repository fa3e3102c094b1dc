//! What follows a call: which requests it was for, and what its thread does next.

use super::facts::ReqNo;
use super::net::{NetOp, NetUntil, Set};
use super::programs::Design;
use super::steps::{reader, reads, After, Job, Step, CLIENT, SERVER};
use crate::walk::kernel::Birth;
use crate::walk::machine::Machine;
use crate::walk::programs::Act;
use crate::walk::truth::TaskNo;

impl Machine {
    pub fn after(&mut self, no: TaskNo, after: After) {
        let now_ns = self.now_ns;
        match after {
            After::Received { conn, end, whole } => self.received(no, conn, end, whole),
            After::Accepted => {
                let conn = self.tasks[no].moved as usize;
                let alone = self.req_on(conn).filter(|req| self.net.facts.reqs[*req].alone);
                let whose = self.net.facts.number_of(alone.as_slice(), false);
                self.perform_net(0, no, NetOp::Relabel(whose));
                let acts = self.accepted(conn);
                self.any_acts(no, acts);
            }
            After::Polled(set) => {
                let ready = self.ready_reqs(set);
                self.local(no).found = self.net_met(no, NetUntil::Ready(set));
                let whose = self.net.facts.number_of(&ready, true);
                self.perform_net(0, no, NetOp::Relabel(whose));
                self.local(no).between = whose;
            }
            After::Answered(req) => self.net.facts.reqs[req].answered_ns = Some(now_ns),
            After::Ended(req) => self.net.facts.reqs[req].end_ns = Some(now_ns),
        }
    }

    /// The requests for which something is ready.
    fn ready_reqs(&self, at: usize) -> Vec<ReqNo> {
        let net = &self.net;
        let set = &net.sets[at];
        let links = set.links.iter().filter(|link| net.is_readable(**link));
        let waiting = set.listener.into_iter().flat_map(|listener| &net.backlogs[listener]);
        let conns = links.map(|link| link / 2).chain(waiting.copied());
        let mut ready: Vec<_> = conns.filter_map(|conn| self.req_on(conn)).collect();
        ready.extend(set.event.iter().flat_map(|_| &net.plan.done));
        ready.extend(self.due_reqs(at));
        ready
    }

    /// A read is about to return.
    fn received(&mut self, no: TaskNo, conn: usize, end: usize, whole: bool) {
        let again = Act::Load(Step::Receive { conn, end, whole });
        let Some(req) = self.req_on(conn).filter(|_| self.tasks[no].moved > 0) else {
            // The end of the connection.
            let acts = self.ended(conn, end);
            return self.any_acts(no, acts);
        };
        let label = self.net.facts.number_of(&[req], false);
        self.perform_net(0, no, NetOp::Relabel(label));
        let (now_ns, taken) = (self.now_ns, self.net.pipes[reads(conn, end)].taken);
        let (tgid, facts) = (self.tasks[no].tgid, &mut self.net.facts.reqs[req]);
        let is_whole = match end {
            CLIENT => taken == facts.answer.to,
            _ => taken == facts.asked.to,
        };
        let acts = match (end, is_whole) {
            (CLIENT, true) => {
                facts.client = no;
                if !facts.alone {
                    facts.end_ns = Some(now_ns);
                }
                self.answered(req)
            }
            (_, false) if whole => vec![again],
            (_, false) => vec![Act::Load(Step::Between)],
            (_, true) => {
                (facts.server_tgid, facts.received_ns) = (tgid, Some(now_ns));
                self.taken_up(no, req, whole.then_some(again))
            }
        };
        self.any_acts(no, acts);
    }

    // ---- servers ------------------------------------------------------------------------------

    pub fn dispatch(&mut self, no: TaskNo, at: usize) {
        let mut set = self.net.sets[at].clone();
        let serves = set.listener.is_some();
        if !self.local(no).found {
            set = Set::default();
        }
        let mut steps = Vec::new();
        let backlog = set.listener.filter(|listener| !self.net.backlogs[*listener].is_empty());
        steps.extend(backlog.map(Step::Accept));
        for &link in set.links.iter().filter(|link| self.net.is_readable(**link)) {
            steps.push(Step::Receive { conn: link / 2, end: reader(link), whole: false });
            if !serves {
                steps.push(Step::Between);
            }
        }
        let mut acts: Vec<Act> = steps.into_iter().map(Act::Load).collect();
        let event = set.event.filter(|event| self.eventfds[*event] > 0);
        acts.extend(
            event
                .map(|event| [Act::Await(event), Act::Load(Step::AnswerDone)])
                .into_iter()
                .flatten(),
        );
        acts = self.with_due(at, acts);
        if serves {
            let rest =
                [Step::ServeBatch, Step::For(Vec::new()), Step::Poll(at), Step::Dispatch(at)];
            acts.extend(rest.map(Act::Load));
        }
        self.any_acts(no, acts);
    }

    pub fn serve_batch(&mut self, no: TaskNo) {
        let batch = std::mem::take(&mut self.local(no).batch);
        let mut acts = Vec::new();
        if batch.len() > 1 {
            acts.push(Act::Load(Step::For(batch.clone())));
            acts.push(Act::Compute);
        }
        for req in batch {
            acts.push(Act::Load(Step::For(vec![req])));
            acts.push(Act::Load(Step::Serve(req)));
        }
        self.any_acts(no, acts);
    }

    /// A worker that was told of a job takes the first one.
    pub fn take_job(&mut self, no: TaskNo) {
        if self.local(no).for_timer {
            return self.take_due(no);
        }
        let job = self.net.plan.jobs.pop_front().expect("told of");
        let mut acts = match job {
            Job::Message(req) => {
                let mut acts = vec![Act::Load(Step::For(vec![req]))];
                acts.extend(self.work(req));
                let then = match self.net.plan.design {
                    Design::HandBack => Step::Done(req),
                    Design::Workers => {
                        let conn = self.net.facts.reqs[req].conn;
                        Step::SemaphorePost(self.net.done_by(conn))
                    }
                    _ => self.then_by_worker(req),
                };
                acts.push(Act::Load(then));
                acts
            }
            Job::Connection(conn) => {
                vec![Act::Load(Step::Receive { conn, end: SERVER, whole: true })]
            }
        };
        acts.push(Act::Load(Step::For(Vec::new())));
        acts.extend(self.net.plan.design.worker());
        self.any_acts(no, acts);
    }

    /// A server thread that serves only one connection.
    pub fn connection_thread(conn: usize) -> Birth {
        let acts = [Act::Load(Step::Receive { conn, end: SERVER, whole: true }), Act::Exit];
        Birth { thread: true, comm: "server", acts: acts.into() }
    }
}
