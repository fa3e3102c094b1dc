//! The texts of a walk's segments. Most texts repeat within a request, and a repeated text is not made again.

use crate::object::push_number;
use crate::walk::*;

/// Number of names kept at hand, of each sort.
const AT_HAND: usize = 8;

/// Number of names of calls that are kept from request to request.
const MADE: usize = 64;

/// The key of a system call's name: its number, its object, and the directly hooked function that it was in.
type CallKey = (u16, Option<Object>, Option<Transport>);

/// If a walk has more texts than this, their memory is not kept for the next walk.
const MOST_KEPT: usize = 256;

/// The texts of a request's segments, and what some of them stand for.
pub(super) struct Names {
    pub(super) texts: Texts,
    /// Names of system calls on objects.
    calls: AtHand<CallKey>,
    /// Texts of the names of calls that were made last, in whichever request.
    made: Vec<Option<(CallKey, String)>>,
    /// Texts that are the same for all requests.
    fixed: AtHand<&'static str>,
    /// Names of threads, by the address of the name itself: alone, and with the threads' numbers.
    own: AtHand<*const u8>,
    threads: AtHand<(ThreadId, *const u8)>,
}

/// The things that were named last in a walk.
struct AtHand<K> {
    known: Vec<(K, TextId)>,
    next: usize,
}

impl<K: PartialEq> AtHand<K> {
    fn new() -> AtHand<K> {
        AtHand { known: Vec::with_capacity(AT_HAND), next: 0 }
    }

    fn get(&self, key: &K) -> Option<TextId> {
        self.known.iter().find(|(known, _)| known == key).map(|(_, id)| *id)
    }

    fn put(&mut self, key: K, id: TextId) {
        if self.known.len() < AT_HAND {
            self.known.push((key, id));
        } else {
            self.known[self.next] = (key, id);
            self.next = (self.next + 1) % AT_HAND;
        }
    }
}

impl Names {
    pub(super) fn new() -> Names {
        let (calls, fixed) = (AtHand::new(), AtHand::new());
        let (own, threads) = (AtHand::new(), AtHand::new());
        let made = vec![None; MADE];
        Names { texts: Texts::new(), calls, made, fixed, own, threads }
    }

    /// To be called when a walk begins.
    pub(super) fn begin(&mut self) {
        if self.texts.len() > MOST_KEPT {
            self.texts = Texts::new();
        }
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.calls.known.clear();
        self.fixed.known.clear();
        self.own.known.clear();
        self.threads.known.clear();
    }

    /// A text that is the same for all requests.
    pub(super) fn fixed(&mut self, text: &'static str) -> TextId {
        if let Some(known) = self.fixed.get(&text) {
            return known;
        }
        let id = self.texts.add(text);
        self.fixed.put(text, id);
        id
    }

    /// Describes what a thread on a CPU did; in a call, also in which directly hooked function.
    pub(super) fn describe(
        &mut self,
        level: &Level<'_>,
        within: Option<Transport>,
    ) -> Option<TextId> {
        let key = match level {
            Level::User => return None,
            Level::Call(call) if call.path.is_none() => {
                (call.nr, call.io.map(|io| io.object), within)
            }
            _ => {
                let (_, detail) = classify::on_cpu::describe(level);
                let within = within.filter(|_| matches!(level, Level::Call(_)));
                return detail.map(|mut detail| {
                    push_within(&mut detail, within);
                    self.texts.add(&detail)
                });
            }
        };
        if let Some(known) = self.calls.get(&key) {
            return Some(known);
        }
        let (nr, object, within) = key;
        let place = object.map_or(0, |object| object.ino as usize).wrapping_add(nr.into()) % MADE;
        let made = &mut self.made[place];
        if made.as_ref().is_none_or(|(known, _)| *known != key) {
            let mut text = String::with_capacity(48);
            classify::on_cpu::name_into(&mut text, nr, object.as_ref(), None);
            push_within(&mut text, within);
            *made = Some((key, text));
        }
        let id = self.texts.add(made.as_ref().map_or("", |(_, text)| text));
        self.calls.put(key, id);
        Some(id)
    }

    /// A thread's own name; [`Names::with_number`] adds its number, as `by` names a thread: `comm/tid`.
    pub(super) fn of_thread(&mut self, thread: &Thread, at_ns: u64) -> TextId {
        let name = thread.name_at(at_ns);
        if let Some(known) = self.own.get(&name.as_ptr()) {
            return known;
        }
        let text = self.texts.add(name);
        self.own.put(name.as_ptr(), text);
        text
    }

    pub(super) fn with_number(&mut self, id: ThreadId, thread: &Thread, at_ns: u64) -> TextId {
        let name = thread.name_at(at_ns);
        let key = (id, name.as_ptr());
        if let Some(known) = self.threads.get(&key) {
            return known;
        }
        let text = self.texts.add_with(|to| push_thread(to, id, name, thread.tid));
        self.threads.put(key, text);
        text
    }
}

fn push_within(to: &mut String, within: Option<Transport>) {
    if let Some(within) = within {
        to.push_str(", in ");
        to.push_str(within.name());
    }
}

/// Adds a thread as `by` names it.
pub(super) fn push_thread(to: &mut String, id: ThreadId, name: &str, tid: u32) {
    to.push_str(name);
    if id != IDLE {
        to.push('/');
        push_number(to, tid.into());
    }
}
