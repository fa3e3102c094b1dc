//! The `rpcprobe` command.

use clap::Parser;
use rpcprobe::cli::{Cli, Command};

/// Events are allocated by one thread and freed by another; this allocator handles that well.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's options, in the variable that it reads (`malloc_conf` in its manual): huge pages, because
/// attribution goes through all of its memory again and again.
#[export_name = "_rjem_malloc_conf"]
pub static ALLOCATOR_OPTIONS: &[u8; 11] = b"thp:always\0";

fn main() {
    let cli = Cli::parse();
    if !matches!(cli.command, Command::Run(_)) {
        // Filters such as `rpcprobe requests | head` end quietly. `run` must survive a broken pipe, because the end of
        // its target is what counts.
        // SAFETY: resets a disposition before any thread exists.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let status = match rpcprobe::commands::dispatch(cli.command) {
        Ok(status) => status,
        Err(error) => {
            rpcprobe::commands::complain(&format_args!("{error:#}"));
            rpcprobe::commands::exit_code(&error)
        }
    };
    std::process::exit(status);
}
