use super::super::fixtures::{manifest, stream, ten, text, unfinished, PLAIN, START_NS};
use super::*;

fn rows() -> (Vec<RequestRow>, Marks) {
    let (mut rows, segments) = stream(&ten());
    rows.push(unfinished(11, 3_100));
    (rows, modelled(segments, &(1..=11).collect()).unwrap())
}

fn selected(rows: Vec<RequestRow>, options: &RequestOptions) -> Selection {
    select(rows.into_iter().map(Ok), options, START_NS).unwrap()
}

fn ids(options: &RequestOptions) -> Vec<(u64, bool)> {
    let (rows, _) = rows();
    let listed = selected(rows, options).listed;
    listed.iter().map(|one| (one.row.request.request_id, one.uncertain)).collect()
}

#[test]
fn sorts() {
    let by = |sort, reverse| {
        let options = RequestOptions { sort, reverse, limit: Some(3), ..Default::default() };
        ids(&options).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(by(SortKey::Latency, false), [10, 9, 8]);
    assert_eq!(by(SortKey::Latency, true), [1, 2, 3]);
    assert_eq!(by(SortKey::Start, false), [1, 2, 3]);
    assert_eq!(by(SortKey::Id, true), [11, 10, 9]);
    assert_eq!(by(SortKey::Category(Category::User), false), [10, 9, 8]);
    assert_eq!("user".parse(), Ok(SortKey::Category(Category::User)));
    assert!("nonsense".parse::<SortKey>().is_err());
}

#[test]
fn latency_of_incomplete_requests_is_three_valued() {
    let between = |min_latency_ns, max_latency_ns| {
        let filter = RequestFilter { min_latency_ns, max_latency_ns, ..Default::default() };
        ids(&RequestOptions { filter, sort: SortKey::Id, ..Default::default() })
    };
    // The request lasted at least 3.1 us: certainly more than 3 us, possibly more than 9 us.
    assert!(between(Some(3_000), None).contains(&(11, false)));
    assert_eq!(between(Some(9_000), None), [(9, false), (10, false), (11, true)]);
    // Possibly less than 4 us, certainly not less than 2 us.
    assert!(between(None, Some(4_000)).contains(&(11, true)));
    assert_eq!(between(None, Some(2_000)), [(1, false), (2, false)]);
    assert_eq!(between(Some(9_000), Some(3_000)), []);
}

#[test]
fn the_list() {
    let (rows, marks) = rows();
    let options = RequestOptions {
        filter: RequestFilter { min_latency_ns: Some(9_500), ..Default::default() },
        sort: SortKey::Id,
        ..RequestOptions::default()
    };
    let selection = selected(rows, &options);
    let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
    let expected = "\
2 of 2 matching requests (11 in the capture)
id  kind        start      latency  complete  client      server       bytes  most time in  why incomplete
10  pipe  +0.010000 s      10.0 us  yes       client/101  server/102  64/128  user 60.0 %
11  pipe  +0.011000 s  ≥ 3.10 us ?  no        client/101  server/102  64/128  -             records lost
? incomplete, its latency known only from below: it may match
";
    assert_eq!(text, expected);
}

#[test]
fn a_cut_admits_what_it_cannot_know() {
    let (rows, marks) = rows();
    let options = RequestOptions { slowest: Some(2), ..RequestOptions::default() };
    let selection = selected(rows, &options);
    let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
    let said = "1 incomplete request may belong here: one lasted ≥ 3.10 us (--incomplete)\n";
    assert!(text.ends_with(said), "{text}");
}

#[test]
fn the_slowest_are_complete_unless_asked_otherwise() {
    let (mut rows, _) = rows();
    rows.push(unfinished(12, 1_000_000));
    let slowest = |slowest, incomplete| {
        let options =
            RequestOptions { slowest: Some(slowest), incomplete, ..RequestOptions::default() };
        let selection = selected(rows.clone(), &options);
        let id = |one: &Selected| one.row.request.request_id;
        let listed: Vec<u64> = selection.listed.iter().map(id).collect();
        (listed, selection.matching, selection.may_belong, selection.may_belong_ns)
    };
    assert_eq!(slowest(3, false), (vec![10, 9, 8], 12, 2, 1_000_000));
    assert_eq!(slowest(20, false).0.len(), 10);
    assert_eq!(slowest(20, false).2, 2);
    assert_eq!(slowest(1, true), (vec![12], 2, 1, 3_100));
}

#[test]
fn modelled_categories_are_marked() {
    let (mut rows, marks) = rows();
    assert!(is_modelled(&marks, 1, Category::Copy));
    assert!(!is_modelled(&marks, 1, Category::User));
    rows[0].category_ns[Category::User as usize] = None;
    rows[0].category_ns[Category::RunqueueWakeup as usize] = Some(0);
    let options = RequestOptions { sort: SortKey::Id, limit: Some(1), ..Default::default() };
    let selection = selected(rows, &options);
    let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
    assert!(text.contains("copy ~ 10.0 %") && text.contains("~ in whole or in part modelled"));
}

#[test]
fn what_has_no_room_is_left_out_or_cut_and_not_broken() {
    let (mut rows, marks) = rows();
    let long = "a-service-with-a-long-name";
    rows[9].request.client.as_mut().unwrap().comm = long.into();
    let options = RequestOptions { sort: SortKey::Id, reverse: true, ..Default::default() };
    let selection = selected(rows, &options);
    let list = |width| {
        let style = Style { color: false, width };
        let text = text(|out| requests(out, &manifest(), &selection, &marks, style));
        text.lines().take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        "11 of 11 matching requests",
        "id  kind        start    latency  client       server      most time in  why incomplete",
        "11  pipe  +0.011000 s  ≥ 3.10 us  client/101   server/102  -             records lost",
        "10  pipe  +0.010000 s    10.0 us  a-service-…  server/102  user 60.0 %",
    ];
    assert_eq!(list(Some(87)), expected);
    let at_80 = list(Some(80));
    assert!(at_80.iter().all(|line| cells(line) <= 80), "{at_80:#?}");
    assert!(at_80[1].starts_with("id  kind    latency  client  "), "{at_80:#?}");
    let at_200 = list(Some(200));
    assert_eq!(at_200, list(None));
    assert!(at_200[3].contains(&format!("{long}/101")) && at_200[1].contains("bytes"));
}

#[test]
fn hostile_names_and_narrow_terminals() {
    let (mut rows, marks) = rows();
    rows[0].request.client.as_mut().unwrap().comm = "\x1b]0;x\x07\n".into();
    let selection = selected(rows, &RequestOptions::default());
    for width in [1, 40, 80, 200] {
        let style = Style { color: false, width: Some(width) };
        let text = text(|out| requests(out, &manifest(), &selection, &marks, style));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
/// However many rows come before those that belong to the list.
#[test]
fn a_limit_bounds_what_is_kept() {
    let row = |id: u64, complete: bool| {
        let mut row = unfinished(id, 10 * (id % 5000));
        row.request.complete = complete;
        row.request.reason = (!complete).then(|| "records lost".into());
        row
    };
    let rows: Vec<_> = (1..=10_000).map(|id| row(id, id % 100 != 0)).collect();
    let options = |limit| RequestOptions { limit, ..RequestOptions::default() };
    let all = selected(rows.clone(), &options(None));
    let some = selected(rows, &options(Some(700)));
    assert!(some.listed.capacity() < 4 * CUT_AT_ROWS);
    let ids = |selection: &Selection| -> Vec<u64> {
        selection.listed.iter().map(|selected| selected.row.request.request_id).collect()
    };
    assert_eq!(ids(&some), ids(&all)[..700]);
    assert_eq!((some.matching, some.in_capture), (10_000, 10_000));
    let listed = some.listed.iter().filter(|selected| !selected.row.request.complete).count();
    assert_eq!(some.may_belong + listed, 100);
}
