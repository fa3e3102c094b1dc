//! Looking what is in a program's file: a hundred megabytes of it may take a second, so that while programs are captured a thread of its
//! own does it. Who empties the rings neither waits for that nor does it before all others on its CPU.

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
    /// What its process calls itself.
    pub(super) comm: String,
}

/// A file: device, inode, and when that changed last, since its number may become another file's.
pub(super) type FileId = (u64, u64, (i64, i64));

impl Program {
    pub(super) fn id(&self) -> Option<FileId> {
        let of = self.file.metadata().ok()?;
        Some((of.dev(), of.ino(), (of.ctime(), of.ctime_nsec())))
    }
}

/// What a file was found to have in it.
pub(super) struct Looked {
    pub(super) id: FileId,
    pub(super) program: Program,
    /// By the runtime's name, or "runtimes" where none could be looked for.
    pub(super) found: Vec<(&'static str, Result<Found>)>,
}

impl Looked {
    /// Reads the file.
    pub(super) fn at(id: FileId, program: Program) -> Looked {
        // Whoever may run a program here wrote it.
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

/// A thread that looks at one file after the other, as they are asked for.
#[derive(Debug)]
pub(super) struct Looker {
    /// By what it is asked, and the thread; nothing only while this is dropped.
    asked: Option<Sender<(FileId, Program)>>,
    thread: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
    looked: Receiver<Looked>,
}

impl Looker {
    /// Starts the thread. It ends with the looker, which waits for the file that it is at.
    ///
    /// # Errors
    /// There are no more threads.
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

    /// Asks for a file; whether the thread is there to look at it.
    pub(super) fn ask(&self, id: FileId, program: Program) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.send((id, program)).is_ok())
    }

    /// What has been looked at since.
    pub(super) fn looked(&self) -> impl Iterator<Item = Looked> + '_ {
        self.looked.try_iter()
    }
}

impl Drop for Looker {
    /// Symbols are read by a process that is forked from this one, which has one thread then.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// This thread is not to be real-time, though its starter may be (`chrt`).
fn lower() {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call takes integers, and a parameter that lives through it; 0 is this thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &param) };
}
