//! The HTML page and the figures: they agree with SQL over the capture, a browser shows them as intended, and hostile
//! names and damaged files do no harm.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{symlink, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rpcprobe::model::{By, Kind};
use tempfile::TempDir;

use common::made_up::{made_up, made_up_with};
use common::{python, rpcprobe, text};

/// A name that contains markup and other text that must not be interpreted.
const HOSTILE: &str =
    "</script><script>window.pwned=1</script><img src=x onerror=\"window.pwned=1\">\n\u{2028}'\"&lt;<b>%{x}$x$";

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(name)
}

fn page(dirs: &[&Path], file: &Path) -> Output {
    let mut command = rpcprobe(["report"]);
    command.args(dirs).arg("--html").arg(file).output().expect("rpcprobe runs")
}

fn made(dirs: &[&Path], file: &Path) -> String {
    let output = page(dirs, file);
    assert!(output.status.success(), "{}", text(&output.stderr));
    fs::read_to_string(file).expect("a page")
}

fn run_python(of: &str, arguments: &[&Path]) -> Output {
    let mut command = Command::new(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script(of)).args(arguments);
    command.output().expect("Python runs")
}

#[test]
fn figures_and_page_agree_with_sql() {
    for requests in [1, 2, 150, 3_000] {
        let parent = TempDir::new().expect("a directory");
        let (capture, file) = (parent.path().join("capture"), parent.path().join("page.html"));
        fs::create_dir(&capture).expect("a directory");
        made_up(&capture, requests);
        made(&[&capture], &file);
        let output = run_python("agree.py", &[Path::new(common::RPCPROBE), &capture, &file]);
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && said.contains("agree with SQL"), "{requests}: {said}");
    }
}

/// A capture in which names of threads and methods are hostile: programs choose these names.
fn hostile(directory: &Path, requests: u64) {
    made_up_with(directory, requests, &|request, segments| {
        if request.kind != Kind::Exec {
            request.method = Some(match request.request_id % 3 {
                0 => HOSTILE.to_owned(),
                1 => format!("{HOSTILE}{}", "x".repeat(200)),
                _ => "GET /plain".to_owned(),
            });
        }
        for segment in segments {
            segment.comm = "<b>sh</b>\n".into();
            segment.by = segment
                .by
                .as_ref()
                .map(|_| By::from(&*format!("<script>window.pwned=1</script>{}/7", HOSTILE.len())));
            segment.detail = Some(HOSTILE.to_owned());
        }
    });
}

#[test]
fn a_browser_shows_pages_as_they_are_meant() {
    let parent = TempDir::new().expect("a directory");
    let path = |name: &str| parent.path().join(name);
    for (name, requests) in [("none", 0), ("one", 1), ("few", 40), ("many", 3_000)] {
        fs::create_dir(path(name)).expect("a directory");
        made_up(&path(name), requests);
        made(&[&path(name)], &path(&format!("{name}.html")));
    }
    fs::create_dir(path("hostile")).expect("a directory");
    hostile(&path("hostile"), 600);
    let content = made(&[&path("hostile")], &path("hostile.html"));
    assert!(!content.contains("<img") && !content.contains("<script>window"), "a name is markup");
    assert!(content.contains("&lt;/script&gt;&lt;script&gt;"), "a name is not in the tables");
    made(&[&path("many"), &path("hostile")], &path("two.html"));
    let files: Vec<PathBuf> = ["none", "one", "few", "many", "hostile", "two"]
        .iter()
        .map(|name| path(&format!("{name}.html")))
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let output = run_python("look.py", &files);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(77) {
        println!("{said}");
        return;
    }
    assert!(output.status.success() && said.contains("pages are right"), "{said}");
}

#[test]
fn what_is_no_capture_is_said_and_leaves_nothing() {
    let parent = TempDir::new().expect("a directory");
    let capture = parent.path().join("capture");
    fs::create_dir(&capture).expect("a directory");
    let file = parent.path().join("page.html");
    let fails = |what: &str| {
        let output = page(&[&capture], &file);
        let said = text(&output.stderr).to_owned();
        assert!(!output.status.success() && said.contains(what), "{what}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        let left: Vec<_> = fs::read_dir(parent.path()).expect("a directory").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    };
    fails("is not a finished capture");
    made_up(&capture, 300);
    let segments = capture.join("segments.parquet");
    let whole = fs::read(&segments).expect("segments");
    fs::write(&segments, &whole[..whole.len() / 2]).expect("written");
    fails("segments.parquet");
    fs::write(&segments, b"this is no Parquet file").expect("written");
    fails("segments.parquet");
    fs::write(&segments, b"").expect("written");
    fails("segments.parquet");
    fs::remove_file(&segments).expect("removed");
    fails("rpcprobe attribute");
    fs::copy(capture.join("requests.parquet"), &segments).expect("copied");
    fails("segments.parquet");
    fs::write(&segments, &whole).expect("written");
    fs::write(capture.join("manifest.json"), b"{}").expect("written");
    fails("manifest.json");
}

#[test]
fn a_page_takes_the_place_of_files_only() {
    let parent = TempDir::new().expect("a directory");
    let path = |name: &str| parent.path().join(name);
    fs::create_dir(path("capture")).expect("a directory");
    made_up(&path("capture"), 30);
    fs::write(path("victim"), b"kept").expect("written");
    symlink(path("victim"), path("link.html")).expect("a link");
    fs::create_dir(path("folder.html")).expect("a directory");
    for (name, why) in [("link.html", "symbolic link"), ("folder.html", "no regular file")] {
        let output = page(&[&path("capture")], &path(name));
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    assert_eq!(fs::read(path("victim")).expect("read"), b"kept");
    let output = page(&[&path("capture")], &path("nowhere/page.html"));
    assert!(!output.status.success() && text(&output.stderr).contains("nowhere"));
    // An existing file is replaced. Others cannot read the page of a capture that is not shared.
    fs::write(path("page.html"), b"old").expect("written");
    fs::set_permissions(path("capture"), fs::Permissions::from_mode(0o700)).expect("a mode");
    assert!(made(&[&path("capture")], &path("page.html")).starts_with("<!doctype html>"));
    let mode = File::open(path("page.html")).and_then(|file| file.metadata()).expect("a page");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
}

/// Writes an executable file.
fn executable(file: &Path, content: &str) {
    fs::write(file, content).expect("written");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("a mode");
}

/// Scripts replace sudo, which passes none of the user's environment on, xdg-open and the browser.
#[test]
fn a_page_is_opened_by_the_user_who_called_sudo() {
    const SOMEBODY: u32 = 54_321; // an id that no user database has
                                  // SAFETY: only returns an id.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root");
        return;
    }
    let parent = TempDir::new().expect("a directory");
    let path = |name: &str| parent.path().join(name);
    // The user may write to this directory.
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    fs::create_dir(path("capture")).expect("a directory");
    made_up(&path("capture"), 30);
    executable(
        &path("sudo"),
        &format!(
            "#!/bin/sh\nenv -i PATH=\"$PATH\" HOME=/root SUDO_UID={SOMEBODY} SUDO_GID={SOMEBODY} \"$@\"\nexit $?\n"
        ),
    );
    executable(&path("xdg-open"), "#!/bin/sh\nexec $BROWSER \"$1\"\n");
    let told = path("told");
    executable(
        &path("browser"),
        &format!("#!/bin/sh\necho \"$(id -u) $(id -g) $HOME $1\" > {}\n", told.display()),
    );
    let open = |browser: &str| {
        let mut command = Command::new(path("sudo"));
        command.args([Path::new(common::RPCPROBE), Path::new("report"), &path("capture")]);
        command.args(["--html=-page.html", "--open"]);
        let paths = format!("{}:/usr/bin:/bin", parent.path().display());
        let variables = [("PATH", &*paths), ("HOME", "/home/somebody"), ("BROWSER", browser)];
        command.current_dir(parent.path()).env_clear().envs(variables);
        command.output().expect("it runs")
    };
    let output = open(path("browser").to_str().expect("UTF-8"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = path("-page.html");
    let expected = format!("{SOMEBODY} {SOMEBODY} /home/somebody {}\n", page.display());
    assert_eq!(fs::read_to_string(&told).expect("it was opened"), expected);
    assert_eq!(fs::metadata(&page).expect("a page").uid(), SOMEBODY);
    // A browser that keeps running, as one does that no desktop starts, is not waited for.
    let its_pid = path("pid");
    let stays = format!("#!/bin/sh\necho $$ > {}\nexec sleep 60\n", its_pid.display());
    executable(&path("stays"), &stays);
    let output = open(path("stays").to_str().expect("UTF-8"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let pid = fs::read_to_string(&its_pid).expect("it was begun");
    let stopped = Command::new("kill").arg(pid.trim()).status().expect("kill runs");
    assert!(stopped.success(), "{pid} had ended");
    // If no browser works, the message says what to do, and the page exists.
    let output = open("false");
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("open -page.html in one"), "{said}");
}

#[test]
fn a_page_fits_its_bound_whatever_the_capture() {
    let parent = TempDir::new().expect("a directory");
    made_up(parent.path(), 60_000);
    let file = TempDir::new().expect("a directory");
    let content = made(&[parent.path()], &file.path().join("page.html"));
    assert!(content.len() <= 3_000_000, "{} bytes", content.len());
    assert!(!content.contains("http://") && !content.contains("src="), "it asks a network");
}

#[test]
fn figures_are_listed_and_refuse_what_they_cannot_show() {
    let capture = TempDir::new().expect("a directory");
    made_up(capture.path(), 50);
    let run = |arguments: &[&str]| {
        let output = rpcprobe(["figure"]).args(arguments).output().expect("rpcprobe runs");
        (output.status.success(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let directory = capture.path().to_str().expect("UTF-8");
    let (listed, names, _) = run(&[]);
    assert!(listed && names.contains("breakdown ") && names.contains("waterfall "), "{names}");
    for (arguments, why) in [
        (&["latency", directory, "--kind", "udp"][..], "no complete request passes"),
        (&["latency", directory, "--kind", "http1", "--band", "top1"], "too few"),
        (&["shift", directory], "two captures"),
        (&["timeline", directory, "--id", "4711"], "no request 4711"),
        (&["timeline", directory, "--id", "1", "--id", "2"], "one --id"),
    ] {
        let (succeeded, _, said) = run(arguments);
        assert!(!succeeded && said.contains(why), "{arguments:?}: {said}");
    }
    let (succeeded, json, _) =
        run(&["requests", directory, "--kind", "http1", "--id", "1", "--id", "2", "--id", "3"]);
    let figure: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let points = figure["data"].as_array().expect("traces").iter();
    let points: usize = points.map(|trace| trace["x"].as_array().map_or(0, Vec::len)).sum();
    assert!(succeeded && (1..=3).contains(&points), "{json}");
    // The same requests, named in a file and on standard input.
    let file = capture.path().join("ids");
    let named = file.to_str().expect("UTF-8");
    fs::write(&file, "3,1\n2").expect("written");
    let of_file = ["requests", directory, "--kind", "http1", "--ids", named];
    assert_eq!(run(&of_file).1, json);
    let mut command = rpcprobe(["figure"]);
    command.args(["requests", directory, "--kind", "http1", "--ids", "-"]);
    let output = command.stdin(File::open(&file).expect("a file")).output().expect("rpcprobe runs");
    assert_eq!(text(&output.stdout), json);
    for (held, why) in [("1 4711 9", "no request 4711"), ("", "no request"), ("1 x", "`x`")] {
        fs::write(&file, held).expect("written");
        let (succeeded, _, said) = run(&of_file);
        assert!(!succeeded && said.contains(why), "{held}: {said}");
    }
    // Request 17 is incomplete.
    fs::write(&file, (1..=50).map(|id| format!("{id} ")).collect::<String>()).expect("written");
    let (succeeded, _, said) = run(&of_file);
    assert!(succeeded && said.contains("incomplete: not in the figure"), "{said}");
}
