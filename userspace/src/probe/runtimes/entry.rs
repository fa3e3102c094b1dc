//! Finds where in a function of an x86-64 program a breakpoint costs least.
//!
//! The kernel emulates some instructions at a breakpoint. For others, the thread runs a copy of the instruction, and
//! then enters the kernel a second time. In a virtual machine that second entry leaves the guest, and takes ten times
//! as long (docs/evidence.md). Versions of Go begin functions differently: some with an instruction that is emulated,
//! some not.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};
use iced_x86::{OpAccess, Register};

/// Where functions have the arguments that are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// By Go's internal ABI.
    Go,
    /// By the System V ABI.
    C,
}

impl Arguments {
    fn are_in(self, register: Register) -> bool {
        match self {
            Arguments::Go => [Register::RAX, Register::RBX, Register::RCX].contains(&register),
            Arguments::C => [Register::RDI, Register::RSI].contains(&register),
        }
    }
}

/// Finds the first instruction of a function that the kernel emulates, that is executed whenever the function is, and
/// before which no register with an argument is overwritten. Returns its offset in `code`; `None`: there is none.
pub fn cheapest(code: &[u8], arguments: Arguments) -> Option<u64> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut infos = InstructionInfoFactory::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None; // cut off
        }
        if kernel_carries_out(&instruction) {
            return Some(instruction.ip());
        }
        let info = infos.info(&instruction);
        let writes =
            |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None);
        let written = info.used_registers().iter().filter(|used| writes(used.access()));
        let clobbers = { written }.any(|used| arguments.are_in(used.register().full_register()));
        if clobbers || instruction.flow_control() != FlowControl::Next {
            return None;
        }
    }
    None
}

/// arch/x86/kernel/uprobes.c: push_setup_xol_ops() (Linux 4.17), branch_setup_xol_ops().
fn kernel_carries_out(instruction: &Instruction) -> bool {
    instruction.code() == Code::Push_r64
        || instruction.is_jcc_short_or_near()
        || instruction.is_jmp_short_or_near()
}

#[cfg(test)]
mod tests {
    use super::Arguments;

    fn cheapest(code: &[u8]) -> Option<u64> {
        super::cheapest(code, Arguments::Go)
    }

    #[test]
    fn the_first_instruction_that_the_kernel_carries_out_is_found() {
        // push %rbp; mov %rsp,%rbp
        assert_eq!(cheapest(&[0x55, 0x48, 0x89, 0xe5]), Some(0));
        // cmp 0x10(%r14),%rsp; jbe
        let looks_at_stack = [0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 0xdc, 0, 0, 0, 0x55];
        assert_eq!(cheapest(&looks_at_stack), Some(4));
        // sub $0x58,%rsp; mov %rbp,0x50(%rsp); lea 0x50(%rsp),%rbp; bt $0xc,%ebx; jb
        let go_1_19 = [
            &[0x48, 0x83, 0xec, 0x58][..],
            &[0x48, 0x89, 0x6c, 0x24, 0x50],
            &[0x48, 0x8d, 0x6c, 0x24, 0x50],
            &[0x0f, 0xba, 0xe3, 0x0c],
            &[0x72, 0x10],
        ]
        .concat();
        assert_eq!(cheapest(&go_1_19), Some(18));
    }

    /// As in a function that only jumps to another one.
    #[test]
    fn a_jump_is_carried_out_by_the_kernel() {
        // jmp
        assert_eq!(cheapest(&[0xe9, 0, 1, 0, 0]), Some(0));
    }

    #[test]
    fn one_behind_a_branch_or_with_other_arguments_is_not() {
        // xor %eax,%eax; push %rbp
        assert_eq!(cheapest(&[0x31, 0xc0, 0x55]), None);
        // mov %al,%bl; push %rbp
        assert_eq!(cheapest(&[0x88, 0xc3, 0x55]), None);
        // ret; push %rbp. loop; push %rbp
        assert_eq!(cheapest(&[0xc3, 0x55]), None);
        assert_eq!(cheapest(&[0xe2, 0xfe, 0x55]), None);
        assert_eq!(cheapest(&[0x48, 0x83]), None, "cut off");
        assert_eq!(cheapest(&[]), None);
    }
}
