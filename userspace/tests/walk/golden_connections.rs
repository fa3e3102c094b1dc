//! Small traces of an event loop whose requests may wait for a connection to its back end, with answers derived by hand.

use rpcprobe::model::Category;

use super::rule_stories::{waited, Until};

/// How the rest of the server's thread is told, for the request that the server has asked for after it: time, category
/// and rule.
fn rest(until: Until) -> Vec<String> {
    let requests = waited(until).requests();
    let ours = requests.iter().find(|(request, _)| request.start_ns == 100).expect("the request");
    let rests = ours.1.iter().filter(|segment| {
        segment.tid == 20
            && matches!(segment.category, Category::Sleep | Category::QueueApp | Category::IdlePeer)
    });
    let line = |s: &rpcprobe::model::Segment| {
        let rule = s.rule.map_or("none", |rule| rule.name());
        format!("{}-{} {} {rule} {}", s.start_ns, s.end_ns(), s.category, s.evidence)
    };
    rests.map(line).collect()
}

/// The answer to another client's question makes the connection free, and it is used for the request at once.
#[test]
fn a_request_waits_for_a_connection_in_use() {
    assert_eq!(
        rest(Until::Free),
        ["120-143 queue.app connection modelled", "143-160 queue.app turn modelled"]
    );
}

/// The connection was idle: the request waited for something else.
#[test]
fn nobody_waits_for_an_idle_connection() {
    assert_eq!(
        rest(Until::Another),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}

/// Several questions are under way on the connection at a time.
#[test]
fn nobody_waits_for_a_connection_with_several_questions_under_way() {
    assert_eq!(
        rest(Until::Shared),
        [
            "120-123 sleep timer modelled",
            "123-132 queue.app turn modelled",
            "133-160 queue.app claimed modelled",
        ]
    );
}

/// The server would have used a connection that was idle, and it did not.
#[test]
fn nobody_waits_for_a_connection_while_another_is_idle() {
    assert_eq!(
        rest(Until::Spare),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}

/// A timer, perhaps the request's own, ended the rest.
#[test]
fn a_timer_ends_no_wait_for_a_connection() {
    assert_eq!(
        rest(Until::Time),
        ["120-143 sleep charge modelled", "143-160 queue.app turn modelled"]
    );
}

/// A helper of the server, which may have had the request, ended the rest.
#[test]
fn the_servers_own_thread_ends_no_wait_for_a_connection() {
    assert_eq!(
        rest(Until::Helper),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}
