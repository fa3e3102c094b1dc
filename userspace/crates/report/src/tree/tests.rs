use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::fixtures::START_NS;
use rpcprobe_model::{End, Request};

/// A request to one address, between two instants. Processes 10 and above serve.
fn made_for(parent: Option<u64>, id: u64, port: u32, from_ns: u64, to_ns: u64) -> Request {
    let end = |pid, comm: &str| Some(End { pid, tid: pid, comm: comm.into() });
    Request {
        request_id: id,
        parent_request_id: parent,
        parent_certainty: parent.map(|_| Certainty::Sure),
        client: end(port - 1, "front"),
        server: end(port, "back"),
        channel: Some(format!("tcp 10.0.0.1:999 > 10.0.0.2:{port}")),
        method: Some(format!("GET /{port}")),
        ..Request::new(Kind::Http1, START_NS + from_ns, START_NS + to_ns)
    }
}

fn tree(requests: &[Request]) -> Tree {
    filtered(requests, |_| true)
}

fn filtered(requests: &[Request], passes: impl Fn(&Request) -> bool) -> Tree {
    let asked = |request: &Request| (request.clone(), passes(request));
    let capture: Vec<_> = requests.iter().map(asked).collect();
    added_up(outlines(std::slice::from_ref(&capture)), &[capture])
}

/// Requests of a capture, in the order of its rows, each with whether it passes the filter.
type Asked = Vec<(Request, bool)>;

fn outlines(captures: &[Asked]) -> Outlines {
    let mut outlines = Outlines::default();
    for capture in captures {
        let rows = capture.iter().map(|(request, _)| Ok(request.into()));
        outlines.capture(rows).expect("no row is wrong");
    }
    outlines
}

fn added_up(outlines: Outlines, captures: &[Asked]) -> Tree {
    let mut links = Links::new(outlines);
    for capture in captures {
        capture.iter().for_each(|(request, passes)| links.add(request, *passes));
        links.end_capture();
    }
    links.tree()
}

fn took(row: &Row) -> Option<u64> {
    row.above.as_ref().map(|above| above.took_ns)
}

#[test]
fn what_ran_at_once_counts_once_for_a_back_end_and_for_all_of_them() {
    let tree = tree(&[
        made_for(None, 1, 10, 0, 1_000),
        // Two at the same time at one back end; a third at another one, beside them and after them.
        made_for(Some(1), 2, 11, 100, 300),
        made_for(Some(1), 3, 11, 200, 400),
        Request { method: Some("POST /11".into()), ..made_for(Some(1), 4, 11, 350, 380) },
        made_for(Some(1), 5, 12, 300, 600),
        // A second request, which asks no other server.
        made_for(None, 6, 10, 2_000, 3_000),
    ]);
    let shown: Vec<_> = tree
        .rows
        .iter()
        .map(|row| (row.level, row.is_part, row.what(), row.requests, took(row), row.children_ns))
        .collect();
    assert_eq!(
        shown,
        [
            (0, false, "GET /10", 2, None, 500),
            (1, false, "(no method)", 3, Some(300), 0),
            (2, true, "GET /11", 2, Some(300), 0),
            (2, true, "POST /11", 1, Some(30), 0),
            (1, false, "GET /12", 1, Some(300), 0),
        ]
    );
    let above = tree.rows[1].above.as_ref().expect("one above");
    assert_eq!((above.requests, above.total_ns), (2, 2_000));
    assert!((above.took_share - 0.15).abs() < 1e-9);
    assert_eq!(tree.rows[1].for_each().as_deref(), Some("1.5"));
    assert_eq!(tree.rows[1].server.as_deref(), Some("back 10.0.0.2:11"));
    assert!(tree.is_worth_telling());
}

#[test]
fn what_ends_after_its_parent_took_only_what_was_left_of_it() {
    let late = Request { detached: true, ..made_for(Some(1), 2, 11, 900, 5_000) };
    let tree = tree(&[late, made_for(None, 1, 10, 0, 1_000)]);
    assert_eq!((tree.rows[1].detached, took(&tree.rows[1])), (1, Some(100)));
    assert_eq!(tree.rows[0].children_ns, 100);
}

#[test]
fn how_sure_parents_are_and_that_some_are_not_known_is_told() {
    let mut all = vec![made_for(None, 1, 10, 0, 1_000)];
    for (id, certainty) in
        [(2, Certainty::Likely), (3, Certainty::Guessed), (4, Certainty::Guessed)]
    {
        let parent_certainty = Some(certainty);
        all.push(Request {
            parent_certainty,
            ..made_for(Some(1), id, 11, id * 100, id * 100 + 50)
        });
    }
    // One made by the first request's server, with an unknown parent; one made by a client that
    // does not serve.
    all.push(made_for(None, 5, 11, 100, 200));
    all.push(Request { client: None, ..made_for(None, 6, 11, 100, 200) });
    let tree = tree(&all);
    assert_eq!(tree.rows[1].parents.in_words(), "1 likely, 2 guessed");
    let outermost = tree.rows.iter().find(|row| row.level == 0 && row.what() == "GET /11");
    assert_eq!(outermost.expect("a row").parents.in_words(), "1 not known");
    let text = super::tree(&tree, false, crate::fixtures::PLAIN);
    assert!(text.contains("! 1 request made by servers nobody knows for which"), "{text}");
}

#[test]
fn in_a_programs_life_a_servers_request_has_no_parent_that_is_known() {
    let program = Request {
        request_id: 1,
        method: Some("./script".into()),
        ..Request::new(Kind::Exec, START_NS, START_NS + 10_000)
    };
    let only = [program.clone(), made_for(Some(1), 2, 10, 0, 1_000)];
    assert!(!tree(&only).is_worth_telling());
    let tree =
        tree(&[program, made_for(Some(1), 2, 10, 0, 1_000), made_for(Some(1), 3, 11, 0, 900)]);
    let parents: Vec<_> = tree.rows.iter().map(|row| row.parents.not_known).collect();
    assert_eq!(parents, [0, 0, 1]);
    assert!(tree.is_worth_telling());
}

#[test]
fn a_filter_keeps_what_was_made_for_those_that_pass() {
    let all = [
        made_for(None, 1, 10, 0, 1_000),
        made_for(Some(1), 2, 11, 100, 300),
        made_for(None, 3, 12, 0, 1_000),
        made_for(Some(3), 4, 13, 100, 300),
    ];
    let tree = filtered(&all, |request| request.request_id == 1);
    let what: Vec<_> = tree.rows.iter().map(|row| row.what().to_owned()).collect();
    assert_eq!(what, ["GET /10", "GET /11"]);
}

#[test]
fn circles_missing_parents_and_deep_ways_end() {
    let mut all = vec![made_for(Some(2), 1, 10, 0, 10), made_for(Some(1), 2, 10, 0, 10)];
    all.push(made_for(Some(999), 3, 11, 0, 10));
    all.push(made_for(Some(4), 4, 12, 0, 10));
    for id in 5..25 {
        all.push(made_for((id > 5).then(|| id - 1), id, 13, 0, 100));
    }
    all.reverse();
    let tree = tree(&all);
    let requests: u64 = tree.rows.iter().filter(|row| !row.is_part).map(|row| row.requests).sum();
    assert_eq!((requests, tree.deeper), (4 + 8, 12));
    assert!(tree.rows.iter().all(|row| took(row).is_none_or(|ns| ns <= 100)));
}

#[test]
fn many_methods_share_a_row_and_many_rows_are_cut_by_time() {
    let method = |id: u64, method: String| {
        let request = made_for(None, id, 10, id * 10, id * 10 + 10);
        Request { method: Some(method), ..request }
    };
    let mut all: Vec<_> = (1..=2_000).map(|id| method(id, format!("GET /{id}"))).collect();
    let one = tree(&all);
    assert_eq!(
        (one.rows.len(), one.rows[0].what(), one.rows[0].requests),
        (1, "(various methods)", 2_000)
    );
    all.extend((2_001..=2_400).map(|id| method(id, "GET /often".into())));
    let two = tree(&all);
    let what: Vec<_> = two.rows.iter().map(|row| (row.what(), row.requests)).collect();
    assert_eq!(what, [("(no method)", 2_400), ("(various methods)", 2_000), ("GET /often", 400)]);
    // The kept rows include the row one level up.
    let (kept, left_out) = two.largest(2);
    assert_eq!((kept, left_out), (vec![0, 1], 1));
}

/// Any request of a capture, still without an id.
fn any_request() -> impl Strategy<Value = (Request, bool)> {
    let parent = prop_oneof![3 => Just(None), 2 => (0..40u64).prop_map(Some)];
    let kind = prop_oneof![3 => Just(Kind::Http1), 1 => Just(Kind::Exec), 1 => Just(Kind::Pipe)];
    let method = prop_oneof![
        1 => Just(None),
        6 => (0..40u32).prop_map(|number| Some(format!("GET /{number}"))),
        6 => (0..2u32).prop_map(|number| Some(format!("GET /{number}"))),
    ];
    let certainty = prop::sample::select(Certainty::ALL);
    // Few different times, because among equal times the order depends on the requests' ids.
    let times = (0..20u64, 0..6u64);
    let ends = (10..14u32, 10..14u32, prop::option::of(any::<bool>()));
    let flags = (prop::bool::weighted(0.9), any::<bool>(), prop::bool::weighted(0.7));
    (parent, kind, method, certainty, times, ends, flags).prop_map(
        |(parent, kind, method, certainty, (from_ns, took_ns), (asks, port, names), flags)| {
            let (complete, detached, passes) = flags;
            let plain = made_for(parent, 0, port, from_ns, from_ns + took_ns);
            let client = Some(End { pid: asks, tid: asks, comm: "front".into() });
            let server = plain.server.clone().filter(|_| names.is_some());
            let channel = plain.channel.clone().filter(|_| names != Some(false));
            let parent_certainty = parent.map(|_| certainty);
            let request = Request {
                kind,
                method,
                parent_certainty,
                client,
                server,
                channel,
                complete,
                detached,
                ..plain
            };
            (request, passes)
        },
    )
}

/// Several captures of requests, with rows in any order.
fn any_captures() -> impl Strategy<Value = Vec<Asked>> {
    let numbered = |requests: Asked| {
        let numbered = requests.into_iter().zip(1..);
        numbered.map(|((request, passes), request_id)| (Request { request_id, ..request }, passes))
    };
    let capture = vec(any_request(), 0..40).prop_map(move |all| numbered(all).collect::<Vec<_>>());
    vec(capture.prop_shuffle(), 1..4)
}

proptest! {
    #[test]
    fn alone_or_linked_requests_add_up_to_the_same(captures in any_captures()) {
        let mut linked = outlines(&captures);
        for (roles, capture) in linked.captures.iter_mut().zip(&captures) {
            capture.iter().for_each(|(request, _)| roles.parents.insert(request.request_id));
        }
        let in_short = |tree: Tree| (tree.rows, tree.left_out, tree.deeper);
        let [alone, linked] =
            [outlines(&captures), linked].map(|outlines| in_short(added_up(outlines, &captures)));
        prop_assert_eq!(alone, linked);
    }

    #[test]
    fn the_order_of_rows_changes_nothing(captures in any_captures()) {
        let mut sorted = captures.clone();
        sorted.iter_mut().for_each(|all| all.sort_by_key(|(request, _)| request.request_id));
        let [first, second] = [captures, sorted].map(|captures| {
            let tree = added_up(outlines(&captures), &captures);
            (tree.rows, tree.left_out, tree.deeper)
        });
        prop_assert_eq!(first, second);
    }
}

#[test]
fn a_request_is_kept_in_48_bytes() {
    assert_eq!(size_of::<links::Link>(), 48);
}
