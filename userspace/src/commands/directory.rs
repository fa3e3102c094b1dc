//! Which directory a command uses: the given one, a new one, or the newest that exists.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;

use super::complain;
use crate::attribute::EVENTS;
use crate::cli::CaptureArgs;
use crate::invoking_user::{OutputDir, Owner};

/// Default name of captures. Further captures beside it have a number appended, from 2 on.
const DEFAULT: &str = "rpcprobe.out";

/// Creates the directory for a capture.
///
/// # Errors
/// As [`OutputDir::create`].
pub(super) fn create(args: &CaptureArgs) -> Result<OutputDir> {
    let owner = Owner::invoking();
    if args.output.is_none() && !args.force {
        let dir = OutputDir::create_numbered(owner, DEFAULT, args.sharing())?;
        if dir.path() != Path::new(DEFAULT) {
            complain(&format_args!("{DEFAULT} exists: capturing to {}", dir.path().display()));
        }
        return Ok(dir);
    }
    let path = args.output.as_deref().unwrap_or(Path::new(DEFAULT));
    OutputDir::create(owner, path, args.force, args.sharing())
}

/// Opens an existing capture: `path`, or else the newest in the current directory; then says which
/// one.
///
/// # Errors
/// There is no such directory.
pub(super) fn open(path: Option<&Path>) -> Result<OutputDir> {
    let owner = Owner::invoking();
    if let Some(path) = path {
        return OutputDir::open(owner, path);
    }
    let found = owner.run(|| candidates(Path::new(".")))?;
    let name = newest(&found).unwrap_or_else(|| DEFAULT.to_owned());
    if found.len() > 1 || name != DEFAULT {
        complain(&format_args!("reading {name}"));
    }
    OutputDir::open(owner, PathBuf::from(name))
}

/// A capture with a default name: its number, and when its events were written (not when it was
/// last attributed).
struct Candidate {
    number: u64,
    written: Option<SystemTime>,
}

fn candidates(parent: &Path) -> Vec<Candidate> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let candidate = |entry: fs::DirEntry| {
        let number = number_of(entry.file_name().to_str()?)?;
        if !entry.file_type().ok()?.is_dir() {
            return None;
        }
        let events = fs::symlink_metadata(entry.path().join(EVENTS)).ok();
        Some(Candidate { number, written: events.and_then(|events| events.modified().ok()) })
    };
    entries.flatten().filter_map(candidate).collect()
}

fn newest(candidates: &[Candidate]) -> Option<String> {
    let newest = candidates.iter().max_by_key(|candidate| (candidate.written, candidate.number))?;
    Some(match newest.number {
        1 => DEFAULT.to_owned(),
        number => format!("{DEFAULT}.{number}"),
    })
}

/// The number of `rpcprobe.out` is 1, that of `rpcprobe.out.2` is 2.
fn number_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix(DEFAULT)?;
    if rest.is_empty() {
        return Some(1);
    }
    let digits = rest.strip_prefix('.')?;
    let number = digits.parse().ok().filter(|number| *number > 1)?;
    (digits == u64::to_string(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_have_numbers() {
        for (name, number) in [
            ("rpcprobe.out", Some(1)),
            ("rpcprobe.out.2", Some(2)),
            ("rpcprobe.out.10", Some(10)),
            ("rpcprobe.out.1", None),
            ("rpcprobe.out.02", None),
            ("rpcprobe.out.", None),
            ("rpcprobe.out2", None),
            ("rpcprobe.out.old", None),
            ("capture", None),
        ] {
            assert_eq!(number_of(name), number, "{name}");
        }
    }

    #[test]
    fn the_newest_is_the_one_whose_events_are() {
        let parent = tempfile::tempdir().unwrap();
        let found = || candidates(parent.path());
        assert_eq!(newest(&found()), None);
        let begin = SystemTime::now();
        for (name, after_s) in [("rpcprobe.out", 5), ("rpcprobe.out.2", 9), ("rpcprobe.out.10", 7)]
        {
            let directory = parent.path().join(name);
            fs::create_dir(&directory).unwrap();
            let events = fs::File::create(directory.join(EVENTS)).unwrap();
            events.set_modified(begin + Duration::from_secs(after_s)).unwrap();
        }
        assert_eq!(newest(&found()).as_deref(), Some("rpcprobe.out.2"));
        // A directory without events, and a link instead of a directory.
        fs::create_dir(parent.path().join("rpcprobe.out.99")).unwrap();
        symlink(parent.path(), parent.path().join("rpcprobe.out.98")).unwrap();
        assert_eq!(newest(&found()).as_deref(), Some("rpcprobe.out.2"));
        fs::remove_dir_all(parent.path().join("rpcprobe.out.2")).unwrap();
        assert_eq!(newest(&found()).as_deref(), Some("rpcprobe.out.10"));
    }
}
