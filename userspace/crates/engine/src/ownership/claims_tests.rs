use super::*;
use rpcprobe_model::Segment;

fn segment(start_ns: u64, end_ns: u64, shared: u32) -> Segment {
    Segment {
        start_ns,
        duration_ns: end_ns - start_ns,
        category: Category::User,
        side: Side::Server,
        pid: 1,
        tid: 1,
        comm: "server".into(),
        cpu: None,
        phase: None,
        detail: None,
        cause: None,
        by: None,
        evidence: Evidence::Measured,
        rule: Some(Rule::WakeUp),
        shared,
        stack: None,
    }
}

fn claimant(id: u64, parent: Option<u64>, start_ns: u64, end_ns: u64) -> Claimant {
    let (client, server, encloses) = (None, Some(1), false);
    Claimant { id, parent, start_ns, end_ns, client, server, encloses }
}

fn settle(
    claims: &mut Claims,
    claimant: Claimant,
    all: Vec<Segment>,
    ids: &[ThreadId],
) -> Vec<Segment> {
    settle_of(claims, claimant, all, ids, true)
}

/// `serves`: the threads are the server's.
fn settle_of(
    claims: &mut Claims,
    claimant: Claimant,
    all: Vec<Segment>,
    ids: &[ThreadId],
    serves: bool,
) -> Vec<Segment> {
    let workers: Vec<_> =
        ids.iter().map(|&thread| Worker { thread, serves, by_marks: true }).collect();
    let shows = |segment: &Told, _: ThreadId| match segment.category {
        category if category.is_on_cpu() => Shows::Work,
        _ => Shows::Rest,
    };
    let spent = |_: ThreadId, _: u64, _: u64| Spent::default();
    claims.settle(claimant, all.as_slice().into(), (&workers, 0), (shows, spent), None).in_words()
}

fn told(segments: &[Segment]) -> Vec<(u64, u64, &'static str, u32)> {
    let told = |s: &Segment| (s.start_ns, s.end_ns(), s.category.name(), s.shared);
    segments.iter().map(told).collect()
}

#[test]
fn what_another_has_for_its_own_is_a_wait() {
    let mut claims = Claims::default();
    let first = settle(&mut claims, claimant(1, None, 0, 100), vec![segment(20, 40, 1)], &[7]);
    assert_eq!(told(&first), [(20, 40, "user", 1)]);
    let all = vec![segment(10, 30, 1), segment(30, 50, 1)];
    let second = settle(&mut claims, claimant(2, None, 0, 100), all, &[7, 7]);
    let expected = [(10, 20, "user", 1), (20, 40, "queue.app", 1), (40, 50, "user", 1)];
    assert_eq!(told(&second), expected);
    assert!(second[1].evidence == Evidence::Modelled && second[1].rule == Some(Rule::Claimed));
    // The same time of another thread is free.
    let third = settle(&mut claims, claimant(3, None, 0, 100), vec![segment(20, 40, 1)], &[8]);
    assert_eq!(told(&third), [(20, 40, "user", 1)]);
}

#[test]
fn a_parent_has_what_its_children_have() {
    let mut claims = Claims::default();
    settle(&mut claims, claimant(2, Some(1), 10, 50), vec![segment(20, 40, 1)], &[7]);
    let parent = settle(&mut claims, claimant(1, None, 0, 100), vec![segment(10, 60, 1)], &[7]);
    let expected = [(10, 20, "user", 1), (20, 40, "user", 1), (40, 60, "user", 1)];
    assert_eq!(told(&parent), expected);
}

/// So the result for the second of many requests that are alike holds for the others, except for those to which the
/// work belongs.
#[test]
fn what_leaves_all_claims_as_they_were_holds_for_others() {
    let mut claims = Claims::default();
    let settled = |claims: &mut Claims, id| {
        let all = vec![segment(10, 20, 1), segment(20, 40, 2), segment(40, 50, 1)];
        let segments = settle(claims, claimant(id, None, 0, 100), all, &[7, 7, 8]);
        (told(&segments), claims.kept_by())
    };
    let (_, first) = settled(&mut claims, 1);
    assert_eq!(first, None, "it claimed what it has");
    let (second, kept_by) = settled(&mut claims, 2);
    assert_eq!(kept_by.as_deref(), Some(&[1][..]));
    assert!(claims.is_kept(claimant(3, None, 0, 100), &[1]));
    assert_eq!(settled(&mut claims, 3), (second, Some(vec![1])));
    assert!(!claims.is_kept(claimant(4, Some(1), 10, 50), &[1]), "the first's own");
}

/// Two children that outlived their parent.
#[test]
fn of_two_children_one_has_what_their_parent_has() {
    let mut claims = Claims::default();
    settle(&mut claims, claimant(1, None, 0, 50), vec![segment(10, 50, 1)], &[7]);
    let child = |claims: &mut Claims, id| {
        let all = vec![segment(20, 40, 1)];
        told(&settle(claims, claimant(id, Some(1), 15, 90), all, &[7]))[0].2
    };
    assert_eq!([child(&mut claims, 2), child(&mut claims, 3)], ["user", "queue.app"]);
    // The parent's other work, before and after, is still its own.
    let other = settle(&mut claims, claimant(4, None, 0, 50), vec![segment(10, 50, 1)], &[7]);
    assert_eq!(told(&other), [(10, 50, "queue.app", 1)]);
}

/// The same for two requests in the life of one program.
#[test]
fn of_two_requests_one_has_what_their_program_has() {
    let mut claims = Claims::default();
    let program = Claimant { encloses: true, ..claimant(1, None, 0, 50) };
    settle(&mut claims, program, vec![segment(10, 50, 1)], &[7]);
    let inside = |claims: &mut Claims, id| {
        let all = vec![segment(20, 40, 1)];
        told(&settle(claims, claimant(id, None, 15, 90), all, &[7]))[0].2
    };
    assert_eq!([inside(&mut claims, 2), inside(&mut claims, 3)], ["user", "queue.app"]);
}

/// A request without a known parent counts as made for the first request whose path leads through it.
#[test]
fn a_child_without_a_parent_is_the_first_ones() {
    let mut claims = Claims::default();
    let child = Claimant { client: Some(1), server: Some(2), ..claimant(3, None, 10, 50) };
    settle(&mut claims, child, vec![segment(20, 40, 1)], &[7]);
    let of = |claims: &mut Claims, id| {
        let all = vec![segment(20, 40, 1)];
        told(&settle(claims, claimant(id, None, 0, 100), all, &[7]))[0].2
    };
    assert_eq!([of(&mut claims, 4), of(&mut claims, 5)], ["user", "queue.app"]);
}

/// A rest of a thread that serves the request may be the request's: the thread may have several requests that wait for
/// timers.
#[test]
fn a_rest_between_others_work_is_theirs_on_a_thread_that_does_not_serve() {
    let mut claims = Claims::default();
    let work = || vec![segment(10, 20, 1), segment(40, 50, 1)];
    settle(&mut claims, claimant(1, None, 0, 60), work(), &[7, 7]);
    let mut all = work();
    let (category, side) = (Category::Sleep, Side::Middle);
    all.insert(1, Segment { category, side, ..segment(20, 40, 1) });
    let of = claimant(2, None, 0, 60);
    let by_server = settle_of(&mut claims, of, all.clone(), &[7; 3], true);
    assert_eq!(told(&by_server)[1], (20, 40, "sleep", 1));
    let other = settle_of(&mut claims, of, all, &[7; 3], false);
    assert_eq!(told(&other), [(10, 50, "queue.app", 1)]);
}

#[test]
fn shared_work_is_nobodys_own() {
    let mut claims = Claims::default();
    settle(&mut claims, claimant(1, None, 0, 100), vec![segment(20, 40, 3)], &[7]);
    let second = settle(&mut claims, claimant(2, None, 0, 100), vec![segment(10, 30, 1)], &[7]);
    assert_eq!(told(&second), [(10, 20, "user", 1), (20, 30, "user", 3)]);
    let mut ledger = Ledger::default();
    claims.book_before(100, &World::new(1, 0), &mut ledger);
    assert!(claims.threads.is_empty());
}
