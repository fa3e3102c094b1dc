//! `rpcprobe generate DIR`: generates man pages and completions from the definition of the command
//! line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::roff::{bold, roman, Roff};
use clap_mangen::Man;

use crate::cli::{Cli, GenerateArgs};

const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/rpcprobe"),
    (Shell::Zsh, "zsh/site-functions/_rpcprobe"),
    (Shell::Fish, "fish/vendor_completions.d/rpcprobe.fish"),
];

pub fn generate(args: &GenerateArgs) -> Result<i32> {
    for (shell, name) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "rpcprobe", &mut text);
        write(&args.dir.join(name), &text)?;
    }
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    let man = args.dir.join("man/man1");
    page(&man, cli.clone(), "rpcprobe")?;
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        page(&man, command.clone(), &format!("rpcprobe-{}", command.get_name()))?;
    }
    Ok(0)
}

/// Writes a man page of section 1.
fn page(dir: &Path, command: clap::Command, name: &str) -> Result<()> {
    let after = command.get_after_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    let version = concat!("rpcprobe ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).title(name.to_uppercase()).source(version).manual("rpcprobe");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_commands {
        man.render_subcommands_section(&mut text)?;
    }
    let mut last = Roff::new();
    if let Some(after) = after {
        last.control("SH", ["EXAMPLES"]);
        // Line by line, as written.
        last.control("nf", []).text([roman(after.trim_start_matches("Examples:\n"))]);
        last.control("fi", []);
    }
    if !has_commands {
        last.control("SH", ["SEE ALSO"]).text([bold("rpcprobe"), roman("(1)")]);
    }
    last.to_writer(&mut text)?;
    write(&dir.join(format!("{name}.1")), &text)
}

fn write(file: &Path, text: &[u8]) -> Result<()> {
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}
