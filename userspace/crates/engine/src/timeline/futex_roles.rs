//! Infers which futexes are locks, where the waits for them do not say so. Threads wait in the same way for a POSIX
//! semaphore that is a lock (as Python's are) and for a semaphore by which other threads hand them work.
//!
//! A lock is released by a thread that held it. So a waker that has itself waited for the same semaphore is taken for
//! its holder, and a thread that only posts is not. Of two holders, the first releases the lock before the second gets
//! it: while a third thread sleeps for the lock all along, only the last holder can wake a waiter. If other threads
//! wake one, the semaphore is no lock: for instance, threads take work from a queue and add to it.
//!
//! Threads that wait for one another on a condition variable look like users of a lock, with one difference:
//! glibc's condition variables have two words, side by side, used in turns (pthread_cond_wait.c,
//! `__g_signals`); a semaphore has one.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{OpenCall, TYPE_FUTEX};
use crate::timeline::{ThreadId, Wake};

/// The distance from `__g_refs` of a condition variable, which who signals it waits for until earlier waiters have left
/// (glibc before 2.41, `__condvar_quiesce_and_switch_g1()`), to its `__g_signals`, which waiters wait for.
const REFS_TO_SIGNALS_BYTES: u64 = 24;
/// The distances from `__g_signals` of the interpreter lock's condition variable to the mutex that follows the variable
/// (CPython, `struct _gil_runtime_state`): before glibc 2.41, and since, where unused words lie between.
const SIGNALS_TO_MUTEX_BYTES: [u64; 2] = [8, 16];

/// Limit of the futexes known of a process: beyond it, all are learned anew.
const MOST_FUTEXES: usize = 4096;
/// Limit of the threads known of a futex, likewise.
const MOST_HOLDERS: usize = 4096;

/// How a futex was used so far.
#[derive(Debug, Default)]
struct Use {
    /// Threads that came back from a wait for the futex, and when each first did.
    had: FxHashMap<ThreadId, u64>,
    /// The thread that came back from a wait last, and when.
    holder: Option<(ThreadId, u64)>,
    /// Wake-ups while a third thread slept: by the thread that came back last; by others.
    by_holder: u32,
    by_others: u32,
}

/// The threads that have waited for a condition for at most CPython's switch interval at a time.
#[derive(Debug, Default)]
struct Asking {
    threads: FxHashSet<ThreadId>,
    /// One of them ended such a wait of another.
    is_interpreters: bool,
}

/// The futexes of a process, by address.
#[derive(Debug, Default)]
pub struct Futexes {
    by_address: FxHashMap<u64, Use>,
    /// By [`condition`].
    asking: FxHashMap<u64, Asking>,
}

/// The address of the futex that a call waits for, if its use has to be inferred.
fn unclear(call: &OpenCall) -> Option<u64> {
    let object = call.object.filter(|object| object.type_bits == TYPE_FUTEX)?;
    call.lock().is_none().then_some(object.ino)
}

/// What a call waits for, if its futex is [`unclear`]. The two words of a condition variable count as one.
pub fn condition(call: &OpenCall) -> Option<u64> {
    unclear(call).map(|address| address & !7)
}

impl Futexes {
    /// Whether another thread has ended a wait for the same condition so far. Then a wait that times out may be for
    /// more than its time.
    pub fn is_woken(&self, call: &OpenCall) -> bool {
        let woken = |address: u64| self.by_address.contains_key(&address);
        condition(call).is_some_and(|first| woken(first) || woken(first | 4))
    }

    /// Whether a call waits for an interpreter's lock: for its condition variable, or for the mutex that guards both.
    pub fn is_interpreters(&self, call: &OpenCall) -> bool {
        let Some(object) = call.object.filter(|object| object.type_bits == TYPE_FUTEX) else {
            return false;
        };
        let is_known =
            |first: &u64| self.asking.get(first).is_some_and(|known| known.is_interpreters);
        let word = object.ino & !7;
        let signals = match call.lock() {
            Some(_) => SIGNALS_TO_MUTEX_BYTES.map(|bytes| word.wrapping_sub(bytes)),
            None => [word, word.wrapping_add(REFS_TO_SIGNALS_BYTES)],
        };
        !self.asking.is_empty() && signals.iter().any(is_known)
    }

    /// A thread came back from `call`, in which it slept until `wake` and would have slept for at most CPython's switch
    /// interval. A thread that holds an interpreter's lock has mostly waited for it. So the condition is such a lock as
    /// soon as a thread that waited this way ends the wait of another one. (A thread that waits this way for work, as a
    /// queue's readers may, is woken by other threads.)
    pub fn note_asked(&mut self, thread: ThreadId, call: &OpenCall, wake: Option<&Wake>) {
        let Some(first) = condition(call) else { return };
        if self.asking.len() >= MOST_FUTEXES && !self.asking.contains_key(&first) {
            self.asking.clear();
        }
        let known = self.asking.entry(first).or_default();
        let waker = wake.filter(|wake| wake.by_waker()).map(|wake| wake.waker);
        known.is_interpreters |= waker.is_some_and(|waker| known.threads.contains(&waker));
        if known.threads.len() < MOST_HOLDERS {
            known.threads.insert(thread);
        }
    }

    /// A thread came back from a sleep in `call` that had begun at `start_ns`.
    pub fn note(
        &mut self,
        thread: ThreadId,
        call: &OpenCall,
        wake: &Wake,
        (start_ns, end_ns): (u64, u64),
    ) {
        let Some(address) = unclear(call).filter(|_| wake.by_waker()) else { return };
        if self.by_address.len() >= MOST_FUTEXES && !self.by_address.contains_key(&address) {
            self.by_address.clear();
        }
        let known = self.by_address.entry(address).or_default();
        if let Some((holder, since_ns)) = known.holder {
            if holder != thread && start_ns <= since_ns && since_ns < wake.at_ns {
                let count = match holder == wake.waker {
                    true => &mut known.by_holder,
                    false => &mut known.by_others,
                };
                *count = count.saturating_add(1);
            }
        }
        known.holder = Some((thread, end_ns));
        if known.had.len() >= MOST_HOLDERS {
            known.had.clear();
        }
        known.had.entry(thread).or_insert(end_ns);
    }

    /// Whether a wake-up from a sleep in `call` released a lock, as far as is known.
    pub fn lets_go(&self, call: &OpenCall, wake: &Wake) -> bool {
        let Some(address) = unclear(call) else { return false };
        let Some(known) = self.by_address.get(&address) else { return false };
        let had_ns = known.had.get(&wake.waker);
        let alone = address.is_multiple_of(8) && !self.by_address.contains_key(&(address ^ 4));
        alone
            && had_ns.is_some_and(|had_ns| *had_ns < wake.at_ns)
            && known.by_others <= known.by_holder / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Object;

    const FUTEX_WAIT_BITSET_PRIVATE: u32 = 9 | 128;

    fn wait(address: u64) -> OpenCall {
        let object = Object { dev: FUTEX_WAIT_BITSET_PRIVATE, ino: address, type_bits: TYPE_FUTEX };
        OpenCall { nr: 202, enter_ns: 0, fd: 0, object: Some(object) }
    }

    fn woken(waker: ThreadId, at_ns: u64) -> Wake {
        Wake { at_ns, waker, flags: 0, block: 0 }
    }

    /// Sleeps in order of their ends: which thread, from when, woken by which thread and when. The thread gets a CPU 5
    /// ns later.
    fn slept(address: u64, sleeps: &[(ThreadId, u64, ThreadId, u64)]) -> Futexes {
        let mut futexes = Futexes::default();
        for &(thread, start_ns, waker, at_ns) in sleeps {
            futexes.note(thread, &wait(address), &woken(waker, at_ns), (start_ns, at_ns + 5));
        }
        futexes
    }

    #[test]
    fn two_threads_that_take_turns_have_a_lock() {
        let futexes = slept(0x10, &[(1, 10, 2, 20), (2, 30, 1, 40), (1, 50, 2, 60)]);
        let lets_go = |waker, at_ns| futexes.lets_go(&wait(0x10), &woken(waker, at_ns));
        // A waker that had not waited before may as well have handed something over.
        assert!(!lets_go(2, 20) && lets_go(1, 40) && lets_go(2, 60) && !lets_go(3, 70));
        assert!(!futexes.lets_go(&wait(0x18), &woken(2, 60)));
    }

    #[test]
    fn who_only_hands_out_has_no_lock() {
        let futexes = slept(0x10, &[(1, 10, 9, 20), (2, 10, 9, 30), (1, 40, 9, 50)]);
        assert!(!futexes.lets_go(&wait(0x10), &woken(9, 50)));
    }

    /// Threads 1, 2 and 3 take work and add to it, while others of them wait.
    #[test]
    fn where_another_wakes_the_third_it_is_no_lock() {
        let sleeps = [(1, 10, 9, 20), (2, 10, 1, 40), (3, 10, 1, 60), (1, 70, 3, 80)];
        let lets_go = |sleeps| slept(0x10, sleeps).lets_go(&wait(0x10), &woken(1, 90));
        // 2 has come back at 45; at 60 it is 1 that wakes 3, which had slept all the while.
        assert!(!lets_go(&sleeps[..]));
        let sleeps = [(1, 10, 9, 20), (2, 10, 1, 40), (3, 10, 2, 60), (1, 70, 3, 80)];
        assert!(lets_go(&sleeps[..]));
    }

    #[test]
    fn who_asked_for_the_interpreters_lock_lets_go_of_it() {
        let mut futexes = Futexes::default();
        futexes.note_asked(1, &wait(0x10), None);
        futexes.note_asked(1, &wait(0x14), Some(&woken(2, 60)));
        // 2 may as well have handed something over.
        assert!(!futexes.is_interpreters(&wait(0x10)));
        futexes.note_asked(2, &wait(0x10), Some(&woken(1, 80)));
        assert!(futexes.is_interpreters(&wait(0x14)) && !futexes.is_interpreters(&wait(0x20)));
    }

    /// The interpreter lock consists of a condition variable, of which two places are waited for, and a mutex.
    #[test]
    fn all_waits_of_the_interpreters_lock_are_known() {
        let mut futexes = Futexes::default();
        futexes.note_asked(1, &wait(0x30), None);
        futexes.note_asked(2, &wait(0x30), Some(&woken(1, 80)));
        let mutex = |address| {
            let object = Object { dev: 128, ino: address, type_bits: TYPE_FUTEX };
            OpenCall { fd: 2, object: Some(object), ..wait(address) }
        };
        assert!(futexes.is_interpreters(&wait(0x18)) && futexes.is_interpreters(&wait(0x1c)));
        assert!(futexes.is_interpreters(&mutex(0x38)) && futexes.is_interpreters(&mutex(0x40)));
        assert!(!futexes.is_interpreters(&mutex(0x30)) && !futexes.is_interpreters(&mutex(0x48)));
    }

    #[test]
    fn condition_variables_have_two_words() {
        let mut futexes = slept(0x10, &[(1, 10, 2, 20), (2, 30, 1, 40)]);
        assert!(futexes.lets_go(&wait(0x10), &woken(1, 40)));
        futexes.note(1, &wait(0x14), &woken(2, 60), (50, 65));
        assert!(!futexes.lets_go(&wait(0x10), &woken(1, 40)));
        assert!(!futexes.lets_go(&wait(0x14), &woken(1, 70)));
    }
}
