use super::*;

fn step(ns: u64) -> Step {
    Step { ns, turn: None }
}

const MS: u64 = 1_000_000;

/// Adds requests as they are found: in the order of their ends, a child before its parent.
fn assign(served: Vec<Served>, made: Vec<Made>) -> Vec<Assigned> {
    let mut family = Family::default();
    let served = served.into_iter().map(|served| (served.answered.ns, Some(served), None));
    let made = made.into_iter().map(|made| (made.heard.ns, None, Some(made)));
    let mut found: Vec<_> = served.chain(made).collect();
    found.sort_by_key(|(end_ns, _, _)| *end_ns);
    for (_, served, made) in found {
        served.into_iter().for_each(|served| family.serves(served));
        made.into_iter().for_each(|made| family.makes(made));
    }
    family.finish()
}

/// A server that sleeps 3 ms, asks, and answers 1 ms after it has the answer, with `in_hand` requests at any time.
/// Returns the requests that it served, the requests that it made, and their true parents; the parent of every fifth is
/// known.
fn sleeper(count: u64, in_hand: u64) -> (Vec<Served>, Vec<Made>, Vec<u64>) {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut served, mut made, mut truth) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..count {
        let late = |random: &mut fastrand::Rng| random.u64(50_000..150_000);
        let received_ns = id * 6 * MS / in_hand + random.u64(0..6 * MS / in_hand);
        let asked_ns = received_ns + 3 * MS + late(&mut random);
        let heard_ns = asked_ns + random.u64(MS / 2..4 * MS);
        let answered_ns = heard_ns + MS + late(&mut random);
        served.push(Served { id, received: step(received_ns), answered: step(answered_ns) });
        let parent = (id % 5 == 0).then_some(id);
        made.push(Made {
            id: count + id,
            whom: 1,
            asked: step(asked_ns),
            heard: step(heard_ns),
            parent,
            guessed: false,
        });
        truth.push(id);
    }
    (served, made, truth)
}

fn right(assigned: &[Assigned], truth: &[u64]) -> usize {
    let count = truth.len() as u64;
    assigned.iter().filter(|one| truth[(one.child - count) as usize] == one.parent).count()
}

#[test]
fn steps_that_repeat_tell_the_parents() {
    let (served, made, truth) = sleeper(1_000, 4);
    let assigned = assign(served, made);
    assert!(assigned.len() >= 750, "{} of 800", assigned.len());
    let right = right(&assigned, &truth);
    assert!(right * 100 >= assigned.len() * 97, "{right} of {}", assigned.len());
}

/// Known parents are not inferred again, and an inferred parent serves throughout its child.
#[test]
fn a_parent_serves_all_the_while() {
    let (served, made, _) = sleeper(1_000, 4);
    let of = |id: u64| served[id as usize];
    let asked = |id: u64| made[id as usize - 1_000];
    for Assigned { child, parent } in assign(served.clone(), made.clone()) {
        assert_eq!(asked(child).parent, None);
        assert!(of(parent).received.ns <= asked(child).asked.ns);
        assert!(of(parent).answered.ns >= asked(child).heard.ns);
    }
}

/// What is asked at any time, beside requests whose children are all known, gets none of them as parent.
#[test]
fn what_comes_at_any_time_has_no_parent() {
    let (served, mut made, _) = sleeper(1_000, 4);
    made.iter_mut().for_each(|made| made.parent = Some(made.id - 1_000));
    let mut random = fastrand::Rng::with_seed(3);
    made.extend((0..200).map(|at| {
        let asked_ns = random.u64(10 * MS..1_400 * MS);
        Made {
            id: 5_000 + at,
            whom: 1,
            asked: step(asked_ns),
            heard: step(asked_ns + MS / 10),
            parent: None,
            guessed: false,
        }
    }));
    let assigned = assign(served, made);
    assert!(assigned.len() <= 4, "{}", assigned.len());
}

/// Requests that come together, where each child fits each request: whatever parents the others get, one is left.
#[test]
fn children_that_could_change_places_have_no_parent() {
    let (mut served, mut made, _) = sleeper(1_000, 4);
    for child in &mut made {
        child.parent = Some(child.id - 1_000);
    }
    let mut random = fastrand::Rng::with_seed(5);
    for id in 10_000..10_200 {
        let late = |random: &mut fastrand::Rng| random.u64(50_000..150_000);
        let received_ns = 2_000 * MS + (id / 20) * 20 * MS + random.u64(0..20_000);
        let asked_ns = received_ns + 3 * MS + late(&mut random);
        let heard_ns = asked_ns + MS;
        let answered_ns = heard_ns + MS + late(&mut random);
        served.push(Served { id, received: step(received_ns), answered: step(answered_ns) });
        let (id, asked, heard) = (id + 1_000, step(asked_ns), step(heard_ns));
        made.push(Made { id, whom: 1, asked, heard, parent: None, guessed: false });
    }
    let assigned = assign(served, made);
    assert_eq!(assigned, []);
}

/// Nothing shows that the times are evidence.
#[test]
fn without_known_parents_nothing_is_told() {
    let (served, mut made, _) = sleeper(1_000, 4);
    made.iter_mut().for_each(|made| made.parent = None);
    assert_eq!(assign(served, made), []);
}

/// Known parents that contradict the times.
#[test]
fn times_that_contradict_known_parents_tell_nothing() {
    let (served, mut made, _) = sleeper(1_000, 8);
    for made in made.iter_mut().filter(|made| made.parent.is_some()) {
        let others = served.iter().filter(|served| {
            served.received.ns <= made.asked.ns && served.answered.ns >= made.heard.ns
        });
        made.parent = others.map(|served| served.id).max();
    }
    assert_eq!(assign(served, made), []);
}

/// A thousand requests in progress, and a request with a thousand children.
#[test]
fn crowds_are_left_out() {
    let span = |id| Served { id, received: step(0), answered: step(1_000 * MS) };
    let child = |at: u64, parent| Made {
        id: 5_000 + at,
        whom: 1,
        asked: step(at * MS / 2),
        heard: step(at * MS / 2 + 100),
        parent,
        guessed: false,
    };
    let crowd = (0..1_000).map(span).collect();
    assert_eq!(assign(crowd, (0..1_000).map(|at| child(at, None)).collect()), []);
    let two = vec![span(0), span(1)];
    let made = (0..1_000).map(|at| child(at, (at % 2 == 0).then_some(0))).collect();
    assert!(assign(two, made).iter().all(|assigned| assigned.parent == 1));
}

/// Requests are examined part by part. Requests at the edges of a part get parents as well.
#[test]
fn long_captures_are_told_part_by_part() {
    let count = 7 * AT_ONCE as u64 / 2;
    let (served, made, truth) = sleeper(count, 4);
    let assigned = assign(served, made);
    assert!(assigned.len() as u64 * 100 >= count * 75, "{} of {count}", assigned.len());
    let right = right(&assigned, &truth);
    assert!(right * 100 >= assigned.len() * 97, "{right} of {}", assigned.len());
}

/// Not all requests are kept of a server that has served many and seldom asks others.
#[test]
fn what_was_served_long_ago_is_forgotten() {
    let mut family = Family::default();
    for id in 0..3 * MOST_SERVED as u64 {
        family.serves(Served { id, received: step(id * MS), answered: step(id * MS + MS / 2) });
        assert!(family.served.len() <= MOST_SERVED);
    }
}

/// From this on, numbers are those of children.
const CHILD: u64 = 1 << 32;

/// A loop through which requests pass, `in_hand` at a time. In each turn it reads the questions and answers that have
/// come, asks for the sake of the questions in the order that `reorder` gives them, and passes the answers on. It
/// answers every `own`th request itself, and asks for its own sake as often. The request of child `id` is `id - CHILD`.
fn proxy(
    count: usize,
    (in_hand, own): (u64, u64),
    reorder: impl Fn(&mut Vec<u64>),
) -> (Vec<Served>, Vec<Made>) {
    let mut random = fastrand::Rng::with_seed(9);
    let (mut served, mut made) = (Vec::new(), Vec::new());
    let mut questions: Vec<(u64, u64)> = (0..in_hand).map(|id| (random.u64(0..MS), id)).collect();
    let mut answers: Vec<(u64, u64)> = Vec::new();
    let (mut received, mut asked) = (FxHashMap::default(), FxHashMap::default());
    let (mut now_ns, mut number, mut next) = (0, 0, in_hand);
    while served.len() < count {
        number += 1;
        now_ns += 20_000;
        let turn = Some(Turn { thread: 1, number, begun_ns: [now_ns; TURNS] });
        let come = |list: &mut Vec<(u64, u64)>| {
            list.sort_unstable();
            let come = list.partition_point(|(at_ns, _)| *at_ns <= now_ns);
            list.drain(..come).map(|(_, id)| id).collect::<Vec<_>>()
        };
        let (mut questions_come, answers_come) = (come(&mut questions), come(&mut answers));
        let mut step = || {
            now_ns += 1_000;
            Step { ns: now_ns, turn }
        };
        received.extend(questions_come.iter().map(|id| (*id, step())));
        let heard: Vec<_> = answers_come.into_iter().map(|id| (id, step())).collect();
        reorder(&mut questions_come);
        let mut answered = Vec::new();
        for id in questions_come {
            let is_own = id % own == own - 1;
            let (question, at) = (if is_own { CHILD + id } else { id }, step());
            answers.push((at.ns + random.u64(MS..6 * MS), question));
            asked.insert(question, at);
            answered.extend(is_own.then_some(id));
        }
        for (id, heard) in heard {
            let asked = asked.remove(&id).expect("was asked");
            let (id, of) = if id < CHILD { (CHILD + id, Some(id)) } else { (CHILD + id, None) };
            made.push(Made { id, whom: 1, asked, heard, parent: None, guessed: false });
            answered.extend(of);
        }
        for id in answered {
            let received = received.remove(&id).expect("was received");
            let answered = step();
            served.push(Served { id, received, answered });
            questions.push((answered.ns + random.u64(0..MS), next));
            next += 1;
        }
    }
    (served, made)
}

fn right_in_order(assigned: &[Assigned]) -> usize {
    assigned.iter().filter(|one| one.child == CHILD + one.parent).count()
}

/// 256 requests in progress, so each child fits 256 of them.
#[test]
fn the_order_of_a_proxy_tells_the_parents() {
    let (served, made) = proxy(2_000, (256, u64::MAX), |_| ());
    let assigned = assign(served, made.clone());
    assert!(assigned.len() * 100 >= made.len() * 95, "{} of {}", assigned.len(), made.len());
    assert_eq!(right_in_order(&assigned), assigned.len());
}

/// A few requests that the proxy answers itself, and a few children that are nobody's.
#[test]
fn a_few_may_be_left_out_of_the_order() {
    let (served, made) = proxy(2_000, (256, 200), |_| ());
    let assigned = assign(served, made.clone());
    assert!(assigned.len() * 100 >= made.len() * 90, "{} of {}", assigned.len(), made.len());
    let right = right_in_order(&assigned);
    assert!(right * 100 >= assigned.len() * 97, "{right} of {}", assigned.len());
}

/// Requests of one turn are asked for in reverse: some would be answered before their children are.
#[test]
fn another_order_tells_nothing() {
    let (served, made) = proxy(2_000, (256, u64::MAX), |ids| ids.reverse());
    assert_eq!(assign(served, made), []);
}

/// A loop that passes answers on 20 ms after it has heard them: each child lies within many requests, and only the order
/// of the answers shows which is whose.
#[test]
fn answers_that_are_passed_on_late_tell_the_parents_too() {
    let (mut served, made) = proxy(2_000, (256, u64::MAX), |_| ());
    served.iter_mut().for_each(|served| served.answered.ns += 20 * MS);
    let assigned = assign(served, made.clone());
    assert!(assigned.len() * 100 >= made.len() * 95, "{} of {}", assigned.len(), made.len());
    assert_eq!(right_in_order(&assigned), assigned.len());
}

/// The same if requests of one turn are asked for in reverse.
#[test]
fn another_order_of_answers_that_are_passed_on_late_tells_nothing() {
    let (mut served, made) = proxy(2_000, (256, u64::MAX), |ids| ids.reverse());
    served.iter_mut().for_each(|served| served.answered.ns += 20 * MS);
    assert_eq!(assign(served, made), []);
}

/// Known parents that contradict the order.
#[test]
fn an_order_that_contradicts_known_parents_tells_nothing() {
    let (served, mut made) = proxy(2_000, (256, u64::MAX), |_| ());
    for child in made.iter_mut().step_by(40) {
        child.parent = Some((child.id - CHILD + 1) % 1_000);
    }
    assert_eq!(assign(served, made), []);
}
