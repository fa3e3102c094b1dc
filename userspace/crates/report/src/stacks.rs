//! Shows the stack below a segment of a time line.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;

use anyhow::Result;

use super::text::{escape, SAMPLED};
use super::units::{count, format_exact};
use rpcprobe_engine::symbols::is_way_to_sleep;
use rpcprobe_model::{Segment, Taken};
use rpcprobe_tables::ShownFrame;

/// Stacks by number, as referred to by segments.
pub type ShownStacks = BTreeMap<u64, Vec<ShownFrame>>;

/// Maximum number of frames shown of a stack, unless all are wanted.
const MAX_FRAMES: usize = 12;
/// Maximum number of groups of samples in the summary, and of frames in each.
const MAX_GROUPS: usize = 5;
const GROUP_FRAMES: usize = 4;

/// Returns the numbers of the stacks that these segments refer to.
pub fn stack_ids(segments: &[Segment]) -> HashSet<u64> {
    segments.iter().filter_map(|segment| Some(segment.stack?.stack_id)).collect()
}

/// The stacks that were written last: one taken at a sleep, and one from samples.
#[derive(Default)]
pub(super) struct Last<'s>(Cell<[Option<&'s [ShownFrame]>; 2]>);

impl<'s> Last<'s> {
    /// Replaces the last stack of that kind; returns whether it was in the same functions.
    fn replace(&self, taken: Taken, frames: &'s [ShownFrame]) -> bool {
        let mut last = self.0.get();
        let kind = usize::from(taken != Taken::AtSleep);
        let former = last[kind].replace(frames);
        self.0.set(last);
        former.is_some_and(|former| functions(former).eq(functions(frames)))
    }
}

/// Writes the stack of a segment, if it has one, innermost function first. A stack in the same
/// functions as the previous one is not written again, unless `all` is set.
pub(super) fn stack<'s>(
    out: &mut dyn Write,
    segment: &Segment,
    stacks: &'s ShownStacks,
    all: bool,
    last: &Last<'s>,
) -> Result<()> {
    let Some(used) = segment.stack else { return Ok(()) };
    let Some(frames) = stacks.get(&used.stack_id) else { return Ok(()) };
    let again = last.replace(used.taken, frames) && !all;
    let heading = match used.taken {
        Taken::AtSleep => "where it went to sleep:".to_string(),
        Taken::Sampled { same, all } if same == all => {
            format!("{}{SAMPLED} found it in:", count(all, "sample"))
        }
        Taken::Sampled { same, all } => {
            format!("{} of {}{SAMPLED} found it in:", format_exact(same), count(all, "sample"))
        }
    };
    if again {
        writeln!(out, "      {heading} the same functions")?;
        return Ok(());
    }
    writeln!(out, "      {heading}")?;
    // The innermost functions of a sleep are the scheduler's, which are not informative.
    let skipped = match used.taken {
        Taken::AtSleep if !all => {
            frames.iter().take_while(|frame| is_way_to_sleep(&frame.function)).count()
        }
        _ => 0,
    };
    let shown = if all { frames.len() } else { MAX_FRAMES };
    for frame in frames.iter().skip(skipped).take(shown) {
        writeln!(out, "        {}", line(frame, all))?;
    }
    match frames.len().saturating_sub(skipped + shown) {
        0 => {}
        more => writeln!(out, "        … {}; --all shows each", count(more as u64, "more frame"))?,
    }
    Ok(())
}

/// Writes where the samples of all segments found the request's threads, most frequent functions
/// first. Each segment keeps only its most frequent functions; the other samples are counted as
/// elsewhere.
pub(super) fn summary(
    out: &mut dyn Write,
    segments: &[Segment],
    stacks: &ShownStacks,
) -> Result<()> {
    let mut groups: HashMap<Vec<&str>, (&[ShownFrame], u64)> = HashMap::new();
    let mut all_samples = 0_u64;
    for used in segments.iter().filter_map(|segment| segment.stack) {
        let Taken::Sampled { same, all } = used.taken else { continue };
        all_samples = all_samples.saturating_add(all);
        let Some(frames) = stacks.get(&used.stack_id) else { continue };
        let group = groups.entry(functions(frames).collect()).or_insert((frames, 0));
        group.1 = group.1.saturating_add(same);
    }
    if all_samples == 0 {
        return Ok(());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by(|(a, (_, m)), (b, (_, n))| n.cmp(m).then_with(|| a.cmp(b)));
    writeln!(out, "{}{SAMPLED}, where they found its threads:", count(all_samples, "sample"))?;
    let shown = &groups[..groups.len().min(MAX_GROUPS)];
    for (_, (frames, samples)) in shown {
        let frames: Vec<_> = frames.iter().take(GROUP_FRAMES).map(|f| line(f, false)).collect();
        writeln!(out, "{:>7}  {}", format_exact(*samples), frames.join(" < "))?;
    }
    match all_samples.saturating_sub(shown.iter().map(|(_, (_, samples))| samples).sum()) {
        0 => {}
        more => writeln!(out, "{:>7}  elsewhere", format_exact(more))?,
    }
    Ok(())
}

fn functions(frames: &[ShownFrame]) -> impl Iterator<Item = &str> {
    frames.iter().map(|frame| &*frame.function)
}

/// Formats a frame as `function (file.c:12), inlined`. With `whole_paths`, the file's full path is
/// shown, not only its last part.
fn line(frame: &ShownFrame, whole_paths: bool) -> String {
    let mut line = escape(&frame.function);
    if let Some(file) = &frame.file {
        let name = file.rsplit('/').next().unwrap_or(file);
        line += &format!(" ({}", escape(if whole_paths { file } else { name }));
        if let Some(number) = frame.line {
            line += &format!(":{number}");
        }
        line += ")";
    }
    if frame.kernel {
        line += " [kernel]";
    }
    if frame.inlined {
        line += ", inlined";
    }
    line
}
