//! Options of direct hooks.

use clap::Args;

use crate::probe::direct::{Asked, By};
use crate::probe::hooks::Sort;

/// Functions of the kernel that are hooked themselves.
#[derive(Debug, Args)]
pub struct DirectArgs {
    /// Also hook kernel functions of these sorts directly, at entry and return; without SORT, all functions that this
    /// kernel allows. These hooks measure what is otherwise modelled (copies at sockets) and tell what some waits are
    /// for. Costs more. It is an error if neither fentry nor kprobes can attach them
    #[arg(long, value_name = "SORT", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub direct_hooks: Option<Vec<Sort>>,
    /// Hook them by this and by nothing else [default: fentry or, where it cannot be, kprobe]
    #[arg(long, value_name = "MEANS", requires = "direct_hooks")]
    pub direct_by: Option<By>,
}

impl DirectArgs {
    /// Returns what the options ask for, if anything.
    pub fn asked(&self) -> Option<Asked> {
        let sorts = self.direct_hooks.clone()?;
        Some(Asked { sorts, by: self.direct_by })
    }
}
