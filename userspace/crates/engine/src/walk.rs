//! The backward walk: explains a request from the moment the client has the answer back to the moment it
//! began to ask.
//!
//! Its state is `(thread, time)`. Each step emits what the thread was doing just before that time and moves
//! back, or crosses an edge to the thread that made it wait. Every step lowers the time or uses up an edge,
//! so the walk ends; segments are emitted back to back, so they tile the request. docs/design.md, "The walk",
//! has the steps and rules in order.

mod accept;
mod alike;
mod arrivals;
mod asked;
mod asking;
mod astray;
mod connection;
mod futex_roles;
mod goal;
mod greeting;
mod handed_since;
mod helpers;
mod in_turn;
mod life;
mod made;
mod memory;
mod messages;
mod moves;
mod names;
mod off_cpu;
mod on_cpu;
mod passes;
mod polled;
mod queue;
mod reader;
mod run_queue;
mod segments;
mod state;
mod step;
mod timer;
mod together;
mod turns;
mod wire;
mod workqueue;

use std::cell::Cell;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::classify;
use crate::classify::on_cpu::{InCall, Level};
use crate::classify::syscall::{ends_connection, waits, waits_for_writeback, Waits};
use crate::event::{Call, Io, Object, OpenCall, Transport, TYPE_EVENTFD, TYPE_FIFO};
use crate::ownership::service_start;
use crate::ownership::sums::{stretch_before, Doing};
use crate::timeline::gallop::{count_before, last_before, latest_before, History};
use crate::timeline::{
    Channel, Off, Process, ProcessId, Thread, ThreadId, Transfer, Wake, Why, Work, World, IDLE,
};
pub use alike::alike;
pub use asked::Children;
use asked::Made;
use asking::Entered;
pub use asking::{Asking, Begin};
pub use astray::Astray;
use astray::Trail;
pub use goal::{Goal, Message, NotYet, Settings};
use moves::Moves;
use names::Names;
use rpcprobe_model::{Category, Evidence, Rule, Segments, Side, TextId, Texts, Told};
pub use segments::{Walked, Worker};
pub use state::Buffers;
use state::{Attempts, Output, Raw, Search};
use turns::{Known, Turn};

/// `detail` of a `queue.pipe` segment.
const UNREAD: &str = "bytes ready, not yet read";

/// `detail` of a `queue.app` segment inside a server.
const UNSERVED: &str = "received, not yet served";

/// `detail` of a `queue.app` segment inside a thread that has the request and others.
const OTHERS_TURN: &str = "received, others are served";

/// `cause` of the work of a thread that got the request from another thread at an unseen time.
pub const HANDED_UNSEEN: &str = "handed over in memory, unseen";

/// `phase` of the time between the end of the read and the thread that it was read for.
pub const HAND_OVER: &str = "hand-over";

/// `detail` of what is not explained.
pub const TOO_MANY_STEPS: &str = "too many steps to explain";

/// Limit of nested hand-offs that are followed; beyond it a wait is charged as one wait.
const MAX_DEPTH: usize = 64;

/// Limit of the hand-overs in a row, to threads that were awake, that are followed back to a thread of the request; and
/// of each such thread's calls between what it was handed and what it handed on.
const MOST_HANDED_ON: usize = 8;
const MOST_CALLS_BETWEEN: usize = 8;

/// Limit of the threads of a process that are checked for having run while another thread served other requests.
const MOST_THREADS: usize = 64;

/// Limit of the steps of the first pass, with the lock rules on, through what other threads did, or what was done for
/// other requests. A pass with more steps is taken as one that found no path. With 10 requests in flight on gRPC's
/// threads, 999 in 1,000 of the passes that find a path need 153 at most; with 500 in flight and more, the number grows
/// with them (docs/evidence.md).
const MOST_STEPS_ASTRAY: usize = 256;

/// The same limit for each later pass, where the read is known from which the request may have been handed on in
/// memory. A pass that goes further is taken as one that found no path or, if it goes back to that read, explores no
/// more wake-ups (docs/evidence.md).
const MOST_STEPS_ASTRAY_AGAIN: usize = 4096;

/// Limit of the steps through wakers of a program's life. Beyond it, the program's threads are taken to work for it
/// (docs/evidence.md).
const MOST_STEPS_OF_LIFE: usize = 1 << 19;

/// The walk of one request.
struct Walk<'w> {
    // What it reads.
    world: &'w World,
    goal: &'w Goal,
    settings: Settings,
    /// The server's first read of the request.
    first_read: Option<Transfer>,
    moves: Moves<'w>,
    made: Made<'w>,
    /// Its result.
    output: &'w mut Output,
    /// What it knows on its way back.
    search: &'w mut Search,
    /// What it learnt from paths that led nowhere; and what other walks learnt.
    attempts: Attempts,
    trail: Trail,
    astray: &'w mut Astray,
    asking: Option<&'w Asking>,
    entered: Entered,
    /// The last turn that was determined and holds for some time.
    turn_known: Cell<Option<Known>>,
}

/// Where a step leads.
enum Step {
    /// Same walk, new state.
    Go(ThreadId, u64),
    /// Crossed into a thread that already works for the request, or over one of the request's messages.
    Joined(ThreadId, u64),
    /// The path of the waker being explored belongs to other requests.
    Nowhere,
    /// What was taken for a lock cannot have been one: see [`Walk::strict`].
    NoLock,
}

/// The segments of a request. `asking`: what is known of how other requests were asked, if that may be used; `of`:
/// requests that were made for others, and this request's number; `buffers`: those of the walk before.
///
/// # Errors
/// [`NotYet`]: try again when a record of that thread has come.
pub fn walk(
    world: &World,
    goal: &Goal,
    settings: Settings,
    astray: &mut Astray,
    asking: Option<&Asking>,
    of: (&Children, u64),
    buffers: &mut Buffers,
) -> Result<Walked, NotYet> {
    let mut walk = Walk::new(world, goal, settings, astray, asking, of, buffers);
    walk.run()?;
    let (steps, begin) = (walk.attempts.steps, walk.begin());
    let (segments, workers) = walk.into_segments();
    Ok(Walked { segments, workers, steps, begin })
}

/// Whether two neighbouring segments differ only in time.
pub(super) fn joins(a: &Told, b: &Told) -> bool {
    a.tid == b.tid
        && a.category == b.category
        && a.cpu == b.cpu
        && a.phase == b.phase
        && a.detail == b.detail
        && a.cause == b.cause
        && a.by == b.by
        && a.evidence == b.evidence
        && a.rule == b.rule
        && a.shared == b.shared
}

impl<'w> Walk<'w> {
    fn new(
        world: &'w World,
        goal: &'w Goal,
        settings: Settings,
        astray: &'w mut Astray,
        asking: Option<&'w Asking>,
        (children, id): (&'w Children, u64),
        buffers: &'w mut Buffers,
    ) -> Walk<'w> {
        buffers.begin();
        let Buffers { output, search, calls } = buffers;
        Walk {
            world,
            goal,
            settings,
            first_read: reader::first_read(world, goal),
            moves: Moves::of(world, goal, calls),
            made: Made::of(world, children, id),
            output,
            search,
            attempts: Attempts::default(),
            trail: Trail::default(),
            astray,
            asking,
            entered: Entered::default(),
            turn_known: Cell::new(None),
        }
    }

    /// Whether this rule is in force (not left out by the settings). Asked where the rule decides.
    fn applies(&self, rule: Rule) -> bool {
        self.settings.without != Some(rule)
    }
}

/// Whether a sleep is for what another thread or task does in memory.
fn waits_for_thread(off: &Off) -> bool {
    off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Futex)
}

/// Whether a sleep can be the wait for a message. Such a sleep can be interrupted, unlike the waits for pages that
/// reading the message may cause.
fn waits_for_bytes(off: &Off) -> bool {
    matches!(off.why, Why::Slept { uninterruptible: false, .. })
}

/// The category of the time in which bytes wait in a channel.
fn queue_category(object: Object) -> Category {
    match object.type_bits {
        TYPE_FIFO => Category::QueuePipe,
        TYPE_EVENTFD => Category::QueueApp,
        _ => Category::QueueSocket,
    }
}

/// Whether an instant lies in the call that made the transfer.
fn within(at_ns: u64, transfer: &Transfer) -> bool {
    (transfer.enter_ns..=transfer.exit_ns).contains(&at_ns)
}
