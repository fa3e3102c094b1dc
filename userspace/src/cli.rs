//! The command line.

mod comparing;
mod direct;
mod export;
mod filter;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::capture::manifest::Sleeps;
use crate::figures::{Band, Name};
use crate::invoking_user::Sharing;
use crate::model::Category;
use crate::report::{parse_ns, GroupBy, SortKey};
use crate::request_filter::Rule;

pub use comparing::{AbArgs, DiffArgs, Keep, WhatifArgs};
pub use direct::DirectArgs;
pub use export::{ExportArgs, GenerateArgs};
pub use filter::FilterArgs;

/// Where did this request's latency go?
///
/// rpcprobe runs an unmodified program under eBPF probes and attributes the latency of every
/// request it serves to user CPU, kernel CPU, run-queue wait, faults, waits and queueing, in
/// nanoseconds that add up exactly.
#[derive(Debug, Parser)]
#[command(name = "rpcprobe", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program, capture what it does, and say where its requests' time went.
    ///
    /// The program keeps its standard input, output and error, its exit status and its signals; our
    /// own words go to standard error, the capture to a directory. Needs root.
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Capture programs that are already running, and say where their requests' time went.
    ///
    /// Give processes by number, by name, by port or by cgroup; all that match any of it are traced,
    /// and all that they start from then on. Programs that start later and match are not. The programs
    /// go on undisturbed when the capture ends: after --duration, at Ctrl-C or SIGTERM, or when all
    /// the processes that were selected have ended. Needs root.
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(AttachArgs),
    /// Show where the time of a capture's requests went.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// List requests: sort, filter, find the slowest.
    Requests(RequestsArgs),
    /// Show one request's time line, segment by segment.
    Explain(ExplainArgs),
    /// Print a figure of a report's page as plotly JSON: {"data": [...], "layout": {...}}.
    Figure(FigureArgs),
    /// Write a capture for other programs: as a Perfetto trace, as CSV, as JSON lines.
    #[command(after_help = export::EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Attribute a capture's events again; needs no privilege, works on any machine.
    Attribute(AttributeArgs),
    /// Run two commands in turns, capture each run, and say what differs between them.
    ///
    /// Each pair of runs has both commands, in an order drawn at random. The answer says whether there is
    /// a difference beyond chance, how large, and in which category. Needs root.
    #[command(after_help = comparing::AB_EXAMPLES)]
    Ab(AbArgs),
    /// Compare captures that exist, or groups of requests within them.
    #[command(after_help = comparing::DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Estimate what latencies would be without some categories.
    Whatif(WhatifArgs),
    /// Say what this kernel allows, and what each category's evidence will be.
    Doctor(DoctorArgs),
    /// Write man pages and shell completions, as they are to be installed, below a directory.
    #[command(hide = true)]
    Generate(GenerateArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  sudo rpcprobe run -- ./frpc -m 3 < expressions.txt
  sudo rpcprobe run -o before --label disk=ext4 -- ./measure -m all -e expressions.txt
  sudo rpcprobe run -u \"$USER\" -- ./server

Exit status: the program's own (or its death by signal); 127 if it was not found, 126 if it could
not be executed; 1 if the capture failed although the program succeeded, 130 if Ctrl-C interrupted
the writing of its tables; 2 for wrong arguments.";

const ATTACH_EXAMPLES: &str = "\
Examples:
  sudo rpcprobe attach --port 6379 --duration 10s
  sudo rpcprobe attach --comm nginx --comm php-fpm -o slow --label change=before
  sudo rpcprobe attach --pid 4711 --stacks --duration 500ms
  sudo rpcprobe attach --cgroup /system.slice/web.service

Requests that began before everything was in place are incomplete, and say so.

Exit status: 0, also after Ctrl-C or SIGTERM; 1 if nothing matches or the capture failed; 130 if
another Ctrl-C interrupted the writing of its tables; 2 for wrong arguments.";

const REPORT_EXAMPLES: &str = "\
Examples:
  rpcprobe report slow --method 'GET /users/*'
  rpcprobe report --by status --kind http1
  rpcprobe report --from 2s --to 3s --min 10ms
  rpcprobe report before after --by label";

/// What requests are.
#[derive(Debug, Args)]
pub struct WantedArgs {
    /// Look only for requests of this kind; may be given several times. With a port: all traffic on connections with
    /// that port is read as this kind, whatever it looks like (`tcp`: as turns); other connections are treated as
    /// without the option
    #[arg(long, value_name = "KIND[:PORT]")]
    pub request: Vec<Rule>,
}

/// What is known of the kernel.
#[derive(Debug, Args)]
pub struct TypesArgs {
    /// Read the layout of kernel structures from FILE instead of /sys/kernel/btf/vmlinux. FILE is BTF of this kernel,
    /// whole or minimized by `bpftool gen min_core_btf`. What can be attached to is still read from the kernel's own
    /// BTF
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

/// How a capture is taken.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// Directory of the capture [default: rpcprobe.out, or if that exists rpcprobe.out.2, .3, ...]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Overwrite the capture in DIR (or in rpcprobe.out), as soon as the new one begins
    #[arg(long)]
    pub force: bool,
    /// Let every user of this machine read the capture (modes 755 and 644). Without, only its owner can
    /// (700 and 600): it tells paths, URLs and who ran what
    #[arg(long)]
    pub share: bool,
    /// Whose scheduler records to keep. `target` is cheaper on busy machines, but threads outside
    /// the target that had the CPU then have no names
    #[arg(long, value_enum, default_value_t = Scope::Machine)]
    pub scope: Scope,
    /// Do not record the paths of opened files and programs
    #[arg(long)]
    pub no_paths: bool,
    /// Do not look at what requests call: no header block of HTTP/2, no line of HTTP/1, no name of a
    /// Redis command leaves the kernel
    #[arg(long)]
    pub no_methods: bool,
    /// Also take stacks: the kernel stack when a thread goes to sleep, and the kernel and user stacks of running
    /// threads HZ times a second (default: 997). `explain` shows them. Costs more
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true,
          default_missing_value = "997", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub stacks: Option<u32>,
    /// Which sleeps to take stacks of
    #[arg(long, value_enum, default_value_t = Sleeps::All, requires = "stacks")]
    pub sleep_stacks: Sleeps,
    #[command(flatten)]
    pub direct: DirectArgs,
    /// Also follow the tasks that a program's own runtime schedules on its threads: goroutines (Go 1.18 or later),
    /// tasks of asyncio (CPython) and tokio (Rust, with symbols), and streams and timers of Node (18 or later, with
    /// symbols). The runtime then tells which task serves a request and what the task waits for; otherwise much of
    /// this is inferred. Uses uprobes: costs ten microseconds or more per request (in virtual machines 30 per Node
    /// timer, by watchpoints), and slows every process that runs the same file
    #[arg(long)]
    pub tasks: bool,
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Attach a label to the capture; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Size of each CPU's ring in KiB, rounded up to a power of two (default: 16 MiB, less on
    /// machines with many CPUs)
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    pub ring_kib: Option<u32>,
    #[command(flatten)]
    pub types: TypesArgs,
    /// Print neither progress nor the report at the end
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the report as JSON. `attach` reports to standard output, `run` to standard error, since
    /// standard output is the program's
    #[arg(long)]
    pub json: bool,
}

impl CaptureArgs {
    /// Who may read the capture.
    pub fn sharing(&self) -> Sharing {
        match self.share {
            true => Sharing::Shared,
            false => Sharing::Private,
        }
    }
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Run the program as this user (default: as who runs rpcprobe; under sudo that is root)
    #[arg(short, long, value_name = "USER")]
    pub user: Option<OsString>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "rpcprobe attach [OPTIONS] <--pid PID...|--comm NAME...|--port PORT...|--cgroup PATH...>"
)]
pub struct AttachArgs {
    /// The process of that number
    #[arg(short, long, value_name = "PID", num_args = 1..)]
    pub pid: Vec<u32>,
    /// All processes of exactly that name, or whose executable file has it
    #[arg(short = 'c', long, value_name = "NAME", num_args = 1..)]
    pub comm: Vec<String>,
    /// All processes that hold a TCP or UDP socket with that port, local or remote: the server, and
    /// its clients on this machine
    #[arg(short = 'P', long, value_name = "PORT", num_args = 1..,
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Vec<u16>,
    /// All processes of that cgroup (version 2) and of those below it
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub cgroup: Vec<PathBuf>,
    /// What was given without saying what it is
    #[arg(hide = true)]
    pub bare: Vec<String>,
    /// End the capture after that long, e.g. 10s, 500ms, 2m or 1h (a bare number is in seconds)
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub capture: CaptureArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    Machine,
    Target,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directories of captures; a report for each, or one for all with `--by label`
    /// [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Show groups of requests, those with most time first
    #[arg(long, value_enum)]
    pub by: Option<GroupBy>,
    /// Leave out nothing: every category, every group listed, all that is modelled
    #[arg(long)]
    pub all: bool,
    /// Print JSON: everything, whatever --all says
    #[arg(long)]
    pub json: bool,
    /// Write a page to FILE instead: figures and tables in one HTML file, which needs no network. Of two captures, or
    /// of the directory of an `ab`, it shows both sides beside each other
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "by", "all"])]
    pub html: Option<PathBuf>,
    /// Open the page in a browser; without --html it is written to DIR.html
    #[arg(long, conflicts_with_all = ["json", "by", "all"])]
    pub open: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
}

#[derive(Debug, Args)]
pub struct FigureArgs {
    /// Which figure; without, their names are listed
    #[arg(value_enum)]
    pub name: Option<Name>,
    /// Directories of captures, which are added up [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Only requests of this percentile band, of those that pass the filters
    #[arg(long, value_enum)]
    pub band: Option<Band>,
    /// For `latency`: show the time in this category instead of the whole latency
    #[arg(long)]
    pub category: Option<Category>,
    /// Only the request of this number; may be given several times. Of `timeline`: the request it shows (default: the
    /// slowest)
    #[arg(long, value_name = "ID")]
    pub id: Vec<u64>,
    /// Only the requests whose numbers are in FILE (`-`: standard input), with white space or commas between them
    #[arg(long, value_name = "FILE")]
    pub ids: Option<PathBuf>,
    /// Indent the JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
}

#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Directory of the capture [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    pub dir: Option<PathBuf>,
    /// latency, start, id or a category (largest first for all but start and id)
    #[arg(long, default_value = "latency")]
    pub sort: SortKey,
    /// The other way round
    #[arg(short, long)]
    pub reverse: bool,
    /// At most N rows (0: all)
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Only incomplete requests
    #[arg(long)]
    pub incomplete: bool,
    /// Only the N slowest complete requests, or with --incomplete the N with the longest time known so far
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Directory of the capture (default: the newest of rpcprobe.out, rpcprobe.out.2, ...) and the
    /// request's number, which --slowest replaces
    #[arg(required_unless_present = "slowest", num_args = 1..=2, value_names = ["DIR", "ID"])]
    pub target: Vec<OsString>,
    /// The slowest complete request that passes the filters, or the N slowest
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub slowest: Option<usize>,
    /// Show every segment in a line of its own
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
}

#[derive(Debug, Args)]
pub struct AttributeArgs {
    /// Directory of the capture [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    pub dir: Option<PathBuf>,
    /// Accept a capture whose events break off, and attribute the part that is there
    #[arg(long)]
    pub allow_truncated: bool,
    /// Report every request piece by piece. By default short pieces are added up in requests of more than 100 segments,
    /// and in programs' lives of more than 1,000
    #[arg(long)]
    pub every_piece: bool,
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print neither progress nor the report at the end
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub types: TypesArgs,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("a label looks like KEY=VALUE".into()),
    }
}

/// Parses the time to capture; a bare number is in seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let is_bare = text.ends_with(|last: char| last.is_ascii_digit() || last == '.');
    match parse_time(&format!("{text}{}", if is_bare { "s" } else { "" }))? {
        0 => Err("the duration must be more than 0".into()),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

fn parse_time(text: &str) -> Result<u64, String> {
    parse_ns(text).map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;
    use crate::request_filter::{parse_kind, FOUND};

    #[test]
    fn help_names_the_kinds_that_are_found() {
        use clap::CommandFactory;
        let help = Cli::command().find_subcommand_mut("requests").unwrap().render_long_help();
        let help = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let names: Vec<_> = FOUND.iter().map(|kind| kind.name()).collect();
        let (last, others) = names.split_last().unwrap();
        let list = format!("({} or {last})", others.join(", "));
        assert!(help.contains(&list), "{list} not in {help}");
        assert!(parse_kind("pipe").is_ok());
        for kind in Kind::ALL.iter().filter(|kind| !FOUND.contains(kind)) {
            let error = parse_kind(kind.name()).unwrap_err();
            assert!(error.ends_with(&format!("({})", names.join(", "))), "{error}");
        }
    }

    #[test]
    fn durations() {
        let of = |text| parse_duration(text).ok().map(|time| time.as_millis());
        assert_eq!(
            (of("10s"), of("500ms"), of("2m"), of("3")),
            (Some(10_000), Some(500), Some(120_000), Some(3_000))
        );
        assert_eq!((of("0.5"), of("1.5m"), of("1h")), (Some(500), Some(90_000), Some(3_600_000)));
        for wrong in ["", "m", "0", "0s", "-1", "1h 2", "99999999999999999999s", "400000000000m"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
