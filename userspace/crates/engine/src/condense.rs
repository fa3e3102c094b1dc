//! Keeps requests to few segments: short pieces that lie scattered over a stretch of time are added up.
//!
//! A stretch is reported by category instead of in order: each category's pieces become one segment, of their exact
//! sum, in the order in which the categories first appear. So the segments still tile the request, and its sums by
//! category, side, thread, phase, rule and evidence are unchanged. Only the positions of the pieces in the stretch are
//! lost. No stretch is longer than a hundredth of the request. docs/design.md, "Few segments".

use std::hash::Hash;

use rustc_hash::FxHashMap;

use rpcprobe_model::{Segments, TextId, Texts, Told, ADDED_UP};

/// A request of at most this many segments has its own work reported piece by piece. (The first, and longest, request
/// of a single client of `targets/frpc` has 65 segments.)
const MOST: usize = 100;
/// A program's life of at most this many segments is reported piece by piece. (Of 900 runs of an evaluator of
/// expressions the longest has 660.)
const MOST_OF_A_LIFE: usize = 1000;
/// A stretch is at most one of this many equal parts of a request.
const PARTS: u64 = 100;
/// A stretch is reported by category only if that divides the number of its segments by at least this.
const GAIN: usize = 2;

/// Adds up the crumbs of a request that is no program's life: short pieces of what a thread did on a CPU without a
/// pause. Work for several requests is reported in each of them, so its pieces are added up in short requests, too.
pub fn condense(segments: Segments, latency_ns: u64) -> Segments {
    let is_long = segments.list.len() > MOST;
    let of = Of::Request { part_ns: latency_ns / PARTS, is_long };
    if !is_long && !of.has_alike(&segments.list) {
        return segments;
    }
    let Segments { list, mut texts } = segments;
    let mut few = Few { list: Vec::with_capacity(list.len()), ..Few::new(of) };
    for segment in list {
        few.push(segment, &mut texts);
    }
    Segments { list: few.finish(&mut texts), texts }
}

/// The segments of a program's life, in order of time. Of a life that has many, adds up the crumbs of any thread, and
/// also waits; the requests in the life have them piece by piece. A life may have a segment for each record of a
/// capture, so this is done as they come.
pub struct Life {
    part_ns: u64,
    /// As long as there are few.
    all: Vec<Told>,
    few: Option<Few>,
}

impl Life {
    pub fn new(latency_ns: u64) -> Life {
        Life { part_ns: latency_ns / PARTS, all: Vec::new(), few: None }
    }

    /// Takes all of them.
    pub fn all(mut self, Segments { list, mut texts }: Segments) -> Segments {
        for segment in list {
            self.push(segment, &mut texts);
        }
        Segments { list: self.finish(&mut texts), texts }
    }

    pub fn push(&mut self, segment: Told, texts: &mut Texts) {
        match &mut self.few {
            Some(few) => few.push(segment, texts),
            None if self.all.len() < MOST_OF_A_LIFE => self.all.push(segment),
            None => {
                let mut few = Few::new(Of::Life { part_ns: self.part_ns });
                for segment in self.all.drain(..).chain([segment]) {
                    few.push(segment, texts);
                }
                self.few = Some(few);
            }
        }
    }

    pub fn finish(self, texts: &mut Texts) -> Vec<Told> {
        match self.few {
            Some(few) => few.finish(texts),
            None => self.all,
        }
    }
}

/// Whose crumbs are added up; no stretch of them is longer than `part_ns`.
#[derive(Clone, Copy)]
enum Of {
    Request { part_ns: u64, is_long: bool },
    Life { part_ns: u64 },
}

impl Of {
    fn is_crumb(self, segment: &Told) -> bool {
        // A segment with a stack stays as it is: the stack is shown with the segment in which it was taken.
        segment.stack.is_none()
            && match self {
                Of::Request { part_ns, is_long } => {
                    let on_cpu = segment.category.is_on_cpu();
                    on_cpu && segment.duration_ns < part_ns && (is_long || segment.shared > 1)
                }
                Of::Life { part_ns } => segment.duration_ns < part_ns,
            }
    }

    /// Whether there are crumbs of the same category. Others are not added up.
    fn has_alike(self, segments: &[Told]) -> bool {
        let mut known = 0u64;
        segments.iter().filter(|segment| self.is_crumb(segment)).any(|segment| {
            let before = known;
            known |= 1 << segment.category as u32;
            known == before
        })
    }

    /// Whether the second crumb belongs to the stretch that begins with the first.
    fn goes_on(self, first: &Told, next: &Told) -> bool {
        let length_ns = next.end_ns() - first.start_ns;
        match self {
            Of::Request { part_ns, .. } => {
                let of = |segment: &Told| (segment.pid, segment.tid, segment.cpu, segment.shared);
                of(first) == of(next) && length_ns <= part_ns
            }
            Of::Life { part_ns } => length_ns <= part_ns,
        }
    }
}

/// Segments in order of time, with their stretches of crumbs added up.
struct Few {
    of: Of,
    list: Vec<Told>,
    /// Crumbs that follow each other.
    stretch: Vec<Told>,
}

impl Few {
    fn new(of: Of) -> Few {
        Few { of, list: Vec::new(), stretch: Vec::new() }
    }

    fn push(&mut self, segment: Told, texts: &mut Texts) {
        let crumb = self.of.is_crumb(&segment);
        let follows = self.stretch.last().zip(self.stretch.first()).is_some_and(|(last, first)| {
            last.end_ns() == segment.start_ns && self.of.goes_on(first, &segment)
        });
        if !(crumb && follows) {
            end_stretch(&mut self.stretch, &mut self.list, texts);
        }
        match crumb {
            true => self.stretch.push(segment),
            false => self.list.push(segment),
        }
    }

    fn finish(mut self, texts: &mut Texts) -> Vec<Told> {
        end_stretch(&mut self.stretch, &mut self.list, texts);
        self.list
    }
}

fn end_stretch(stretch: &mut Vec<Told>, few: &mut Vec<Told>, texts: &mut Texts) {
    // Most have one piece.
    if stretch.len() < GAIN {
        few.append(stretch);
        return;
    }
    let mut kinds = Numbers::default();
    let mut of_kind: Vec<Vec<usize>> = Vec::new();
    for (index, segment) in stretch.iter().enumerate() {
        let number = kinds.of(kind(segment));
        if number == of_kind.len() {
            of_kind.push(Vec::new());
        }
        of_kind[number].push(index);
        if of_kind.len() * GAIN > stretch.len() {
            few.append(stretch);
            return;
        }
    }
    let mut start_ns = stretch[0].start_ns;
    for pieces in of_kind {
        let segment = sum(|| pieces.iter().map(|index| &stretch[*index]), start_ns, texts);
        start_ns = segment.end_ns();
        few.push(segment);
    }
    stretch.clear();
}

/// What has to be the same of two pieces of a stretch if they are added up.
fn kind(piece: &Told) -> impl Copy + Eq + Hash + use<> {
    let cause = piece.cause.filter(|_| piece.category.is_on_cpu());
    let what = (piece.category, piece.evidence, piece.rule, piece.side, piece.phase, cause);
    (what, (piece.pid, piece.tid, piece.shared, piece.comm))
}

/// Numbers of keys, in the order in which they first appear.
struct Numbers<K> {
    first: Vec<K>,
    more: FxHashMap<K, usize>,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Numbers { first: Vec::new(), more: FxHashMap::default() }
    }
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    /// So many keys are compared one by one: most stretches have no more, and then need no map.
    const FEW: usize = 8;

    fn of(&mut self, key: K) -> usize {
        if let Some(number) = self.first.iter().position(|known| *known == key) {
            return number;
        }
        let next = self.first.len() + self.more.len();
        if next < Self::FEW {
            self.first.push(key);
            return next;
        }
        *self.more.entry(key).or_insert(next)
    }
}

/// Maximal number of names in `detail`.
const NAMED: usize = 3;

/// Pieces of a stretch, as one segment.
fn sum<'s, P>(pieces: impl Fn() -> P, start_ns: u64, texts: &mut Texts) -> Told
where
    P: Iterator<Item = &'s Told>,
{
    let of_first =
        |longest: &'s Told, piece: &'s Told| match piece.duration_ns > longest.duration_ns {
            true => piece,
            false => longest,
        };
    let longest = pieces().reduce(of_first).expect("one at least");
    let told = match pieces().count() {
        1 => format!("1 of the {ADDED_UP}"),
        many => format!("{many} {ADDED_UP}"),
    };
    let cause = match longest.cause {
        Some(cause) => format!("{told}; {}", texts.get(cause)),
        None => told,
    };
    let cpu = longest.cpu.filter(|cpu| pieces().all(|piece| piece.cpu == Some(*cpu)));
    let detail = details(pieces(), texts).map(|detail| texts.add(&detail));
    Told {
        start_ns,
        duration_ns: pieces().map(|piece| piece.duration_ns).sum(),
        detail,
        cause: Some(texts.add(&cause)),
        cpu,
        ..*longest
    }
}

/// The details of the pieces, longest first: `mprotect, mmap, ...`.
fn details<'s>(pieces: impl Iterator<Item = &'s Told>, texts: &Texts) -> Option<String> {
    let (mut numbers, mut sums) = (Numbers::default(), Vec::<(TextId, u64)>::new());
    for piece in pieces {
        let Some(detail) = piece.detail else { continue };
        match sums.get_mut(numbers.of(detail)) {
            Some((_, ns)) => *ns += piece.duration_ns,
            None => sums.push((detail, piece.duration_ns)),
        }
    }
    sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let more = if sums.len() > NAMED { ", ..." } else { "" };
    let named: Vec<&str> = sums.iter().take(NAMED).map(|(detail, _)| texts.get(*detail)).collect();
    (!named.is_empty()).then(|| named.join(", ") + more)
}
