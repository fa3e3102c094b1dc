//! Kernel objects that calls move bytes through, wait on or name.

use std::fmt::Write;

/// `S_IFIFO >> 12`, `S_IFSOCK >> 12`: values of [`Object::type_bits`].
pub const TYPE_FIFO: u16 = 1;
pub const TYPE_CHAR: u16 = 2;
pub const TYPE_DIRECTORY: u16 = 4;
pub const TYPE_BLOCK: u16 = 6;
pub const TYPE_FILE: u16 = 8;
pub const TYPE_SOCKET: u16 = 12;
/// Stream sockets by family. In a channel (see [`Object::is_channel`]) `dev` is 0 and `ino` is the number of one
/// direction of the connection; otherwise both identify the socket's inode.
pub const TYPE_UNIX: u16 = TYPE_SOCKET | 1 << 8;
pub const TYPE_TCP: u16 = TYPE_SOCKET | 2 << 8;
/// Sockets for datagrams; of Unix sockets also those for sequenced packets. Every datagram takes at
/// least one byte of its channel.
pub const TYPE_UDP: u16 = TYPE_SOCKET | 3 << 8;
pub const TYPE_UNIX_DGRAM: u16 = TYPE_SOCKET | 4 << 8;
/// An eventfd: `ino` is its number, and what goes through it are counts.
pub const TYPE_EVENTFD: u16 = 1 << 8;
/// A futex: `ino` is its address, `dev` the operation; see [`OpenCall::lock`].
pub const TYPE_FUTEX: u16 = 15;
/// A futex in memory that processes share: `dev` and the upper half of `ino` identify the memory's file, the lower half
/// of `ino` is the position in the file.
pub const TYPE_SHARED_WORD: u16 = TYPE_FUTEX | 1 << 8;

/// A kernel object behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    pub dev: u32,
    pub ino: u64,
    /// `S_IFMT >> 12` of the inode, or one of the constants above.
    pub type_bits: u16,
}

/// A file of a file system: the device and the number of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub dev: u32,
    pub ino: u64,
}

impl Object {
    pub fn is_socket(&self) -> bool {
        self.type_bits & 0xff == TYPE_SOCKET
    }

    /// Whether it is a stream socket, and not one direction of its connection.
    pub fn is_stream(&self) -> bool {
        matches!(self.type_bits, TYPE_TCP | TYPE_UNIX) && !self.is_channel()
    }

    /// The file, if programs open objects of this type by name.
    pub fn file(&self) -> Option<FileId> {
        matches!(self.type_bits, TYPE_FILE | TYPE_CHAR | TYPE_DIRECTORY | TYPE_BLOCK)
            .then_some(FileId { dev: self.dev, ino: self.ino })
    }

    pub fn is_datagram(&self) -> bool {
        matches!(self.type_bits, TYPE_UDP | TYPE_UNIX_DGRAM)
    }

    /// Whether it is an inode without a name that carries no thread's bytes: a signalfd, a timerfd and the like.
    pub fn only_counts(&self) -> bool {
        self.type_bits == 0
    }

    /// Whether bytes pass through the network stack.
    pub fn is_network(&self) -> bool {
        matches!(self.type_bits, TYPE_TCP | TYPE_UDP)
    }

    /// Appends the object's name, as [`Display`](std::fmt::Display) has it, to a text: most segments name an object.
    pub fn push_name(&self, text: &mut String) {
        match self.kind() {
            Some(kind) => {
                text.push_str(kind);
                text.push_str(":[");
                push_number(text, self.ino);
                text.push(']');
            }
            None => {
                let _ = write!(text, "{self}"); // a String takes everything
            }
        }
    }

    /// The word for the object's type, if its name consists of that and its number.
    fn kind(&self) -> Option<&'static str> {
        Some(match self.type_bits {
            TYPE_FUTEX | TYPE_SHARED_WORD => return None,
            TYPE_UNIX | TYPE_TCP | TYPE_UDP | TYPE_UNIX_DGRAM if self.is_channel() => return None,
            TYPE_FIFO => "pipe",
            TYPE_EVENTFD => "eventfd",
            TYPE_CHAR => "char",
            TYPE_FILE => "file",
            TYPE_UNIX | TYPE_UNIX_DGRAM => "unix",
            TYPE_TCP => "tcp",
            TYPE_UDP => "udp",
            TYPE_SOCKET => "socket",
            0 => "anon", // eventfd, epoll, timerfd, ...
            TYPE_DIRECTORY => "dir",
            TYPE_BLOCK => "block",
            _ => "object",
        })
    }

    /// Whether it carries something from thread to thread, in one direction: a pipe, half of a
    /// connection, an eventfd.
    pub fn is_channel(&self) -> bool {
        matches!(self.type_bits, TYPE_FIFO | TYPE_EVENTFD) || (self.is_socket() && self.dev == 0)
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind(), self.type_bits) {
            (Some(kind), _) => write!(f, "{kind}:[{}]", self.ino),
            (None, TYPE_FUTEX) => write!(f, "{:#x}", self.ino),
            (None, TYPE_SHARED_WORD) => {
                write!(f, "shm:[{}]+{:#x}", self.ino >> 32, self.ino & 0xffff_ffff)
            }
            (None, TYPE_TCP) => write!(f, "tcp"),
            (None, TYPE_UDP) => write!(f, "udp"),
            (None, _) => write!(f, "unix"),
        }
    }
}

/// Appends a number in decimal digits, without the formatting machinery, for texts that are made often.
pub fn push_number(text: &mut String, number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    while rest > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.push_str(std::str::from_utf8(&digits[first..]).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_displayed() {
        let all = (0..=TYPE_FUTEX).flat_map(|low| (0..8u16).map(move |high| low | high << 8));
        for type_bits in all {
            for (dev, ino) in [(0, 0), (0, 10), (3, 7), (1, 1 << 40 | 33), (0, u64::MAX)] {
                let object = Object { dev, ino, type_bits };
                let mut text = "read ".to_string();
                object.push_name(&mut text);
                assert_eq!(text, format!("read {object}"));
            }
        }
        let text = |object: Object| object.to_string();
        assert_eq!(text(Object { dev: 0, ino: 120, type_bits: TYPE_FIFO }), "pipe:[120]");
        assert_eq!(text(Object { dev: 9, ino: 5, type_bits: TYPE_TCP }), "tcp:[5]");
        assert_eq!(text(Object { dev: 0, ino: 5, type_bits: TYPE_TCP }), "tcp");
        assert_eq!(text(Object { dev: 9, ino: 16, type_bits: TYPE_FUTEX }), "0x10");
    }
}
