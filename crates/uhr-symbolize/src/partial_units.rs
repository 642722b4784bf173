//! Partial units of dwz, before version 5 of DWARF.
//!
//! dwz moves what several units declare into partial units, and gives these the line table whose file numbers the
//! declarations use. They have no code. But their headers look like those of units with code, so `addr2line` takes the
//! code of the line table for theirs, finds no function there, and answers with a line alone. Nothing here asks for the
//! files of declarations: the attribute is made one that no reader looks at.

use std::borrow::Cow;

use addr2line::gimli::{self, EndianSlice, LittleEndian, Reader};

const PARTIAL_UNIT: u64 = gimli::DW_TAG_partial_unit.0 as u64;
const STMT_LIST: u64 = gimli::DW_AT_stmt_list.0 as u64;
const IMPLICIT_CONST: u64 = gimli::DW_FORM_implicit_const.0 as u64;
/// An attribute of a section offset's form, which units have none of.
const NOT_LOOKED_AT: u8 = gimli::DW_AT_location.0 as u8;

/// Takes the line tables from partial units, in `.debug_abbrev`.
pub(crate) fn without_lines(abbreviations: &mut Cow<'_, [u8]>) {
    let mut places = Vec::new();
    // Behind damage, or padding that is none, they stay as they are.
    let _ = find(abbreviations, &mut places);
    for place in places {
        abbreviations.to_mut()[place] = NOT_LOOKED_AT;
    }
}

/// Where a partial unit's abbreviation names its line table.
fn find(bytes: &[u8], places: &mut Vec<usize>) -> gimli::Result<()> {
    let mut rest = EndianSlice::new(bytes, LittleEndian);
    while !rest.is_empty() {
        if rest.read_uleb128()? == 0 {
            continue;
        }
        let is_partial = rest.read_uleb128()? == PARTIAL_UNIT;
        rest.read_u8()?;
        loop {
            let at = bytes.len() - rest.len();
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == IMPLICIT_CONST {
                rest.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
            if is_partial && name == STMT_LIST && u64::from(bytes[at]) == STMT_LIST {
                places.push(at);
            }
        }
    }
    Ok(())
}
