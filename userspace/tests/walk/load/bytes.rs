//! How bytes get from one end of a connection to the other: by the sender's call, softirqs, or packets through devices.

use rpcprobe::engine::event::What;

use super::facts::LinkNo;
use super::net::{Effect, NetOp, NetUntil, Way};
use crate::walk::kernel::{Op, Stage, Until};
use crate::walk::machine::{Machine, Queue};
use crate::walk::truth::{Doing, TaskNo, Why};

const NET_TX: u16 = 2;
const NET_RX: u16 = 3;

impl Machine {
    pub(super) fn put_stream(&mut self, no: TaskNo, link: LinkNo, left: u64) {
        let pipe = &mut self.net.pipes[link];
        let room = pipe.capacity - (pipe.put - pipe.taken);
        if room == 0 {
            let until = Until::Net(NetUntil::Room(link));
            let wait = Op::Wait(until, Why::Pipe, Stage::Begin);
            self.tasks[no].first([wait, Op::Net(NetOp::Put { link, left })]);
            return;
        }
        let (from, now) = (pipe.put, room.min(left));
        pipe.put += now;
        pipe.tells_packets |= self.tasks[no].traced;
        let end = pipe.put;
        self.net.facts.links[link].put.note(end, self.now_ns);
        self.tasks[no].moved_from.get_or_insert(from);
        self.tasks[no].moved += now as i64;
        let (before, after) = (self.tape.pick(3), self.tape.length(3));
        let deliver = Op::Net(NetOp::Deliver { link, end });
        let mut ops = match self.net.conns[link / 2].way {
            Way::Unix => {
                self.arrive(link, end);
                vec![Op::Run(before), deliver]
            }
            Way::Loopback if self.tape.once_in(6) => {
                self.effect_later(Effect::Deliver { link, end }, 0, NET_RX);
                vec![Op::Run(before)]
            }
            Way::Loopback => vec![
                Op::Run(before + 1),
                Op::Push(Doing::Softirq),
                Op::Run(1),
                deliver,
                Op::Run(1),
                Op::Pop(NET_RX),
            ],
            Way::Devices => vec![Op::Run(before), Op::Net(NetOp::Enqueue { link, from })],
        };
        ops.extend([Op::Run(after), Op::Resched]);
        if left > now {
            ops.push(Op::Net(NetOp::Put { link, left: left - now }));
        }
        self.tasks[no].first(ops);
    }

    /// Bytes before `end` are in the reader's socket.
    fn arrive(&mut self, link: LinkNo, end: u64) {
        let pipe = &mut self.net.pipes[link];
        pipe.there = pipe.there.max(end);
        self.net.facts.links[link].there.note(pipe.there, self.now_ns);
    }

    pub(super) fn deliver(&mut self, cpu: usize, link: LinkNo, end: u64, context: (u8, bool)) {
        self.arrive(link, end);
        let (now_ns, is_tcp) = (self.now_ns, self.net.conns[link / 2].way != Way::Unix);
        let pipe = &mut self.net.pipes[link];
        let (object, end) = (pipe.object, pipe.there);
        if is_tcp && pipe.known && !pipe.has_writer {
            self.emit(cpu, What::Arrival { object, end, arrived_ns: now_ns });
        } else if is_tcp && !pipe.known {
            self.net.facts.links[link].untold |= pipe.unaccepted.is_some();
            pipe.unaccepted.get_or_insert((end, now_ns));
        }
        self.wake_readers(cpu, NetUntil::Bytes(link), context);
        self.wake_pollers(cpu, |set| set.links.contains(&link), context);
    }

    pub(super) fn take_stream(&mut self, no: TaskNo, link: LinkNo) {
        let pipe = &mut self.net.pipes[link];
        let (from, now) = (pipe.taken, pipe.there - pipe.taken);
        let was_full = pipe.put - pipe.taken == pipe.capacity;
        pipe.taken += now;
        self.net.facts.links[link].taken.note(pipe.taken, self.now_ns);
        self.tasks[no].moved = now as i64;
        self.tasks[no].moved_from = Some(from);
        let mut ops = Vec::new();
        if now > 0 {
            ops.push(Op::Run(self.tape.length(3)));
            ops.extend(self.maybe_fault());
        }
        if was_full {
            let queue = Queue::Net(NetUntil::Room(link));
            ops.extend([Op::WakeAll(queue), Op::Run(1)]);
        }
        self.tasks[no].first(ops);
    }

    pub(super) fn effect_later(&mut self, effect: Effect, wait_ns: u64, softirq: u16) {
        let token = self.token();
        self.net.effects.insert(token, effect);
        self.later(token, Some(softirq));
        let interrupt = self.interrupts.last_mut().expect("just added");
        interrupt.at_ns = self.now_ns + 1 + wait_ns + self.tape.pick(12);
    }

    pub(super) fn enqueue(&mut self, cpu: usize, link: LinkNo, from: u64) {
        let end = self.net.pipes[link].put;
        let (sent_ns, received_ns, queued_ns) = (None, None, self.now_ns);
        let packets = &mut self.net.facts.packets;
        packets.push(super::facts::Packet { link, from, end, queued_ns, sent_ns, received_ns });
        let packet = packets.len() - 1;
        let is_idle = self.net.pipes[link].queued.is_empty();
        self.net.pipes[link].queued.push_back(packet);
        match is_idle && self.tape.pick(2) == 0 {
            true => self.send_packet(cpu, link),
            false => self.effect_later(Effect::Send(link), 10, NET_TX),
        }
    }

    fn send_packet(&mut self, cpu: usize, link: LinkNo) {
        let Some(packet) = self.net.pipes[link].queued.pop_front() else { return };
        self.net.facts.packets[packet].sent_ns = Some(self.now_ns);
        self.tell_packet(cpu, packet);
        self.net.pipes[link].under_way.push_back(packet);
        self.effect_later(Effect::Receive(link), 3, NET_RX);
    }

    fn tell_packet(&mut self, cpu: usize, packet: usize) {
        let told = self.net.facts.packets[packet];
        let pipe = &self.net.pipes[told.link];
        if !pipe.tells_packets {
            return;
        }
        let packet = rpcprobe::engine::event::Packet {
            from: told.from,
            end: told.end,
            queued_ns: told.queued_ns,
            sent_ns: told.sent_ns.expect("sent"),
            received_ns: told.received_ns,
            again: false,
            forwarded: false,
            device: told.link as u32,
        };
        let object = pipe.object;
        self.emit(cpu, What::Packet { object, packet });
    }

    pub fn take_effect(&mut self, cpu: usize, token: usize, context: (u8, bool)) {
        match self.net.effects.remove(&token) {
            None => {}
            Some(Effect::Deliver { link, end }) => self.deliver(cpu, link, end, context),
            Some(Effect::Send(link)) => self.send_packet(cpu, link),
            Some(Effect::Receive(link)) => {
                let packet = self.net.pipes[link].under_way.pop_front().expect("one a token");
                self.net.facts.packets[packet].received_ns = Some(self.now_ns);
                self.tell_packet(cpu, packet);
                let end = self.net.facts.packets[packet].end;
                self.deliver(cpu, link, end, context);
            }
        }
    }
}
