//! Calibrated durations that no hook can bracket: the entry and return of system calls and page faults, and copying.

use crate::classify::on_cpu;
use crate::event::{Call, Io};
use crate::timeline::Thread;

/// Calibrated figures from which modelled durations are computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub copy_ns_per_byte: f64,
    /// Duration of a call that moves one byte and neither sleeps nor wakes another thread.
    pub transfer_ns: u64,
    /// The same two figures for stream sockets.
    pub socket_copy_ns_per_byte: f64,
    pub socket_transfer_ns: u64,
    /// Time of a page fault outside its recorded begin and end.
    pub fault_outside_ns: u64,
    /// Time between the recorded begin and end of a fault in that calibration.
    pub fault_inside_ns: u64,
    /// Time of a system call outside its recorded entry and exit.
    pub call_outside_ns: u64,
}

impl Rates {
    /// The modelled interval of a call in which it copied those bytes of its payload that were not seen to be copied;
    /// see [`on_cpu::modelled_copy`].
    pub fn copied(&self, thread: &Thread, call: &Call) -> Option<(u64, u64)> {
        if call.rare.is_none() && !call.io.as_ref().is_some_and(Io::is_transfer) {
            return None; // it moved nothing
        }
        let (ns_per_byte, fixed_ns, may_keep_cpu) = match call.io.map(|io| io.object) {
            // Such a call also runs the network stack, and on loopback the other end's, too.
            Some(object) if object.is_network() => (self.socket_copy_ns_per_byte, 0, false),
            Some(object) if object.is_socket() => {
                (self.socket_copy_ns_per_byte, self.socket_transfer_ns, true)
            }
            _ => (self.copy_ns_per_byte, self.transfer_ns, true),
        };
        let kept_cpu = || {
            may_keep_cpu
                && thread.off_before(call.exit_ns).is_none_or(|off| off.end_ns <= call.enter_ns)
        };
        let seen_bytes = thread.functions.copied_bytes(call.enter_ns, call.exit_ns);
        on_cpu::modelled_copy(call, seen_bytes, ns_per_byte, fixed_ns, kept_cpu)
    }

    /// Time outside the recorded begin and end of a fault that took `inside_ns` between them. If the fault was slower
    /// than in calibration, the machine was slower (for instance because the other hardware thread of the core was
    /// busy). Then the time outside is longer as well: measured, by up to a third. A fault that took several times as
    /// long was of another kind.
    pub(super) fn outside_fault_ns(&self, inside_ns: u64) -> u64 {
        let usual_ns = self.fault_outside_ns;
        match self.fault_inside_ns {
            0 => usual_ns,
            inside_before_ns if inside_ns / 3 > inside_before_ns => usual_ns,
            inside_before_ns => {
                let scaled_ns = u128::from(usual_ns) * u128::from(inside_ns);
                let scaled_ns = scaled_ns / u128::from(inside_before_ns);
                let most_ns = usual_ns.saturating_add(usual_ns / 3);
                scaled_ns.clamp(usual_ns.into(), most_ns.into()) as u64
            }
        }
    }
}
