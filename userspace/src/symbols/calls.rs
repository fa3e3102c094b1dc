//! Checks whether a call ends at a place. Callers of a program are found by following frame
//! pointers. In code built without frame pointers, this finds arbitrary values; only the
//! instruction before an address can show that the address is a return address.

/// Number of bytes before an address that show whether a call ends there: the length of the longest
/// call without a prefix.
pub const CALL_BYTES: usize = 7;

/// Whether an x86-64 call instruction ends with `bytes`.
pub fn ends_with_call(bytes: &[u8; CALL_BYTES]) -> bool {
    if bytes[CALL_BYTES - 5] == 0xe8 {
        return true; // call rel32
    }
    // call r/m64: ff /2, then as many bytes as the operand takes.
    (2..=CALL_BYTES).any(|length| {
        let [opcode, operand] = [bytes[CALL_BYTES - length], bytes[CALL_BYTES - length + 1]];
        opcode == 0xff
            && operand >> 3 & 7 == 2
            && length == 1 + operand_bytes(operand, bytes, length)
    })
}

/// Returns the number of bytes of ModRM, SIB and displacement.
fn operand_bytes(operand: u8, bytes: &[u8; CALL_BYTES], length: usize) -> usize {
    let (mode, register) = (operand >> 6, operand & 7);
    let has_sib = mode != 3 && register == 4;
    let sib = if has_sib { bytes.get(CALL_BYTES - length + 2).copied() } else { None };
    let displacement = match mode {
        0 if register == 5 => 4,
        0 if sib.is_some_and(|sib| sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    1 + usize::from(has_sib) + displacement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(code: &[u8]) -> bool {
        let mut bytes = [0x90; CALL_BYTES];
        bytes[CALL_BYTES - code.len()..].copy_from_slice(code);
        ends_with_call(&bytes)
    }

    #[test]
    fn calls() {
        for code in [
            &[0xe8, 1, 2, 3, 4][..],         // call rel32
            &[0xff, 0xd0],                   // call *%rax
            &[0x41, 0xff, 0xd4],             // call *%r12
            &[0xff, 0x10],                   // call *(%rax)
            &[0xff, 0x50, 0x18],             // call *0x18(%rax)
            &[0xff, 0x15, 1, 2, 3, 4],       // call *rel32(%rip)
            &[0xff, 0x90, 1, 2, 3, 4],       // call *disp32(%rax)
            &[0xff, 0x14, 0xc3],             // call *(%rbx,%rax,8)
            &[0x41, 0xff, 0x54, 0x24, 8],    // call *8(%r12)
            &[0xff, 0x94, 0xc3, 1, 2, 3, 4], // call *disp32(%rbx,%rax,8)
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call *disp32(,%rax,8)
        ] {
            assert!(ends(code), "{code:x?}");
        }
    }

    #[test]
    fn what_is_no_call() {
        for code in [
            &[0x90][..],
            &[0xc3],
            &[0x0f, 0x05],             // syscall
            &[0xff, 0xe0],             // jmp *%rax
            &[0xff, 0x25, 1, 2, 3, 4], // jmp *rel32(%rip)
            &[0xe9, 1, 2, 3, 4],       // jmp rel32
            &[0xff, 0x50],             // an incomplete call
            &[0xe8, 1, 2, 3],
        ] {
            assert!(!ends(code), "{code:x?}");
        }
    }
}
