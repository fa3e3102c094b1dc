//! `rpcprobe run -- CMD...`

use anyhow::{Context, Result};

use super::directory;
use crate::attribute::{self, Choices};
use crate::capture::manifest::Stacks;
use crate::cli::{CaptureArgs, RunArgs, Scope};
use crate::interrupt::{self, Interrupted};
use crate::invoking_user::{OutputDir, User};
use crate::probe::{check_privilege, Config};
use crate::session::{self, Refused};
use crate::target::Spec;

/// Maximum memory of all rings together, unless the user asks for more.
const ALL_RINGS_BYTES: u64 = 256 << 20;
const RING_BYTES: u64 = 16 << 20;

pub fn run(args: RunArgs) -> Result<i32> {
    check_privilege()?;
    let spec =
        Spec { argv: args.command, user: args.user.as_deref().map(User::lookup).transpose()? };
    let capture = args.capture;
    let config = config(&capture, false)?;
    interrupt::catch(); // otherwise a signal would leave an empty directory
    let dir = directory::create(&capture)?;
    let (outcome, status) = match session::record(&spec, &config, capture.label, &dir) {
        Ok(outcome) => outcome,
        Err(refused) => {
            dir.discard();
            match refused {
                Refused::Target(error) => {
                    super::complain(&error);
                    return Ok(error.exit_code());
                }
                Refused::Other(error) => return Err(error),
            }
        }
    };
    let finished = finish(&dir, outcome, capture.quiet).and_then(|()| match capture.quiet {
        true => Ok(()),
        false => super::print_report(std::io::stderr(), &dir, capture.json),
    });
    if let Err(error) = finished {
        super::complain(&format_args!("{error:#}"));
        if status.success() {
            return Ok(super::exit_code(&error));
        }
    }
    status.exit_like()
}

/// Derives the kernel side's configuration from the options.
pub(super) fn config(args: &CaptureArgs, attaching: bool) -> Result<Config> {
    Ok(Config {
        scope_target: args.scope == Scope::Target,
        keep_paths: !args.no_paths,
        keep_methods: !args.no_methods,
        ring_bytes_per_cpu: ring_bytes(args.ring_kib)?,
        stacks: args.stacks.map(|sample_hz| Stacks { sample_hz, sleeps: args.sleep_stacks }),
        attaching,
        requests: args.wanted.request.clone(),
        btf: args.types.btf.clone(),
        direct: args.direct.asked(),
        tasks: args.tasks,
        told: !args.quiet,
    })
}

/// Attributes the capture.
pub(super) fn finish(dir: &OutputDir, outcome: session::Outcome, quiet: bool) -> Result<()> {
    if let Some(failure) = outcome.failure {
        return Err(failure);
    }
    let mut manifest = outcome.manifest;
    let shown = dir.path().display();
    // Written before there are figures: if the tables fail, the events can still be attributed
    // again.
    attribute::write_manifest(dir, &manifest).map_err(|error| {
        let again = then(&error, &format!("attribute --allow-truncated {shown}"));
        error.context(format!("{shown} holds the events, but no manifest; {again}"))
    })?;
    attribute::attribute(dir, &mut manifest, Choices::default(), !quiet).map_err(|error| {
        let again = then(&error, &format!("attribute {shown}"));
        let holds = match error.is::<Interrupted>() {
            true => "all events",
            false => "the events and the manifest",
        };
        error.context(format!("{shown} holds {holds}, but no tables; {again}"))
    })?;
    interrupt::release();
    Ok(())
}

/// Suggests how to continue after an error, with an rpcprobe command.
fn then(error: &anyhow::Error, command: &str) -> String {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    if error.is::<Interrupted>() {
        return format!("`rpcprobe {command}` makes them");
    }
    let full = error.chain().any(|cause| {
        let kind = match cause.downcast_ref::<serde_json::Error>() {
            Some(error) => error.io_error_kind(),
            None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
        };
        matches!(kind, Some(StorageFull | QuotaExceeded))
    });
    match full {
        true => format!("make room, then `rpcprobe {command}`"),
        false => format!("`rpcprobe {command}` tries again"),
    }
}

fn ring_bytes(kib: Option<u32>) -> Result<u32> {
    let bytes = match kib {
        Some(kib) => (u64::from(kib) << 10).next_power_of_two(),
        None => {
            let cpus = libbpf_rs::num_possible_cpus().context("cannot count the CPUs")? as u64;
            let share = ALL_RINGS_BYTES / cpus.max(1);
            (1 << share.max(1 << 20).ilog2()).min(RING_BYTES)
        }
    };
    u32::try_from(bytes).context("the rings are too large")
}
