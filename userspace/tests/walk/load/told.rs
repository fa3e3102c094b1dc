//! What the records of calls on sockets contain, as the kernel side fills them in.

use rpcprobe::engine::event::{Io, Object, What};

use super::net::{NetMoved, Way, FD};
use crate::walk::machine::Machine;
use crate::walk::story::io;
use crate::walk::truth::TaskNo;

/// What the record of a call contains.
pub struct Told {
    pub io: Option<Io>,
    pub accepted_of_ns: Option<u64>,
    pub ret: i64,
    /// Whether it waits for readiness with a timeout.
    pub has_timeout: bool,
}

impl Machine {
    pub fn net_moved(&mut self, cpu: usize, no: TaskNo, moved: NetMoved) -> Told {
        let (count, traced) = (self.tasks[no].moved, self.tasks[no].traced);
        let on = |object: Object| Some(io(object, FD, false, (0, 0)));
        let (accepted_of_ns, ret, has_timeout) = (None, 0, false);
        match moved {
            NetMoved::Stream { link, end } => {
                let is_write = link % 2 == end;
                let socket = self.net.conns[link / 2].sockets[end];
                if count == 0 {
                    return Told { io: on(socket), accepted_of_ns, ret, has_timeout };
                }
                let reverse = Some(self.net.pipes[link ^ 1].object);
                if traced {
                    (link & !1..=link | 1).for_each(|link| self.net.pipes[link].known = true);
                    self.net.pipes[link].has_writer |= is_write;
                }
                let from = self.tasks[no].moved_from.expect("moved something");
                let moved = io(self.net.pipes[link].object, FD, is_write, (from, count));
                let moved = Io { reverse, socket: socket.ino as u32, ..moved };
                Told { io: Some(moved), accepted_of_ns, ret: count, has_timeout }
            }
            NetMoved::Opened(conn) => {
                Told { io: on(self.net.conns[conn].sockets[0]), accepted_of_ns, ret, has_timeout }
            }
            NetMoved::Closed { conn, end } => {
                Told { io: on(self.net.conns[conn].sockets[end]), accepted_of_ns, ret, has_timeout }
            }
            NetMoved::Accepted => {
                let conn = count as usize;
                let opened = &mut self.net.facts.opened[conn];
                opened.accepted_ns = Some(self.now_ns);
                let established_ns = opened.established_ns.expect("it is there");
                let is_tcp = self.net.conns[conn].way != Way::Unix;
                let pipe = &mut self.net.pipes[2 * conn];
                if traced {
                    pipe.known = true;
                    if let (true, Some((end, arrived_ns))) = (is_tcp, pipe.unaccepted) {
                        let object = pipe.object;
                        self.emit(cpu, What::Arrival { object, end, arrived_ns });
                    }
                }
                let accepted_of_ns = Some(if is_tcp { established_ns } else { 0 });
                Told {
                    io: on(self.net.conns[conn].sockets[1]),
                    accepted_of_ns,
                    ret: 7,
                    has_timeout,
                }
            }
            NetMoved::Ready => {
                let (found, has_timeout) = (self.local(no).found, self.local(no).timed);
                Told { io: None, accepted_of_ns, ret: i64::from(found), has_timeout }
            }
            NetMoved::Waited(until) => {
                Told { io: None, accepted_of_ns, ret: self.waited(no, until), has_timeout }
            }
            NetMoved::Slept { ret } => {
                let has_timeout = ret == 0;
                Told { io: None, accepted_of_ns, ret, has_timeout }
            }
        }
    }
}
