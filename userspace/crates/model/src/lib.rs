//! The engine's output: requests, and the segments that tile them.
//!
//! The names in this crate are the stable ones of files and reports; see `docs/design.md`.

use serde::{Deserialize, Serialize};

pub use texts::{TextId, Texts};

#[macro_use]
mod names;
mod by;
pub mod laws;
mod reason;
pub mod request_filter;
pub mod texts;
pub mod worded;

pub use by::By;
pub use names::{Category, Certainty, Evidence, HeldBy, Kind, Rule, Side};
pub use reason::{GapWhy, Reason, Who};

/// Runtime tasks that are followed are reported as threads, with numbers from this one on. Real threads have numbers
/// below 2^22 (PID_MAX_LIMIT, include/linux/threads.h).
pub const FIRST_RUNTIME_TASK: u32 = 1 << 31;

/// A piece of a request's latency: `[start_ns, start_ns + duration_ns)`. Its texts are strings or, in the engine and on
/// the way into the files, numbers in [`Texts`]. In the second case `by` is the number of the text that files contain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Segment<T = String, B = By> {
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Never 0.
    pub duration_ns: u64,
    pub category: Category,
    pub side: Side,
    pub pid: u32,
    pub tid: u32,
    pub comm: T,
    /// The CPU on which the thread ran or, for a wait, ran next; `None` if unknown.
    pub cpu: Option<u32>,
    /// Phase of a process's life (`exec`, `dynamic linking`, `program`, ...), if known.
    pub phase: Option<&'static str>,
    /// The system call and its object, the fault, the interrupt, or the reason why the time is unattributed.
    pub detail: Option<T>,
    /// For waits: what the awaited thread or device did in the meantime.
    pub cause: Option<T>,
    /// For waits: the thread that had the CPU, the lock, or the answer.
    pub by: Option<B>,
    pub evidence: Evidence,
    /// `None` in captures that are older than the names of rules.
    pub rule: Option<Rule>,
    /// Number of requests that share this work, as far as known; 1 if the work is the request's alone.
    pub shared: u32,
    /// The thread's stack, if stacks were taken.
    #[serde(skip)]
    pub stack: Option<StackUse>,
}

/// A stack shown with a segment. It is detail only: no duration and no category depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackUse {
    /// The stack's number in `stacks.parquet`.
    pub stack_id: u64,
    pub taken: Taken,
}

/// How a stack was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Taken when the thread went to sleep, so it holds for the whole sleep.
    AtSleep,
    /// Taken by sampling: `all` samples fell into the segment, and `same` of them found these functions.
    Sampled { same: u64, all: u64 },
}

/// A mark in `cause`: the segment adds up pieces that were scattered over a stretch of time, or lies among such pieces.
/// Its duration is exact. The positions of the pieces within the stretch are not recorded.
pub const ADDED_UP: &str = "pieces added up";

/// A segment whose texts are numbers in the texts of its request.
pub type Told = Segment<TextId, TextId>;

impl Told {
    /// Returns the segment with its texts as strings.
    pub fn in_words(&self, texts: &Texts) -> Segment {
        let text = |id: TextId| texts.get(id).to_string();
        let Segment { start_ns, duration_ns, category, side, pid, tid, cpu, phase, .. } = *self;
        Segment {
            start_ns,
            duration_ns,
            category,
            side,
            pid,
            tid,
            comm: text(self.comm),
            cpu,
            phase,
            detail: self.detail.map(text),
            cause: self.cause.map(text),
            by: self.by.map(|by| By::from(texts.get(by))),
            evidence: self.evidence,
            rule: self.rule,
            shared: self.shared,
            stack: self.stack,
        }
    }
}

/// The segments of a request, in time order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segments {
    pub list: Vec<Told>,
    pub texts: Texts,
}

impl Segments {
    /// Returns the segments with their texts as strings.
    pub fn in_words(&self) -> Vec<Segment> {
        self.list.iter().map(|segment| segment.in_words(&self.texts)).collect()
    }
}

impl From<&[Segment]> for Segments {
    fn from(segments: &[Segment]) -> Segments {
        let mut texts = Texts::new();
        let told = |segment: &Segment| {
            let mut id = |text: &Option<String>| text.as_ref().map(|text| texts.add(text));
            let (detail, cause) = (id(&segment.detail), id(&segment.cause));
            let by = segment.by.as_ref().map(|by| texts.add(&by.to_string()));
            Told {
                start_ns: segment.start_ns,
                duration_ns: segment.duration_ns,
                category: segment.category,
                side: segment.side,
                pid: segment.pid,
                tid: segment.tid,
                comm: texts.add(&segment.comm),
                cpu: segment.cpu,
                phase: segment.phase,
                detail,
                cause,
                by,
                evidence: segment.evidence,
                rule: segment.rule,
                shared: segment.shared,
                stack: segment.stack,
            }
        };
        let list = segments.iter().map(told).collect();
        Segments { list, texts }
    }
}

impl Segment {
    /// What the awaited thread or device did in the meantime: `cause`, unless `cause` is a mark of pieces that were
    /// added up.
    pub fn waited_because(&self) -> Option<&str> {
        self.cause.as_deref().filter(|cause| !cause.contains(ADDED_UP))
    }
}

impl<T, B> Segment<T, B> {
    /// The first nanosecond after the segment.
    pub fn end_ns(&self) -> u64 {
        self.start_ns + self.duration_ns
    }
}

/// The thread at one end of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
}

/// One request: `[start_ns, start_ns + latency_ns)`, tiled by its segments when complete.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    pub request_id: u64,
    /// The request that this one was made for: this request began while the parent's server served the parent.
    pub parent_request_id: Option<u64>,
    /// Confidence in the parent.
    pub parent_certainty: Option<Certainty>,
    /// The parent was answered before this request was. The time after that is not part of the parent's latency.
    pub detached: bool,
    pub kind: Kind,
    pub certainty: Certainty,
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// A lower bound if the request is incomplete.
    pub latency_ns: u64,
    pub complete: bool,
    /// Why the request is incomplete.
    pub reason: Option<Reason>,
    /// Records lost while the request was under way. A loss touches every request it overlaps, so these numbers must
    /// not be added up over requests.
    pub records_lost: u64,
    pub client: Option<End>,
    pub server: Option<End>,
    pub channel: Option<String>,
    pub stream_id: Option<u64>,
    pub xid: Option<u32>,
    /// How often an `oncrpc` call was sent again with the same XID. For other datagrams: how many came after the first
    /// one, before any answer.
    pub retransmissions: Option<u32>,
    pub method: Option<String>,
    /// For `exec` and `process`: the exit status as wait(2) encodes it. For other kinds: the protocol's own status.
    pub status: Option<i32>,
    pub request_bytes: Option<u64>,
    pub response_bytes: Option<u64>,
    /// For a request answered over TCP of which only the server is traced: how long after its end the answer's last
    /// byte was still in the server's socket because the kernel held it back. The client sees this time in addition to
    /// the latency. 0 if the byte had left by then, `None` if not known. If both ends are traced, this time is part of
    /// the latency.
    pub held_back_ns: Option<u64>,
    /// Why the byte was held back; `None` if it was not, or if that is not known.
    pub held_back_by: Option<HeldBy>,
    /// What the ends moved for the request. `None` if the end is not traced, or if the request is not made of messages.
    pub client_moved: Option<Moved>,
    pub server_moved: Option<Moved>,
}

/// What one end of a request moved for it by system calls, on the request's critical path or beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Bytes written and read.
    pub bytes: u64,
    /// CPU time of those calls, without interrupts and page faults. Measured.
    pub cpu_ns: u64,
    /// The part of `cpu_ns` that copying took. Modelled.
    pub copy_ns: u64,
    /// Samples of those calls, if any were taken; they show how much of `cpu_ns` was copying.
    pub samples: Samples,
}

/// Samples of a thread inside system calls that moved bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Samples {
    pub all: u64,
    /// Samples that found the kernel copying.
    pub copying: u64,
}

impl Request {
    /// Where the request's server listens: an address and port, or the path of a Unix socket. `None` if the channel has
    /// no such name.
    pub fn listens_at(&self) -> Option<&str> {
        let channel = self.channel.as_deref()?;
        match channel.strip_prefix("unix ") {
            Some(path) => Some(path).filter(|path| !path.starts_with("unix:[")),
            None => channel.split_once(" > ").map(|(_, to)| to),
        }
    }

    /// The server that was asked: where it listens, or else the name of the thread that served the request.
    pub fn back_end(&self) -> Option<&str> {
        self.listens_at().or(self.server.as_ref().map(|end| &*end.comm))
    }

    /// A complete request of which nothing else is known.
    pub fn new(kind: Kind, start_ns: u64, end_ns: u64) -> Request {
        Request {
            request_id: 0,
            parent_request_id: None,
            parent_certainty: None,
            detached: false,
            kind,
            certainty: Certainty::Likely,
            start_ns,
            latency_ns: end_ns.saturating_sub(start_ns),
            complete: true,
            reason: None,
            records_lost: 0,
            client: None,
            server: None,
            channel: None,
            stream_id: None,
            xid: None,
            retransmissions: None,
            method: None,
            status: None,
            request_bytes: None,
            response_bytes: None,
            held_back_ns: None,
            held_back_by: None,
            client_moved: None,
            server_moved: None,
        }
    }
}

/// Sums the segments of each category; indexed as [`Category::ALL`].
pub fn category_ns<T, B>(segments: &[Segment<T, B>]) -> [u64; Category::ALL.len()] {
    let mut sums = [0; Category::ALL.len()];
    for segment in segments {
        sums[segment.category as usize] += segment.duration_ns;
    }
    sums
}

/// Checks law 1: the segments tile `[start_ns, start_ns + latency_ns)` in order, without gap or overlap.
///
/// # Errors
/// Says where the first gap, overlap or empty segment is.
pub fn check_conservation<T, B>(
    request: &Request,
    segments: &[Segment<T, B>],
) -> Result<(), String> {
    let mut at_ns = request.start_ns;
    for (seq, segment) in segments.iter().enumerate() {
        if segment.duration_ns == 0 {
            return Err(format!("request {}: segment {seq} is empty", request.request_id));
        }
        if segment.start_ns != at_ns {
            return Err(format!(
                "request {}: segment {seq} starts at {} ns, the one before ends at {at_ns} ns",
                request.request_id, segment.start_ns
            ));
        }
        at_ns = segment.end_ns();
    }
    let end_ns = request.start_ns + request.latency_ns;
    if at_ns != end_ns {
        return Err(format!(
            "request {}: segments end at {at_ns} ns, the request at {end_ns} ns",
            request.request_id
        ));
    }
    Ok(())
}
/// Records lost on one CPU between two instants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loss {
    pub cpu: u32,
    pub count: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl Loss {
    /// The part of this loss that belongs to a capture that began at `start_ns`, if any. `before` holds the losses that
    /// the kernel side had already counted by then but not yet reported.
    pub fn since(self, start_ns: u64, before: &[Loss]) -> Option<Loss> {
        if self.last_ns < start_ns {
            return None;
        }
        // A loss that was being counted at the start has continued: same CPU, same begin.
        let begun = before.iter().find(|b| (b.cpu, b.first_ns) == (self.cpu, self.first_ns));
        // At least one record was lost at `last_ns`, which is after the start.
        let count = self.count.saturating_sub(begun.map_or(0, |begun| begun.count)).max(1);
        Some(Loss { count, first_ns: self.first_ns.max(start_ns), ..self })
    }

    /// The part of this loss that belongs to a capture that ended at `end_ns`, if any. If the loss continued after the
    /// end, it is not known how many of its records were lost before. The count is then an upper bound.
    pub fn until(self, end_ns: u64) -> Option<Loss> {
        let last_ns = self.last_ns.min(end_ns.saturating_sub(1));
        (self.first_ns < end_ns).then_some(Loss { last_ns, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_a_request_asks_is_told_by_its_channel_or_else_by_its_server() {
        let asked = |channel: &str| {
            let end = End { pid: 1, tid: 2, comm: "nginx".into() };
            let request = Request::new(Kind::Http1, 0, 1);
            Request { channel: Some(channel.into()), server: Some(end), ..request }
        };
        let whom = |channel| asked(channel).back_end().map(str::to_owned);
        assert_eq!(whom("tcp 10.0.0.1:999 > [::1]:80").as_deref(), Some("[::1]:80"));
        assert_eq!(whom("unix /run/a > b").as_deref(), Some("/run/a > b"));
        assert_eq!(whom("unix @hidden").as_deref(), Some("@hidden"));
        for channel in ["unix unix:[7]", "unix", "pipe:[7]", ""] {
            assert_eq!(asked(channel).listens_at(), None, "{channel}");
            assert_eq!(whom(channel).as_deref(), Some("nginx"), "{channel}");
        }
    }
}
