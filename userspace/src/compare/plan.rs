//! `ab.json`: which commands were run in which order, and which pairs are complete.

use std::io::Write;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use super::Basis;
use crate::invoking_user::OutputDir;

/// Name of the file in the directory of an `ab`.
pub const PLAN: &str = "ab.json";
/// Name of the file with the comparison, in the same directory.
pub const COMPARISON: &str = "comparison.json";
/// Version of the file's layout.
const FORMAT_VERSION: u32 = 1;

/// The runs of an `ab`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub format_version: u32,
    pub rpcprobe_version: String,
    /// The commands, word by word.
    pub a: Vec<String>,
    pub b: Vec<String>,
    /// The seed from which the order was drawn.
    pub seed: u64,
    pub pairs: Vec<Pair>,
}

/// Two successive runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Number of the pair, from 1.
    pub pair: u32,
    pub a_first: bool,
    /// Directories of the captures, beside this file.
    pub a: String,
    pub b: String,
    /// Why the pair is not compared; `None` if it is.
    pub left_out: Option<String>,
}

impl Pair {
    pub fn is_whole(&self) -> bool {
        self.left_out.is_none()
    }
}

impl Plan {
    pub fn new(a: Vec<String>, b: Vec<String>, seed: u64) -> Plan {
        Plan {
            format_version: FORMAT_VERSION,
            rpcprobe_version: env!("CARGO_PKG_VERSION").into(),
            a,
            b,
            seed,
            pairs: Vec::new(),
        }
    }

    /// Writes the plan in place of a previous one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, dir: &OutputDir) -> Result<()> {
        write_json(dir, PLAN, self)
    }
}

/// Writes a file as JSON, in one step.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(dir: &OutputDir, name: &str, value: &impl Serialize) -> Result<()> {
    let tmp = format!("{name}.tmp");
    dir.remove_file(&tmp)?;
    let mut file = dir.create_file(&tmp)?;
    let shown = dir.path().join(name);
    serde_json::to_writer_pretty(&mut file, value)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(file.write_all(b"\n")?))
        .with_context(|| format!("cannot write {}", shown.display()))?;
    dir.replace_file(name, &tmp)
}

/// Reads the plan in a directory; `None` if it is not the directory of an `ab`.
///
/// # Errors
/// The plan is damaged, or of another version.
pub fn read(dir: &OutputDir) -> Result<Option<Plan>> {
    let shown = dir.path().join(PLAN);
    if std::fs::symlink_metadata(&shown).is_err() {
        return Ok(None);
    }
    let file = std::io::BufReader::new(dir.open_file(PLAN)?);
    let plan: Plan =
        serde_json::from_reader(file).with_context(|| format!("{} is damaged", shown.display()))?;
    if plan.format_version != FORMAT_VERSION {
        bail!(
            "{}: version {}, this program reads {FORMAT_VERSION}",
            shown.display(),
            plan.format_version
        );
    }
    for pair in &plan.pairs {
        for (name, side) in [(&pair.a, 'a'), (&pair.b, 'b')] {
            if *name != format!("{side}.{}", pair.pair) {
                bail!(
                    "{} is damaged: a capture of pair {} is not {side}.{0}",
                    shown.display(),
                    pair.pair
                );
            }
        }
    }
    Ok(Some(plan))
}

/// Says which pairs are not compared, and why; `None` if all are.
pub fn left_out(pairs: &[Pair]) -> Option<String> {
    let reasons: Vec<_> = pairs
        .iter()
        .filter_map(|pair| pair.left_out.as_ref().map(|why| format!("pair {}: {why}", pair.pair)))
        .collect();
    (!reasons.is_empty()).then(|| format!("left out of the comparison: {}", reasons.join("; ")))
}

/// The basis of a comparison of this many complete pairs.
pub fn basis(pairs: usize) -> Basis {
    match pairs {
        0 | 1 => Basis::OneCaptureEach,
        _ => Basis::RandomPairs,
    }
}
