//! `rpcprobe report DIR... --html FILE`

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use super::complain;
use super::gathered::{self, Figures};
use super::sides;
use crate::invoking_user::{environment, in_place, Owner};
use crate::page::{self, Page, Side};
use crate::report::Query;

/// Where the page is written, and whether it is opened.
pub struct Wanted {
    pub file: Option<PathBuf>,
    pub open: bool,
}

pub fn write(dirs: &[PathBuf], query: Query, wanted: Wanted) -> Result<i32> {
    let sides = sides::of(dirs, &query.filter)?;
    let (names, figures): (&[&str], Vec<Figures>) = match &sides {
        None => (&[""], vec![Figures::of(gathered::open(dirs)?, query)?]),
        Some(sides) => {
            let of = |dirs: &[PathBuf]| Figures::of(gathered::open(dirs)?, query.clone());
            (&["A", "B"], vec![of(&sides.a)?, of(&sides.b)?])
        }
    };
    let file = wanted.file.unwrap_or_else(|| beside(dirs, &figures[0]));
    let page = Page {
        sides: figures
            .iter()
            .zip(names)
            .map(|(of, name)| Side {
                name,
                reported: of.reported(),
                gathered: &of.gathered,
                directories: of.directories(),
            })
            .collect(),
        compared: sides.map(|sides| sides::compared(&sides.comparison)).transpose()?,
        command: command(),
    };
    let shared = figures.iter().flat_map(|of| &of.captures).all(|capture| capture.is_shared);
    let ((), bytes) = in_place(&file, shared, |out| page::write(out, &page))?;
    complain(&format_args!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6));
    if wanted.open {
        open(&file)?;
    }
    Ok(0)
}

/// Returns `rpcprobe.out.html` beside `rpcprobe.out`: beside the first directory that was named, or else the one that
/// was found.
fn beside(dirs: &[PathBuf], figures: &Figures) -> PathBuf {
    let found = &figures.captures[0].directory;
    // Removes a slash at its end.
    let dir: PathBuf = dirs.first().unwrap_or(found).components().collect();
    let mut name = dir.into_os_string();
    name.push(".html");
    PathBuf::from(name)
}

/// Returns the command as given, to be shown in the page.
fn command() -> String {
    let words: Vec<String> = std::env::args_os()
        .enumerate()
        .map(|(i, word)| match i {
            0 => "rpcprobe".to_owned(),
            _ => word.to_string_lossy().into_owned(),
        })
        .collect();
    words.join(" ")
}

/// If xdg-open has not failed after this time, the browser shows the page.
const OPENING: Duration = Duration::from_secs(3);

/// Opens a page in the user's browser. Under sudo, runs as the user who called it. That user's browser and screen are
/// named in the environment in which sudo was called.
fn open(file: &Path) -> Result<()> {
    let owner = Owner::invoking();
    let mut command = Command::new("xdg-open");
    // An absolute path cannot begin with a dash.
    command.arg(std::path::absolute(file)?);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: only returns an id.
    if unsafe { libc::getuid() } != owner.uid {
        command.gid(owner.gid).uid(owner.uid);
        if let Some(variables) = environment::of_caller() {
            command.env_clear().envs(variables);
        }
    }
    // Keeps Ctrl-C away from the browser.
    command.process_group(0);
    let mut opening = command
        .spawn()
        .with_context(|| format!("cannot run xdg-open; open {} in a browser", file.display()))?;
    // Without a desktop, xdg-open runs as long as the browser does.
    let end = Instant::now() + OPENING;
    while Instant::now() < end {
        match opening.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => bail!("xdg-open found no browser; open {} in one", file.display()),
            None => thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}
