//! What a capture is exported as.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::{parse_time, FilterArgs};

pub const EXPORT_EXAMPLES: &str = "\
Examples:
  rpcprobe export slow --perfetto slow.pftrace.gz --slowest 100
  rpcprobe export --perfetto second.pftrace --window 1s..2s
  rpcprobe export --csv all --kind http1       (all.requests.csv and all.segments.csv)
  rpcprobe export --json slow --slowest 10     (slow.requests.jsonl and slow.segments.jsonl)

A trace is opened in the Perfetto user interface (\"Open trace file\"). It needs much memory for
large ones: choose the slowest, or a window.";

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("formats").required(true).multiple(true))]
pub struct ExportArgs {
    /// Directory of the capture [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    pub dir: Option<PathBuf>,
    /// Write a Perfetto trace: requests with their segments, threads, the way of each request through
    /// them. Compressed if FILE ends in .gz, which Perfetto opens as well
    #[arg(long, value_name = "FILE", group = "formats")]
    pub perfetto: Option<PathBuf>,
    /// Write BASE.requests.csv and BASE.segments.csv
    #[arg(long, value_name = "BASE", group = "formats")]
    pub csv: Option<PathBuf>,
    /// Write BASE.requests.jsonl and BASE.segments.jsonl, an object a line
    #[arg(long, value_name = "BASE", group = "formats")]
    pub json: Option<PathBuf>,
    /// Only the N slowest complete requests, of those that pass the filters
    #[arg(long, value_name = "N", conflicts_with = "window",
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub slowest: Option<u64>,
    /// Only requests under way at some time of the capture from FROM on and before TO, e.g. 1.5s..2s, 1.5s.. or ..2s
    #[arg(long, value_name = "FROM..TO", value_parser = parse_window)]
    pub window: Option<Window>,
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// A span of the capture, in nanoseconds since its start: `[from_ns, to_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from_ns: u64,
    pub to_ns: u64,
}

fn parse_window(text: &str) -> Result<Window, String> {
    let bound = |text: &str, open| if text.is_empty() { Ok(open) } else { parse_time(text) };
    let window = match text.split_once("..") {
        Some(("", "")) | None => None,
        Some((from, to)) => Some(Window { from_ns: bound(from, 0)?, to_ns: bound(to, u64::MAX)? }),
    };
    match window {
        Some(window) if window.from_ns < window.to_ns => Ok(window),
        Some(_) => Err("it ends before it begins".into()),
        None => Err("a window looks like FROM..TO, for instance 1.5s..2s".into()),
    }
}

#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// Where to: man/man1, bash-completion/completions, zsh/site-functions and fish/vendor_completions.d are made there
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        let of = |text| parse_window(text).ok().map(|of| (of.from_ns, of.to_ns));
        assert_eq!(of("1ms..2ms"), Some((1_000_000, 2_000_000)));
        assert_eq!(
            (of("1s.."), of("..1s")),
            (Some((1_000_000_000, u64::MAX)), Some((0, 1_000_000_000)))
        );
        assert_eq!(of("0.5s..1.5s"), Some((500_000_000, 1_500_000_000)));
        for wrong in ["", "..", "1s", "2s..1s", "1s..1s", "a..b", "1s...2s", "1s..2s..3s"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
