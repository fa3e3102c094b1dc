//! Protocol detection on streams: the kernel-side framing (bpf/framing.bpf.c), compiled as a user-space program, reads
//! synthetic connections and connections of ordinary protocols.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{peer, text};
use tempfile::TempDir;

const HTTP2: u32 = 1;
const HTTP1: u32 = 3;
const RESP: u32 = 4;
const TLS: u32 = 6;
const ENDS: [&str; 3] = ["writes", "reads", "both"];

/// The framing compiled as a program, in a temporary directory.
struct Host(TempDir);

impl Host {
    fn compiled() -> Host {
        let directory = TempDir::new().expect("a temporary directory");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = ["../bpf", "tests/framing"].map(|folder| here.join(folder));
        // The second folder's probe.h replaces the first folder's.
        for path in sources.iter().flat_map(|folder| fs::read_dir(folder).expect("sources")) {
            let path = path.expect("a file").path();
            let name = path.file_name().expect("a name");
            if name.to_str().is_some_and(|name| name.ends_with(".h") || name.ends_with(".c")) {
                fs::copy(&path, directory.path().join(name)).expect("it can be copied");
            }
        }
        let host = Host(directory);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Werror", "-Wno-unused-function", "host.c", "-o"]);
        let compiled = compiler.arg(host.program()).current_dir(host.0.path()).output();
        let compiled = compiled.expect("cc runs");
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        host
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("host")
    }

    /// For each connection: its name, then the protocol detected and the number of units reported for the client's
    /// bytes and for the server's bytes.
    fn taken(&self, mode: &str, ends: &str, connections: &[u8]) -> Vec<(String, [u32; 4])> {
        let mut host = Command::new(self.program())
            .args([mode, ends])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut stdin = host.stdin.take().expect("a pipe");
        let connections = connections.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&connections));
        let output = host.wait_with_output().expect("it ends");
        writer.join().expect("no panic").expect("all is read");
        assert!(output.status.success(), "{:?}", output.status);
        let line = |line: &str| {
            let mut words = line.split(' ');
            let name = words.next().expect("a name").to_string();
            let numbers: Vec<u32> = words.map(|word| word.parse().expect("a number")).collect();
            (name, numbers.try_into().expect("four numbers"))
        };
        text(&output.stdout).lines().map(line).collect()
    }
}

/// A connection in the host's input format: for each call, the writer (0 client, 1 server) and the bytes.
fn connection(name: &str, calls: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let number = |n: usize| (n as u32).to_ne_bytes();
    let mut out = [&number(name.len())[..], name.as_bytes(), &number(calls.len())].concat();
    for (who, bytes) in calls {
        out.extend([&who.to_ne_bytes()[..], &number(bytes.len()), bytes].concat());
    }
    out
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn settings() -> Vec<u8> {
    frame(4, 0, 0, &[0, 4, 0, 1, 0, 0])
}

fn headers(flags: u8, stream: u32) -> Vec<u8> {
    frame(1, flags, stream, &[0x83, 0x86, 0x41, 0x80])
}

/// A gRPC call and its answer.
fn call(stream: u32) -> [(u32, Vec<u8>); 2] {
    let data = |flags| frame(0, flags, stream, b"\0\0\0\0\x05hello");
    let asked = [headers(4, stream), data(1)].concat();
    (0, asked).with(1, [headers(4, stream), data(0), headers(5, stream)].concat())
}

/// A request that consists of a HEADERS frame only, and its answer.
fn get(stream: u32) -> [(u32, Vec<u8>); 2] {
    (0, headers(5, stream)).with(1, [headers(4, stream), frame(0, 1, stream, b"body")].concat())
}

trait With {
    fn with(self, who: u32, bytes: Vec<u8>) -> [(u32, Vec<u8>); 2];
}

impl With for (u32, Vec<u8>) {
    fn with(self, who: u32, bytes: Vec<u8>) -> [(u32, Vec<u8>); 2] {
        [self, (who, bytes)]
    }
}

#[test]
fn ordinary_streams_are_of_no_known_protocol() {
    let host = Host::compiled();
    let dumped = Command::new("python3").args([&peer("streams_pair.py"), "dump"]).output();
    let dumped = dumped.expect("python3 runs");
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    for mode in ["run", "attach"] {
        for ends in ENDS {
            let taken = host.taken(mode, ends, &dumped.stdout);
            assert!(taken.len() > 2000, "{}", taken.len());
            let is_right = |name: &str, told: [u32; 4]| match name.starts_with("tls/") {
                true => [told[0], told[2]].iter().all(|protocol| [0, TLS].contains(protocol)),
                false => told == [0; 4],
            };
            let wrong: Vec<_> =
                taken.iter().filter(|(name, told)| !is_right(name, *told)).collect();
            assert!(wrong.is_empty(), "{mode} {ends}: {wrong:?}");
        }
    }
}

/// TLS is known by its hellos, and in mid-connection by encrypted data. Nothing is read after that.
#[test]
fn tls_is_known_by_its_records() {
    let host = Host::compiled();
    let record = |kind: u8, first: u8, bytes: u16| {
        let head = [&[kind, 3, 3][..], &bytes.to_be_bytes(), &[first]].concat();
        [head, vec![0x5a; usize::from(bytes) - 1]].concat()
    };
    let data = |bytes| record(23, 0x5a, bytes);
    // A record's header, and then the rest of it, as OpenSSL reads them.
    let apart =
        |who: u32, record: Vec<u8>| [(who, record[..5].to_vec()), (who, record[5..].to_vec())];
    let whole = |who: u32, records: &[&[u8]]| vec![(who, records.concat())];
    let [hello, answer] = [record(22, 1, 300), record(22, 2, 90)];
    let ends = [record(22, 16, 40), record(20, 1, 1), record(22, 0x5a, 40)];
    let shake = [whole(0, &[&hello]), whole(1, &[&answer]), whole(0, &[&ends.concat()])].concat();
    let talk = [whole(0, &[&data(60)]), whole(1, &[&data(900)]), whole(0, &[&data(70)])].concat();
    let in_parts = std::iter::once(hello.clone()).chain(ends).flat_map(|r| apart(0, r)).collect();
    let noise = [whole(0, &[b"\x16\x03\x01"]), whole(0, &[&record(22, 9, 300)])].concat();
    let late = [whole(0, &[b"STARTTLS\r\n"]), whole(1, &[b"220 ok\r\n"])].concat();
    let torn =
        [whole(0, &[&hello]), whole(0, &[b"no record"]), talk.clone(), talk.clone()].concat();
    let cases: [(&str, Vec<_>, [u32; 4], [u32; 4]); 6] = [
        ("shake", [shake.clone(), talk.clone()].concat(), [TLS, 4, TLS, 1], [TLS, 5, TLS, 2]),
        ("parts", in_parts, [TLS, 4, 0, 0], [TLS, 4, 0, 0]),
        ("late", [late, shake, talk.clone()].concat(), [TLS, 4, TLS, 1], [TLS, 5, TLS, 2]),
        ("torn", torn, [TLS, 1, 0, 0], [TLS, 2, TLS, 1]),
        ("middle", talk, [0; 4], [TLS, 1, TLS, 1]),
        ("noise", noise, [0; 4], [0; 4]),
    ];
    for (name, calls, in_run, in_attach) in cases {
        for (mode, told) in [("run", in_run), ("attach", in_attach)] {
            for ends in ENDS {
                let taken = host.taken(mode, ends, &connection(name, &calls));
                assert_eq!(taken[0].1, told, "{name} {mode} {ends}");
            }
        }
    }
}

/// HTTP/2 is detected on both ends of a connection from its first bytes, whichever side writes first.
#[test]
fn http2_is_known_by_its_preface() {
    let host = Host::compiled();
    let client = (0, [PREFACE, &settings()].concat());
    let calls = || (0..3).flat_map(|n| call(2 * n + 1));
    let orders = [
        ("client-first", vec![client.clone(), (1, settings())], [1 + 6, 1 + 9]),
        // Bytes that the server writes before the client's are not reported, but they are parsed.
        ("server-first", vec![(1, settings()), client.clone()], [1 + 6, 9]),
        ("no-settings", vec![(1, frame(4, 0, 0, &[])), client.clone()], [1 + 6, 9]),
        (
            "in-pieces",
            vec![(1, settings()[..9].to_vec()), (1, settings()[9..].to_vec()), client],
            [1 + 6, 9],
        ),
    ];
    for (name, begin, [asked, answered]) in orders {
        let calls: Vec<_> = begin.into_iter().chain(calls()).collect();
        for (mode, ends) in ["run", "attach"].iter().flat_map(|mode| ENDS.map(|ends| (mode, ends)))
        {
            let taken = host.taken(mode, ends, &connection(name, &calls));
            assert_eq!(taken[0].1, [HTTP2, asked, HTTP2, answered], "{name} {mode} {ends}");
        }
    }
}

/// HTTP/1 requests arrive in pieces: a client writes without buffering, or packets split them. Each must be detected,
/// wherever it is cut.
#[test]
fn http1_is_known_whatever_pieces_it_comes_in() {
    let host = Host::compiled();
    let requests =
        ["GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "POST /b HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"];
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
    let mut connections = Vec::new();
    for cut in 4..requests[0].len() {
        let mut calls = Vec::new();
        for request in requests {
            let (begin, rest) = request.as_bytes().split_at(cut);
            // The rest is split in two as well.
            let (middle, end) = rest.split_at(rest.len() / 2);
            calls.extend([begin, middle, end].map(|piece| (0, piece.to_vec())));
            calls.push((1, answer.clone()));
        }
        connections.extend(connection("pieces", &calls));
    }
    for mode in ["run", "attach"] {
        for ends in ENDS {
            for (_, told) in host.taken(mode, ends, &connections) {
                assert_eq!(told, [HTTP1, 2, HTTP1, 2], "{mode} {ends}");
            }
        }
    }
}

/// A stream that begins like an HTTP/1 request, in a call of few bytes, and continues differently is not reported as
/// HTTP/1.
#[test]
fn what_only_begins_like_http1_is_not() {
    let host = Host::compiled();
    let streams: [&[&[u8]]; 3] = [
        &[b"GET a\r\n", b"VALUE\r\n"],
        &[b"POST", b"ed by somebody\n"],
        &[b"HEAD", &[0; 4000], b"\n"],
    ];
    for pieces in streams {
        let calls: Vec<_> = pieces.iter().map(|piece| (0, piece.to_vec())).collect();
        for ends in ENDS {
            for (_, told) in host.taken("run", ends, &connection("other", &calls)) {
                assert_eq!(told[1], 0, "{ends}: {pieces:?}");
            }
        }
    }
    // A RESP command that follows such bytes is detected as RESP.
    let command = b"*1\r\n$4\r\nPING\r\n";
    let calls = [&b"POST"[..], b"ed by somebody\n", command].map(|piece| (0, piece.to_vec()));
    for ends in ENDS {
        for (_, told) in host.taken("run", ends, &connection("then", &calls)) {
            assert_eq!(told[..2], [RESP, 1], "{ends}");
        }
    }
}

/// In mid-connection, detection needs HEADERS frames and the frames that belong to them, in one call or over several.
#[test]
fn http2_is_known_in_mid_connection_by_its_streams() {
    let host = Host::compiled();
    let of = |calls: Vec<[(u32, Vec<u8>); 2]>| connection("x", &calls.concat());
    let taken = |mode, calls: &Vec<_>| host.taken(mode, "writes", &of(calls.clone()))[0].1;
    let grpc = (10..13).map(|n| call(2 * n + 1)).collect();
    assert_eq!(taken("attach", &grpc), [HTTP2, 6, HTTP2, 9], "from the first call on");
    assert_eq!(taken("run", &grpc), [0; 4], "there is no mid-connection");
    let gets: Vec<_> = (10..16).map(|n| get(2 * n + 1)).collect();
    assert_eq!(taken("attach", &gets), [HTTP2, 4, HTTP2, 12], "from the third question on");
    let alone = vec![gets[0].clone()];
    assert_eq!(taken("attach", &alone), [0, 0, HTTP2, 2], "one frame is not enough");
    let again = vec![gets[0].clone(); 6];
    assert_eq!(taken("attach", &again)[..2], [0, 0], "a stream is opened once");
}

/// Two streams never share a framer.
#[test]
fn a_framer_in_use_is_nobody_elses() {
    let host = Host::compiled();
    let output = Command::new(host.program()).arg("claims").output().expect("it runs");
    assert_eq!(text(&output.stdout), "kept 1\ngiven 1\nleft 1\n");
}
