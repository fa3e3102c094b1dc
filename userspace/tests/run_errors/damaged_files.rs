//! Damaged manifests and tables, and arguments that name no capture or no request.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use crate::common::capture::NAME;
use crate::common::{assert_refused, needs_kernel, rpcprobe, text};
use crate::noise::noise;
use crate::{on, small_capture};

#[test]
fn a_manifest_that_is_missing_or_damaged_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let manifest = capture.file("manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    let other_version = whole.replacen("\"format_version\": 1", "\"format_version\": 999", 1);
    assert_ne!(other_version, whole);
    for content in
        ["", "{", "[]", "\0\0\0", "{\"format_version\": 1}", &whole[..200], &other_version]
    {
        fs::write(&manifest, content).unwrap();
        for command in ["report", "requests", "attribute"] {
            let output = on(&capture.path(), &[command]);
            assert_refused(&output, 1, &[manifest.to_str().unwrap()]);
            assert_eq!(text(&output.stdout), "");
        }
    }
    fs::remove_file(&manifest).unwrap();
    for command in ["report", "requests", "attribute"] {
        assert_refused(&on(&capture.path(), &[command]), 1, &[NAME, "manifest.json"]);
    }
    for stand_in in ["/etc/hostname", "/dev/zero"] {
        symlink(stand_in, &manifest).unwrap();
        assert_refused(&on(&capture.path(), &["report"]), 1, &["manifest.json"]);
        fs::remove_file(&manifest).unwrap();
    }
}

#[test]
fn damaged_tables_are_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    for name in ["requests.parquet", "segments.parquet"] {
        let path = capture.file(name);
        let whole = fs::read(&path).unwrap();
        let half = &whole[..whole.len() / 2];
        let without_footer = [&whole[..whole.len() - 8], b"\0\0\0\0PAR1"].concat();
        for content in [&b""[..], half, &noise(3000), b"PAR1PAR1", &without_footer] {
            fs::write(&path, content).unwrap();
            assert_refused(&on(&capture.path(), &["report"]), 1, &[path.to_str().unwrap()]);
            assert_refused(&on(&capture.path(), &["requests"]), 1, &[path.to_str().unwrap()]);
            let output = rpcprobe([OsStr::new("explain"), capture.path().as_os_str()]);
            assert_refused(&{ output }.arg("1").output().unwrap(), 1, &[path.to_str().unwrap()]);
        }
        fs::remove_file(&path).unwrap();
        let words = [path.to_str().unwrap(), "`rpcprobe attribute"];
        assert_refused(&on(&capture.path(), &["report"]), 1, &words);
        assert_refused(&on(&capture.path(), &["requests"]), 1, &words);
        // `attribute` restores files that can be recomputed from the events.
        assert!(on(&capture.path(), &["attribute", "-q"]).status.success());
        assert!(on(&capture.path(), &["report"]).status.success());
    }
}

#[test]
fn what_is_no_capture_or_no_request_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let explain = |id: &str| {
        let path = capture.path();
        rpcprobe([OsStr::new("explain"), path.as_os_str(), OsStr::new(id)]).output().unwrap()
    };
    assert!(explain("1").status.success());
    for id in ["0", "99999", "18446744073709551615"] {
        assert_refused(&explain(id), 1, &[NAME, "no request", id]);
    }
    for id in ["first", "-", "1.5", "18446744073709551616", ""] {
        assert_refused(&explain(id), 1, &["not the number of a request", id]);
    }
    let empty = TempDir::new().unwrap();
    let file = empty.path().join("file");
    for command in ["report", "requests", "attribute"] {
        assert_refused(&on(empty.path(), &[command]), 1, &[empty.path().to_str().unwrap()]);
        assert_refused(&on(&file, &[command]), 1, &[file.to_str().unwrap(), "No such file"]);
    }
    fs::write(&file, "").unwrap();
    assert_refused(&on(&file, &["report"]), 1, &[file.to_str().unwrap(), "not a directory"]);
}
