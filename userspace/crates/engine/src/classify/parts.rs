//! Divides what a thread did on a CPU into what is measured and what is modelled: the entry and return of calls and
//! faults, which no record brackets, and the copying of payloads.

use crate::calibration::Rates;
use crate::classify::on_cpu::{category, in_network_call, Level, Piece};
use crate::classify::syscall::SOFTIRQ_NET_RX;
use crate::timeline::gallop::last_before;
use crate::timeline::Thread;
use rpcprobe_model::{Category, Evidence};

/// `[start_ns, end_ns)` of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub start_ns: u64,
    pub end_ns: u64,
    pub category: Category,
    pub evidence: Evidence,
}

/// The parts of a piece that ends at `end_ns`, latest first; the last is entry and return. Some may be empty.
/// `wire`: whether packets that the thread receives in its own call count as `wire.stack`.
pub fn parts(
    thread: &Thread,
    piece: &Piece<'_>,
    end_ns: u64,
    rates: &Rates,
    wire: bool,
) -> [Part; 4] {
    let mut of_piece = category(&piece.level);
    if let Level::Softirq(span) = piece.level {
        // The thread's own packet, on its way to the socket's other end.
        if wire && span.number == SOFTIRQ_NET_RX && in_network_call(thread, span.end_ns) {
            of_piece = Category::WireStack;
        }
    }
    let mut outside = None;
    if let Level::User | Level::Call(_) = piece.level {
        // No record brackets entry and return. They are counted from the recorded end of the call or fault on.
        let fault = last_before(&thread.faults, |span| span.start_ns < piece.start_ns);
        let ended = fault.filter(|fault| fault.end_ns == piece.start_ns);
        if let Some(fault) = ended {
            let inside_ns = fault.end_ns - fault.start_ns;
            outside = Some((rates.outside_fault_ns(inside_ns), Category::Fault));
        } else if piece.follows_call(thread) {
            outside = Some((rates.call_outside_ns, Category::KernelOther));
        }
    }
    let copy = match piece.level {
        Level::Call(call) => rates.copied(thread, call),
        _ => None,
    };
    let (outside_ns, around) = outside.unwrap_or((0, Category::User));
    let inside_ns = end_ns.min(piece.start_ns.saturating_add(outside_ns));
    let (copy_ns, copied_ns) = match copy {
        Some((from, to)) => (from.clamp(inside_ns, end_ns), to.clamp(inside_ns, end_ns)),
        None => (end_ns, end_ns),
    };
    let part = |start_ns: u64, end_ns: u64, category: Category, evidence: Evidence| Part {
        start_ns,
        end_ns,
        category,
        evidence,
    };
    [
        part(copied_ns, end_ns, of_piece, Evidence::Measured),
        part(copy_ns, copied_ns, Category::Copy, Evidence::Modelled),
        part(inside_ns, copy_ns, of_piece, Evidence::Measured),
        part(piece.start_ns, inside_ns, around, Evidence::Modelled),
    ]
}
