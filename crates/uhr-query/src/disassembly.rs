//! x86-64 machine code as text, in the syntax of Intel's manuals. The bytes may be anything: what is no instruction is
//! shown as one byte that is none.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Formatter, Instruction, IntelFormatter};

/// What bytes are called that are no instruction.
const BAD: &str = "(bad)";

/// Where instructions begin, counted from the first byte, which is at `address`.
pub(crate) fn starts(bytes: &[u8], address: u64) -> Vec<u32> {
    let mut starts = Vec::with_capacity(bytes.len() / 4);
    let mut at = 0;
    while at < bytes.len() {
        starts.push(at as u32);
        at += decode(&bytes[at..], address.wrapping_add(at as u64)).map_or(1, |decoded| decoded.len());
    }
    starts
}

/// An instruction in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Disassembled {
    /// Its text; addresses in it count as the instruction's own does.
    pub(crate) text: String,
    /// Where it may jump to (no call), if the instruction itself says where.
    pub(crate) jump: Option<u64>,
}

/// One instruction: all its bytes, the first of which is at `address`.
pub(crate) fn disassemble(bytes: &[u8], address: u64) -> Disassembled {
    let Some(decoded) = decode(bytes, address) else {
        return Disassembled { text: BAD.to_owned(), jump: None };
    };
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_space_after_operand_separator(false);
    options.set_rip_relative_addresses(false);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    let mut text = String::new();
    formatter.format(&decoded, &mut text);
    Disassembled { text, jump: target(&decoded) }
}

/// Where an instruction may jump to, as [`Disassembled::jump`].
pub(crate) fn jump(bytes: &[u8], address: u64) -> Option<u64> {
    target(&decode(bytes, address)?)
}

fn target(decoded: &Instruction) -> Option<u64> {
    let is_jump =
        matches!(decoded.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    is_jump.then(|| decoded.near_branch_target())
}

/// The instruction at the start of the bytes, if there is one.
fn decode(bytes: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let decoded = decoder.decode();
    (!decoded.is_invalid()).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn instructions_as_the_manuals_write_them() {
        // xor eax,eax; idiv rcx; jne to the idiv; a byte that is no instruction in 64-bit code; ret.
        let bytes = [0x31, 0xc0, 0x48, 0xf7, 0xf9, 0x75, 0xfb, 0x06, 0xc3];
        assert_eq!(starts(&bytes, 0x1000), [0, 2, 5, 7, 8]);
        let text =
            |range: std::ops::Range<usize>| disassemble(&bytes[range.clone()], 0x1000 + range.start as u64);
        assert_eq!(text(0..2).text, "xor eax,eax");
        assert_eq!(text(2..5).text, "idiv rcx");
        assert_eq!(text(5..7), Disassembled { text: "jne 0x1002".to_owned(), jump: Some(0x1002) });
        assert_eq!(text(7..8).text, "(bad)");
        assert_eq!(text(8..9), Disassembled { text: "ret".to_owned(), jump: None });
    }

    proptest! {
        /// Any bytes are cut into instructions that cover all of them, one behind the other.
        #[test]
        fn any_bytes_are_cut(bytes in proptest::collection::vec(any::<u8>(), 0..300), address: u64) {
            let starts = starts(&bytes, address);
            prop_assert_eq!(starts.first().copied(), (!bytes.is_empty()).then_some(0));
            for (at, &start) in starts.iter().enumerate() {
                let end = starts.get(at + 1).map_or(bytes.len(), |&next| next as usize);
                prop_assert!((start as usize) < end && end - start as usize <= 15);
                let shown = disassemble(&bytes[start as usize..end], address.wrapping_add(u64::from(start)));
                prop_assert!(!shown.text.is_empty());
            }
        }
    }
}
