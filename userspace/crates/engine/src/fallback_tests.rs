//! Turns on standard input and output: held up to a bound, then handed out, and never beside other requests.

use crate::event::{Call, Io, Object, What, TYPE_FIFO};
use crate::send_limit::SendLimit;
use crate::*;
use rpcprobe_model::check_conservation;
use rpcprobe_model::Kind;

const INPUT: u64 = 1;
const OUTPUT: u64 = 2;
const MOST: usize = 10;

/// A program that reads and writes, and the requests found.
struct Program {
    engine: Engine,
    given: Vec<(Kind, u64)>,
    /// Offset of the next byte of each pipe.
    moved: [u64; 8],
}

impl Program {
    fn new(most: (usize, usize)) -> Program {
        let mut engine = Engine::new(1, 0, Rates::default());
        engine.fallback.most = most;
        let mut program = Program { engine, given: Vec::new(), moved: [0; 8] };
        for tid in [10, 20] {
            let task = What::Task { tid, tgid: tid, kthread: false, comm: "x".into() };
            program.push(0, task).unwrap();
        }
        program
    }

    fn push(&mut self, ts_ns: u64, what: What) -> Result<()> {
        let given = &mut self.given;
        let mut sink = |request: Request, segments: Segments| {
            check_conservation(&request, &segments.list).expect("the law of conservation");
            given.push((request.kind, request.start_ns));
            Ok(())
        };
        self.engine.push(&Event { ts_ns, cpu: 0, what }, &mut sink)
    }

    fn finish(&mut self) -> Result<()> {
        let given = &mut self.given;
        let mut sink = |request: Request, _: Segments| {
            given.push((request.kind, request.start_ns));
            Ok(())
        };
        self.engine.finish(Some(1_000_000), &mut sink)
    }

    /// One byte through a pipe.
    fn moves(&mut self, tid: u32, (ino, fd): (u64, i32), is_write: bool, at_ns: u64) -> Result<()> {
        let offset = self.moved[ino as usize];
        self.moved[ino as usize] += u64::from(!is_write || ino == OUTPUT);
        let io = Io {
            object: Object { dev: 9, ino, type_bits: TYPE_FIFO },
            fd,
            is_write,
            offset,
            bytes: 1,
            reverse: None,
            empty: false,
            unsent: SendLimit::default(),
            socket: 0,
        };
        let call = Call { io: Some(io), ..Call::new(u16::from(is_write), (at_ns, at_ns + 5), 1) };
        self.push(at_ns + 5, What::Call { tid, call })
    }

    /// The turn of that number; it is found when the next begins.
    fn turn(&mut self, number: u64) {
        let at_ns = 1_000 + 100 * number;
        self.moves(10, (INPUT, 0), false, at_ns).unwrap();
        self.moves(10, (OUTPUT, 1), true, at_ns + 50).unwrap();
    }

    /// A request over two other pipes, and the next question.
    fn request(&mut self, at_ns: u64) -> Result<()> {
        self.moves(10, (3, 5), true, at_ns)?;
        self.moves(20, (3, 6), false, at_ns + 10)?;
        self.moves(20, (4, 7), true, at_ns + 20)?;
        self.moves(10, (4, 8), false, at_ns + 30)?;
        self.moves(10, (3, 5), true, at_ns + 40)
    }
}

fn turns(numbers: std::ops::Range<u64>) -> Vec<(Kind, u64)> {
    numbers.map(|number| (Kind::Stdio, 1_000 + 100 * number)).collect()
}

#[test]
fn turns_are_held_up_to_a_bound_and_then_given_as_they_come() {
    let mut program = Program::new((MOST, 1_000));
    for number in 0..40 {
        program.turn(number);
        assert!(program.engine.fallback.held.len() <= MOST);
        let found = number;
        let given = if found > MOST as u64 { found } else { 0 };
        assert_eq!(program.given, turns(0..given));
    }
    program.finish().unwrap();
    assert_eq!(program.given, turns(0..40));
}

/// Few turns with many segments take as much memory.
#[test]
fn segments_that_are_held_are_bounded_too() {
    let mut program = Program::new((1_000_000, 20));
    for number in 0..40 {
        program.turn(number);
        assert!(program.engine.fallback.segments <= 20);
    }
    assert!(!program.given.is_empty());
    program.finish().unwrap();
    assert_eq!(program.given, turns(0..40));
}

#[test]
fn fewer_turns_are_given_at_the_end() {
    let mut program = Program::new((MOST, 1_000));
    (0..5).for_each(|number| program.turn(number));
    assert_eq!(program.given, []);
    program.finish().unwrap();
    assert_eq!(program.given, turns(0..5));
}

#[test]
fn turns_that_are_held_are_dropped_where_there_are_requests() {
    let mut program = Program::new((MOST, 1_000));
    (0..5).for_each(|number| program.turn(number));
    program.request(10_000).unwrap();
    (100..140).for_each(|number| program.turn(number));
    program.finish().unwrap();
    assert_eq!(program.given[0], (Kind::Pipe, 10_000));
    assert!(program.given.iter().all(|(kind, _)| *kind == Kind::Pipe), "{:?}", program.given);
    assert_eq!((program.engine.fallback.held.len(), program.engine.fallback.segments), (0, 0));
}

/// Turns and requests are not mixed: the next pass leaves turns out.
#[test]
fn requests_that_come_after_turns_were_given_ask_for_another_pass() {
    let mut program = Program::new((MOST, 1_000));
    (0..40).for_each(|number| program.turn(number));
    let error = program.request(10_000).expect_err("turns were given");
    assert!(error.is::<FallbackGiven>());

    let mut again = Program::new((MOST, 1_000));
    again.engine.leave_out_fallback();
    (0..40).for_each(|number| again.turn(number));
    again.request(10_000).unwrap();
    again.finish().unwrap();
    assert_eq!(again.given[0], (Kind::Pipe, 10_000));
    assert!(again.given.iter().all(|(kind, _)| *kind == Kind::Pipe), "{:?}", again.given);
}
