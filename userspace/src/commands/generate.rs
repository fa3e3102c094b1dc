//! `rpcprobe generate DIR`: man pages and completions out of the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, GenerateArgs};

const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/rpcprobe"),
    (Shell::Zsh, "zsh/site-functions/_rpcprobe"),
    (Shell::Fish, "fish/vendor_completions.d/rpcprobe.fish"),
];

pub fn generate(args: &GenerateArgs) -> Result<i32> {
    let mut cli = Cli::command();
    cli.build();
    for (shell, name) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "rpcprobe", &mut text);
        write(&args.dir.join(name), &text)?;
    }
    let man = args.dir.join("man/man1");
    page(&man, cli.clone(), "rpcprobe")?;
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() != "help" {
            let name = format!("rpcprobe-{}", command.get_name());
            page(&man, command.clone().disable_help_subcommand(true), &name)?;
        }
    }
    Ok(0)
}

/// A page of section 1. Its name has a hyphen, what is typed a blank.
fn page(man: &Path, command: clap::Command, name: &str) -> Result<()> {
    let command = command.version(env!("CARGO_PKG_VERSION"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command).title(name.to_uppercase()).render(&mut text)?;
    write(&man.join(format!("{name}.1")), &text)
}

fn write(file: &Path, text: &[u8]) -> Result<()> {
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}
