//! The task to which an answer is handed back: where threads do not ask and answer themselves, what that task gives out
//! next shows for which question a request was asked.

use crate::detect::causality::{askers, rivals, Asking, Heard};
use crate::ownership::adjacent::{given_next, Given};
use crate::ownership::handed::{handed_back, handed_through, is_task, rested_for_work};
use crate::timeline::gallop::count_before;
use crate::timeline::{ThreadId, World};

/// An answer that was handed back.
pub(super) struct Back {
    /// The task that was given the answer, followed by the tasks that had handed it the work; each with the time when
    /// it asked or handed on.
    pub(super) to: Vec<(ThreadId, u64)>,
    woken_ns: u64,
    pub(super) by: By,
}

/// How the task that was given an answer is connected with the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// It had asked itself, or had handed on what was asked.
    HandOver,
    /// The same, but it is one of several tasks that may have done so.
    Rival,
    /// No connection is known.
    Nothing,
}

/// The task to which an answer was handed back: the task that asked, or a task that handed it the work, or may have
/// handed it the work; otherwise another task that serves requests.
pub(super) fn back(world: &World, asking: &Asking, heard: &Heard) -> Option<Back> {
    let asker = (asking.thread, asking.asked_ns);
    if !is_task(world, asking.thread) && !works_for_others(world, asking, heard) {
        return None;
    }
    let rivals = rivals(world, asker);
    let by = if rivals.is_empty() { By::HandOver } else { By::Rival };
    let firsts = if rivals.is_empty() { vec![asker] } else { rivals };
    let chain = |first: (ThreadId, u64)| -> Vec<(ThreadId, u64)> {
        let mut chain = vec![first];
        match by {
            By::HandOver => chain.extend(askers(world, first.0, first.1)),
            // It asks for its own questions, whichever task woke it.
            _ if world.thread(first.0).marks.takes_questions() => {}
            _ => chain.extend(handed_through(world, first.0, (0, first.1))),
        }
        chain
    };
    let chains: Vec<_> = firsts.into_iter().map(chain).collect();
    let given = || handed_back(world, (heard.thread, heard.exit_ns));
    let known = given().find_map(|(id, woken_ns)| {
        let to = chains.iter().find_map(|chain| {
            let place =
                chain.iter().position(|(by, asked_ns)| *by == id && *asked_ns < woken_ns)?;
            Some(chain[place..].to_vec())
        })?;
        Some(Back { to, woken_ns, by })
    });
    known.or_else(|| {
        let (id, woken_ns) = given().next().filter(|(id, _)| world.thread(*id).marks.serves())?;
        Some(Back { to: vec![(id, woken_ns)], woken_ns, by: By::Nothing })
    })
}

/// Whether a thread asked for work that others had handed it, and heard one answer alone. Such a thread takes in no
/// questions, and a thread with a question has ended its last rest before it asked. A thread that answers questions
/// itself asks for what it has taken in.
fn works_for_others(world: &World, asking: &Asking, heard: &Heard) -> bool {
    let marks = &world.thread(heard.thread).marks;
    let last = count_before(&marks.list, |mark| mark.exit_ns < heard.exit_ns);
    let mut at_once = marks.list.range(last..).take_while(|mark| mark.exit_ns == heard.exit_ns);
    let alone = at_once.next().is_some_and(|mark| world.messages_of(mark) <= 1);
    let alone = alone && at_once.next().is_none();
    let rest = rested_for_work(world, asking.thread, (0, asking.asked_ns)).flatten();
    let told = rest.and_then(|rest| rest.wake).filter(|told| told.by_waker());
    heard.thread == asking.thread
        && !marks.serves()
        && alone
        && told.is_some_and(|told| world.works_for(told.waker, told.at_ns).is_some())
}

impl Back {
    /// What the first of these tasks that gives out an answer gave out next.
    pub(super) fn given(&self, world: &World) -> Given {
        let given = || self.to.iter().map(|(id, _)| given_next(world, *id, self.woken_ns));
        let is_answer = |given: &Given| matches!(given, Given::Answer { .. });
        let not_yet = || given().find(|given| *given == Given::NotYet);
        given().find(is_answer).or_else(not_yet).unwrap_or(Given::Nothing)
    }
}
