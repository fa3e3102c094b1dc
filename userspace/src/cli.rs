//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::capture::manifest::Sleeps;
use crate::model::Kind;
use crate::report::{parse_ns, SortKey};

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
    /// Show where the time of a capture's requests went.
    Report(ReportArgs),
    /// List requests: sort, filter, find the slowest.
    Requests(RequestsArgs),
    /// Show one request's time line, segment by segment.
    Explain(ExplainArgs),
    /// Attribute a capture's events again; needs no privilege, works on any machine.
    Attribute(AttributeArgs),
    /// Say what this kernel allows, and what each category's evidence will be.
    Doctor(DoctorArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  sudo rpcprobe run -- ./frpc -m 3 < expressions.txt
  sudo rpcprobe run -o before --label disk=ext4 -- ./measure -m all -e expressions.txt
  sudo rpcprobe run -u \"$USER\" -- ./server

Exit status: the program's own (or its death by signal); 127 if it was not found, 126 if it could
not be executed; 1 if the capture failed although the program succeeded; 2 for wrong arguments.";

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Directory of the capture
    #[arg(short, long, value_name = "DIR", default_value = "rpcprobe.out")]
    pub output: PathBuf,
    /// Overwrite the capture in DIR, as soon as CMD runs
    #[arg(long)]
    pub force: bool,
    /// Run the program as this user (default: as who runs rpcprobe; under sudo that is root)
    #[arg(short, long, value_name = "USER")]
    pub user: Option<OsString>,
    /// Whose scheduler records to keep. `target` is cheaper on busy machines, but threads outside
    /// the target that had the CPU then have no names
    #[arg(long, value_enum, default_value_t = Scope::Machine)]
    pub scope: Scope,
    /// Do not record the paths of opened files and programs
    #[arg(long)]
    pub no_paths: bool,
    /// Also take stacks: the kernel's when a thread goes to sleep, the kernel's and the program's of
    /// running threads HZ times a second (default: 997). `explain` shows them. Costs more
    #[arg(long, value_name = "HZ", num_args = 0..=1, require_equals = true,
          default_missing_value = "997", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub stacks: Option<u32>,
    /// Of which sleeps to take the stack
    #[arg(long, value_enum, default_value_t = Sleeps::All, requires = "stacks")]
    pub sleep_stacks: Sleeps,
    /// Attach a label to the capture; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Size of each CPU's ring in KiB, rounded up to a power of two (default: 16 MiB, less on
    /// machines with many CPUs)
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..=1_048_576))]
    pub ring_kib: Option<u32>,
    /// Print no report at the end
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the report as JSON (to standard error: standard output is the program's)
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scope {
    Machine,
    Target,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Directory of the capture
    #[arg(default_value = "rpcprobe.out")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RequestsArgs {
    /// Directory of the capture
    #[arg(default_value = "rpcprobe.out")]
    pub dir: PathBuf,
    /// latency, start, id or a category (largest first for all but start and id)
    #[arg(long, default_value = "latency")]
    pub sort: SortKey,
    /// The other way round
    #[arg(short, long)]
    pub reverse: bool,
    /// At most N rows (0: all)
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    pub limit: usize,
    /// Only requests of this kind; may be given several times
    #[arg(long, value_parser = parse_kind)]
    pub kind: Vec<Kind>,
    /// Only incomplete requests
    #[arg(long)]
    pub incomplete: bool,
    /// Only requests that took at least this long, e.g. 150us
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub min: Option<u64>,
    /// Only requests that took at most this long
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub max: Option<u64>,
    /// The N slowest
    #[arg(long, value_name = "N")]
    pub slowest: Option<usize>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// Directory of the capture and the request's number; DIR may be left out
    #[arg(required = true, num_args = 1..=2, value_names = ["DIR", "ID"])]
    pub target: Vec<OsString>,
    /// Show every segment of a long request
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct AttributeArgs {
    /// Directory of the capture
    #[arg(default_value = "rpcprobe.out")]
    pub dir: PathBuf,
    /// Take what is there of a capture that breaks off
    #[arg(long)]
    pub allow_truncated: bool,
    /// Print no report at the end
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
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("a label looks like KEY=VALUE".into()),
    }
}

fn parse_kind(text: &str) -> Result<Kind, String> {
    Kind::from_name(text).ok_or_else(|| {
        let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        format!("not a kind of request ({})", names.join(", "))
    })
}

fn parse_time(text: &str) -> Result<u64, String> {
    parse_ns(text).map_err(|error| format!("{error:#}"))
}
