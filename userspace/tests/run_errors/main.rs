//! Error handling: one clear line, the documented exit status, and nothing left behind that could
//! be taken for a complete capture.

#[path = "../common/mod.rs"]
mod common;

mod before_the_run;
mod damaged_events;
mod damaged_files;
mod dying_targets;
mod noise;
mod output_directory;
mod write_failures;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use common::capture::{run, Capture};
use common::{frpc, rpcprobe};
use tempfile::TempDir;

/// Runs `rpcprobe run OPTIONS -o PARENT/capture -- COMMAND` to its end.
fn try_run(parent: &Path, options: &[&str], command: &[&str]) -> Output {
    run(parent, options, command).stdin(Stdio::null()).output().expect("rpcprobe runs")
}

/// Runs a subcommand on a directory.
fn on(directory: &Path, arguments: &[&str]) -> Output {
    rpcprobe(arguments).arg(directory).output().expect("rpcprobe runs")
}

/// A capture with twenty pipe requests.
fn small_capture() -> Capture {
    let (program, input) = (frpc("frpc"), frpc("expressions.txt"));
    let script = format!("head -20 '{input}' | '{program}' -m 3");
    Capture::of(&[], &["sh", "-c", &script], Stdio::null()).succeeded()
}

/// A run that did not happen leaves nothing behind, not even the output directory.
fn assert_nothing_left(parent: &TempDir) {
    let left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(Result::unwrap).collect();
    assert!(left.is_empty(), "{left:?}");
}
