//! Checks what the tracks of threads show of requests in any order with work anywhere.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use prost::Message;

use super::super::proto::{EventType, TracePacket};
use super::*;
use rpcprobe_model::Category;

#[derive(Clone, PartialEq, Message)]
struct Packed {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

/// A request: its begin, and its segments, each as thread, wait before the segment, and duration.
type Made = (u64, Vec<(u32, u64, u64)>);

fn segment(tid: u32, start_ns: u64, duration_ns: u64) -> Segment {
    Segment {
        start_ns,
        duration_ns,
        category: Category::User,
        side: Side::Server,
        pid: 1,
        tid,
        comm: "thread".into(),
        cpu: None,
        phase: None,
        detail: None,
        cause: None,
        by: None,
        evidence: Evidence::Measured,
        rule: None,
        shared: 1,
        stack: None,
    }
}

#[derive(Debug)]
struct Shown {
    tid: i64,
    start_ns: u64,
    end_ns: u64,
    out: Vec<u64>,
    into: Vec<u64>,
}

/// Returns what the trace shows, in the order of the file; what it leaves out; and the arrows that begin at requests.
fn shown(requests: &[Made], room: usize) -> (Vec<Shown>, LeftOut, BTreeSet<u64>) {
    let mut bytes = Vec::new();
    let mut packets = Packets::new(&mut bytes);
    let mut threads = Threads::with_room(room);
    let mut first = BTreeSet::new();
    for (number, (start_ns, segments)) in (1..).zip(requests) {
        let of = Rc::new(For { request_id: number, start_ns: *start_ns, name: "x".into() });
        let mut at_ns = *start_ns;
        for (tid, wait_ns, duration_ns) in segments {
            at_ns += wait_ns;
            let segment = segment(*tid, at_ns, *duration_ns);
            first.extend(threads.segment(&mut packets, &of, &segment).expect("written"));
            at_ns += duration_ns;
        }
        threads.end_of_request(&mut packets).expect("written");
    }
    let left_out = threads.finish(&mut packets).expect("written");
    let trace = Packed::decode(&bytes[..]).expect("a trace");
    let mut tids = BTreeMap::new();
    let mut slices: Vec<Shown> = Vec::new();
    for packet in trace.packet {
        if let Some(track) = packet.track_descriptor {
            tids.extend(track.thread.map(|thread| (track.uuid, thread.tid())));
        }
        let Some(event) = packet.track_event else { continue };
        let (at_ns, tid) = (packet.timestamp.expect("a time"), tids[&event.track_uuid]);
        if event.r#type() == EventType::SliceEnd {
            let open = slices.last_mut().expect("a begin");
            assert_eq!(open.tid, tid);
            open.end_ns = at_ns;
            continue;
        }
        let (out, into) = (event.flow_ids, event.terminating_flow_ids);
        slices.push(Shown { tid, start_ns: at_ns, end_ns: at_ns, out, into });
    }
    (slices, left_out, first)
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let segments = prop::collection::vec((1..4_u32, 0..4_u64, 1..9_u64), 0..12);
    prop::collection::vec((0..60_u64, segments), 0..24)
}

proptest! {
    #[test]
    fn each_instant_is_shown_once_and_arrows_meet(requests in made(), room in 0..40_usize) {
        let (slices, left_out, first) = shown(&requests, room);
        let mut work = BTreeSet::new();
        for (start_ns, segments) in &requests {
            let mut at_ns = *start_ns;
            for (tid, wait_ns, duration_ns) in segments {
                at_ns += wait_ns;
                work.extend((at_ns..at_ns + duration_ns).map(|at_ns| (i64::from(*tid), at_ns)));
                at_ns += duration_ns;
            }
        }
        let mut seen = BTreeSet::new();
        let mut until = BTreeMap::new();
        for slice in &slices {
            prop_assert!(slice.start_ns < slice.end_ns);
            prop_assert!(until.insert(slice.tid, slice.end_ns).is_none_or(|end| end <= slice.start_ns));
            seen.extend((slice.start_ns..slice.end_ns).map(|at_ns| (slice.tid, at_ns)));
        }
        prop_assert!(seen.is_subset(&work));
        let missing = work.len() - seen.len();
        prop_assert!(missing as u64 <= left_out.ns, "{} missing, {:?}", missing, left_out);
        let mut begins: BTreeMap<u64, u64> = first.iter().map(|flow| (*flow, 0)).collect();
        for slice in &slices {
            for flow in &slice.out {
                prop_assert!(begins.insert(*flow, slice.start_ns).is_none(), "flow {} forks", flow);
            }
        }
        let mut ends = BTreeSet::new();
        for slice in &slices {
            for flow in &slice.into {
                prop_assert!(ends.insert(*flow), "flow {} ends twice", flow);
                let begin_ns = begins.get(flow);
                prop_assert!(begin_ns.is_some_and(|at| *at < slice.start_ns || first.contains(flow)));
            }
        }
        prop_assert!(ends.iter().eq(begins.keys()), "{:?} and {:?}", begins, ends);
    }

    #[test]
    fn with_room_nothing_is_left_out(requests in made()) {
        let (slices, left_out, _) = shown(&requests, usize::MAX);
        prop_assert_eq!(left_out, LeftOut::default());
        prop_assert!(slices.iter().all(|slice| slice.start_ns < slice.end_ns));
    }
}
