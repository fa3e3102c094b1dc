//! The processor that a capture was taken on, as far as its events differ from those of other processors: system calls
//! have other numbers. The engine knows the numbers of x86-64.

use std::collections::HashMap;

use syscalls::{aarch64, x86_64};

use crate::event::{Event, What};

/// From this number on, new calls have the same number on every processor (include/uapi/asm-generic/unistd.h, since
/// Linux 5.2).
const FIRST_COMMON: u16 = 424;
/// A number that no call has.
const NONE: u16 = u16::MAX;

/// A processor's numbers of system calls.
#[derive(Clone, Debug, Default)]
pub struct Processor {
    /// By the processor's number of a call, the number that x86-64 has; empty: they are the same.
    numbers: Vec<u16>,
}

impl Processor {
    /// The processor with this name, which is a name of Rust's targets.
    pub fn named(machine: &str) -> Processor {
        let numbers = if machine == "aarch64" { of_arm64() } else { Vec::new() };
        Processor { numbers }
    }

    /// Replaces the number of the event's system call with the number that x86-64 has for it.
    pub fn renumber(&self, event: &mut Event) {
        if self.numbers.is_empty() {
            return;
        }
        let nr = match &mut event.what {
            What::Call { call, .. } => &mut call.nr,
            What::Switch { call: Some(call), .. } | What::Marked { call: Some(call), .. } => {
                &mut call.nr
            }
            _ => return,
        };
        *nr = self.numbers.get(usize::from(*nr)).copied().unwrap_or(*nr);
    }
}

fn of_arm64() -> Vec<u16> {
    let of_name: HashMap<&str, u16> = (0..FIRST_COMMON)
        .filter_map(|nr| Some((x86_64::Sysno::new(usize::from(nr))?.name(), nr)))
        .collect();
    let number = |nr: u16| {
        // The kernel's table for arm64 has this name; the table for x86-64 has "newfstatat".
        let name = match aarch64::Sysno::new(usize::from(nr))?.name() {
            "fstatat" => "newfstatat",
            name => name,
        };
        of_name.get(name).copied()
    };
    (0..FIRST_COMMON).map(|nr| number(nr).unwrap_or(NONE)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Call;

    fn renumbered(machine: &str, nr: u16) -> u16 {
        let call = Call::new(nr, (1, 2), 0);
        let mut event = Event { ts_ns: 2, cpu: 0, what: What::Call { tid: 1, call } };
        Processor::named(machine).renumber(&mut event);
        match event.what {
            What::Call { call, .. } => call.nr,
            _ => unreachable!(),
        }
    }

    #[test]
    fn arm64_has_other_numbers() {
        let name = |nr| crate::classify::syscall::name(renumbered("aarch64", nr)).into_owned();
        // include/uapi/asm-generic/unistd.h
        let known = [(63, "read"), (79, "newfstatat"), (93, "exit"), (98, "futex"), (260, "wait4")];
        for (nr, expected) in known {
            assert_eq!(name(nr), expected);
        }
        assert_eq!(renumbered("aarch64", 437), 437, "openat2, which is the same everywhere");
        assert_eq!(renumbered("x86_64", 63), 63);
    }

    /// All but those of 32-bit machines (`..._time64`), which the kernel does not have on arm64.
    #[test]
    fn every_call_of_arm64_is_known() {
        let numbers = of_arm64();
        for nr in 0..FIRST_COMMON {
            let Some(call) = aarch64::Sysno::new(usize::from(nr)) else { continue };
            let known = numbers[usize::from(nr)] != NONE;
            assert!(known || call.name().ends_with("time64"), "{}", call.name());
        }
    }
}
