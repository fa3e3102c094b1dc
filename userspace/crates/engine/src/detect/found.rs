//! A request that was found, and how its parts are named.

use crate::detect::causality::{Asking, Heard};
use crate::detect::ids::Asked;
use crate::event::{Object, TYPE_TCP, TYPE_UDP, TYPE_UNIX, TYPE_UNIX_DGRAM};
use crate::ownership::claims::Claimant;
use crate::ownership::marks::Question;
use crate::timeline::retention::Held;
use crate::timeline::{Channel, ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{End, Kind, Reason, Request, Who};

/// A request with a known end, ready to be walked.
#[derive(Debug)]
pub struct Found {
    pub request: Request,
    pub goal: Goal,
    /// The channels on which it was found: the channel of its question and, if that is not the other direction of the
    /// same connection, the channel of its answer.
    pub channels: [Option<Object>; 2],
    /// Evidence of the request for which, or the program in whose life, it was made.
    pub(super) made_for: MadeFor,
}

/// Evidence of the request for which another request was made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MadeFor {
    /// What was known when it was asked; `None`: its process served nothing.
    pub(super) asking: Option<Asking>,
    /// The call that received the answer; `None`: no answer has come, or no thread waited for it.
    pub(super) heard: Option<Heard>,
    /// The process of the program in whose life it lies.
    pub(super) program: Option<ProcessId>,
    /// It was asked while others were served, and nothing shows for which of them; the times of all requests may show
    /// it.
    pub(super) orphan: bool,
    /// The question for whose sake it was asked, by the question's first byte, and whether that is sure.
    pub(super) sake: Option<(Asked, bool)>,
}

impl Found {
    /// A request that was found by other evidence than messages.
    pub(super) fn without_channels(request: Request, goal: Goal) -> Found {
        Found { request, goal, channels: [None; 2], made_for: MadeFor::default() }
    }

    /// Tells the world for whose sake it was asked, now that more is known than when it was asked.
    pub(crate) fn tell_sake(&self, world: &mut World) {
        let (Some(((object, first), sure)), [asked, heard]) =
            (self.made_for.sake, &self.goal.messages[..])
        else {
            return;
        };
        // Take the range of bytes that the mark of the question's reader has.
        let first = Question { object, from: first, to: first.saturating_add(1) };
        let Some(read) = world.read_of(&first) else { return };
        let question = Question { object, from: read.from, to: read.to };
        world.for_whose_sake([asked, heard], question, sure);
    }

    /// The request for which it was made, if that is a request that was served, and whether that is sure. Also `None`
    /// if this request was answered after its parent.
    pub(crate) fn served_parent(&self) -> Option<(u64, bool)> {
        let (_, sure) = self.made_for.sake.filter(|_| !self.request.detached)?;
        Some((self.request.parent_request_id?, sure))
    }

    /// Its question, if it has one.
    pub(super) fn question(&self) -> Option<Asked> {
        self.goal.messages.first().map(|question| (question.object, question.from))
    }

    /// The request, as the claimant of the work on its path.
    pub(crate) fn claimant(&self) -> Claimant {
        let Found { request, goal, .. } = self;
        Claimant {
            id: request.request_id,
            parent: request.parent_request_id,
            start_ns: goal.start_ns,
            end_ns: goal.end_ns,
            client: request.client.as_ref().map(|_| goal.client_process),
            server: goal.server_process,
            encloses: request.kind.is_life(),
        }
    }

    /// Adds the threads, processes and channels that it refers to.
    pub(crate) fn hold(&self, held: &mut Held) {
        let goal = &self.goal;
        held.threads.insert(goal.client);
        held.processes.insert(goal.client_process);
        held.processes.extend(goal.server_process.into_iter().chain(goal.child));
        held.channels.extend(goal.messages.iter().map(|message| message.object));
    }

    /// Whether one of its channels leads from or to `port`.
    pub(super) fn has_port(&self, world: &World, port: u16) -> bool {
        let known = self.channels.iter().flatten().filter_map(|object| world.channels.get(object));
        { known }.any(|channel| channel.has_port(port))
    }
}

/// For a question of datagrams: how many came after the first one, before any answer. Nothing shows whether they are the
/// same question, sent again, or others.
pub(super) fn sent_again(world: &World, (asked, from, to): (Object, u64, u64)) -> Option<u32> {
    let is_datagram = matches!(asked.type_bits, TYPE_UDP | TYPE_UNIX_DGRAM);
    let channel = world.channels.get(&asked).filter(|_| is_datagram)?;
    let sent = |moved| Channel::overlapping(moved, from, to).count();
    let sent = sent(&channel.writes).max(sent(&channel.reads));
    u32::try_from(sent.saturating_sub(1)).ok()
}

pub(super) fn kind_of(channel: Object) -> Kind {
    match channel.type_bits {
        TYPE_UNIX | TYPE_UNIX_DGRAM => Kind::Unix,
        TYPE_UDP => Kind::Udp,
        TYPE_TCP => Kind::Tcp,
        _ => Kind::Pipe,
    }
}

/// The method of a turn whose question begins at byte `from` of a channel, if anything is known of it.
pub(super) fn method_of(world: &World, channel: Object, from: u64) -> Option<String> {
    let is_handshake = world.channels.get(&channel)?.is_handshake(from);
    is_handshake.then(|| "TLS handshake".into())
}

/// `tcp 127.0.0.1:4000 > 127.0.0.1:80`, `unix /run/x.sock`, `pipe:[12]`
pub(super) fn name_of(world: &World, channel: Object) -> String {
    let mut text = String::with_capacity(48);
    channel.push_name(&mut text);
    if let Some(name) = world.channels.get(&channel).and_then(|known| known.name.as_deref()) {
        text.push(' ');
        text.push_str(name);
    }
    text
}

pub(super) fn end_of(world: &World, thread: ThreadId, at_ns: u64) -> End {
    let t = world.thread(thread);
    End { pid: world.process_of(thread).tgid, tid: t.tid, comm: t.name_at(at_ns).to_string() }
}

/// The reason of a request without an answer, if the process at one end (`who`) has exited.
pub(super) fn exit_reason(who: Who, world: &World, process: ProcessId) -> Reason {
    let code = world.processes[process as usize].exit_code.unwrap_or(0);
    match code & 0x7f {
        0 => Reason::Exited { who, status: (code >> 8) & 0xff },
        signal => Reason::Killed { who, signal },
    }
}
