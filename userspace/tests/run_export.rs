//! Exports for other programs: traces, CSV and JSON agree with SQL over the capture, hostile names and damaged files do
//! no harm, and man pages and completions name every command.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::CommandFactory;
use rpcprobe::cli::Cli;
use rpcprobe::model::{By, Certainty, Request, Segment};
use tempfile::TempDir;

use common::capture::Capture;
use common::made_up::{made_up_with, START_NS};
use common::{frpc, needs_kernel, python, rpcprobe, text};

const HOSTILE: &str = "=1+2,</script><script>\n\t\u{1b}[2J\u{202e}\"';\u{0}{\"a\":1}";

/// Exports the capture with these options and compares the export with SQL. `condition` is the SQL condition that
/// selects the same requests as the options.
fn agrees(capture: &Path, condition: &str, options: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/export/read_back.py");
    let mut command = Command::new(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script).arg(common::RPCPROBE).arg(capture);
    let output = command.arg(condition).args(options).output().expect("Python runs");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.contains("agree with SQL"), "{options:?}: {said}");
}

/// A synthetic capture with this many requests. Most of them name a parent request.
fn made_up(requests: u64) -> TempDir {
    made(requests, &|_, _| {})
}

fn made(requests: u64, change: &dyn Fn(&mut Request, &mut Vec<Segment>)) -> TempDir {
    let directory = TempDir::new().expect("a directory");
    made_up_with(directory.path(), requests, &|request, segments| {
        let id = request.request_id;
        // The parent's row comes earlier, comes later, or does not exist.
        request.parent_request_id = [None, Some(id - 1), Some(id + 2)][(id % 3) as usize];
        request.parent_certainty = request.parent_request_id.map(|_| Certainty::Likely);
        request.detached = id.is_multiple_of(9);
        for (i, segment) in segments.iter_mut().enumerate() {
            segment.tid += (id % 4 * i as u64 % 3) as u32;
            segment.cpu = (i > 0).then_some(i as u32);
        }
        change(request, segments);
    });
    directory
}

#[test]
fn what_is_exported_agrees_with_sql() {
    for requests in [0, 1, 2, 150, 3_000] {
        agrees(made_up(requests).path(), "true", &[]);
    }
    let capture = made_up(600);
    let slowest = "complete qualify row_number() over (order by latency_ns desc, request_id) <= 20";
    let since = format!("(start_ns - {START_NS})");
    let window = format!("{since} < 400000 and {since} + latency_ns >= 300000");
    for (condition, options) in [
        (slowest, &["--slowest", "20"][..]),
        (&window, &["--window", "300us..400us"]),
        (&format!("{since} < 50000"), &["--window", "..50us"]),
        ("kind = 'http1' and status = 503", &["--kind", "http1", "--status", "503"]),
        ("kind = 'udp'", &["--kind", "udp"]),
        (
            "complete and latency_ns >= 9000 qualify row_number() over (order by latency_ns desc) <= 10000",
            &["--min", "9us", "--slowest", "10000"],
        ),
    ] {
        agrees(capture.path(), condition, options);
    }
}

#[test]
fn names_are_text_whatever_is_in_them() {
    let capture = made(90, &|request, segments| {
        request.method = Some(HOSTILE.into());
        request.channel = Some(HOSTILE.into());
        for end in [&mut request.client, &mut request.server].into_iter().flatten() {
            end.comm = HOSTILE.into();
        }
        for segment in segments {
            segment.comm = HOSTILE.into();
            segment.detail = Some(HOSTILE.into());
            segment.cause = Some(HOSTILE.into());
            segment.by = Some(By::from(&*format!("{HOSTILE}/7")));
        }
    });
    agrees(capture.path(), "true", &[]);
}

#[test]
fn a_real_capture_agrees_with_sql() {
    let Some(_turn) = needs_kernel() else { return };
    let input = File::open(frpc("expressions.txt")).expect("expressions");
    let command = [&*frpc("frpc"), "-m", "3"];
    let capture = Capture::of(&[], &command, Stdio::from(input)).succeeded();
    agrees(&capture.path(), "true", &[]);
    // Requests of whole programs, with other requests inside them.
    let command = ["sh", "-c", "for i in 1 2 3; do /bin/true | cat; done"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    agrees(&capture.path(), "true", &[]);
}

fn export(arguments: &[&Path]) -> Output {
    rpcprobe(["export"]).args(arguments).output().expect("rpcprobe runs")
}

/// Names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect()
}

#[test]
fn what_is_no_capture_is_said_and_leaves_nothing() {
    let (capture, files) = (made_up(300), TempDir::new().expect("a directory"));
    let file = files.path().join("export");
    let fails = |what: &str| {
        for format in ["--perfetto", "--csv", "--json"] {
            let output = export(&[capture.path(), Path::new(format), &file]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{format}: {said}");
            assert!(said.contains(what) && !said.contains("panicked"), "{format} {what}: {said}");
            // Of the two CSV tables, the first may already be complete.
            let left = names(files.path());
            assert!(left.iter().all(|name| name.starts_with("export.requests.")), "{left:?}");
        }
    };
    let path = |name: &str| capture.path().join(name);
    for table in ["requests.parquet", "segments.parquet"] {
        let whole = fs::read(path(table)).expect("a table");
        for damaged in [&whole[..whole.len() / 2], b"this is no Parquet file", b""] {
            fs::write(path(table), damaged).expect("written");
            fails(table);
        }
        fs::remove_file(path(table)).expect("removed");
        fails("rpcprobe attribute");
        fs::write(path(table), &whole).expect("written");
    }
    let requests = fs::read(path("requests.parquet")).expect("a table");
    fs::write(path("segments.parquet"), requests).expect("written");
    fails("segments.parquet");
    fs::write(path("manifest.json"), b"{}").expect("written");
    fails("manifest.json");
    fs::remove_file(path("manifest.json")).expect("removed");
    fails("is not a finished capture");
}

#[test]
fn tables_that_do_not_fit_each_other_are_no_trace() {
    let (capture, other) = (made_up(200), made_up(190));
    let file = other.path().join("trace");
    fs::copy(capture.path().join("segments.parquet"), other.path().join("segments.parquet"))
        .expect("copied");
    let output = export(&[other.path(), Path::new("--perfetto"), &file]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("not where it is"), "{said}");
    // Segments with a gap between them.
    let gap = made(50, &|_, segments| {
        if segments.len() > 2 {
            segments.remove(1);
        }
    });
    let output = export(&[gap.path(), Path::new("--perfetto"), &file]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("do not tile it"), "{said}");
    assert!(!file.exists());
}

#[test]
fn an_export_takes_the_place_of_files_only() {
    let (capture, files) = (made_up(30), TempDir::new().expect("a directory"));
    let path = |name: &str| files.path().join(name);
    fs::write(path("victim"), b"kept").expect("written");
    symlink(path("victim"), path("link")).expect("a link");
    symlink(path("victim"), path("base.segments.csv")).expect("a link");
    fs::create_dir(path("folder")).expect("a directory");
    for (format, name, why) in [
        ("--perfetto", "link", "symbolic link"),
        ("--perfetto", "folder", "no regular file"),
        ("--perfetto", "nowhere/trace", "nowhere"),
        ("--csv", "base", "symbolic link"),
    ] {
        let output = export(&[capture.path(), Path::new(format), &path(name)]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
    }
    assert_eq!(fs::read(path("victim")).expect("read"), b"kept");
    // An existing file is replaced. Others may read the new file only if they may read the capture.
    for (mode, expected) in [(0o700, 0o600), (0o755, 0o644)] {
        fs::set_permissions(capture.path(), fs::Permissions::from_mode(mode)).expect("a mode");
        fs::write(path("trace"), b"old").expect("written");
        assert!(export(&[capture.path(), Path::new("--perfetto"), &path("trace")])
            .status
            .success());
        let found = fs::metadata(path("trace")).expect("a trace");
        assert!(found.len() > 1_000 && found.permissions().mode() & 0o777 == expected);
    }
}

#[test]
fn a_trace_can_be_compressed() {
    let (capture, files) = (made_up(300), TempDir::new().expect("a directory"));
    let write = |name: &str| {
        let file = files.path().join(name);
        let output = export(&[capture.path(), Path::new("--perfetto"), &file]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        file
    };
    let (plain, compressed) = (write("trace"), write("trace.gz"));
    let output = Command::new("gzip").arg("-dc").arg(&compressed).output().expect("gzip runs");
    assert_eq!(output.stdout, fs::read(&plain).expect("a trace"), "{}", text(&output.stderr));
    let size = |file: &Path| fs::metadata(file).expect("a file").len();
    assert!(size(&compressed) < size(&plain));
}

#[test]
fn what_is_interrupted_leaves_nothing() {
    let (capture, files) = (made_up(100_000), TempDir::new().expect("a directory"));
    fs::write(files.path().join("trace"), b"old").expect("written");
    let mut command = rpcprobe(["export", "--perfetto", "trace"]);
    let command = command.arg(capture.path()).current_dir(files.path()).stderr(Stdio::null());
    let mut child = command.spawn().expect("rpcprobe runs");
    // Waits until it has begun to write.
    while names(files.path()).len() == 1 {
        assert!(child.try_wait().expect("a child").is_none(), "it ended before it was interrupted");
        std::thread::yield_now();
    }
    // SAFETY: takes numbers only; the child is ours and not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().expect("a child").code(), Some(130));
    assert_eq!(names(files.path()), ["trace"]);
    assert_eq!(fs::read(files.path().join("trace")).expect("a file"), b"old");
}

#[test]
fn wrong_arguments_are_refused() {
    for arguments in [
        &["."][..],
        &[".", "--perfetto"],
        &[".", "--perfetto", "x", "--slowest", "0"],
        &[".", "--perfetto", "x", "--slowest", "3", "--window", "1s..2s"],
        &[".", "--perfetto", "x", "--window", "2s..1s"],
        &[".", "--perfetto", "x", "--window", "1s"],
        &[".", ".", "--csv", "x"],
    ] {
        let output = rpcprobe(["export"]).args(arguments).output().expect("rpcprobe runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn man_pages_and_completions_name_every_command() {
    let directory = TempDir::new().expect("a directory");
    let output = rpcprobe(["generate"]).arg(directory.path()).output().expect("rpcprobe runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let read = |name: &str| fs::read_to_string(path(name)).unwrap_or_else(|_| panic!("{name}"));
    let bash = "bash-completion/completions/rpcprobe";
    let completions =
        [bash, "zsh/site-functions/_rpcprobe", "fish/vendor_completions.d/rpcprobe.fish"];
    let completions = completions.map(read);
    let whole = read("man/man1/rpcprobe.1");
    let mut cli = Cli::command();
    cli.build();
    let mut seen = 0;
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        assert!(completions.iter().all(|text| text.contains(name)), "{name}");
        if name == "help" {
            continue;
        }
        seen += 1;
        assert!(whole.contains(&format!("rpcprobe\\-{name}(1)")), "{name} in {whole}");
        let page = read(&format!("man/man1/rpcprobe-{name}.1"));
        for option in
            command.get_arguments().filter(|of| !of.is_hide_set()).filter_map(|of| of.get_long())
        {
            assert!(page.contains(&option.replace('-', "\\-")), "{name} --{option}");
            assert!(completions.iter().all(|text| text.contains(option)), "{name} --{option}");
        }
    }
    assert!(seen > 10, "{seen} commands");
    // Completes as bash does when a user types `rpcprobe ex<Tab>`.
    let ask = r#"source "$1"; COMP_WORDS=(rpcprobe ex); COMP_CWORD=1; _rpcprobe rpcprobe ex rpcprobe; echo "${COMPREPLY[@]}""#;
    let output = Command::new("bash").args(["-euc", ask, "bash"]).arg(path(bash)).output();
    let output = output.expect("bash runs");
    assert_eq!(text(&output.stdout).trim(), "explain export", "{}", text(&output.stderr));
}
