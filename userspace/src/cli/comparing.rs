//! The options of the commands that compare.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{parse_label, FilterArgs, Scope, WantedArgs};
use crate::compare::selector::Condition;
use crate::whatif::Without;

pub const AB_EXAMPLES: &str = "\
Examples:
  sudo rpcprobe ab -- ./frpc -m 3 --- ./frpc -m 6 < expressions.txt
  sudo rpcprobe ab --pairs 12 -u \"$USER\" -- ./server-old --- ./server-new
  sudo rpcprobe ab --prepare 'sync; echo 3 > /proc/sys/vm/drop_caches' \\
      -- ./job ext4/ --- ./job tmpfs/

Each command reads FILE of --input from its beginning, or standard input if that is a regular
file; otherwise its input is empty. A pair in which a command fails is left out, and the output
says so.

Exit status: 0; 1 if no pair is whole or a pair was left out; 2 for wrong arguments; 128 + the
signal after Ctrl-C or SIGTERM, with the pairs that were whole by then compared.";

pub const DIFF_EXAMPLES: &str = "\
Examples:
  rpcprobe diff before after
  rpcprobe diff -- before.1 before.2 --- after.1 after.2
  rpcprobe diff rpcprobe.ab
  rpcprobe diff capture --a method='GET /old' --b method='GET /new'
  rpcprobe diff capture --a to=10s --b from=10s
  rpcprobe diff runs/* --a label.disk=ext4 --b label.disk=tmpfs

A run, not a request, is the unit: requests of one run are too much alike for a test. So two
captures give intervals \"within these captures only\" and no verdict; `rpcprobe ab` makes runs that
give one.";

#[derive(Debug, Args)]
pub struct AbArgs {
    /// How many pairs of runs. 8 are the fewest that can show a change at p <= 0.01; 12 find most that
    /// stand out in each pair
    #[arg(long, value_name = "N", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub pairs: u32,
    /// Directory of the captures and the comparison [default: the first of rpcprobe.ab, rpcprobe.ab.2,
    /// ... that does not exist]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// What to keep of the runs in DIR/a.1, DIR/b.1, ...
    #[arg(long, value_enum, default_value_t = Keep::All)]
    pub keep: Keep,
    /// Let every user of this machine read the captures
    #[arg(long)]
    pub share: bool,
    /// Run the commands as this user
    #[arg(short, long, value_name = "USER")]
    pub user: Option<OsString>,
    /// Run this with sh before each run, as who runs rpcprobe
    #[arg(long, value_name = "CMD")]
    pub prepare: Option<OsString>,
    /// Standard input of the commands
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Let the commands' standard output and error through; else what they write is dropped
    #[arg(long)]
    pub show_output: bool,
    /// Treat a run whose command fails like any other run
    #[arg(long)]
    pub ignore_failure: bool,
    /// Attach a label to all captures; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label)]
    pub label: Vec<(String, String)>,
    /// Whose scheduler records to keep
    #[arg(long, value_enum, default_value_t = Scope::Machine)]
    pub scope: Scope,
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Draw the order of the runs from this number, to repeat it
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Every statistic's parts, also those that hardly changed
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The two commands, with `---` between them
    #[arg(required = true, last = true, value_names = ["A... --- B..."], num_args = 1..)]
    pub commands: Vec<OsString>,
}

/// What `ab` keeps of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// Whole captures
    All,
    /// The tables, without the raw events
    Tables,
    /// Only the comparison
    Nothing,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Two captures, or the directory of an `ab`, or with --a and --b any captures
    #[arg(value_name = "DIR")]
    pub captures: Vec<PathBuf>,
    /// Which requests are A: kind, method, status, client, server, from, to, min or max as the options of
    /// that name, or label.NAME of the capture; may be given several times
    #[arg(long, value_name = "WHAT=VALUE", requires = "b")]
    pub a: Vec<Condition>,
    /// Which requests are B
    #[arg(long, value_name = "WHAT=VALUE", requires = "a")]
    pub b: Vec<Condition>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Every statistic's parts, also those that hardly changed
    #[arg(long)]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Several captures a side, with `---` between them
    #[arg(last = true, value_name = "A... --- B...", conflicts_with_all = ["captures", "a"])]
    pub sides: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct WhatifArgs {
    /// Directory of the capture [default: the newest of rpcprobe.out, rpcprobe.out.2, ...]
    pub dir: Option<PathBuf>,
    /// Categories to take away, e.g. journal,block_io or 'queue.*'; CATEGORY/SIDE for one side only
    #[arg(long, required = true, value_delimiter = ',', value_name = "CATEGORY[/SIDE]")]
    pub without: Vec<Without>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
