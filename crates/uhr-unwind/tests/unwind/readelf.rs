//! What readelf says of the rows of an aarch64 file. (`llvm-dwarfdump` 14 forgets half of what `DW_CFA_restore_state` restores.)

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use uhr_unwind::{Aarch64Frame, Aarch64Saved, SimpleRow};

/// Each address from which on a row holds, with that row.
pub(crate) type Rows = BTreeMap<u64, SimpleRow>;

pub(crate) fn hex(number: &str) -> u64 {
    u64::from_str_radix(number, 16).unwrap()
}

fn readelf(what: &str, file: &Path) -> String {
    let shown = Command::new("readelf").arg(format!("--debug-dump={what}")).arg(file).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

/// The addresses of `pc=START..END`.
fn range(words: &str) -> (u64, u64) {
    let (start, end) = words.strip_prefix("pc=").unwrap().split_once("..").unwrap();
    (hex(start), hex(end))
}

/// What its tables leave out.
#[derive(Clone, Copy, Default)]
struct Unsaid {
    is_signed: bool,
    /// Said to be undefined, not only unsaid.
    is_undefined: bool,
}

/// That, by the address from which on it holds, out of the instructions.
fn unsaid(file: &Path) -> BTreeMap<u64, Unsaid> {
    let (mut found, mut at, mut now, mut remembered) = (BTreeMap::new(), 0, Unsaid::default(), Vec::new());
    for line in readelf("frames", file).lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, _, "FDE", _, pc] => (at, now) = (range(pc).0, Unsaid::default()),
            [instruction, _, "to", address] if instruction.starts_with("DW_CFA_advance_loc") => {
                at = hex(address)
            }
            ["DW_CFA_AARCH64_negate_ra_state"] => now.is_signed ^= true,
            ["DW_CFA_undefined:", "r30", _] => now.is_undefined = true,
            ["DW_CFA_remember_state"] => remembered.push(now),
            ["DW_CFA_restore_state"] => now = remembered.pop().unwrap(),
            _ => continue,
        }
        found.insert(at, now);
    }
    found
}

/// All rows.
pub(crate) fn rows_of_aarch64(file: &Path) -> Rows {
    let unsaid = unsaid(file);
    let unsaid = |address: u64| *unsaid.range(..=address).next_back().unwrap().1;
    let mut rows = Rows::new();
    let (mut is_in_lr, mut columns) = (HashMap::new(), Vec::new());
    let (mut entry_is_in_lr, mut is_of_cie) = (true, true);
    let text = readelf("frames-interp", file);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [offset, _, _, "CIE", .., column] => {
                is_in_lr.insert(offset, column == "ra=30");
                is_of_cie = true;
            }
            [_, _, _, "FDE", cie, pc] => {
                let (start, end) = range(pc);
                (entry_is_in_lr, is_of_cie) = (is_in_lr[cie.trim_start_matches("cie=")], false);
                // Of an entry that changes nothing it shows no table: it has the row of the CIE.
                rows.insert(start, row("sp+0", &HashMap::new(), unsaid(start), entry_is_in_lr));
                rows.entry(end).or_insert(SimpleRow::Uncovered);
            }
            ["LOC", "CFA", ref registers @ ..] => columns = registers.to_vec(),
            [address, cfa, ref rules @ ..] if address.len() == 16 && is_of_cie => {
                assert_eq!((hex(address), cfa, rules), (0, "sp+0", &[][..]), "the row of the CIE");
            }
            [address, cfa, ref rules @ ..] if address.len() == 16 => {
                let rules = columns.iter().copied().zip(rules.iter().copied()).collect();
                let address = hex(address);
                rows.insert(address, row(cfa, &rules, unsaid(address), entry_is_in_lr));
            }
            _ => {}
        }
    }
    rows
}

/// One row of a table in our form: CFA `sp+16`, x29 `c-16`, return address `c-8`.
fn row(cfa: &str, rules: &HashMap<&str, &str>, unsaid: Unsaid, is_in_lr: bool) -> SimpleRow {
    let below = |register: &str| match rules.get(register).copied() {
        None | Some("u" | "s") => Some(None),
        Some(rule) => Some(Some(rule.strip_prefix("c-")?.parse::<u32>().ok()?)),
    };
    let frame = || {
        let (register, distance) = cfa.split_once('+')?;
        Some(SimpleRow::Aarch64(Aarch64Frame {
            from_fp: match register {
                "sp" => false,
                "x29" => true,
                _ => return None,
            },
            cfa: distance.parse().ok()?,
            saved: match (below("x29")?, below("ra")?) {
                (None, None) => Aarch64Saved::Nothing,
                (Some(fp), None) => Aarch64Saved::Fp(fp),
                (None, Some(at)) => Aarch64Saved::ReturnAddress(at),
                (Some(fp), Some(at)) if fp == at + 8 => Aarch64Saved::Both(at),
                _ => return None,
            },
            is_signed: unsaid.is_signed,
        }))
    };
    match () {
        () if !is_in_lr => SimpleRow::TooComplex,
        () if unsaid.is_undefined => SimpleRow::First,
        () => frame().unwrap_or(SimpleRow::TooComplex),
    }
}
