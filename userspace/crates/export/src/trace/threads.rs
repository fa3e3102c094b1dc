//! Tracks of threads: when each thread worked for which request. A thread shows one request at each instant. If several
//! requests have the same work, because one was made for the other or because they share it, the request that began
//! last is shown.
//!
//! Requests come in the order in which they finished, but a track must be written in time order. So pieces of work wait
//! in a heap, up to a limit. Work that comes too late for that is left out, and its amount is reported.

#[cfg(test)]
mod tests;

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};

use super::packets::{Flows, Notes, Packets, Track};
use super::proto::{ProcessDescriptor, ThreadDescriptor, TrackDescriptor};
use rpcprobe_model::{Evidence, Segment, Side};
use rpcprobe_report::{escape, marks};

/// Maximum number of waiting pieces: some 20 MB.
const WAITING: usize = 1 << 18;

/// The request a piece of work is for.
#[derive(Debug)]
pub struct For {
    pub request_id: u64,
    pub start_ns: u64,
    /// Name of the request's slices.
    pub name: String,
}

impl For {
    /// Whether this request's work is shown where both requests have the same work. The request that began later is
    /// shown, because a request made for another one begins after it.
    fn is_inside(&self, other: &For) -> bool {
        (self.start_ns, self.request_id) > (other.start_ns, other.request_id)
    }
}

/// Work of a thread for a request: `[start_ns, end_ns)`.
#[derive(Clone, Debug)]
struct Piece {
    start_ns: u64,
    end_ns: u64,
    thread: usize,
    of: Rc<For>,
    /// Number of requests that share the work.
    shared: u32,
    /// The piece adds up pieces that lay somewhere in a stretch of time.
    added_up: bool,
    /// Whether the work is modelled or sampled, in whole or in part.
    modelled: bool,
    sampled: bool,
    /// The arrow of the request's path that comes from another thread, and the arrow to the next thread; 0 if there is
    /// none.
    into: u64,
    out: u64,
}

impl Piece {
    fn order(&self) -> (u64, u64, u64) {
        (self.start_ns, self.of.request_id, self.end_ns)
    }

    /// Whether `next` continues this piece where it ends.
    fn goes_on_as(&self, next: &Piece) -> bool {
        self.end_ns == next.start_ns
            && self.thread == next.thread
            && Rc::ptr_eq(&self.of, &next.of)
            && (self.shared, self.added_up) == (next.shared, next.added_up)
    }

    fn extend(&mut self, next: &Piece) {
        self.end_ns = next.end_ns;
        self.modelled |= next.modelled;
        self.sampled |= next.sampled;
    }
}

impl PartialEq for Piece {
    fn eq(&self, other: &Piece) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Piece {}

impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Piece) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Piece {
    fn cmp(&self, other: &Piece) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// A slice that may still be extended or cut short.
struct Open {
    piece: Piece,
    flows: Flows,
}

struct Thread {
    track: Track,
    open: Option<Open>,
}

/// Work that could not be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    pub pieces: u64,
    pub ns: u64,
}

pub struct Threads {
    /// Maximum number of waiting pieces.
    room: usize,
    by_number: FxHashMap<(u32, u32), usize>,
    processes: FxHashSet<u32>,
    threads: Vec<Thread>,
    heap: BinaryHeap<Reverse<Piece>>,
    /// Everything before this time is written.
    written_until_ns: u64,
    /// The latest piece of the request whose segments are coming in.
    last: Option<Piece>,
    flows: u64,
    left_out: LeftOut,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads::with_room(WAITING)
    }
}

impl Threads {
    fn with_room(room: usize) -> Threads {
        Threads {
            room,
            by_number: FxHashMap::default(),
            processes: FxHashSet::default(),
            threads: Vec::new(),
            heap: BinaryHeap::new(),
            written_until_ns: 0,
            last: None,
            flows: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Takes a segment of the request; segments come in time order. For the request's first work, returns an arrow from
    /// the segment's slice to the thread's slice: the segment is then written before the thread.
    pub fn segment(
        &mut self,
        packets: &mut Packets,
        of: &Rc<For>,
        segment: &Segment,
    ) -> Result<Option<u64>> {
        let is_work = segment.category.is_on_cpu() && segment.tid != 0;
        if !is_work || matches!(segment.side, Side::Device | Side::Network) {
            return Ok(None);
        }
        let mut piece = Piece {
            start_ns: segment.start_ns,
            end_ns: segment.end_ns(),
            thread: self.thread(packets, segment)?,
            of: of.clone(),
            shared: segment.shared,
            added_up: segment.waited_because().is_none() && segment.cause.is_some(),
            modelled: segment.evidence == Evidence::Modelled,
            sampled: segment.evidence == Evidence::Sampled,
            into: 0,
            out: 0,
        };
        let in_time = |piece: &Piece| piece.start_ns >= self.written_until_ns;
        let mut first = None;
        match &mut self.last {
            Some(last) if last.goes_on_as(&piece) => {
                last.extend(&piece);
                return Ok(None);
            }
            Some(last) if last.thread != piece.thread && in_time(last) => {
                self.flows += 1;
                (last.out, piece.into) = (self.flows, self.flows);
            }
            None if in_time(&piece) => {
                self.flows += 1;
                piece.into = self.flows;
                first = Some(self.flows);
            }
            _ => {}
        }
        let begun_ns = piece.start_ns;
        if let Some(last) = self.last.replace(piece) {
            self.push(last);
        }
        self.write_until(packets, begun_ns)?;
        Ok(first)
    }

    /// Ends the request: it has no more segments.
    pub fn end_of_request(&mut self, packets: &mut Packets) -> Result<()> {
        if let Some(last) = self.last.take() {
            self.push(last);
        }
        self.write_until(packets, u64::MAX)
    }

    /// Writes everything that is still waiting.
    pub fn finish(mut self, packets: &mut Packets) -> Result<LeftOut> {
        while let Some(Reverse(piece)) = self.heap.pop() {
            self.place(packets, piece)?;
        }
        for thread in self.threads {
            if let Some(open) = thread.open {
                write(packets, thread.track, open)?;
            }
        }
        Ok(self.left_out)
    }

    fn thread(&mut self, packets: &mut Packets, segment: &Segment) -> Result<usize> {
        let Segment { pid, tid, .. } = *segment;
        if let Some(thread) = self.by_number.get(&(pid, tid)) {
            return Ok(*thread);
        }
        let comm = escape(&segment.comm);
        let number = i32::try_from(pid).ok();
        if self.processes.insert(pid) {
            let process = ProcessDescriptor { pid: number, process_name: Some(comm.clone()) };
            packets
                .track(TrackDescriptor { process: Some(process), ..TrackDescriptor::default() })?;
        }
        let thread =
            ThreadDescriptor { pid: number, tid: Some(tid.into()), thread_name: Some(comm) };
        let track = packets
            .track(TrackDescriptor { thread: Some(thread), ..TrackDescriptor::default() })?;
        self.by_number.insert((pid, tid), self.threads.len());
        self.threads.push(Thread { track, open: None });
        Ok(self.threads.len() - 1)
    }

    fn push(&mut self, mut piece: Piece) {
        let late_ns = self.written_until_ns.min(piece.end_ns).saturating_sub(piece.start_ns);
        if late_ns > 0 {
            self.left_out.pieces += 1;
            self.left_out.ns += late_ns;
            piece.start_ns += late_ns;
        }
        if piece.start_ns < piece.end_ns {
            self.heap.push(Reverse(piece));
        }
    }

    /// Makes room in the heap, but writes no piece that begins at `end_ns` or later.
    fn write_until(&mut self, packets: &mut Packets, end_ns: u64) -> Result<()> {
        while self.heap.len() > self.room {
            match self.heap.pop() {
                Some(Reverse(piece)) if piece.start_ns < end_ns => self.place(packets, piece)?,
                piece => {
                    self.heap.extend(piece);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes the next piece in time order. The piece extends its thread's open slice, cuts it, or yields to it. Arrows
    /// of a piece that is not shown go to the slice that is shown instead.
    fn place(&mut self, packets: &mut Packets, mut piece: Piece) -> Result<()> {
        self.written_until_ns = piece.start_ns;
        let thread = &mut self.threads[piece.thread];
        let mut flows = Flows::default();
        flows.out.extend((piece.out > 0).then_some(piece.out));
        flows.into.extend((piece.into > 0).then_some(piece.into));
        (piece.into, piece.out) = (0, 0);
        let Some(open) = &mut thread.open else {
            thread.open = Some(Open { piece, flows });
            return Ok(());
        };
        let is_after = open.piece.end_ns <= piece.start_ns;
        if is_after && flows.into.is_empty() && open.piece.goes_on_as(&piece) {
            open.piece.extend(&piece);
            open.flows.out.extend(flows.out);
            return Ok(());
        }
        let rest;
        if is_after || piece.of.is_inside(&open.piece.of) {
            rest = cut(&open.piece, piece.end_ns);
            open.piece.end_ns = open.piece.end_ns.min(piece.start_ns);
            let Some(mut before) = thread.open.replace(Open { piece, flows }) else {
                return Ok(());
            };
            match (before.piece.end_ns > before.piece.start_ns, &mut thread.open) {
                (true, _) => write(packets, thread.track, before)?,
                (false, Some(open)) => {
                    open.flows.out.append(&mut before.flows.out);
                    open.flows.into.append(&mut before.flows.into);
                }
                (false, None) => {}
            }
        } else {
            rest = cut(&piece, open.piece.end_ns);
            if !flows.into.is_empty() && open.piece.start_ns < piece.start_ns {
                let begin = Piece { start_ns: piece.start_ns, ..open.piece.clone() };
                let mut before = std::mem::replace(open, Open { piece: begin, flows });
                before.piece.end_ns = piece.start_ns;
                write(packets, thread.track, before)?;
            } else {
                open.flows.out.extend(flows.out);
                open.flows.into.extend(flows.into);
            }
        }
        self.heap.extend(rest.map(Reverse));
        Ok(())
    }
}

/// The part of a piece after `from_ns`, without its arrows.
fn cut(piece: &Piece, from_ns: u64) -> Option<Piece> {
    let rest = Piece { start_ns: from_ns.max(piece.start_ns), into: 0, out: 0, ..piece.clone() };
    (rest.start_ns < rest.end_ns).then_some(rest)
}

fn write(packets: &mut Packets, track: Track, open: Open) -> Result<()> {
    let Open { piece, flows } = open;
    let mut notes = Notes::default();
    notes.number("request_id", piece.of.request_id);
    if piece.shared > 1 {
        notes.number("shared", u64::from(piece.shared));
    }
    if piece.added_up {
        notes.flag("pieces_added_up", true);
    }
    let name = format!("{}{}", piece.of.name, marks(piece.modelled, piece.sampled));
    packets.begin(piece.start_ns, track, &name, "request", notes, flows)?;
    packets.end(piece.end_ns, track)
}
