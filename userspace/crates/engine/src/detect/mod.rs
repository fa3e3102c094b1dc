//! Detects requests: which messages, or which fork and wait, belong together.
//!
//! There is one [`Detect`] for each kind of evidence, each with its own state: [`exec`] (forks and waits), [`framed`]
//! (connections whose messages are reported), [`single_ended`] and [`half_duplex`] (messages inferred from which
//! process moved bytes when), [`shared_futex`] (turns in shared memory), [`stdio`]. [`Detector`] holds all of them.
//! Their shared state is the [`Book`], which they get with each event.

mod arrival;
// Found requests are large, and are moved several times.
#[allow(clippy::vec_box)]
mod book;
mod causality;
#[allow(clippy::vec_box)] // likewise
mod children;
mod exec;
mod families;
mod found;
mod framed;
mod half_duplex;
mod ids;
mod lifecycle;
mod programs;
mod roles;
mod shared_futex;
mod single_ended;
mod stdio;

use std::rc::Rc;

use crate::event::{Call, Event, GapWhy, Io, Method, Object, Unit, What, TYPE_EVENTFD};
use crate::timeline::retention::Held;
use crate::timeline::{Over, ProcessId, ThreadId, World};
use book::Book;
use exec::Exec;
use framed::Framed;
use half_duplex::HalfDuplex;
use rpcprobe_model::request_filter::Wanted;
use rpcprobe_model::FIRST_RUNTIME_TASK;
use shared_futex::SharedFutex;
use single_ended::SingleEnded;
use stdio::Stdio;

pub use exec::KnownTarget;
pub use families::InferredParents;
pub use found::Found;
pub use ids::is_ahead;

/// What detectors look at in an event, after the world has applied it.
enum Seen<'e> {
    Forked {
        child: ProcessId,
        parent: ThreadId,
        enter_ns: u64,
    },
    Executed {
        process: ProcessId,
    },
    /// Bytes went through a channel. All transfers of a call are shown before the call itself.
    Moved {
        thread: ThreadId,
        process: ProcessId,
        call: &'e Call,
        io: &'e Io,
    },
    Called {
        thread: ThreadId,
        process: ProcessId,
        call: &'e Call,
    },
    Unit(&'e Unit),
    Method(&'e Method),
    /// A call has shown that nothing more will come, or be sent, at an end of a connection that the process has.
    Over {
        process: ProcessId,
        over: &'e Over,
    },
    /// A new connection was established between a channel's ends.
    Reopened {
        channel: Object,
    },
    /// It is no longer known where messages begin on a channel.
    FramingLost {
        channel: Object,
        why: GapWhy,
    },
}

/// Limits how long history is kept for what may become a request.
#[derive(Clone, Copy)]
struct Recent {
    now_ns: u64,
    /// Nothing from before this time is kept for what only may become a request, because so many events have come
    /// since.
    busy_ns: u64,
}

/// Finds requests by one kind of evidence.
trait Detect {
    /// Most events are transfers and calls. [`Detector::moved`] and [`Detector::called`] show these only to the
    /// detectors that use them.
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book);

    /// A process has ended.
    fn exit(&mut self, _world: &World, _process: ProcessId, _at_ns: u64, _book: &mut Book) {}

    /// The earliest time that open requests of this detector may still need; `None`: none are open.
    fn horizon_ns(&self, recent: Recent, book: &Book) -> Option<u64>;

    /// Adds the threads, processes and channels that open requests refer to.
    fn hold(&self, held: &mut Held);

    /// Called from time to time: gives up, or forgets, what is late.
    fn forget(&mut self, _world: &World, _book: &mut Book) {}

    /// Drops what is kept of channels that the world has forgotten.
    fn forget_channels(&mut self, _world: &World) {}

    /// No more events will come: decides everything still open.
    fn finish(&mut self, world: &World, book: &mut Book);
}

/// All detectors, and their shared state.
#[derive(Default)]
pub struct Detector {
    exec: Exec,
    framed: Framed,
    single_ended: SingleEnded,
    half_duplex: HalfDuplex,
    shared_futex: SharedFutex,
    stdio: Stdio,
    book: Book,
}

impl Detector {
    /// The detectors in the order in which they look at an event. [`Framed`] comes before the two detectors that it
    /// takes connections from. [`Stdio`] works only if the others find nothing, so it is last.
    fn table(&mut self) -> ([&mut dyn Detect; 6], &mut Book) {
        let Detector { exec, framed, single_ended, half_duplex, shared_futex, stdio, book } = self;
        ([exec, framed, single_ended, half_duplex, shared_futex, stdio], book)
    }

    fn all(&self) -> [&dyn Detect; 6] {
        [
            &self.exec,
            &self.framed,
            &self.single_ended,
            &self.half_duplex,
            &self.shared_futex,
            &self.stdio,
        ]
    }

    /// Looks for certain requests only.
    pub fn look_for(&mut self, wanted: Wanted) {
        self.book.wanted = wanted;
    }

    /// Sets what is known of the target from starting it, in case the records of its begin are lost.
    pub fn expect_target(&mut self, target: KnownTarget) {
        self.exec.expect_target(target);
    }

    /// Notes that the capture attached, at `attached_ns`, to a target that was already running.
    pub fn attached_at(&mut self, attached_ns: u64) {
        self.book.attached_ns = Some(attached_ns);
    }

    /// Sets the parents that a pass before inferred.
    pub fn know_parents(&mut self, inferred: Rc<InferredParents>) {
        self.book.causality.know_inferred(inferred);
    }

    /// Leaves out requests of the fallback kinds `process` and `stdio`, because there are requests of other kinds.
    pub fn leave_out_fallback(&mut self) {
        self.book.no_fallback = true;
    }

    /// Whether there are requests of other kinds than the fallbacks `process` and `stdio`.
    pub fn has_primary(&self) -> bool {
        self.book.has_primary()
    }

    /// Returns an id for a request. The tables have other ids, without gaps.
    pub fn new_id(&mut self) -> u64 {
        self.book.causality.ids.next()
    }

    /// Whether requests were found and not taken yet, whether the user selected them or not.
    pub fn has_found(&self) -> bool {
        self.book.has_found()
    }

    /// Hands out the found requests that the user selected. From then on their channels are known to carry requests.
    pub fn take_found(&mut self, world: &World) -> Vec<Box<Found>> {
        self.book.take_found(world)
    }

    /// Once all requests are handed out: parents without firm evidence, inferred from the steps of all requests.
    pub fn infer_parents(&mut self) -> InferredParents {
        self.book.infer_parents()
    }

    /// Hands out requests of the fallback kinds, which are used when there are no others.
    pub fn take_fallback(&mut self, world: &World) -> Vec<Box<Found>> {
        self.book.take_fallback(world)
    }

    /// Looks at an event the world has just applied.
    pub fn observe(&mut self, world: &World, event: &Event) {
        match &event.what {
            What::Fork { child_tgid, child, parent, enter_ns, .. } if child == child_tgid => {
                let (Some(child), Some(parent)) =
                    (world.process_of_tgid(*child_tgid), world.thread_by_tid(*parent))
                else {
                    return;
                };
                self.show(world, &Seen::Forked { child, parent, enter_ns: *enter_ns });
            }
            What::Exec(exec) => {
                let Some(thread) = world.thread_by_tid(exec.tid) else { return };
                self.show(world, &Seen::Executed { process: world.thread(thread).process });
            }
            What::Call { tid, call } => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                // The world's copy of the call includes everything that the call moved.
                self.call(world, thread, world.thread(thread).calls.back().unwrap_or(call));
            }
            What::Exit { tid, tgid, .. } if tid == tgid => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                let process = world.thread(thread).process;
                let (detectors, book) = self.table();
                book.causality.services.exit(process, event.ts_ns);
                for detector in detectors {
                    detector.exit(world, process, event.ts_ns, book);
                }
            }
            What::Unit(unit) => self.unit(world, unit),
            What::Method(method) => self.show(world, &Seen::Method(method)),
            What::Channel(named) if named.is_anew => {
                self.show(world, &Seen::Reopened { channel: named.object });
            }
            What::Channel(named) => {
                let channel = world.channels.get(&named.object);
                if channel.is_some_and(|channel| channel.forgotten_ns == Some(event.ts_ns)) {
                    let (channel, why) = (named.object, GapWhy::Forgotten);
                    self.show(world, &Seen::FramingLost { channel, why });
                }
            }
            What::Gap { channel, why } => {
                self.show(world, &Seen::FramingLost { channel: *channel, why: *why });
            }
            What::Waking { waker, .. } | What::WokenAgain { waker, .. }
                if *waker >= FIRST_RUNTIME_TASK =>
            {
                if let Some(task) = world.thread_by_tid(*waker) {
                    self.framed.woke(world, task, &mut self.book);
                }
            }
            _ => {}
        }
        let book = &mut self.book;
        self.framed.settle(world, book);
        self.single_ended.settle(world, book);
        self.half_duplex.settle(world, book);
        if !book.waits() {
            return; // nearly always
        }
        if let What::Call { tid, .. } | What::Switch { prev: tid, .. } = &event.what {
            if let Some(thread) = world.thread_by_tid(*tid) {
                book.thread_did(world, thread);
            }
        }
        book.sweep(world, false);
    }

    /// Shows all detectors an event of a rare kind.
    fn show(&mut self, world: &World, seen: &Seen) {
        let (detectors, book) = self.table();
        for detector in detectors {
            detector.observe(world, seen, book);
        }
    }

    fn call(&mut self, world: &World, thread: ThreadId, call: &Call) {
        let process = world.thread(thread).process;
        for io in call.transfers().filter(|io| io.object.type_bits != TYPE_EVENTFD) {
            self.moved(world, io.object, &Seen::Moved { thread, process, call, io });
        }
        self.called(world, &Seen::Called { thread, process, call });
        if let Some(over) = &world.over {
            let (seen, book) = (Seen::Over { process, over }, &mut self.book);
            self.framed.observe(world, &seen, book);
            self.single_ended.observe(world, &seen, book);
        }
    }

    /// Only [`Framed`] sees the transfers of a connection with known framing.
    fn moved(&mut self, world: &World, channel: Object, seen: &Seen) {
        let book = &mut self.book;
        self.framed.observe(world, seen, book);
        if self.framed.takes(channel) {
            return;
        }
        self.single_ended.observe(world, seen, book);
        self.half_duplex.observe(world, seen, book);
    }

    fn called(&mut self, world: &World, seen: &Seen) {
        let book = &mut self.book;
        self.exec.observe(world, seen, book);
        self.half_duplex.observe(world, seen, book);
        self.shared_futex.observe(world, seen, book);
        self.stdio.observe(world, seen, book);
    }

    /// Shows a frame or message. With the first one on a connection, [`Framed`] takes the connection over from the
    /// other detectors.
    fn unit(&mut self, world: &World, unit: &Unit) {
        let before = self.framed.takes(unit.channel);
        self.show(world, &Seen::Unit(unit));
        if !before && self.framed.takes(unit.channel) {
            let channels = [unit.channel, unit.reverse];
            self.book.roles.leave(channels);
            self.single_ended.leave(channels);
            self.half_duplex.leave(channels);
        }
    }

    /// The earliest time that an open request may still need. For what may become a request, nothing from before
    /// `busy_ns` is kept, because so many events have come since.
    pub fn horizon_ns(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let recent = Recent { now_ns, busy_ns };
        let detectors = self.all().into_iter();
        let open = detectors.filter_map(|detector| detector.horizon_ns(recent, &self.book));
        open.chain(self.book.since_ns()).min().unwrap_or(u64::MAX)
    }

    /// Forgets what no request since `horizon_ns` can refer to; `channels_gone`: the world has forgotten channels.
    pub fn forget(&mut self, world: &World, horizon_ns: u64, channels_gone: bool) {
        let (detectors, book) = self.table();
        for detector in detectors {
            detector.forget(world, book);
            if channels_gone {
                detector.forget_channels(world);
            }
        }
        book.forget(horizon_ns);
        if channels_gone {
            book.forget_channels(world);
        }
    }

    /// Adds the threads, processes and channels that open requests refer to.
    pub fn hold(&self, held: &mut Held) {
        for detector in self.all() {
            detector.hold(held);
        }
        self.book.hold(held);
    }

    /// No more events will come: decides everything still open. Work that several requests could claim goes to the
    /// request that is found first. So detectors whose requests are settled by events come before detectors whose
    /// requests are settled by timeouts.
    pub fn finish(&mut self, world: &World) {
        let Detector { exec, framed, single_ended, half_duplex, shared_futex, stdio, book } = self;
        let in_order: [&mut dyn Detect; 6] =
            [single_ended, framed, shared_futex, half_duplex, exec, stdio];
        for detector in in_order {
            detector.finish(world, book);
        }
        book.sweep(world, true);
    }
}
