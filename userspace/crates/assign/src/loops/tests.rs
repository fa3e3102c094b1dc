use std::collections::BTreeMap;

use crate::{Assigned, Family, Made, Served, Step, Turn, TURNS};

const MS: u64 = 1_000_000;
const FIRST_CHILD: u64 = 1_000_000;

#[derive(Clone, Copy)]
enum What {
    Receives,
    Asks,
    Hears,
    Answers,
}

/// What a loop does in a turn: the turn and place of its cause, the action, and the request.
type Todo = ((u64, usize), What, usize);

/// A loop with turns of very different lengths that serves `in_hand` connections. It asks for each request two turns
/// after it was read, or two turns after a timer of 3 ms, and answers three turns after the answer was read; if it is
/// not `steady`, these take any number of turns. Returns what it served and made, in order; the child of request `n` is
/// `FIRST_CHILD + n`.
fn looped(count: usize, in_hand: usize, steady: bool) -> (Vec<Served>, Vec<Made>) {
    let mut random = fastrand::Rng::with_seed(5);
    let mut begins_ns = vec![MS; TURNS];
    while begins_ns.len() < 200 * count {
        begins_ns.push(begins_ns.last().unwrap() + random.u64(20_000..400_000));
    }
    let (mut served, mut made) = (vec![Served::NONE; count], vec![Made::NONE; count]);
    let mut todo: BTreeMap<u64, Vec<Todo>> = BTreeMap::new();
    for request in 0..in_hand {
        let at = 10 + random.u64(0..20);
        todo.entry(at).or_default().push(((at, request), What::Receives, request));
    }
    let mut next = in_hand;
    while let Some((turn, mut now)) = todo.pop_first() {
        // What was taken in earlier goes first, then what is ready is read.
        now.sort_by_key(|(cause, what, _)| (matches!(what, What::Receives | What::Hears), *cause));
        for (place, (_, what, request)) in now.into_iter().enumerate() {
            let at = turn as usize;
            let ns = begins_ns[at] + 1_000 * (place as u64 + 1);
            let begun_ns = std::array::from_fn(|back| begins_ns[at - back]);
            let step = Step { ns, turn: Some(Turn { thread: 7, number: turn, begun_ns }) };
            let mut later = |lag: u64| if steady { lag } else { random.u64(1..60) };
            let cause = (turn, place);
            let (then, cause, what, request) = match what {
                What::Receives => {
                    served[request].id = request as u64;
                    served[request].received = step;
                    let timer = begins_ns.partition_point(|begin| *begin < ns + 3 * MS) as u64;
                    match request % 2 {
                        0 => (turn + later(2), cause, What::Asks, request),
                        _ => (timer + later(2), (timer, usize::MAX), What::Asks, request),
                    }
                }
                What::Asks => {
                    made[request].id = FIRST_CHILD + request as u64;
                    made[request].asked = step;
                    (turn + random.u64(5..60), cause, What::Hears, request)
                }
                What::Hears => {
                    made[request].heard = step;
                    (turn + later(3), cause, What::Answers, request)
                }
                What::Answers => {
                    served[request].answered = step;
                    if next == count {
                        continue;
                    }
                    next += 1;
                    (turn + random.u64(2..6), cause, What::Receives, next - 1)
                }
            };
            todo.entry(then).or_default().push((cause, what, request));
        }
    }
    (served, made)
}

impl Served {
    const NONE: Served = Served { id: 0, received: Step::NONE, answered: Step::NONE };
}

impl Made {
    const NONE: Made =
        Made { id: 0, whom: 1, asked: Step::NONE, heard: Step::NONE, parent: None, guessed: false };
}

impl Step {
    const NONE: Step = Step { ns: 0, turn: None };
}

fn assign(served: Vec<Served>, made: Vec<Made>) -> Vec<Assigned> {
    let mut family = Family::default();
    served.into_iter().for_each(|served| family.serves(served));
    made.into_iter().for_each(|made| family.makes(made));
    family.finish()
}

fn right(assigned: &[Assigned]) -> usize {
    assigned.iter().filter(|one| one.child == FIRST_CHILD + one.parent).count()
}

/// Nothing is known of any parent, or of what the loop does.
#[test]
fn the_order_of_a_loop_tells_without_known_parents() {
    let (served, made) = looped(400, 12, true);
    let assigned = assign(served, made);
    assert!(assigned.len() >= 340, "{} of 400", assigned.len());
    let right = right(&assigned);
    assert!(right * 100 >= assigned.len() * 97, "{right} of {}", assigned.len());
}

/// The control: without an order, no parent is inferred.
#[test]
fn a_loop_without_an_order_tells_nothing() {
    let (served, made) = looped(400, 12, false);
    assert_eq!(assign(served, made), []);
}

#[test]
fn an_order_that_contradicts_known_parents_tells_nothing() {
    let (served, mut made) = looped(400, 12, true);
    for at in (0..made.len()).step_by(4) {
        let asked = made[at];
        let others = served.iter().filter(|served| {
            served.received.ns < asked.asked.ns && served.answered.ns > asked.heard.ns
        });
        made[at].parent = others.map(|served| served.id).find(|id| id + FIRST_CHILD != asked.id);
    }
    assert_eq!(assign(served, made), []);
}

/// Guessed parents are inferred again; firm parents are not.
#[test]
fn guesses_are_told_again() {
    let (served, mut made) = looped(400, 12, true);
    for (at, made) in made.iter_mut().enumerate() {
        made.parent = Some(at as u64);
        made.guessed = at % 2 == 0;
        if at % 20 == 0 {
            made.parent = Some((at as u64 + 1) % 400);
        }
    }
    let assigned = assign(served, made);
    assert!(assigned.iter().all(|one| one.child % 2 == 0));
    assert!(assigned.len() >= 170, "{} of 200", assigned.len());
    let right = right(&assigned);
    assert!(right * 100 >= assigned.len() * 97, "{right} of {}", assigned.len());
}

/// With one request at a time there is nothing to infer, and no answers that could be mixed up.
#[test]
fn without_a_control_and_known_parents_nothing_is_told() {
    let (served, made) = looped(60, 1, true);
    assert_eq!(assign(served, made), []);
}
