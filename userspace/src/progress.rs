//! Shows the progress of long work: on a terminal with a bar if there is much to do, otherwise with a line now and
//! then, and not at all if the work is quick.

use std::io::{IsTerminal, Read, Write};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::report::units::count;

/// Long work, and the unit in which its progress is counted.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Counts bytes of `events.bin`.
    Attributing,
    /// The same in a second pass, which knows what the first one has shown.
    AttributingAgain,
    /// Adds up requests for a report; counts requests.
    AddingUp,
    /// Exports requests to other programs; counts requests.
    Exporting,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Attributing => "attributing",
            Work::AttributingAgain => "attributing again, with what the first pass has shown",
            Work::AddingUp => "adding up",
            Work::Exporting => "exporting",
        }
    }

    /// What follows once everything has been read.
    fn then(self) -> &'static str {
        match self {
            Work::Attributing => {
                "explaining the last requests and inferring parents from the times of all requests"
            }
            Work::AttributingAgain => "explaining the last requests",
            Work::AddingUp | Work::Exporting => "finishing",
        }
    }

    /// Work with less than this amount takes no noticeable time.
    fn small(self) -> u64 {
        match self {
            Work::Attributing | Work::AttributingAgain => 16 << 20,
            Work::AddingUp | Work::Exporting => 100_000,
        }
    }

    fn amount(self, amount: u64) -> String {
        match self {
            Work::Attributing | Work::AttributingAgain => HumanBytes(amount).to_string(),
            Work::AddingUp | Work::Exporting => count(amount, "request"),
        }
    }
}

/// Without a bar: the time until the first line, and between lines.
const FIRST_LINE: Duration = Duration::from_secs(2);
const NEXT_LINE: Duration = Duration::from_secs(5);

/// Shows the progress of work until dropped.
pub struct Progress {
    work: Work,
    bar: ProgressBar,
    /// Used when there is no bar.
    _lines: Option<Lines>,
}

impl Progress {
    /// Begins to show the progress of `whole` units of work; shows nothing unless `told` is set.
    pub fn of(work: Work, whole: u64, told: bool) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = match told && is_terminal && whole >= work.small() {
            true => ProgressBar::new(whole).with_style(style(work, whole)),
            false => ProgressBar::hidden(),
        };
        let done = bar.clone();
        let line = move |elapsed| line(work, done.position(), whole, elapsed);
        let lines = (told && bar.is_hidden()).then(|| Lines::of(line));
        Progress { work, bar, _lines: lines }
    }

    /// Wraps an iterator; counts the items as they are taken.
    pub fn each<T>(&self, items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
        let bar = self.bar.clone();
        items.inspect(move |_| bar.inc(1))
    }

    /// Wraps a reader; counts the bytes as they are read.
    pub fn counted<R: Read>(&self, input: R) -> impl Read + use<R> {
        Counted { input: self.bar.wrap_read(input), bar: self.bar.clone(), work: self.work }
    }
}

/// A reader that changes the bar's text when it has been read to its end.
struct Counted<R> {
    input: R,
    bar: ProgressBar,
    work: Work,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = self.input.read(to)?;
        if count == 0 && !to.is_empty() {
            self.bar.set_style(finishing(self.work));
        }
        Ok(count)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(work: Work, whole: u64) -> ProgressStyle {
    let (name, whole) = (work.name(), work.amount(whole));
    let bar = format!("{name} {{bar:30}} {{percent}} % of {whole}, {{eta}} left");
    ProgressStyle::with_template(&bar).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn finishing(work: Work) -> ProgressStyle {
    let bar = format!("{}: all read, {}", work.name(), work.then());
    ProgressStyle::with_template(&bar).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A thread that writes lines until dropped, because the last request may come long after the last byte.
pub struct Lines {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Lines {
    /// Writes what `line` returns for the time elapsed. The first line is written only if the work takes
    /// [`FIRST_LINE`].
    pub fn of(line: impl Fn(Duration) -> String + Send + 'static) -> Lines {
        let (stop, stopped) = channel();
        let begin = Instant::now();
        let thread = thread::spawn(move || {
            let mut wait = FIRST_LINE;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                let _ = writeln!(std::io::stderr(), "{}", line(begin.elapsed())); // there may be no reader
                wait = NEXT_LINE;
            }
        });
        Lines { stop: Some(stop), thread: Some(thread) }
    }

    /// For work of unknown duration.
    pub fn while_it(does: &'static str) -> Lines {
        Lines::of(move |elapsed| format!("rpcprobe: {does}, {} s", elapsed.as_secs()))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn line(work: Work, done: u64, whole: u64, elapsed: Duration) -> String {
    if done >= whole && whole > 0 {
        let (name, then, whole) = (work.name(), work.then(), work.amount(whole));
        return format!("rpcprobe: {name}: {whole} read, {then}, {} s", elapsed.as_secs());
    }
    let percent = u128::from(done.min(whole)) * 100 / u128::from(whole.max(1));
    let (name, whole) = (work.name(), work.amount(whole));
    format!("rpcprobe: {name}: {percent} % of {whole} read in {} s", elapsed.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_how_much_is_read() {
        let said = line(Work::Attributing, 1 << 20, 3 << 20, Duration::from_millis(7_900));
        assert_eq!(said, "rpcprobe: attributing: 33 % of 3.00 MiB read in 7 s");
        let none = line(Work::Attributing, 0, 0, Duration::ZERO);
        assert_eq!(none, "rpcprobe: attributing: 0 % of 0 B read in 0 s");
        let all = line(Work::Attributing, 3 << 20, 3 << 20, Duration::from_secs(15));
        let again = line(Work::AttributingAgain, 1 << 20, 2 << 20, Duration::from_secs(1));
        let work = "attributing again, with what the first pass has shown";
        assert_eq!(again, format!("rpcprobe: {work}: 50 % of 2.00 MiB read in 1 s"));
        let then =
            "explaining the last requests and inferring parents from the times of all requests";
        assert_eq!(all, format!("rpcprobe: attributing: 3.00 MiB read, {then}, 15 s"));
        let half = line(Work::AddingUp, 1_000, 2_000, Duration::from_secs(2));
        assert_eq!(half, "rpcprobe: adding up: 50 % of 2,000 requests read in 2 s");
    }

    #[test]
    fn what_is_counted_is_as_it_was() {
        for told in [true, false] {
            let bytes = [7; 100];
            let mut read = Vec::new();
            let progress = Progress::of(Work::Attributing, 100, told);
            progress.counted(&bytes[..]).read_to_end(&mut read).unwrap();
            assert_eq!((&read[..], progress.bar.position()), (&bytes[..], 100));
        }
    }
}
