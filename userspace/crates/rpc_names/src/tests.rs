use loona_hpack::Encoder;
use proptest::prelude::*;

use super::*;
use rpcprobe_record::{METHOD_RESULT, PROTOCOL_HTTP1};

/// A peer that sends blocks, as records of pieces.
struct Sender {
    encoder: Encoder<'static>,
    sequence: u32,
    offset: u64,
}

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

impl Sender {
    fn new() -> Sender {
        Sender { encoder: Encoder::new(), sequence: 0, offset: 24 }
    }

    /// Encodes a block on stream `id`, in frames of at most `frame_bytes`.
    fn block(&mut self, id: u32, headers: &[(&str, &str)], frame_bytes: usize) -> Vec<Vec<u8>> {
        let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let block = self.encoder.encode(headers);
        let frames: Vec<&[u8]> = block.chunks(frame_bytes).collect();
        let mut records = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let kind = if index == 0 { HEADERS } else { CONTINUATION };
            let flags = if index + 1 == frames.len() { END_HEADERS } else { 0 };
            let mut at = 0;
            for piece in frame.chunks(records::PIECE_BYTES) {
                let begins = if self.sequence == 0 { PIECE_BEGIN } else { 0 };
                let record = RecHeaderBlock {
                    hdr: RecHdr {
                        ts_ns: u64::from(self.sequence),
                        tid: 1,
                        kind: REC_HEADER_BLOCK,
                        flags: begins,
                        aux: 0,
                    },
                    channel: 7,
                    offset: self.offset,
                    id,
                    sequence: self.sequence,
                    frame_bytes: frame.len() as u32,
                    at,
                    piece_bytes: piece.len() as u32,
                    object_type: 0,
                    kind,
                    flags,
                };
                records.push([record.as_bytes(), piece].concat());
                self.sequence += 1;
                at += piece.len() as u32;
            }
            self.offset += 9 + frame.len() as u64;
        }
        records
    }
}

/// Stream and path of each returned record.
fn told(records: Vec<(u32, Vec<u8>)>) -> Vec<(u32, String)> {
    let one = |(_, record): (u32, Vec<u8>)| {
        let (method, path) = records::read::<RecMethod>(&record).expect("a method");
        assert_eq!(path.len(), method.path_bytes as usize);
        (method.id, String::from_utf8_lossy(path).into_owned())
    };
    records.into_iter().map(one).collect()
}

fn path(number: u32) -> String {
    format!("/package.Service{}/Method{number}", number % 5)
}

/// The requests of a connection, and what they call.
fn requests(numbers: &[(u32, u32)], frame_bytes: usize) -> (Vec<Vec<u8>>, Vec<(u32, String)>) {
    let (mut sender, mut records, mut paths) = (Sender::new(), Vec::new(), Vec::new());
    for (index, &(number, extra)) in numbers.iter().enumerate() {
        let (id, path, extra) = (2 * index as u32 + 1, path(number), format!("{extra:0100}"));
        let headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", &path),
            ("te", "trailers"),
            ("x-extra", &extra),
        ];
        records.extend(sender.block(id, &headers, frame_bytes));
        paths.push((id, path));
    }
    (records, paths)
}

#[test]
fn statuses() {
    let mut sender = Sender::new();
    let mut methods = Methods::default();
    let blocks = [
        &[(":status", "200"), ("content-type", "application/grpc")][..],
        &[("grpc-status", "5"), ("grpc-message", "no")],
        &[(":status", "404"), ("grpc-status", "12")],
        &[(":status", "503")],
        &[("x", "y")],
        &[(":path", "/a?token=1"), (":method", "GET")],
    ];
    for block in blocks {
        for record in sender.block(1, block, 1 << 14) {
            assert!(methods.take(0, &record));
        }
    }
    let drained = methods.drained(u64::MAX);
    let flags = drained.iter().map(|(_, record)| {
        let (method, path) = records::read::<RecMethod>(record).expect("a method");
        (method.hdr.flags, method.status, path.to_vec())
    });
    let response = rpcprobe_record::METHOD_RESPONSE;
    let status = rpcprobe_record::METHOD_STATUS;
    let expected = [
        (response | status, 200, vec![]),
        (response | METHOD_RESULT, 5, vec![]),
        (response | METHOD_RESULT, 12, vec![]),
        (response | status, 503, vec![]),
        (0, 0, vec![]),
        (METHOD_REQUEST, 0, b"/a".to_vec()),
    ];
    assert_eq!(flags.collect::<Vec<_>>(), expected);
}

#[test]
fn padding_and_priority_are_no_headers() {
    let mut sender = Sender::new();
    let record = &sender.block(1, &[(":path", "/x")], 1 << 14)[0];
    let (mut header, block) = records::read::<RecHeaderBlock>(record).expect("a piece");
    let payload = [&[3, 0, 0, 0, 0, 9][..], block, &[0; 3]].concat();
    (header.flags, header.frame_bytes) = (END_HEADERS | 0x28, payload.len() as u32);
    header.piece_bytes = header.frame_bytes;
    let mut methods = Methods::default();
    methods.take(0, &[header.as_bytes(), &payload].concat());
    assert_eq!(told(methods.drained(u64::MAX)), [(1, "/x".to_string())]);
}

#[test]
fn lines() {
    let method = |line: &str| {
        let method = http1::method(line.as_bytes());
        method.map(|method| String::from_utf8_lossy(&method).into_owned())
    };
    assert_eq!(method("GET /a/b?c=d HTTP/1.1\r\n").as_deref(), Some("GET /a/b?c=d"));
    assert_eq!(method("GET http://user@host/a HTTP/1.1\r\n").as_deref(), Some("GET /a"));
    assert_eq!(method("OPTIONS * HTTP/1.1\r\n").as_deref(), Some("OPTIONS *"));
    assert_eq!(method("GET http://host\r\n").as_deref(), Some("GET /"));
    assert_eq!(method("\r\n"), None);
    assert_eq!(method("get /a"), None);

    let found = named(PROTOCOL_HTTP1, b"POST /pay?card=1 HTTP/1.1\r\n");
    assert_eq!(found, "POST /pay", "no query leaves");
}

#[test]
fn commands() {
    let name = |line: &str| named(PROTOCOL_RESP, line.as_bytes());
    assert_eq!(name("get"), "GET");
    assert_eq!(name("client Setinfo"), "CLIENT SETINFO");
    assert_eq!(name("JSON.SET"), "JSON.SET");
    assert_eq!(name("cluster count-failure-reports"), "CLUSTER COUNT-FAILURE-REPORTS");
    for none in ["", " ", "get ", "set a b", "g\u{e9}t", "a:b", "get?"] {
        assert_eq!(name(none), "", "{none}");
    }
}

/// Returns the name that is found in a line.
fn named(protocol: u8, line: &[u8]) -> String {
    let hdr = RecHdr { ts_ns: 1, tid: 1, kind: REC_LINE, flags: 0, aux: 0 };
    let line_bytes = line.len() as u32;
    let record =
        RecLine { hdr, channel: 7, offset: 5, line_bytes, object_type: 0, protocol, pad: 0 };
    let mut methods = Methods::default();
    assert!(methods.take(0, &[record.as_bytes(), line].concat()));
    let mut told = told(methods.drained(u64::MAX));
    assert_eq!(told.len(), 1);
    told.remove(0).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Pieces are in the rings of two CPUs. One ring is always drained before the other, or not at all if a record in
    /// front is not yet complete. The pieces' times are their numbers.
    #[test]
    fn pieces_of_several_cpus_are_decoded_in_order(
        numbers in prop::collection::vec((0_u32..9, 0_u32..4), 1..60),
        frame_bytes in 1_usize..400,
        cpus in prop::collection::vec(0_u32..2, 1..40),
        drains in prop::collection::vec((0_usize..9, 0_usize..9, 0_u32..4), 1..20),
    ) {
        let (records, paths) = requests(&numbers, frame_bytes);
        let cpu = |index: usize| cpus[index % cpus.len()];
        let mut methods = Methods::default();
        let (mut found, mut taken) = (Vec::new(), vec![false; records.len()]);
        let (mut at, mut round, mut complete) = (0, 0, [0, 0]);
        while taken.contains(&false) {
            // Drains the first ring up to `first`, and the second a little further.
            let (first, more, stuck) = drains[round % drains.len()];
            let ends = [at + first + 1, at + first + 1 + more];
            for (which, end) in ends.into_iter().enumerate() {
                // Most of the time neither ring is stuck, and none is stuck forever.
                if stuck == which as u32 && round % drains.len() != 0 {
                    continue;
                }
                complete[which] = end as u64;
                for index in 0..end.min(records.len()) {
                    if cpu(index) as usize == which && !taken[index] {
                        taken[index] = true;
                        methods.take(cpu(index), &records[index]);
                    }
                }
            }
            found.extend(told(methods.drained(complete[0].min(complete[1]))));
            (at, round) = (ends[1], round + 1);
        }
        found.extend(told(methods.drained(u64::MAX)));
        prop_assert_eq!(found, paths);
        prop_assert_eq!(methods.held_ns(0).min(methods.held_ns(1)), u64::MAX);
    }

    /// Whatever is missing, before or during the capture, a path is right or not known.
    #[test]
    fn no_path_is_wrong_when_pieces_are_missing(
        numbers in prop::collection::vec((0_u32..9, 0_u32..50), 1..80),
        frame_bytes in 1_usize..300,
        begin in 0_usize..40,
        lost in prop::collection::vec(0_usize..100, 0..5),
        drain_every in 1_usize..10,
    ) {
        let (records, paths) = requests(&numbers, frame_bytes);
        let mut methods = Methods::default();
        let mut found = Vec::new();
        for (index, record) in records.iter().enumerate().skip(begin) {
            if !lost.contains(&index) {
                methods.take(0, record);
            }
            if index % drain_every == 0 {
                found.extend(told(methods.drained(index as u64)));
            }
        }
        found.extend(told(methods.finish()));
        for (id, path) in found {
            let (_, right) = &paths[id as usize / 2];
            prop_assert!(path.is_empty() || path == *right, "{} instead of {}", path, right);
        }
    }

    #[test]
    fn any_bytes_are_harmless(
        pieces in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..256), 0_u8..10, any::<u8>(), 0_u32..300, 0_u32..9),
            1..60,
        ),
    ) {
        let mut methods = Methods::default();
        for (sequence, (bytes, kind, flags, at, hdr_flags)) in pieces.into_iter().enumerate() {
            let hdr_flags = hdr_flags as u8;
            let record = RecHeaderBlock {
                hdr: RecHdr { ts_ns: 1, tid: 1, kind: REC_HEADER_BLOCK, flags: hdr_flags, aux: 0 },
                channel: 7,
                offset: 1,
                id: 1,
                sequence: sequence as u32 ^ u32::from(at == 7),
                frame_bytes: if at % 2 == 0 { bytes.len() as u32 } else { at },
                at: if at < 250 { 0 } else { at },
                piece_bytes: bytes.len() as u32,
                object_type: 0,
                kind: if kind == 0 { CONTINUATION } else { HEADERS },
                flags,
            };
            methods.take(0, &[record.as_bytes(), &bytes].concat());
            methods.drained(u64::MAX);
        }
        methods.finish();
    }

    /// Records as the kernel side would send them, but with arbitrary content.
    #[test]
    fn any_block_is_harmless(blocks in prop::collection::vec(
        prop::collection::vec(any::<u8>(), 0..600), 1..40,
    )) {
        let mut table = Table::default();
        for block in &blocks {
            table.decode(block);
        }
        let mut table = Table::unknown();
        for block in &blocks {
            table.decode(block);
        }
    }
}
