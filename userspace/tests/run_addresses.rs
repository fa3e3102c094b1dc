//! Captures do not reveal where the kernel lies in memory: they contain no kernel addresses.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::process::Stdio;

use common::capture::Capture;
use common::{needs_kernel, peer_in_c, text};
use rpcprobe::attribute::EVENTS;
use rpcprobe::capture::reader::Reader;
use rpcprobe::engine::decode::decode;
use rpcprobe::engine::event::What;
use rpcprobe::records::*;
use zerocopy::FromBytes;

/// A workload with pipes, a disk, locks ($1: the convoy), page faults and Unix sockets, and with connections and
/// datagrams over two devices. It prints the namespace number and the interface number of each device.
const WORK: &str = r#"
a=rwa$$ b=rwb$$
trap 'ip netns del $a; ip netns del $b; rm -f "$1.data"' EXIT
ip netns add $a && ip netns add $b
ip -n $a link add v0 type veth peer name v1 netns $b
ip -n $a addr add 10.79.0.1/24 dev v0 && ip -n $b addr add 10.79.0.2/24 dev v1
ip -n $a link set v0 up && ip -n $b link set v1 up
for at in $a:v0 $b:v1; do
    ip netns exec ${at%:*} sh -c 'echo $(stat -Lc %i /proc/self/ns/net) $(cat /sys/class/net/$0/ifindex)' ${at#*:}
done
head -c 1000000 /dev/zero | cat | tail -c 1000 >"$1.data"
dd if=/dev/zero of="$1.data" bs=64k count=16 oflag=sync 2>/dev/null
"$1" 8 100
python3 -c '
import socket
for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    for i in range(100): one.send(b"x" * 100); other.recv(1000)
'
ip netns exec $b python3 -c '
import socket
s = socket.create_server(("10.79.0.2", 7777))
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(("10.79.0.2", 7777))
c, _ = s.accept()
for i in range(100): c.sendall(c.recv(1000)); d.sendto(*d.recvfrom(1000))
' &
sleep 0.5
ip netns exec $a python3 -c '
import socket
c = socket.create_connection(("10.79.0.2", 7777))
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.connect(("10.79.0.2", 7777))
for i in range(100): c.sendall(b"x" * 1000); c.recv(1000); d.send(b"x"); d.recv(1000)
'
wait
"#;

/// Record kinds that the workload must have produced, otherwise the test proves nothing. Block device records are left
/// out because there may be no disk.
const KINDS: [u8; 9] = [
    REC_SWITCH_SYS,
    REC_WAKING,
    REC_SYSCALL_IO,
    REC_SYSCALL_SOCKET,
    REC_FAULT,
    REC_CONTENTION,
    REC_CHANNEL,
    REC_UNIX_CHANNEL,
    REC_PACKET,
];

/// Right shifts of an 8-byte number that are checked: none, by a cache line, and by a page.
const SHIFTS: [u32; 3] = [0, 6, 12];

/// Where x86-64 kernels have their memory (Documentation/arch/x86/x86_64/mm.rst): the upper half, except
/// - from `ffffff00_00000000` up to the kernel's text, which holds no objects (stacks of 16-bit programs, firmware):
///   any small u32 followed by a -1 reads like such an address;
/// - the last 16 MiB, which lie there in every kernel: small negative numbers read like such an address.
struct Addresses {
    begin: u64,
}

impl Addresses {
    /// With five-level page tables the upper half begins lower.
    fn of_this_kernel() -> Addresses {
        let cpus = std::fs::read_to_string("/proc/cpuinfo").expect("/proc/cpuinfo");
        let five_levels = cpus.split_whitespace().any(|word| word == "la57");
        Addresses { begin: if five_levels { 0xff10 << 48 } else { 0xffff_8000 << 32 } }
    }

    fn contain(&self, number: u64, shift: u32) -> bool {
        let address = number << shift;
        address >> shift == number
            && ((self.begin..0xffff_ff00_0000_0000).contains(&address)
                || (0xffff_ffff_8000_0000..0xffff_ffff_ff00_0000).contains(&address))
    }
}

fn number_at(record: &[u8], at: usize) -> Option<u64> {
    record.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Whether an error code (include/linux/err.h: MAX_ERRNO) begins within the number at `at`. The last bytes of this
/// number are then the first bytes of the error code.
fn is_cut_from_an_error(record: &[u8], at: usize) -> bool {
    (at + 1..at + 8).any(|at| number_at(record, at).is_some_and(|n| n >= -4095i64 as u64))
}

/// Whether the number at `at` ends within a field that holds an address of the program's, in the highest 1 TiB of a
/// process (its stack, the kernel's vDSO, libraries): the last bytes of the number are then the first bytes of that
/// address, and may well be all ones (`00007fffffaefc40`).
fn is_cut_from_an_address_of_the_programs(record: &[u8], at: usize) -> bool {
    number_at(record, at.next_multiple_of(8)).is_some_and(|number| number >> 40 == 0x7f)
}

/// Numbers that look like addresses, by record kind, offset in the record, and shift.
#[derive(Default)]
struct Suspects {
    records: BTreeMap<u8, usize>,
    numbers: BTreeMap<(u8, usize, u32), BTreeSet<u64>>,
}

impl Suspects {
    fn look_at(&mut self, addresses: &Addresses, record: &[u8]) {
        let (header, _) = RecHdr::read_from_prefix(record).expect("a header");
        *self.records.entry(header.kind).or_default() += 1;
        for at in 0..record.len().saturating_sub(7) {
            let number = number_at(record, at).expect("8 bytes");
            for shift in SHIFTS {
                let aligned = at % 8 == 0;
                if addresses.contain(number, shift)
                    && (aligned
                        || !is_cut_from_an_error(record, at)
                            && !is_cut_from_an_address_of_the_programs(record, at))
                {
                    self.numbers.entry((header.kind, at, shift)).or_default().insert(number);
                }
            }
        }
    }

    /// At offsets that are multiples of 8, where 8-byte numbers lie, a single unshifted address is an error. At other
    /// offsets the number consists of parts of two numbers: parts of two timestamps, for example, read like an address
    /// once in 50,000.
    fn convicted(self) -> Vec<String> {
        let too_many = |(kind, at, shift): &(u8, usize, u32), numbers: &BTreeSet<u64>| {
            let by_chance =
                if at % 8 == 0 && *shift == 0 { 0 } else { 2 + self.records[kind] / 1000 };
            numbers.len() > by_chance
        };
        let convicted = self.numbers.iter().filter(|(place, numbers)| too_many(place, numbers));
        convicted
            .map(|((kind, at, shift), numbers)| {
                let some: Vec<_> = numbers.iter().take(3).map(|n| format!("{n:#018x}")).collect();
                format!("kind {kind}, byte {at}, shifted by {shift}: {}: {some:?}", numbers.len())
            })
            .collect()
    }
}

/// Whether 40 records with `address(i)` at offset `at`, and a small number before it, are said to contain kernel
/// addresses.
fn are_convicted(at: usize, address: impl Fn(u64) -> u64) -> bool {
    let addresses = Addresses { begin: 0xffff_8000 << 32 };
    let mut suspects = Suspects::default();
    for i in 0..40u64 {
        let mut record = [0; 48];
        record[12] = REC_FAULT;
        record[16..24].copy_from_slice(&(0x33_1234_0000 + i).to_le_bytes());
        record[at..at + 8].copy_from_slice(&address(i).to_le_bytes());
        suspects.look_at(&addresses, &record);
    }
    !suspects.convicted().is_empty()
}

#[test]
fn an_address_of_the_kernels_is_told_from_one_of_the_programs() {
    for at in 16..=40 {
        assert!(are_convicted(at, |i| 0xffff_8881_0253_4000 + i * 0x40), "byte {at}");
    }
    assert!(!are_convicted(24, |i| 0x7fff_ffae_fc00 + i * 0x40));
}

#[test]
fn no_address_of_the_kernels_is_in_a_capture() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, convoy) = peer_in_c("convoy.c");
    // Stacks lie where their addresses resemble the kernel's the most: at the very end of a process's address space.
    let work = ["setarch", "-R", "sh", "-c", WORK, "sh", &convoy];
    let capture = Capture::of(&[], &work, Stdio::null()).succeeded();
    let file = BufReader::new(File::open(capture.file(EVENTS)).expect("events"));
    let mut events = Reader::new(file, false).expect("events");
    let addresses = Addresses::of_this_kernel();
    let mut suspects = Suspects::default();
    let mut devices: BTreeSet<u32> = BTreeSet::new();
    while let Some(item) = events.next_record().expect("a record") {
        suspects.look_at(&addresses, item.record);
        if let Some(What::Packet { packet, .. }) =
            decode(item.cpu, item.record).unwrap().map(|e| e.what)
        {
            devices.insert(packet.device);
        }
    }
    for kind in KINDS {
        assert!(suspects.records.contains_key(&kind), "no record of kind {kind}");
    }
    assert_eq!(suspects.convicted(), [""; 0]);

    // A u32 has no room for a whole address, but has room for a part of one: a device number must consist of nothing
    // but the numbers printed.
    let said = text(&capture.output.stdout);
    let numbers: Vec<u32> = said.split_whitespace().map(|n| n.parse().expect("numbers")).collect();
    let expected = numbers.chunks(2).map(|n| n[0] << 16 | n[1] & 0xffff).collect();
    assert_eq!(devices, expected, "{said}");
}
