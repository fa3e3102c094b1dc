//! Bytes that a program has written and the kernel has not sent yet, and what limits them.

use rpcprobe_model::HeldBy;

/// What kept the kernel from sending all bytes at the end of the call that gave it them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendLimit {
    /// What keeps them: `enum held` in bpf/records.h; 0: nothing.
    pub why: u8,
    /// At least so many had not been sent.
    pub bytes: u64,
}

impl SendLimit {
    /// From `HELD()` in bpf/records.h.
    pub fn from_record(held: u16) -> SendLimit {
        let (why, shift, mantissa) = (held & 7, held >> 3 & 31, held >> 8);
        SendLimit { why: why as u8, bytes: u64::from(mantissa) << shift }
    }

    /// What kept such bytes; `None`: there are none, or a record says what this program does not know.
    pub fn by(self) -> Option<HeldBy> {
        match self.why {
            1 => Some(HeldBy::Window),
            2 => Some(HeldBy::Congestion),
            3 => Some(HeldBy::Nagle),
            4 => Some(HeldBy::Cork),
            5 => Some(HeldBy::Pacing),
            _ => None,
        }
    }

    /// The same in words.
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
        assert_eq!(SendLimit::from_record(0), SendLimit::default());
        assert_eq!(SendLimit::from_record(3 | 10 << 8), SendLimit { why: 3, bytes: 10 });
        // 300,000 bytes rounded down to eight digits.
        let shifted = SendLimit::from_record(1 | 11 << 3 | 146 << 8);
        assert_eq!(shifted, SendLimit { why: 1, bytes: 299_008 });
        // Whatever a record says.
        let most = SendLimit::from_record(u16::MAX);
        assert_eq!((most.reason(), most.bytes), (None, 255 << 31));
    }
}
