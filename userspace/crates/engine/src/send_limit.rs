//! Bytes that a program has written and the kernel has not sent yet, and what limits them.

use rpcprobe_model::HeldBy;

/// What kept the kernel from sending all bytes by the end of the call that wrote them, and how many bytes remained,
/// encoded as by `HELD()` in bpf/records.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendLimit(u16);

impl SendLimit {
    pub const fn from_record(held: u16) -> SendLimit {
        SendLimit(held)
    }

    pub fn record(self) -> u16 {
        self.0
    }

    /// Whether any bytes were held back.
    pub fn is_some(self) -> bool {
        self.0 & 7 != 0
    }

    /// At least this many bytes had not been sent.
    pub fn bytes(self) -> u64 {
        u64::from(self.0 >> 8) << (self.0 >> 3 & 31)
    }

    /// What held the bytes back; `None`: nothing did, or a record gives a reason that this program does not know.
    pub fn by(self) -> Option<HeldBy> {
        match self.0 & 7 {
            1 => Some(HeldBy::Window),
            2 => Some(HeldBy::Congestion),
            3 => Some(HeldBy::Nagle),
            4 => Some(HeldBy::Cork),
            5 => Some(HeldBy::Pacing),
            _ => None,
        }
    }

    /// What held the bytes back, in words.
    pub fn reason(self) -> Option<&'static str> {
        Some(match self.by()? {
            HeldBy::Window => "not sent: the receiver's window is full",
            HeldBy::Congestion => "not sent: the congestion window is full",
            HeldBy::Nagle => {
                "not sent: a small packet, until the one before is acknowledged (Nagle)"
            }
            HeldBy::Cork => "not sent: less than a packet, and corked",
            HeldBy::Pacing => "not sent: paced, or enough in the device's queue",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_tell_why_and_how_much() {
        let told = |held: u16| {
            let limit = SendLimit::from_record(held);
            (limit.by(), limit.bytes())
        };
        assert_eq!(told(SendLimit::default().record()), (None, 0));
        assert_eq!(told(3 | 10 << 8), (Some(HeldBy::Nagle), 10));
        // 300,000 bytes rounded down to eight binary digits.
        assert_eq!(told(1 | 11 << 3 | 146 << 8), (Some(HeldBy::Window), 299_008));
        // Any record can be read.
        assert_eq!(told(u16::MAX), (None, 255 << 31));
    }
}
