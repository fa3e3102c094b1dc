//! A request that was found, and how its parts are named.

use crate::event::{Object, TYPE_TCP, TYPE_UDP, TYPE_UNIX, TYPE_UNIX_DGRAM};
use crate::timeline::{ProcessId, ThreadId, World};
use crate::walk::Goal;
use rpcprobe_model::{End, Kind, Reason, Request, Who};

/// A request with a known end, ready to be walked.
#[derive(Debug)]
pub struct Found {
    pub request: Request,
    pub goal: Goal,
    /// The channels on which it was found: that of its question, and that of its answer if that is no connection's
    /// other direction.
    pub channels: [Option<Object>; 2],
}

impl Found {
    /// One that was found by other things than messages.
    pub(super) fn without_channels(request: Request, goal: Goal) -> Found {
        Found { request, goal, channels: [None; 2] }
    }

    /// Whether one of its channels leads from or to that port.
    pub(super) fn has_port(&self, world: &World, port: u16) -> bool {
        let known = self.channels.iter().flatten().filter_map(|object| world.channels.get(object));
        { known }.any(|channel| channel.has_port(port))
    }
}

pub(super) fn kind_of(channel: Object) -> Kind {
    match channel.type_bits {
        TYPE_UNIX | TYPE_UNIX_DGRAM => Kind::Unix,
        TYPE_UDP => Kind::Udp,
        TYPE_TCP => Kind::Tcp,
        _ => Kind::Pipe,
    }
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

/// The end of the process of one end, before the answer.
pub(super) fn exit_reason(who: Who, world: &World, process: ProcessId) -> Reason {
    let code = world.processes[process as usize].exit_code.unwrap_or(0);
    match code & 0x7f {
        0 => Reason::Exited { who, status: (code >> 8) & 0xff },
        signal => Reason::Killed { who, signal },
    }
}
