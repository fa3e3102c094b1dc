//! The documentation names no file that does not exist, and shows no output that no command regenerates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// File name extensions that mark a word in backticks as a source file.
const SOURCES: &[&str] = &[".rs", ".c", ".h", ".cc", ".py", ".md", ".toml", ".mk", ".proto", ".x"];
/// Prefixes that mark a word in backticks as a file or folder of the repository.
const FOLDERS: &[&str] =
    &["bpf/", "crates/", "docs/", "experiments/", "src/", "targets/", "userspace/"];
/// Folders that contain nothing of the repository.
const NOT_OURS: &[&str] = &["node_modules", "results", "__pycache__"];
/// The file with which Cargo marks a folder of build results.
const BUILT: &str = "CACHEDIR.TAG";

/// Collects all files and folders below `folder`, except hidden ones and build results.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with('.') || NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if path.join(BUILT).exists() {
            continue;
        }
        if path.is_dir() {
            below(&path, found);
        }
        found.push(path);
    }
}

/// The text without its fenced blocks, which contain commands and their output.
fn prose(text: &str) -> String {
    let parts = text.split("```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}

/// Whether a word in backticks names a file or folder of the repository.
fn is_path(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let source = SOURCES.iter().any(|ending| word.len() > ending.len() && word.ends_with(ending));
    let folder = FOLDERS.iter().any(|folder| word.starts_with(folder));
    word.chars().all(plain) && (source || folder)
}

/// Counts the paths that a page names, and lists those that do not exist: words in backticks that match the end of no
/// path, and broken links.
fn missing(page: &Path, text: &str, files: &[PathBuf]) -> (usize, Vec<String>) {
    let prose = prose(text);
    let folder = page.parent().expect("a page lies in a folder");
    let named = prose.split('`').skip(1).step_by(2).filter(|word| is_path(word));
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter_map(|link| link.split('#').next());
    let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
    let mut seen = 0;
    let mut gone = Vec::new();
    for word in named {
        seen += 1;
        let relative = word.trim_start_matches("./").trim_start_matches("../");
        if !files.iter().any(|file| file.ends_with(relative)) {
            gone.push(format!("{}: `{word}`", page.display()));
        }
    }
    for link in links {
        seen += 1;
        if !folder.join(link).exists() {
            gone.push(format!("{}: link to {link}", page.display()));
        }
    }
    (seen, gone)
}

#[test]
fn files_that_the_documentation_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut files = Vec::new();
    below(root, &mut files);
    let pages = files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md"));
    let mut seen = 0;
    let mut gone = Vec::new();
    for page in pages {
        let text = fs::read_to_string(page).expect("a page can be read");
        let (more, missing) = missing(page, &text, &files);
        seen += more;
        gone.extend(missing);
    }
    assert!(seen > 100, "only {seen} names were found: the pages are not where they were");
    assert!(gone.is_empty(), "named, but not there:\n{}", gone.join("\n"));
}

#[test]
fn a_file_that_does_not_exist_is_noticed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/design.md");
    let files = [PathBuf::from("/x/userspace/src/walk.rs")];
    let text =
        "`walk.rs` `src/walk.rs` `k.rs` `src/none` `cargo run` [a](none.md#b)\n```\n`y.rs`\n```";
    let (seen, gone) = missing(&page, text, &files);
    assert_eq!(seen, 5);
    let gone: Vec<_> = gone.iter().filter_map(|line| line.rsplit(": ").next()).collect();
    assert_eq!(gone, ["`k.rs`", "`src/none`", "link to none.md"]);
}

/// Every block with a command and its output is an example that experiments/examples/run.py reruns.
#[test]
fn blocks_with_commands_are_examples() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments/examples/run.py");
    let check = Command::new("python3")
        .arg(examples)
        .arg("--check")
        .env("RPCPROBE", env!("CARGO_BIN_EXE_rpcprobe"))
        .output()
        .expect("python3 runs");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
}
