//! `rpcprobe run -- CMD...`

use std::io::BufWriter;

use anyhow::{Context, Result};

use crate::attribute;
use crate::capture::manifest::Stacks;
use crate::cli::{RunArgs, Scope};
use crate::owner::{OutputDir, Owner, User};
use crate::probe::{check_privilege, Config};
use crate::session::{self, Refused};
use crate::target::Spec;

/// Most memory all rings take together, unless asked for otherwise.
const ALL_RINGS_BYTES: u64 = 256 << 20;
const RING_BYTES: u64 = 16 << 20;

pub fn run(args: RunArgs) -> Result<i32> {
    check_privilege()?;
    let spec =
        Spec { argv: args.command, user: args.user.as_deref().map(User::lookup).transpose()? };
    let config = Config {
        scope_target: args.scope == Scope::Target,
        keep_paths: !args.no_paths,
        ring_bytes_per_cpu: ring_bytes(args.ring_kib)?,
        stacks: args.stacks.map(|sample_hz| Stacks { sample_hz, sleeps: args.sleep_stacks }),
    };
    let dir = OutputDir::create(Owner::invoking(), &args.output, args.force)?;
    let outcome = match session::record(&spec, &config, args.label, &dir) {
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
    let status = outcome.status;
    let finished = finish(&dir, outcome, args.quiet, args.json);
    if let Err(error) = finished {
        super::complain(&format_args!("{error:#}"));
        if status.success() {
            return Ok(1);
        }
    }
    status.exit_like()
}

fn finish(dir: &OutputDir, outcome: session::Outcome, quiet: bool, json: bool) -> Result<()> {
    if let Some(failure) = outcome.failure {
        return Err(failure.context(format!(
            "{} holds only a part; `rpcprobe attribute --allow-truncated` reads it",
            dir.path().display()
        )));
    }
    let mut manifest = outcome.manifest;
    attribute::attribute(dir, &mut manifest, false)
        .and_then(|()| attribute::write_manifest(dir, &manifest))
        .with_context(|| {
            format!(
                "the events are in {}, but could not be attributed; `rpcprobe attribute \
                 --allow-truncated` tries again",
                dir.path().display()
            )
        })?;
    if !quiet {
        let stderr = std::io::stderr();
        let style = super::style(&stderr);
        super::write_report(&mut BufWriter::new(stderr.lock()), dir, json, style)?;
    }
    Ok(())
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
