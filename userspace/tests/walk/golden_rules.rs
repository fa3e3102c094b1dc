//! For every rule by which the walk goes on, a small trace whose answer, derived by hand, names the rule. Unless noted
//! otherwise, the client (thread 10, CPU 0) sends its request on pipe `A`, and the server (thread 20, CPU 1) answers on
//! pipe `B`.

use std::collections::BTreeSet;

use rpcprobe::model::{check_conservation, Rule, Segment};

use super::rule_stories::*;
use super::story::*;

/// A trace, the start of the request in question, and its answer, in three parts: one line per segment, with its rule
/// at the end.
struct Golden {
    story: fn() -> Story,
    start_ns: u64,
    answer: [&'static str; 3],
}

/// The explanation of the first half of a request that the server waits for: see `asked`.
const ASKED: &str = "
    100-105 client kernel.pipe message
    105-109 server runqueue.wakeup run-queue
    109-113 server kernel.pipe message
";

/// The explanation of the second half of such a request, after `answered`.
const ANSWERED: &str = "
    190-195 server kernel.pipe message
    195-198 client runqueue.wakeup run-queue
    198-202 client kernel.pipe end
";

/// The explanation of the start of a program.
const STARTED: &str = "
    100-106 client kernel.exec wake-up
    106-109 sh runqueue.wakeup run-queue
";

fn table_of(segments: &[Segment]) -> String {
    let line = |s: &Segment| {
        let rule = s.rule.map_or("none", Rule::name);
        format!("{}-{} {} {} {rule}\n", s.start_ns, s.end_ns(), s.comm, s.category)
    };
    segments.iter().map(line).collect()
}

const GOLDENS: [Golden; 20] = [
    Golden {
        story: waited_for_a_connection,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.unix ready
            105-110 server queue.socket ready
            110-115 server kernel.unix connection
            115-118 server user connection
            118-120 server kernel.poll connection
            120-143 server queue.app connection
            143-160 server queue.app turn
            160-163 server user asked
            163-167 server kernel.unix ready
            167-176 back end queue.socket ready
            176-179 back end kernel.unix message
            179-186 back end user message
            186-190 back end kernel.unix message
            190-194 server runqueue.wakeup run-queue
            194-196 server kernel.poll asked
            196-198 server user asked
            198-201 server kernel.unix asked
            201-203 server user message
            203-206 server kernel.unix message
            206-210 client runqueue.wakeup run-queue
            210-215 client kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: helped_in_its_place,
        start_ns: 100,
        answer: [
            "",
            "
            100-106 client kernel.tcp ready
            106-110 server queue.socket ready
            110-115 server kernel.tcp message
            115-118 server user message
            118-122 server kernel.futex message
            122-125 helper kernel.futex helper
            125-148 helper user helper
            148-150 helper kernel.futex helper
            150-152 server kernel.futex message
            152-160 server user message
            160-165 server kernel.tcp message
            165-167 client runqueue.wakeup run-queue
            167-175 client kernel.tcp end
        ",
            "",
        ],
    },
    Golden {
        story: messages,
        start_ns: 100,
        answer: [
            ASKED,
            "
            113-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: read_late,
        start_ns: 100,
        answer: [
            "",
            "
            100-106 client kernel.pipe ready
            106-150 server queue.pipe ready
            150-153 server kernel.pipe message
            153-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: arrived,
        start_ns: 100,
        answer: [
            "",
            "
            100-150 server queue.socket arrival
            150-155 server kernel.tcp end
            155-170 server user end
            170-175 server kernel.tcp end
        ",
            "",
        ],
    },
    Golden {
        story: accepted,
        start_ns: 100,
        answer: [
            "",
            "
            100-103 client kernel.tcp accept
            103-140 server queue.accept accept
            140-145 server kernel.tcp message
            145-150 server user message
            150-155 server kernel.tcp message
            155-160 server user message
            160-165 server kernel.tcp message
            165-168 client runqueue.wakeup run-queue
            168-175 client kernel.tcp end
            175-178 client user end
            178-182 client kernel.tcp end
        ",
            "",
        ],
    },
    Golden {
        story: handed_on,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.pipe message
            105-109 server runqueue.wakeup run-queue
            109-113 server kernel.pipe wake-up
            113-115 server user wake-up
            115-118 server kernel.futex wake-up
            118-122 helper runqueue.wakeup run-queue
            122-125 helper kernel.futex wake-up
            125-150 helper user wake-up
            150-155 helper kernel.futex wake-up
            155-160 server runqueue.wakeup run-queue
            160-163 server kernel.futex message
            163-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: napped,
        start_ns: 100,
        answer: [
            ASKED,
            "
            113-117 server user message
            117-120 server kernel.sched message
            120-140 server sleep charge
            140-143 server runqueue.wakeup run-queue
            143-146 server kernel.sched message
            146-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: unseen,
        start_ns: 100,
        answer: [
            ASKED,
            "
            113-117 server user message
            117-120 server kernel.poll message
            120-143 server unattributed lost
            143-146 server kernel.poll message
            146-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: queued_for_a_worker,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.pipe message
            105-109 server runqueue.wakeup run-queue
            109-113 server kernel.pipe work-queue
            113-120 server user work-queue
            120-123 server kernel.vfs work-queue
            123-140 kworker queue.app work-queue
            140-150 kworker kernel.other work-queue
            150-155 server runqueue.wakeup run-queue
            155-158 server kernel.vfs message
            158-190 server user message
        ",
            ANSWERED,
        ],
    },
    Golden {
        story: collected_late,
        start_ns: 100,
        answer: [
            STARTED,
            "
            109-111 sh kernel.exec child
            111-114 sh user child
            114-123 sh kernel.exec child
            123-130 true user child
            130-140 true kernel.exec child
            140-155 client queue.app child
            155-160 client kernel.exec end
        ",
            "",
        ],
    },
    Golden {
        story: ended_by_another_thread,
        start_ns: 100,
        answer: [
            STARTED,
            "
            109-111 sh kernel.exec wake-up
            111-114 sh user wake-up
            114-123 sh kernel.exec wake-up
            123-125 true user wake-up
            125-128 true kernel.exec wake-up
            128-130 true runqueue.wakeup run-queue
            130-132 true kernel.exec group-exit
            132-150 true user group-exit
            150-160 true user wake-up
            160-163 true kernel.exec wake-up
            163-165 client runqueue.wakeup run-queue
            165-170 client kernel.exec end
        ",
            "",
        ],
    },
    Golden {
        story: taken_from_memory,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.unix ready
            105-110 server queue.socket ready
            110-115 server kernel.unix in-memory
            115-150 helper queue.app in-memory
            150-170 helper user message
            170-175 helper kernel.unix message
            175-178 client runqueue.wakeup run-queue
            178-185 client kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: served_in_turn,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.unix ready
            105-110 server queue.socket ready
            110-115 server kernel.unix message
            115-130 server user message
            130-140 server queue.app turn
            140-170 server user message
            170-175 server kernel.unix message
            175-178 client runqueue.wakeup run-queue
            178-185 client kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: claimed_by_another,
        start_ns: 90,
        answer: [
            "",
            "
            90-95 other kernel.unix ready
            95-100 server queue.socket ready
            100-105 server kernel.unix wake-up
            105-106 server user wake-up
            106-112 server queue.app turn
            112-114 server user wake-up
            114-115 server kernel.futex wake-up
            115-118 helper runqueue.wakeup run-queue
            118-120 helper kernel.futex wake-up
            120-140 helper user wake-up
            140-142 helper kernel.futex wake-up
            142-147 worker runqueue.wakeup run-queue
            147-149 worker kernel.futex ready
            149-152 worker user ready
            152-158 worker kernel.unix ready
            158-159 other queue.socket ready
            159-162 other kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: rested_for_a_timer,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.unix ready
            105-110 server queue.socket ready
            110-115 server kernel.unix timer
            115-118 server user timer
            118-120 server kernel.poll timer
            120-160 server sleep timer
            160-162 server runqueue.wakeup run-queue
            162-164 server kernel.poll message
            164-170 server user message
            170-175 server kernel.unix message
            175-178 client runqueue.wakeup run-queue
            178-185 client kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: claimed_by_another,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.unix ready
            105-106 server queue.socket ready
            106-112 server kernel.unix wake-up
            112-114 server user wake-up
            114-115 server kernel.futex wake-up
            115-142 helper queue.app claimed
            142-145 helper kernel.futex wake-up
            145-165 worker2 runqueue.wakeup run-queue
            165-167 worker2 kernel.futex message
            167-170 worker2 user message
            170-175 worker2 kernel.unix message
            175-178 client runqueue.wakeup run-queue
            178-185 client kernel.unix end
        ",
            "",
        ],
    },
    Golden {
        story: asked_a_back_end,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.tcp ready
            105-106 server queue.socket ready
            106-110 server kernel.tcp asked
            110-115 server user asked
            115-120 server kernel.tcp ready
            120-121 back end queue.socket ready
            121-127 back end kernel.tcp ready
            127-150 back end user ready
            150-155 back end kernel.tcp ready
            155-170 server queue.socket ready
            170-175 server kernel.tcp asked
            175-180 server user ready
            180-185 server kernel.tcp ready
            185-190 client queue.socket ready
            190-195 client kernel.tcp end
        ",
            "",
        ],
    },
    Golden {
        story: asked_ahead,
        start_ns: 100,
        answer: [
            "",
            "
            100-105 client kernel.tcp ready
            105-106 server queue.socket ready
            106-110 server kernel.tcp ready
            110-115 server user ready
            115-120 server kernel.tcp ready
            120-170 server user ready
            170-175 server kernel.tcp ready
            175-180 server user ready
            180-185 server kernel.tcp ready
            185-190 client queue.socket ready
            190-195 client kernel.tcp end
        ",
            "",
        ],
    },
    Golden {
        story: through_a_device,
        start_ns: 100,
        answer: [
            "",
            "
            100-110 client kernel.tcp ready
            110-120 server wire.qdisc wire
            120-140 server wire.link wire
            140-145 server kernel.tcp message
            145-160 server user message
            160-165 server kernel.tcp message
            165-168 client runqueue.wakeup run-queue
            168-175 client kernel.tcp end
        ",
            "",
        ],
    },
];

/// What the engine answers for the request in question.
fn segments_of(golden: &Golden) -> Vec<Segment> {
    let answers = explain(6, 0, &(golden.story)().events(), 0.0);
    let mut ours = answers.into_iter().filter(|(request, _)| request.start_ns == golden.start_ns);
    let (request, segments) = ours.next().expect("a request");
    check_conservation(&request, &segments).expect("law 1");
    segments
}

#[test]
fn each_answer_names_its_rules() {
    for golden in GOLDENS {
        assert_eq!(table_of(&segments_of(&golden)), expected(&golden.answer.concat()));
    }
}

#[test]
fn every_rule_is_in_one_of_them() {
    let answers = GOLDENS.iter().flat_map(|golden| golden.answer).flat_map(str::lines);
    let named: BTreeSet<&str> =
        answers.filter_map(|line| line.split_whitespace().next_back()).collect();
    let all: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(named, all);
}
