//! Infers the parents of requests without other evidence, from all requests of a server together.
//!
//! A server with several requests in progress asks others for their sake. If it goes on after a timer, or in another
//! thread, nothing at that moment shows for which request. But a server repeats the same steps: each child gets the
//! parent with which the steps of all requests of the server are likeliest. The idea is that of TraceWeaver (Ashok et
//! al., SIGCOMM 2024). If one thread makes all steps, an event loop, it works in an order, which is the best evidence
//! ([`loops`]). A loop that passes all requests on keeps their order, however many are in progress ([`passing`]).
//! Elsewhere the times between the steps repeat ([`times`]).

mod chain;
mod density;
mod loops;
mod passing;
mod times;

use rustc_hash::FxHashMap;

/// Number of requests that are examined together: more need more memory, and the server may have changed.
const AT_ONCE: usize = 1 << 14;
/// Limit of the served requests that are kept for children that are not found yet. A server that seldom asks others
/// reaches it.
const MOST_SERVED: usize = 8 * AT_ONCE;
/// A request with more children than this gets no more.
const MOST_CHILDREN: usize = 64;
/// How known parents are checked. Of the children with a known parent and several candidates, there have to be at least
/// this many, and at least this part of them has to get the known parent by inference alone. Otherwise no other child
/// is given a parent. In `experiments/trees` the part is 89 to 99 %.
const CHECKED: usize = 20;
const AGREED_PART: f64 = 0.8;
/// Limit of the children of a server that are examined by the order of its loop. This takes 0.3 ms for each child if 60
/// children are asked during a request; the times take 9 us.
const MOST_ORDERED: usize = 8192;
/// Number of turns of a loop whose begins are kept with a step.
pub const TURNS: usize = 5;

/// When a step of a request was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    /// The turn of a loop in which it was made, if the thread has a loop.
    pub turn: Option<Turn>,
}

impl Step {
    fn without_turn(self) -> Step {
        Step { turn: None, ..self }
    }
}

/// A turn of an event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Names the thread: any number, the same for the same thread.
    pub thread: u32,
    /// How often the thread had polled for what is ready.
    pub number: u64,
    /// When that poll returned, the poll before it, and so on; 0 where that is not known.
    pub begun_ns: [u64; TURNS],
}

/// A request that the server has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    pub id: u64,
    /// When it had been read, and when its answer was written.
    pub received: Step,
    pub answered: Step,
}

impl Served {
    fn without_turns(self) -> Served {
        let [received, answered] = [self.received, self.answered].map(Step::without_turn);
        Served { received, answered, ..self }
    }
}

/// A request that the server has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub id: u64,
    /// Names the server that it asks: any number, the same for the same server.
    pub whom: u64,
    /// When it began to be written, and when its answer had been read.
    pub asked: Step,
    pub heard: Step,
    /// The request for which it was made, if that is known.
    pub parent: Option<u64>,
    /// Whether `parent` is only guessed.
    pub guessed: bool,
}

impl Made {
    fn without_turns(self) -> Made {
        let [asked, heard] = [self.asked, self.heard].map(Step::without_turn);
        Made { asked, heard, ..self }
    }

    fn is_firm(&self) -> bool {
        self.parent.is_some() && !self.guessed
    }
}

/// The parent of a request, inferred from the steps of all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    pub child: u64,
    pub parent: u64,
}

/// What a server has served and made, in the order in which it is found. Of older requests only the inferred parents
/// are kept. This takes 152 bytes for each of the last served requests, 184 for each of the last made, and 16 for each
/// parent.
#[derive(Debug, Default)]
pub struct Family {
    served: Vec<Served>,
    made: Vec<Made>,
    assigned: Vec<Assigned>,
    threads: Threads,
    /// Number of children that were examined by the order of its loop.
    ordered: usize,
}

/// Which threads make a server's steps. If one thread makes all, it is a loop, and its turns show more than the time.
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

    /// A request that it has made was found. The served requests that may be its parents are found later.
    pub fn makes(&mut self, made: Made) {
        self.threads.note([made.asked, made.heard]);
        self.made.push(made);
        if self.made.len() >= 2 * AT_ONCE {
            self.settle();
        }
    }

    /// The inferred parents of the requests whose parents are not known.
    pub fn finish(mut self) -> Vec<Assigned> {
        while !self.made.is_empty() {
            self.settle();
        }
        self.assigned
    }

    /// Examines the requests that were made first, and forgets them.
    fn settle(&mut self) {
        self.served.sort_unstable_by_key(|served| (served.received.ns, served.id));
        self.made.sort_unstable_by_key(|made| (made.asked.ns, made.id));
        let at_once = match self.ordered < MOST_ORDERED {
            true => MOST_ORDERED,
            false => AT_ONCE,
        };
        let rest = self.made.split_off(at_once.min(self.made.len()));
        let mut part = std::mem::replace(&mut self.made, rest);
        let until_ns = part.last().map_or(0, |made| made.asked.ns);
        let begun = self.served.partition_point(|served| served.received.ns <= until_ns);
        let served = &self.served[..begun];
        let by_order = match self.threads {
            Threads::One(_) if self.ordered < MOST_ORDERED => loops::assign(served, &part),
            _ => None,
        };
        self.ordered += part.len();
        let by_order = by_order.unwrap_or_else(|| passing::assign(served, &part));
        adopt(&mut part, &by_order);
        self.assigned.extend(by_order);
        // For children that get no parent from the order, the times may show it.
        self.assigned.extend(match self.threads {
            Threads::Several => {
                let served: Vec<_> = served.iter().copied().map(Served::without_turns).collect();
                part = part.into_iter().map(Made::without_turns).collect();
                times::assign(&served, &part)
            }
            _ => times::assign(served, &part),
        });
        let since_ns = self.made.first().map_or(u64::MAX, |made| made.asked.ns);
        self.served.retain(|served| served.answered.ns >= since_ns);
    }
}

/// Enters the assigned parents as known, but guessed.
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
