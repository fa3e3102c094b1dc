//! Stacks as detail of segments: the stack with which a thread went to sleep, and those of samples.
//!
//! An address has a meaning only while the process keeps its mappings, so each is turned into a place in a
//! file when its record comes. Nothing here changes a duration or a category.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::event::{Code, Module};
use crate::symbols::{Place, SleptFor, Symbols};
use crate::timeline::address_space::{AddressSpace, Extent};
use crate::timeline::{Off, ProcessId, ThreadId, Why, World};
use rpcprobe_model::{Category, Samples, StackUse, Taken};
use rpcprobe_record::{KERNEL_FRAMES, USER_FRAMES};

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    Kernel(u64),
    /// Offset in a file; `module` is the file's number in [`Stacks::modules`].
    User {
        module: u32,
        offset: u64,
    },
    /// An address outside of all known code.
    Unknown(u64),
    /// Frames were left out here: there were more than a record holds.
    Cut,
}

/// Innermost first; the program's frames after the kernel's.
pub type Stack = Rc<[Frame]>;

/// All stacks an open request may need, and what is needed to read them.
#[derive(Debug, Default)]
pub struct Stacks {
    modules: Vec<Module>,
    module_ids: HashMap<Module, u32>,
    spaces: HashMap<ProcessId, Rc<AddressSpace>>,
    /// By thread: time of the switch, stack.
    sleeps: HashMap<ThreadId, VecDeque<(u64, Stack)>>,
    /// By thread: time of the interruption, stack.
    samples: HashMap<ThreadId, VecDeque<(u64, Stack)>>,
    /// Names of the capture's addresses.
    pub symbols: Rc<Symbols>,
    /// Numbers of the stacks that segments show, given at the first use.
    shown: RefCell<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    ids: HashMap<Stack, u64>,
    stacks: Vec<Stack>,
}

impl Shown {
    fn id(&mut self, stack: &Stack) -> u64 {
        if let Some(&id) = self.ids.get(stack) {
            return id;
        }
        self.stacks.push(Rc::clone(stack));
        let id = self.stacks.len() as u64;
        self.ids.insert(Rc::clone(stack), id);
        id
    }
}

impl Stacks {
    /// Whether the capture has any stacks.
    pub fn any(&self) -> bool {
        !self.sleeps.is_empty() || !self.samples.is_empty()
    }

    /// The stacks that segments show: number 1, 2, ....
    pub fn shown(&self) -> Vec<Stack> {
        self.shown.borrow().stacks.clone()
    }

    /// The place of a frame, where it is known.
    pub fn place(&self, frame: Frame) -> Option<Place<'_>> {
        match frame {
            Frame::Kernel(address) => Some(Place { module: None, address }),
            Frame::User { module, offset } => {
                Some(Place { module: Some(&self.modules[module as usize]), address: offset })
            }
            Frame::Unknown(_) | Frame::Cut => None,
        }
    }

    /// Turns addresses into frames. A caller's address is its return address: the call lies before it.
    pub fn frames(&self, process: Option<ProcessId>, kernel: &[u64], user: &[u64]) -> Stack {
        let space = process.and_then(|process| self.spaces.get(&process));
        let at = |index: usize, address: u64| address.wrapping_sub(u64::from(index > 0));
        let mut frames: Vec<Frame> =
            kernel.iter().enumerate().map(|(i, &a)| Frame::Kernel(at(i, a))).collect();
        if kernel.len() == KERNEL_FRAMES {
            frames.push(Frame::Cut);
        }
        for (index, &address) in user.iter().enumerate() {
            let address = at(index, address);
            let found = space.and_then(|space| space.find(address));
            let frame = match found {
                Some((module, offset)) => Frame::User { module, offset },
                None => Frame::Unknown(address),
            };
            frames.push(frame);
            if index > 0 && matches!(frame, Frame::Unknown(_)) {
                // The frame pointers led out of all code. What follows is meaningless.
                return frames.into();
            }
        }
        if user.len() == USER_FRAMES {
            frames.push(Frame::Cut);
        }
        frames.into()
    }

    pub(super) fn slept(&mut self, thread: ThreadId, at_ns: u64, kernel: &[u64]) {
        let stack = self.frames(None, kernel, &[]);
        insert(self.sleeps.entry(thread).or_default(), at_ns, stack);
    }

    pub(super) fn sampled(
        &mut self,
        thread: ThreadId,
        process: ProcessId,
        at_ns: u64,
        kernel: &[u64],
        user: &[u64],
    ) {
        let stack = self.frames(Some(process), kernel, user);
        insert(self.samples.entry(thread).or_default(), at_ns, stack);
    }

    pub(super) fn forked(&mut self, parent: ProcessId, child: ProcessId) {
        if let Some(space) = self.spaces.get(&parent).cloned() {
            self.spaces.insert(child, space);
        }
    }

    /// `None`: the address space is new.
    pub(super) fn mapped(&mut self, process: ProcessId, code: Option<&Code>) {
        let Some(code) = code else {
            self.spaces.insert(process, Rc::default());
            return;
        };
        let module = match self.module_ids.get(&code.module) {
            Some(&id) => id,
            None => {
                let id = self.modules.len() as u32;
                self.modules.push(code.module.clone());
                self.module_ids.insert(code.module.clone(), id);
                id
            }
        };
        let extent = Extent { end: code.end, file_offset: code.file_offset, module };
        Rc::make_mut(self.spaces.entry(process).or_default()).map(code.start, extent);
    }

    pub(super) fn forget_before(&mut self, horizon_ns: u64) {
        for stacks in self.samples.values_mut().chain(self.sleeps.values_mut()) {
            // The last before the horizon may be of a sleep that reaches past it.
            while stacks.len() > 1 && stacks[1].0 < horizon_ns {
                stacks.pop_front();
            }
        }
    }

    /// Keeps only what belongs to these threads and processes.
    pub(super) fn retain(
        &mut self,
        thread: impl Fn(ThreadId) -> bool,
        process: impl Fn(ProcessId) -> bool,
    ) {
        self.sleeps.retain(|id, _| thread(*id));
        self.samples.retain(|id, _| thread(*id));
        self.spaces.retain(|id, _| process(*id));
    }

    /// The kernel stack of a sleep.
    fn of_sleep(&self, thread: ThreadId, off: &Off) -> Option<&Stack> {
        let stacks = self.sleeps.get(&thread)?;
        let index = stacks.binary_search_by_key(&off.start_ns, |(at_ns, _)| *at_ns).ok()?;
        Some(&stacks[index].1)
    }

    /// Why the kernel put the thread to sleep: names from the kernel stack of the sleep.
    pub fn reason(&self, thread: ThreadId, off: &Off) -> Option<SleptFor> {
        let stack = self.of_sleep(thread, off)?;
        crate::symbols::reason(stack.iter().filter_map(|frame| {
            let lines = self.symbols.at(self.place(*frame)?)?;
            Some(&*lines.last()?.function)
        }))
    }

    /// Whether a sample of the thread was taken by the interrupt that began at `start_ns`.
    pub fn sampled_by_interrupt_at(&self, thread: ThreadId, start_ns: u64) -> bool {
        let samples = self.samples.get(&thread);
        samples.is_some_and(|samples| samples.binary_search_by_key(&start_ns, |s| s.0).is_ok())
    }

    /// How many samples of the thread fell into `[start_ns, end_ns)`, and how many of those found the kernel
    /// copying between a program's memory and its own.
    pub fn copying(&self, thread: ThreadId, start_ns: u64, end_ns: u64) -> Samples {
        let mut found = Samples::default();
        if self.samples.is_empty() {
            return found;
        }
        for (_, stack) in self.samples_in(thread, start_ns, end_ns) {
            found.all += 1;
            found.copying += u64::from(stack.first().is_some_and(|frame| self.copies(*frame)));
        }
        found
    }

    fn copies(&self, frame: Frame) -> bool {
        let Frame::Kernel(_) = frame else { return false };
        let lines = self.place(frame).and_then(|place| self.symbols.at(place));
        lines.is_some_and(|lines| lines.iter().any(|line| copies_payload(&line.function)))
    }

    fn samples_in(
        &self,
        thread: ThreadId,
        start_ns: u64,
        end_ns: u64,
    ) -> impl Iterator<Item = &(u64, Stack)> {
        let samples = self.samples.get(&thread);
        // A sample shows what ran just before its time.
        let first = samples.map_or(0, |s| s.partition_point(|(at_ns, _)| *at_ns <= start_ns));
        let range = samples.into_iter().flat_map(move |samples| samples.range(first..));
        range.take_while(move |(at_ns, _)| *at_ns <= end_ns)
    }

    /// The most frequent stack of the samples in `[start_ns, end_ns)`: an example, how many stacks are like it, and how
    /// many there are. Stacks with the same functions are alike, whatever the lines.
    fn most_frequent(
        &self,
        thread: ThreadId,
        start_ns: u64,
        end_ns: u64,
    ) -> Option<(&Stack, u64, u64)> {
        let mut groups: HashMap<Vec<Function<'_>>, (usize, u64)> = HashMap::new();
        let found: Vec<&Stack> =
            self.samples_in(thread, start_ns, end_ns).map(|(_, stack)| stack).collect();
        for (index, stack) in found.iter().enumerate() {
            let functions = stack.iter().flat_map(|frame| self.functions(*frame)).collect();
            groups.entry(functions).or_insert((index, 0)).1 += 1;
        }
        // Of equally frequent stacks, the one that came first.
        let (first, same) =
            groups.into_values().max_by_key(|&(first, same)| (same, Reverse(first)))?;
        Some((found[first], same, found.len() as u64))
    }

    fn functions(&self, frame: Frame) -> Vec<Function<'_>> {
        match self.place(frame).and_then(|place| self.symbols.at(place)) {
            Some(lines) => lines.iter().map(|line| Function::Named(&line.function)).collect(),
            None => vec![Function::Nameless(frame)],
        }
    }
}

/// Whether a kernel function is one that moves bytes between a program's memory and the kernel's:
/// `_copy_to_iter`, `rep_movs_alternative` (arch/x86/lib/copy_user_64.S), `copy_user_generic_string` and the like.
fn copies_payload(function: &str) -> bool {
    const PARTS: [&str; 7] = [
        "copy_to_iter",
        "copy_from_iter",
        "copy_to_user",
        "copy_from_user",
        "copy_user",
        "rep_movs",
        "memcpy",
    ];
    PARTS.iter().any(|part| function.contains(part))
}

#[derive(PartialEq, Eq, Hash)]
enum Function<'s> {
    Named(&'s str),
    Nameless(Frame),
}

/// Records of different CPUs may be slightly out of order.
fn insert(list: &mut VecDeque<(u64, Stack)>, at_ns: u64, stack: Stack) {
    let index = list.partition_point(|(other_ns, _)| *other_ns <= at_ns);
    list.insert(index, (at_ns, stack));
}

impl World {
    /// The stack to show with what a thread did, or waited for, in `[start_ns, end_ns)`.
    pub fn stack_of(
        &self,
        thread: ThreadId,
        category: Category,
        start_ns: u64,
        end_ns: u64,
    ) -> Option<StackUse> {
        let off = self.thread(thread).off_before(end_ns).filter(|off| off.end_ns >= end_ns);
        let (stack, taken) = match off {
            // Runnable: what it slept for is over.
            Some(_)
                if matches!(category, Category::RunqueueWakeup | Category::RunqueuePreempted) =>
            {
                return None
            }
            Some(off) if off.start_ns > start_ns || !matches!(off.why, Why::Slept { .. }) => {
                return None
            }
            Some(off) => (self.stacks.of_sleep(thread, off)?, Taken::AtSleep),
            None => {
                let found = self.stacks.most_frequent(thread, start_ns, end_ns)?;
                (found.0, Taken::Sampled { same: found.1, all: found.2 })
            }
        };
        Some(StackUse { stack_id: self.stacks.shown.borrow_mut().id(stack), taken })
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::decode::decode;
    use super::super::event::{Event, Mapping, What};
    use super::*;
    use crate::classify::off_cpu;
    use crate::symbols::Line;
    use rpcprobe_record::*;

    fn hdr(kind: u8, flags: u8, aux: u16) -> RecHdr {
        RecHdr { ts_ns: 100, tid: 7, kind, flags, aux }
    }

    fn sample(kernel_frames: u32, user_frames: u32, addresses: usize) -> Vec<u8> {
        let hdr = hdr(REC_SAMPLE, 0, 0);
        let head = RecSample { hdr, interrupted_ns: u64::MAX, kernel_frames, user_frames };
        [head.as_bytes(), &vec![0xee; addresses * 8]].concat()
    }

    fn mapping(build_id_bytes: u32, path_bytes: u32) -> RecMapping {
        RecMapping {
            hdr: hdr(REC_MAPPING, 0, 0),
            tgid: 7,
            path_bytes,
            start: u64::MAX - 10,
            bytes: u64::MAX,
            file_offset: u64::MAX,
            ino: 1,
            dev: 0,
            build_id_bytes,
            build_id: [0xab; BUILD_ID_BYTES],
            pad: [0; 4],
        }
    }

    #[test]
    fn records_that_claim_more_than_they_hold_are_refused() {
        for aux in [1, 33, u16::MAX] {
            let stack = RecStack { hdr: hdr(REC_STACK, 0, aux) };
            assert!(decode(0, stack.as_bytes()).is_err(), "{aux}");
        }
        for (kernel, user) in [(1, 0), (0, 1)] {
            assert!(decode(0, &sample(kernel, user, 0)).is_err(), "{kernel} {user}");
        }
        for (kernel, user) in [(33, 0), (0, 65), (u32::MAX, 1), (1, u32::MAX)] {
            assert!(decode(0, &sample(kernel, user, 200)).is_err(), "{kernel} {user}");
        }
        assert!(decode(0, &sample(32, 64, 96)).is_ok());
        assert!(decode(0, mapping(21, 0).as_bytes()).is_err());
        assert!(decode(0, mapping(20, 1).as_bytes()).is_err());
        assert!(decode(0, &mapping(20, 0).as_bytes()[..20]).is_err());
        assert!(decode(0, mapping(0, 0).as_bytes()).is_ok());
    }

    #[test]
    fn extreme_records_do_no_harm() {
        let mut world = World::new(1, 0);
        world.apply(&task(7));
        for record in [
            mapping(20, 0).as_bytes().to_vec(),
            sample(32, 64, 96),
            sample(0, 0, 0),
            RecStack { hdr: hdr(REC_STACK, 0, 0) }.as_bytes().to_vec(),
        ] {
            world.apply(&decode(0, &record).unwrap().unwrap());
        }
        // What was interrupted cannot be later than its sample.
        let (stack, same, all) = world.stacks.most_frequent(1, 0, 100).expect("the samples");
        assert_eq!((same, all), (1, 2));
        // Cut after the kernel's frames; the program's end where they lead out of all code.
        let user = &stack[KERNEL_FRAMES..];
        assert_eq!(user[0], Frame::Cut);
        assert_eq!(user.len(), 3, "{user:x?}");
    }

    fn what(what: What) -> Event {
        Event { ts_ns: 100, cpu: 0, what }
    }

    fn module(path: &str) -> Module {
        Module { path: path.into(), identity: "inode:0:0:1".into() }
    }

    fn code(tgid: u32, start: u64, path: &str) -> Event {
        let code = Code { start, end: start + 0x1000, file_offset: 0x2000, module: module(path) };
        what(What::Mapping(Box::new(Mapping { tgid, code: Some(code) })))
    }

    fn task(tid: u32) -> Event {
        what(What::Task { tid, tgid: tid, kthread: false, comm: "x".into() })
    }

    fn fork(parent: u32, child: u32) -> Event {
        what(What::Fork {
            parent,
            child,
            child_tgid: child,
            flags: TASK_TRACED,
            enter_ns: 0,
            comm: "x".into(),
        })
    }

    #[test]
    fn a_child_has_its_parents_code_until_it_runs_a_program() {
        let mut world = World::new(1, 0);
        for event in [task(7), code(7, 0x1000, "/a"), fork(7, 8), code(8, 0x5000, "/b")] {
            world.apply(&event);
        }
        let at = |world: &mut World, tid, address| {
            let thread = world.thread_of_tid(tid);
            let process = world.thread(thread).process;
            let frame = world.stacks.frames(Some(process), &[], &[address])[0];
            let place = world.stacks.place(frame)?;
            Some((place.module.expect("of a program").path.to_string(), place.address))
        };
        assert_eq!(at(&mut world, 8, 0x1010), Some(("/a".into(), 0x2010)));
        assert_eq!(at(&mut world, 8, 0x5000), Some(("/b".into(), 0x2000)));
        assert_eq!(at(&mut world, 7, 0x5000), None, "the parent is not the child");
        world.apply(&what(What::Mapping(Box::new(Mapping { tgid: 8, code: None }))));
        assert_eq!(at(&mut world, 8, 0x1010), None);
        assert_eq!(at(&mut world, 7, 0x1010), Some(("/a".into(), 0x2010)));
    }

    #[test]
    fn an_uninterruptible_sleep_is_named_by_its_stack() {
        let mut symbols = Symbols::default();
        let functions = ["schedule", "rwsem_down_write_slowpath", "down_write", "ext4_file_write"];
        for (address, function) in (0_u64..).step_by(0x10).zip(functions) {
            // Callers' addresses are those of their calls.
            let address = 0x1000 + address - u64::from(address > 0);
            let (function, inlined) = (function.to_string(), false);
            let line = Line { function, file: None, line: None, inlined };
            symbols.insert(Place { module: None, address }, line);
        }
        for (state, named) in [(2, true), (1, false)] {
            let mut world = World::new(1, 0);
            let kernel = (0..4).map(|i| 0x1000 + 0x10 * i).collect();
            world.apply(&task(7));
            let (prev, next, call) = (7, 0, None);
            let (preempt, iowait) = (false, false);
            world.apply(&what(What::Switch {
                prev,
                next,
                waited_ns: None,
                state,
                preempt,
                iowait,
                call,
            }));
            world.apply(&what(What::Stack { tid: 7, kernel }));
            let explained = |world: &World| {
                let thread = world.thread_by_tid(7).unwrap();
                let off = world.thread(thread).off_before(200).unwrap();
                off_cpu::explain(world, thread, off, 100, 200, None).remove(0)
            };
            let before = explained(&world);
            assert!(before.detail.contains("nothing shows for what"), "{before:?}");
            world.stacks.symbols = Rc::new(std::mem::take(&mut symbols));
            let after = explained(&world);
            let detail = "kernel rwsem (write) in ext4_file_write, in a page fault";
            assert_eq!(after.detail == detail, named, "{after:?}");
            assert_eq!(off_cpu::Part { detail: before.detail.clone(), ..after }, before);
            symbols = Rc::try_unwrap(std::mem::take(&mut world.stacks.symbols)).unwrap();
        }
    }
}
