//! Parents of requests of which nothing else tells, by all requests of a server together.
//!
//! A server with several requests in its hands asks others for their sake, and where it goes on after a timer, or in another
//! thread, nothing at that moment tells for which. But it does the same again and again: from these each child gets the
//! parent with which the steps of all its requests are likeliest. The idea is that of TraceWeaver (Ashok et al., SIGCOMM 2024).
//! Where one thread makes all steps, an event loop, it works in an order, which tells the most ([`loops`]); elsewhere the times
//! between the steps repeat ([`times`]).

mod chain;
mod density;
mod loops;
mod times;

use rustc_hash::FxHashMap;

/// So many requests are looked at together: more need more memory, and the server may have changed.
const AT_ONCE: usize = 1 << 14;
/// Most requests served that are kept for children that are not found yet: of a server that seldom asks others.
const MOST_SERVED: usize = 8 * AT_ONCE;
/// Most children of a request that gets more.
const MOST_CHILDREN: usize = 64;
/// Children whose parents are known and that have several candidates: so many, and so large a part of them has to be given
/// those parents by the times alone, or none of the others is given one. In `experiments/trees` it is 89 to 99 %.
const CHECKED: usize = 20;
const AGREED_PART: f64 = 0.8;
/// Children of a server that are looked at by the order of its loop, which takes 0.3 ms for each where a request lives
/// through 60 of them; the times, 9 us.
const MOST_ORDERED: usize = 8192;
/// Turns of a loop whose begins are kept with a step.
pub const TURNS: usize = 5;

/// When a step of a request was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// In which turn of a loop, if the thread has one.
    pub turn: Option<Turn>,
}

/// A turn of an event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Any number, the same for the same.
    pub thread: u32,
    /// How often the thread had asked what is ready.
    pub number: u64,
    /// When it had the answer to that, the one before, and so on; 0 where that is not known.
    pub begun_ns: [u64; TURNS],
}

/// A request that the server has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub id: u64,
    /// It had been read, and its answer was written.
    pub received: Step,
    pub answered: Step,
}

/// A request that the server has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub id: u64,
    /// Whom it asks: any number, the same for the same.
    pub whom: u64,
    /// It began to be written, and its answer had been read.
    pub asked: Step,
    pub heard: Step,
    /// The request for which it was made, if that is known.
    pub parent: Option<u64>,
    /// That is only guessed.
    pub guessed: bool,
}

impl Made {
    fn is_firm(&self) -> bool {
        self.parent.is_some() && !self.guessed
    }
}

/// The parent of a request, by the times of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    pub child: u64,
    pub parent: u64,
}

/// What a server has served and made, in the order in which it is found. Of what was long ago only the parents are kept that
/// were told: 96 bytes for each of the last requests, 16 for each parent.
#[derive(Debug, Default)]
pub struct Family {
    served: Vec<Served>,
    made: Vec<Made>,
    assigned: Vec<Assigned>,
    threads: Threads,
    /// So many were looked at by the order of its loop.
    ordered: usize,
}

/// Which threads make a server's steps. Where that is one, it is a loop, and its turns tell more than the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Threads {
    #[default]
    None,
    One(u32),
    Several,
}

impl Threads {
    fn note(&mut self, steps: [Step; 2]) {
        for Turn { thread, .. } in steps.into_iter().filter_map(|step| step.turn) {
            *self = match *self {
                Threads::None => Threads::One(thread),
                Threads::One(one) if one == thread => *self,
                _ => Threads::Several,
            };
        }
    }
}

impl Family {
    /// A request that it has served was found.
    pub fn serves(&mut self, served: Served) {
        self.threads.note([served.received, served.answered]);
        self.served.push(served);
        if self.served.len() >= MOST_SERVED {
            self.settle();
        }
    }

    /// A request that it has made was found. For whom, those tell that it has served, which are found later.
    pub fn makes(&mut self, made: Made) {
        self.threads.note([made.asked, made.heard]);
        self.made.push(made);
        if self.made.len() >= 2 * AT_ONCE {
            self.settle();
        }
    }

    /// The parents of those requests whose parents are not known.
    pub fn finish(mut self) -> Vec<Assigned> {
        while !self.made.is_empty() {
            self.settle();
        }
        self.assigned
    }

    /// Looks at those that were made first, and forgets them.
    fn settle(&mut self) {
        self.served.sort_unstable_by_key(|served| (served.received.ns, served.id));
        self.made.sort_unstable_by_key(|made| (made.asked.ns, made.id));
        let at_once = match self.ordered < MOST_ORDERED {
            true => MOST_ORDERED,
            false => AT_ONCE,
        };
        let rest = self.made.split_off(at_once.min(self.made.len()));
        let mut part = std::mem::replace(&mut self.made, rest);
        if self.threads == Threads::Several {
            let served = self.served.iter_mut();
            let steps = served.flat_map(|of| [&mut of.received, &mut of.answered]);
            let made = part.iter_mut().flat_map(|of| [&mut of.asked, &mut of.heard]);
            steps.chain(made).for_each(|step| step.turn = None);
        }
        let until_ns = part.last().map_or(0, |made| made.asked.ns);
        let begun = self.served.partition_point(|served| served.received.ns <= until_ns);
        let served = &self.served[..begun];
        let by_order = match self.threads {
            Threads::One(_) if self.ordered < MOST_ORDERED => loops::assign(served, &part),
            _ => None,
        };
        self.ordered += part.len();
        if let Some(by_order) = by_order {
            adopt(&mut part, &by_order);
            self.assigned.extend(by_order);
        }
        // Of those of which the order does not tell, the times may.
        self.assigned.extend(times::assign(served, &part));
        let since_ns = self.made.first().map_or(u64::MAX, |made| made.asked.ns);
        self.served.retain(|served| served.answered.ns >= since_ns);
    }
}

/// Takes what is assigned for known, as a guess.
fn adopt(made: &mut [Made], assigned: &[Assigned]) {
    let parents: FxHashMap<u64, u64> =
        assigned.iter().map(|told| (told.child, told.parent)).collect();
    for child in made {
        if let Some(parent) = parents.get(&child.id) {
            (child.parent, child.guessed) = (Some(*parent), true);
        }
    }
}

#[cfg(test)]
mod tests;
