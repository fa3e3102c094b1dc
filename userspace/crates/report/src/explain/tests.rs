use super::super::fixtures::{manifest, segment, ten, text, tiled, unfinished, PLAIN};
use super::*;
use rpcprobe_model::{Side, StackUse};
use rpcprobe_tables::ShownFrame;

/// Stack 1 belongs to a sleep, stack 2 to a sample.
fn stacks() -> ShownStacks {
    let frame = |function: &str, kernel| ShownFrame {
        kernel,
        function: function.into(),
        file: None,
        line: None,
        inlined: false,
        module: None,
        address: None,
    };
    let source = |file: &str, line| (Some(file.to_string()), Some(line));
    let (file, line) = source("/src/\x1b[2J/spin\u{202e}.c", 7);
    let spin = ShownFrame { file, line, inlined: true, ..frame("spin\x07", false) };
    let mut deep = vec![frame("schedule", true), frame("do_nanosleep", true)];
    deep.extend((0..20).map(|i| frame(&format!("caller_{i}"), true)));
    [(1, deep), (2, vec![spin, frame("[prog+0x12]", false)])].into()
}

#[test]
fn stacks_stand_under_their_segments() {
    let (row, mut segments) = ten().remove(9);
    let used = |stack_id, taken| Some(StackUse { stack_id, taken });
    segments[0].stack = used(2, Taken::Sampled { same: 2, all: 3 });
    segments[1].stack = used(99, Taken::AtSleep); // no such stack
    segments[2].stack = used(1, Taken::AtSleep);
    let told = of(&row.request, &segments, false, PLAIN);
    let sample = "      2 of 3 samples* found it in:\n        \
                  spin\\x07 (spin\\u{202e}.c:7), inlined\n        [prog+0x12]\n7.";
    let sample = sample.replace("\n7.", "\n6.");
    assert!(told.contains(&sample), "{told}");
    let sleep = "      where it went to sleep:\n        do_nanosleep [kernel]\n";
    assert!(told.contains(sleep), "{told}");
    assert!(told.contains("… 9 more frames; --all shows each\n"), "{told}");
    assert!(told.contains("* in whole or in part sampled"), "{told}");
    let summary = "3 samples*, where they found its threads:\n      2  \
                   spin\\x07 (spin\\u{202e}.c:7), inlined < [prog+0x12]\n      1  elsewhere\n";
    assert!(told.contains(summary), "{told}");
    assert!(told.contains("the latency exactly"), "{told}");
    let all = of(&row.request, &segments, true, PLAIN);
    assert!(all.contains("        schedule [kernel]\n"), "{all}");
    assert!(all.contains("caller_19") && all.contains("(/src/\\x1b[2J/spin"), "{all}");
}

fn of(request: &Request, segments: &[Segment], all: bool, style: Style) -> String {
    with_relatives(request, segments, &Relatives::default(), (all, style))
}

fn with_relatives(
    request: &Request,
    segments: &[Segment],
    relatives: &Relatives,
    (all, style): (bool, Style),
) -> String {
    let (manifest, stacks) = (&manifest(), &stacks());
    let of = Explained { manifest, request, segments, stacks, relatives };
    text(|out| explain(out, &of, all, style))
}

#[test]
fn the_time_line() {
    let (row, mut segments) = ten().remove(9);
    segments[1].detail = Some("read(3)\x1b[0m".into());
    segments[2].cause = Some("compaction".into());
    let expected = "\
request 10 (pipe), 10.0 us = 10,000 ns, at +0.010000 s of the capture
client client/101 · server server/102 · likely a pipe request · channel pipe:[7] · bytes 64/128 (request/response)

      at    lasts   share  where                                     category         side    thread      cpu
0.000 us  6.00 us  60.0 %  ████████████████████████················  user             client  client/101    2
6.000 us  1.00 us  10.0 %  ························████············  copy ~           server  client/101    2  read(3)\\x1b[0m
7.000 us  3.00 us  30.0 %  ····························████████████  runqueue.wakeup  client  client/101    2  by sh/9 · because: compaction
total 10.0 us: the 3 segments sum to 10,000 ns, the latency exactly
~ in whole or in part modelled, not measured
";
    assert_eq!(of(&row.request, &segments, false, PLAIN), expected);
}

#[test]
fn what_does_not_add_up_is_said_loudly() {
    let (row, mut segments) = ten().remove(0);
    segments.remove(1);
    let text = of(&row.request, &segments, false, PLAIN);
    assert!(
        text.contains(
            "DOES NOT ADD UP: the 2 segments sum to 900 ns, the latency is 1,000 ns, 100 ns missing"
        ),
        "{text}"
    );
    assert!(!text.contains("exactly"));
    let (mut row, segments) = ten().remove(0);
    row.request.latency_ns = 999;
    assert!(of(&row.request, &segments, false, PLAIN).contains("1 ns too much"));
}

#[test]
fn a_gap_balanced_by_an_overlap_is_found() {
    let (row, mut segments) = ten().remove(0);
    segments[1].start_ns += 1;
    let text = of(&row.request, &segments, false, PLAIN);
    assert!(text.contains("DOES NOT ADD UP") && text.contains("segment 1 starts at"), "{text}");
}

#[test]
fn incomplete_requests() {
    let mut request = unfinished(1, 3_100_000).request;
    request.records_lost = 1_234;
    let text = of(&request, &[], false, PLAIN);
    assert!(text.contains("≥ 3.10 ms"), "{text}");
    assert!(text.contains("incomplete: records lost; the latency is a lower bound"));
    assert!(text.contains("1,234 records lost meanwhile"), "{text}");
    assert!(text.contains("(no segments)"));
    assert!(!text.contains("ADD UP"));
}

#[test]
fn long_requests_are_grouped_and_still_add_up() {
    let mut pieces = Vec::new();
    for i in 0..1_000_u64 {
        let category = Category::ALL[i as usize % 7];
        let mut piece =
            segment(category, Side::Server, if i % 100 == 50 { 9_000 } else { 10 + i % 3 });
        if i == 3 {
            piece.evidence = Evidence::Modelled;
        }
        pieces.push(piece);
    }
    let (row, segments) = tiled(1, pieces);
    let groups = lines(&row.request, &segments);
    assert!(groups.len() <= MAX_LINES, "{}", groups.len());
    assert_eq!(groups.concat(), segments);
    let text = of(&row.request, &segments, false, PLAIN);
    assert!(text.contains("1,000 segments in"), "{text}");
    assert!(text.contains("segments) ~"), "{text}");
    assert!(text.contains("the latency exactly"));
    assert!(of(&row.request, &segments, true, PLAIN).lines().count() > 1_000);
}

#[test]
fn crumbs_share_a_line() {
    let of = |category, ns| segment(category, Side::Server, ns);
    let mut other = of(Category::User, 10);
    other.tid = 7;
    let (row, segments) = tiled(
        1,
        vec![
            of(Category::KernelPipe, 20),
            of(Category::User, 30),
            of(Category::RunqueueWakeup, 100),
            of(Category::User, 40),
            other,
            of(Category::Lock, 5_000),
            of(Category::User, 1_000),
            of(Category::Fault, 30),
            of(Category::Copy, 1),
        ],
    );
    let lengths: Vec<_> = lines(&row.request, &segments).iter().map(|l| l.len()).collect();
    assert_eq!(lengths, [2, 1, 1, 1, 1, 1, 2]);
    let text = self::of(&row.request, &segments, false, PLAIN);
    assert!(text.contains("on CPU (2 segments)"), "{text}");
    assert!(text.contains("user 30 ns, kernel.pipe 20 ns"), "{text}");
    assert!(text.contains("9 segments in 7 lines; --all shows each"), "{text}");
    assert!(!self::of(&row.request, &segments, true, PLAIN).contains("(2 segments)"));
}

#[test]
fn every_width_and_extreme_numbers() {
    let (mut row, segments) = ten().remove(0);
    for latency_ns in [0, 1, 1_000, i64::MAX as u64] {
        row.request.latency_ns = latency_ns;
        for width in [None, Some(0), Some(80), Some(130), Some(u16::MAX)] {
            for color in [false, true] {
                of(&row.request, &segments, false, Style { color, width });
            }
        }
    }
}

#[test]
fn a_terminal_of_80_columns_is_enough() {
    let (row, mut segments) = ten().remove(0);
    segments[0].category = Category::RunqueuePreempted;
    segments[0].comm = "a-name-of-15-by".into();
    segments[0].tid = 4_194_304;
    segments[0].detail = Some("a word ".repeat(30).trim().into());
    for width in [80, 100, 120] {
        let text =
            self::of(&row.request, &segments, true, Style { color: false, width: Some(width) });
        for line in text.lines() {
            assert!(line.trim_end().chars().count() <= width.into(), "{width}: {text}");
        }
        assert!(text.contains("a-name-of-15-by/4194304"), "{text}");
    }
}

#[test]
fn bars_fit_and_are_never_empty() {
    let (row, segments) = ten().remove(0);
    for segment in segments.chunks(1) {
        let line = line(&row.request, segment, false).unwrap();
        for width in [1, 10, 60] {
            let bar = bar(&row.request, &line, width);
            assert_eq!(bar.chars().count(), width);
            assert!(bar.contains('█'));
        }
    }
}
