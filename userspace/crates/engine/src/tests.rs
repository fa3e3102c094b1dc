//! Tests of requests' columns other than their segments.

use crate::event::{Call, Io, Object, What};
use crate::*;
use rpcprobe_model::Kind;
use rpcprobe_model::{Loss, Told};
use rpcprobe_record::TASK_TRACED;

fn request(start_ns: u64, latency_ns: u64) -> Request {
    Request { request_id: 1, ..Request::new(Kind::Pipe, start_ns, start_ns + latency_ns) }
}

/// The reason is the same for any number of records, so that reports can group by it.
#[test]
fn lost_records_are_a_reason_and_a_number() {
    let mut engine = Engine::new(2, 0, Rates::default());
    let loss = |cpu, count, first_ns, last_ns| Loss { cpu, count, first_ns, last_ns };
    engine.world.losses = vec![loss(0, 7, 100, 110), loss(1, 5, 105, 200)].into();
    let judged = |start_ns, latency_ns| {
        let request = engine.judged(request(start_ns, latency_ns));
        (request.complete, request.reason, request.records_lost)
    };
    let reason = Some(Reason::RecordsLost);
    assert_eq!(judged(90, 9), (true, None, 0));
    assert_eq!(judged(90, 10), (false, reason.clone(), 7));
    assert_eq!(judged(100, 10), (false, reason.clone(), 12));
    assert_eq!(judged(200, 10), (false, reason, 5));
    assert_eq!(judged(201, 10), (true, None, 0));

    // A better reason stays; the number is reported all the same.
    let unanswered =
        Request { complete: false, reason: Some(Reason::CaptureEnded), ..request(100, 10) };
    let judged = engine.judged(unanswered);
    assert_eq!((judged.reason, judged.records_lost), (Some(Reason::CaptureEnded), 12));
}

/// A pipe's bytes are counted from the first one on again. Since then it is not known which bytes belong to which
/// message.
#[test]
fn requests_over_a_pipe_that_was_forgotten_are_incomplete() {
    let mut engine = Engine::new(1, 0, Rates::default());
    let mut found = Vec::new();
    let mut push = |engine: &mut Engine, ts_ns: u64, what: What| {
        let mut sink = |request: Request, _: Segments| {
            found.push((request.start_ns, request.reason));
            Ok(())
        };
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    for tid in [10, 20] {
        let task = What::Task { tid, tgid: tid, kthread: false, comm: "x".into() };
        push(&mut engine, 0, task);
    }
    // Questions of 10 bytes, each with its answer; the last two begin at the first bytes again.
    for (round, offset) in [0, 10, 20, 0, 10].into_iter().enumerate() {
        let at_ns = 1_000 * (round as u64 + 1);
        let moves = [(10, 1, true, 0), (20, 1, false, 20), (20, 2, true, 40), (10, 2, false, 60)];
        for (tid, ino, is_write, after_ns) in moves {
            let io = Io {
                object: Object { dev: 9, ino, type_bits: event::TYPE_FIFO },
                fd: 3,
                is_write,
                offset,
                bytes: 10,
                reverse: None,
                empty: false,
                unsent: crate::send_limit::SendLimit::default(),
                socket: 0,
            };
            let call = Call {
                io: Some(io),
                ..Call::new(u16::from(is_write), (at_ns + after_ns, at_ns + after_ns + 10), 10)
            };
            let ended_ns = call.exit_ns;
            push(&mut engine, ended_ns, What::Call { tid, call });
        }
    }
    let mut sink = |request: Request, _: Segments| {
        found.push((request.start_ns, request.reason));
        Ok(())
    };
    engine.finish(Some(1_000_000_000), &mut sink).unwrap();
    assert_eq!(engine.world.channels_forgotten, 2, "one a direction");
    found.retain(|(_, reason)| *reason != Some(Reason::CaptureEnded));
    let forgotten = || Some(Reason::ChannelForgotten);
    assert_eq!(
        found,
        [(1_000, None), (2_000, None), (3_000, None), (4_000, forgotten()), (5_000, forgotten())]
    );
}

/// The request of unread bytes in a socket begins with their arrival, whenever they are read.
#[test]
fn what_happened_since_unread_bytes_arrived_is_kept() {
    let mut engine = Engine::new(1, 0, Rates::default());
    let mut sink = |_: Request, _: Segments| Ok(());
    let mut push = |engine: &mut Engine, ts_ns: u64, what: What| {
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    let tid = 20;
    push(&mut engine, 0, What::Task { tid, tgid: tid, kthread: false, comm: "server".into() });
    let (object, arrived_ns) = (Object { dev: 0, ino: 7, type_bits: event::TYPE_TCP }, 500_000);
    let mut at_ns = 1000;
    let mut busy = |engine: &mut Engine, until_ns: u64| {
        while at_ns < until_ns {
            let call = Call::new(39, (at_ns - 5, at_ns), 1);
            push(engine, at_ns, What::Call { tid, call });
            if at_ns == arrived_ns {
                push(engine, at_ns, What::Arrival { object, end: 10, arrived_ns });
            }
            at_ns += 10;
        }
    };
    let oldest_ns = |engine: &Engine| {
        let thread = engine.world.thread_by_tid(tid).unwrap();
        engine.world.thread(thread).calls.front().unwrap().enter_ns
    };
    busy(&mut engine, 10 * 2 * KEEP_EVENTS);
    let oldest = oldest_ns(&engine);
    assert!((arrived_ns / 2..=arrived_ns).contains(&oldest), "{oldest}");
    busy(&mut engine, 10 * 3 * KEEP_BEGINS_EVENTS);
    let oldest = oldest_ns(&engine);
    assert!(oldest >= 10 * KEEP_BEGINS_EVENTS, "not for ever: {oldest}");
}

/// However long a connection rests, and whatever is forgotten meanwhile: which end asks on it, for which request it
/// asks, and what it is called stays known.
#[test]
fn an_open_connection_is_known_for_as_long_as_it_rests() {
    const MINUTE_NS: u64 = 60_000_000_000;
    let mut engine = Engine::new(1, 0, Rates::default());
    let mut found = Vec::new();
    let mut push = |engine: &mut Engine, ts_ns: u64, what: What| {
        let mut sink = |request: Request, _: Segments| {
            found.push(request);
            Ok(())
        };
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    for tid in [10, 20] {
        push(&mut engine, 0, What::Task { tid, tgid: tid, kthread: false, comm: "x".into() });
    }
    let channel = |ino| Object { dev: 0, ino, type_bits: event::TYPE_TCP };
    let mut names = std::collections::HashSet::new();
    for (number, start_ns) in [MINUTE_NS, 10 * MINUTE_NS, 20 * MINUTE_NS].into_iter().enumerate() {
        // The front is asked, and asks another server; the answer takes two minutes.
        let late_ns = 2 * MINUTE_NS;
        let moves = [
            (10, (1, 2), false, 0),
            (10, (3, 4), true, 20),
            (20, (3, 4), false, 40),
            (20, (4, 3), true, late_ns),
            (10, (4, 3), false, late_ns + 20),
            (10, (2, 1), true, late_ns + 40),
        ];
        for (tid, (ino, reverse), is_write, after_ns) in moves {
            if after_ns == late_ns {
                for _ in 0..4 * FORGET_EVERY {
                    let untraced = What::Waking { waker: 0, wakee: 99, flags: 0, block: 0 };
                    push(&mut engine, start_ns + late_ns - 100, untraced);
                }
            }
            // Each direction is named just before its first bytes are reported.
            if number == 0 && names.insert(ino) {
                let name = ["in", "back", "on", "on, back"][ino as usize - 1].into();
                let named = event::Named { object: channel(ino), name, ends: None, is_anew: false };
                push(&mut engine, start_ns + after_ns, What::Channel(Box::new(named)));
            }
            let io = Io {
                object: channel(ino),
                fd: 3,
                is_write,
                offset: 1_000_000 + 10 * number as u64,
                bytes: 10,
                reverse: Some(channel(reverse)),
                empty: false,
                unsent: crate::send_limit::SendLimit::default(),
                socket: ino as u32,
            };
            let at = (start_ns + after_ns, start_ns + after_ns + 10);
            let call = Call { io: Some(io), ..Call::new(u16::from(is_write), at, 10) };
            push(&mut engine, at.1, What::Call { tid, call });
        }
    }
    let mut sink = |request: Request, _: Segments| {
        found.push(request);
        Ok(())
    };
    engine.finish(Some(30 * MINUTE_NS), &mut sink).unwrap();
    let served = |request: &&Request| request.client.is_none();
    let fronts: Vec<u64> = found.iter().filter(served).map(|r| r.request_id).collect();
    let asked: Vec<_> = found.iter().filter(|request| !served(request)).collect();
    assert_eq!((fronts.len(), asked.len()), (3, 3), "{found:#?}");
    for (request, front) in asked.iter().zip(fronts) {
        assert_eq!(request.parent_request_id, Some(front), "{found:#?}");
        assert_eq!(request.channel.as_deref(), Some("tcp on"));
        assert!(request.complete && !request.detached);
    }
}

/// A server that has closed a connection has answered: nothing of it is kept until the server's process ends.
#[test]
fn a_closed_connection_does_not_keep_what_is_past() {
    use crate::classify::syscall::{NR_CLOSE, NR_SHUTDOWN};
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    for ends in [NR_CLOSE, NR_SHUTDOWN] {
        let mut engine = Engine::new(1, 0, Rates::default());
        let mut found = 0u64;
        for number in 1..=3u64 {
            let at_ns = number * 200_000_000;
            let io = |moved: Option<(bool, u64)>| Io {
                object: match moved {
                    Some((is_write, _)) => {
                        let ino = 2 * number + u64::from(is_write);
                        Object { dev: 0, ino, type_bits: event::TYPE_TCP }
                    }
                    None => Object { dev: 8, ino: number, type_bits: event::TYPE_TCP },
                },
                fd: 3,
                is_write: moved.is_none_or(|(is_write, _)| is_write),
                offset: 0,
                bytes: moved.map_or(0, |(_, bytes)| bytes),
                reverse: moved.map(|(is_write, _)| {
                    let ino = 2 * number + u64::from(!is_write);
                    Object { dev: 0, ino, type_bits: event::TYPE_TCP }
                }),
                empty: false,
                unsent: Default::default(),
                socket: moved.map_or(0, |_| number as u32),
            };
            let calls =
                [(READ, Some((false, 3)), 10), (WRITE, Some((true, 5)), 20), (ends, None, 30)];
            for (nr, moved, after_ns) in calls {
                let (enter_ns, exit_ns) = (at_ns + after_ns, at_ns + after_ns + 5);
                let bytes = moved.map_or(0, |(_, bytes)| bytes as i64);
                let call =
                    Call { io: Some(io(moved)), ..Call::new(nr, (enter_ns, exit_ns), bytes) };
                let event = Event { ts_ns: exit_ns, cpu: 0, what: What::Call { tid: 10, call } };
                let mut sink = |request: Request, _: Segments| {
                    found += 1;
                    assert_eq!(request.latency_ns, 15, "{request:?}");
                    Ok(())
                };
                engine.push(&event, &mut sink).unwrap();
            }
            let already = number - 1;
            assert_eq!(found, already, "handed out a tenth of a second after its close");
        }
        if ends == NR_CLOSE {
            // The peer is given up: it might have been traced, and have asked.
            let (now_ns, call) = (3_000_000_000, Call::new(39, (2_999_999_990, 3_000_000_000), 1));
            let event = Event { ts_ns: now_ns, cpu: 0, what: What::Call { tid: 10, call } };
            engine.push(&event, &mut |_, _| Ok(())).unwrap();
            assert_eq!(engine.detector.horizon_ns(now_ns, 0), u64::MAX, "nothing is open");
        }
    }
}

/// At a high event rate, a forked worker that never runs a program of its own keeps no more than `KEEP_BEGINS_EVENTS`.
#[test]
fn a_forked_worker_does_not_keep_what_is_past() {
    let mut engine = Engine::new(1, 0, Rates::default());
    let mut sink = |_: Request, _: Segments| Ok(());
    let mut push = |engine: &mut Engine, ts_ns: u64, what: What| {
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    let (parent, child, flags) = (10, 20, TASK_TRACED);
    let comm = "worker".into();
    let fork = What::Fork { parent, child, child_tgid: child, flags, enter_ns: 50, comm };
    push(&mut engine, 100, fork);
    let kept = |engine: &Engine| {
        engine.world.thread_by_tid(child).map_or(0, |id| engine.world.thread(id).calls.len())
    };
    let mut most = 0;
    for number in 0..3 * KEEP_BEGINS_EVENTS {
        let ts_ns = 1000 + 10 * number;
        let call = Call::new(39, (ts_ns - 5, ts_ns), 1);
        push(&mut engine, ts_ns, What::Call { tid: child, call });
        most = most.max(kept(&engine));
    }
    assert!(most as u64 <= KEEP_BEGINS_EVENTS + 2 * FORGET_EVERY, "{most}");
}

/// Events of `child`, which `parent` forks at `at_ns` and which exits 90 ns later, having run a program.
fn program(parent: u32, child: u32, at_ns: u64) -> Vec<(u64, What)> {
    let (child_tgid, flags, enter_ns, comm) = (child, TASK_TRACED, at_ns - 50, "sh".into());
    let exec = event::Exec {
        tid: child,
        old_tid: child,
        traced: true,
        entry: 0,
        interp_base: 0,
        comm: "true".into(),
        path: None,
    };
    vec![
        (at_ns, What::Fork { parent, child, child_tgid, flags, enter_ns, comm }),
        (at_ns + 10, What::Exec(exec.into())),
        (at_ns + 90, What::Exit { tid: child, tgid: child, code: 0, traced: true }),
    ]
}

const SECOND_NS: u64 = 1_000_000_000;

/// A parent that never waits for the programs it starts (it ignores SIGCHLD) keeps no history for them. A program that one
/// of them started is still known to be its child.
#[test]
fn a_program_that_nobody_waits_for_does_not_keep_what_is_past() {
    let mut engine = Engine::new(1, 0, Rates::default());
    let mut told = Vec::new();
    let mut sink = |request: Request, _: Segments| {
        told.push(request);
        Ok(())
    };
    let mut push = |engine: &mut Engine, ts_ns: u64, what: What| {
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    let parent = 10;
    let mut events = Vec::new();
    for child in 20..25 {
        events.extend(program(parent, child, u64::from(child) * SECOND_NS));
    }
    events.extend(program(24, 30, 24 * SECOND_NS + 60));
    events.sort_by_key(|(at_ns, _)| *at_ns);
    events.into_iter().for_each(|(at_ns, what)| push(&mut engine, at_ns, what));
    for number in 0..2 * KEEP_EVENTS {
        let ts_ns = 40 * SECOND_NS + 10 * number;
        let call = Call::new(39, (ts_ns - 5, ts_ns), 1);
        push(&mut engine, ts_ns, What::Call { tid: parent, call });
    }
    let kept = engine.world.thread_by_tid(parent).map(|id| engine.world.thread(id).calls.len());
    assert!(kept.unwrap() as u64 <= KEEP_EVENTS + 2 * FORGET_EVERY, "{kept:?}");
    let ends: Vec<_> = told.iter().map(|r| (r.complete, r.reason.clone(), r.latency_ns)).collect();
    assert_eq!(ends, vec![(false, Some(Reason::NotWaitedFor), 140); 6]);
    let of = |pid: u32| {
        told.iter()
            .find(|request| request.server.as_ref().is_some_and(|end| end.pid == pid))
            .unwrap()
    };
    assert_eq!(of(30).parent_request_id, Some(of(24).request_id));
}

/// A wait that comes more than ten seconds after the exit is too late, whether history has been forgotten meanwhile or not.
#[test]
fn a_wait_comes_in_time_or_it_does_not() {
    let waited_after = |wait_ns: u64, events: u64| {
        let mut engine = Engine::new(1, 0, Rates::default());
        let mut told = Vec::new();
        let mut sink = |request: Request, _: Segments| {
            told.push((request.complete, request.reason, request.latency_ns));
            Ok(())
        };
        let (parent, child, at_ns) = (10, 20, SECOND_NS);
        let waited_ns = at_ns + 90 + wait_ns;
        let mut all = program(parent, child, at_ns);
        for number in 0..events {
            let ts_ns = waited_ns - 10 - events + number;
            all.push((ts_ns, What::Call { tid: parent, call: Call::new(39, (ts_ns, ts_ns), 1) }));
        }
        let wait = Call::new(61, (waited_ns - 5, waited_ns), i64::from(child));
        all.push((waited_ns, What::Call { tid: parent, call: wait }));
        for (ts_ns, what) in all {
            engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
        }
        engine.finish(None, &mut sink).unwrap();
        told
    };
    for events in [0, 4 * FORGET_EVERY] {
        let in_time = waited_after(9 * SECOND_NS, events);
        assert_eq!(in_time, [(true, None, 9 * SECOND_NS + 140)]);
        let late = waited_after(11 * SECOND_NS, events);
        assert_eq!(late, [(false, Some(Reason::NotWaitedFor), 140)]);
    }
}

/// Questions on many connections that nobody answers, and what their client does meanwhile. To report each question
/// whole would take questions times calls pieces.
#[test]
fn requests_that_are_cut_off_at_once_cost_no_more_than_events() {
    const CONNECTIONS: u64 = 300;
    const CALLS: u64 = 3_000;
    let mut engine = Engine::new(1, 0, Rates::default());
    engine.tell_every_piece();
    let (mut cut, mut given_up) = (0, 0);
    let mut sink = |request: Request, segments: Segments| {
        if request.kind == Kind::Unix && !request.complete {
            cut += 1;
            let is_told = |of: &Told| of.detail.map(|id| segments.texts.get(id));
            let too_many = segments.list.iter().any(|of| is_told(of) == Some(walk::TOO_MANY_STEPS));
            given_up += u64::from(too_many);
        }
        Ok(())
    };
    let mut push = |ts_ns: u64, what: What| {
        engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink).unwrap();
    };
    for tid in [10, 20] {
        push(0, What::Task { tid, tgid: tid, kthread: false, comm: "x".into() });
    }
    let pairs = (0..CONNECTIONS).map(|pair| (2 * pair + 1, 2 * pair + 2));
    let answered = pairs.clone().flat_map(|(question, answer)| {
        [(10, 1, question, 0), (20, 0, question, 0), (20, 1, answer, 0), (10, 0, answer, 0)]
    });
    let asked = pairs.flat_map(|(question, _)| [(10, 1, question, 10), (20, 0, question, 10)]);
    let channel = |ino| Object { dev: 0, ino, type_bits: event::TYPE_UNIX };
    let moves = answered.chain(asked).map(|(tid, nr, ino, offset)| {
        let io = Io {
            object: channel(ino),
            fd: 3,
            is_write: nr == 1,
            offset,
            bytes: 10,
            reverse: Some(channel(if ino % 2 == 1 { ino + 1 } else { ino - 1 })),
            empty: false,
            unsent: crate::send_limit::SendLimit::default(),
            socket: 0,
        };
        (tid, nr, Some(io))
    });
    let others = (0..CALLS).map(|_| (10, 39, None));
    let mut at_ns = 1_000;
    for (tid, nr, io) in moves.chain(others) {
        let call = Call { io, ..Call::new(nr, (at_ns, at_ns + 10), 10) };
        push(at_ns + 10, What::Call { tid, call });
        at_ns += 20;
    }
    engine.finish(Some(at_ns), &mut sink).unwrap();
    assert_eq!(cut, CONNECTIONS);
    // There are 4,800 events, and two steps for each: enough for one or two.
    assert!((CONNECTIONS - 3..CONNECTIONS).contains(&given_up), "{given_up}");
}

/// A timer that sets itself again is made by a timer that may be forgotten by then. The maker does not appear as a new
/// thread.
#[test]
fn a_task_whose_maker_is_forgotten_was_made_by_none() {
    use crate::timeline::World;
    use rpcprobe_model::FIRST_RUNTIME_TASK as FIRST;
    use rpcprobe_record::{TASK_THREAD, TASK_TRACED};
    let mut world = World::new(2, 0);
    let fork = |parent| What::Fork {
        parent,
        child: FIRST + 6,
        child_tgid: 7,
        flags: TASK_THREAD | TASK_TRACED,
        enter_ns: 10,
        comm: Box::default(),
    };
    world.apply(&Event { ts_ns: 10, cpu: 1, what: fork(FIRST + 5) });
    let made = world.thread_by_tid(FIRST + 6).expect("it is there");
    assert_eq!(world.thread(made).made_by, None);
    assert_eq!(world.thread_by_tid(FIRST + 5), None);
    // An unknown parent that is a thread has begun before the capture.
    let forked = What::Fork {
        parent: 8,
        child: 9,
        child_tgid: 8,
        flags: TASK_THREAD,
        enter_ns: 11,
        comm: Box::default(),
    };
    world.apply(&Event { ts_ns: 11, cpu: 1, what: forked });
    assert!(world.thread_by_tid(8).is_some());
}
