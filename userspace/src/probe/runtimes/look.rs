//! Looks for runtimes in programs' files. A hundred megabytes may take a second, so during a capture a separate thread
//! does it. The thread that empties the rings does not wait for it, and does not do it at its own real-time priority.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{anyhow, bail, Result};
use object::read::ReadCache;

use super::image::Image;
use super::{Found, RUNTIMES};

/// Larger files are not looked at.
const MOST_BYTES: u64 = 1 << 29;

/// A program's file, or a library's.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) file: File,
    /// The name of its process.
    pub(super) comm: String,
}

/// A file: device, inode, and the time of its last change, because an inode number may be reused.
pub(super) type FileId = (u64, u64, (i64, i64));

impl Program {
    pub(super) fn id(&self) -> Option<FileId> {
        let of = self.file.metadata().ok()?;
        Some((of.dev(), of.ino(), (of.ctime(), of.ctime_nsec())))
    }
}

/// What was found in a file.
pub(super) struct Looked {
    pub(super) id: FileId,
    pub(super) program: Program,
    /// By the runtime's name, or "runtimes" if the file could not be searched.
    pub(super) found: Vec<(&'static str, Result<Found>)>,
}

impl Looked {
    /// Reads the file.
    pub(super) fn at(id: FileId, program: Program) -> Looked {
        // The file's contents are not trusted: any user who may run programs may have written it.
        let found = match std::panic::catch_unwind(|| find(&program.file)) {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => vec![("runtimes", Err(error))],
            Err(_) => vec![("runtimes", Err(anyhow!("its file cannot be understood")))],
        };
        Looked { id, program, found }
    }
}

fn find(file: &File) -> Result<Vec<(&'static str, Result<Found>)>> {
    if file.metadata()?.len() > MOST_BYTES {
        bail!("it is larger than what is looked at");
    }
    let cached = ReadCache::new(file.try_clone()?);
    let Some(image) = Image::of(&cached)? else { return Ok(Vec::new()) };
    let found = RUNTIMES.iter().filter_map(|runtime| {
        let found = (runtime.find)(&image).transpose()?;
        Some((runtime.name, found))
    });
    Ok(found.collect())
}

/// A thread that looks at the requested files, one after the other.
#[derive(Debug)]
pub(super) struct Looker {
    /// The channel for requests, and the thread; `None` only while this is dropped.
    asked: Option<Sender<(FileId, Program)>>,
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    looked: Receiver<Looked>,
}

impl Looker {
    /// Starts the thread. It ends when the looker is dropped, which waits for the present file.
    ///
    /// # Errors
    /// No thread can be created.
    pub(super) fn start() -> std::io::Result<Looker> {
        let (asked, to_look) = channel();
        let (tell, looked) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ends);
        let look = move || {
            lower();
            for (id, program) in to_look {
                let ends = is_over.load(Ordering::Relaxed);
                if ends || tell.send(Looked::at(id, program)).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("rpcprobe-look".to_owned()).spawn(look)?;
        Ok(Looker { asked: Some(asked), thread: Some(thread), ends, looked })
    }

    /// Requests a file. Returns whether the thread is there to look at it.
    pub(super) fn ask(&self, id: FileId, program: Program) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.send((id, program)).is_ok())
    }

    /// Files that have been looked at since the last call.
    pub(super) fn looked(&self) -> impl Iterator<Item = Looked> + '_ {
        self.looked.try_iter()
    }
}

impl Drop for Looker {
    /// Waits for the thread: symbols are read later by a process that is forked from this one, which must have one
    /// thread then.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes this thread not real-time, though its starter may be (`chrt`).
fn lower() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call takes integers, and a parameter that lives through it; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &param) };
}
