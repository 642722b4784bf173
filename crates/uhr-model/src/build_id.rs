use std::fmt;
use std::str::FromStr;

/// The identity of a built ELF file: the bytes of its `NT_GNU_BUILD_ID` note, at most [`BuildId::MAX`] of them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// The longest build id that is taken: what a perf MMAP2 record can hold, and what linkers write (SHA-1).
    pub const MAX: usize = 20;

    /// Takes the note's bytes. `None` if there are none or too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty() && bytes.len() <= Self::MAX).then(|| Self(bytes.to_vec()))
    }

    /// The bytes of the note.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

impl FromStr for BuildId {
    type Err = ();

    fn from_str(hex: &str) -> Result<Self, ()> {
        if !hex.len().is_multiple_of(2) || !hex.is_ascii() {
            return Err(());
        }
        let bytes: Result<Vec<u8>, _> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
        Self::new(&bytes.map_err(|_| ())?).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::BuildId;

    #[test]
    fn hex_round_trip_and_refusals() {
        let id = BuildId::new(&[0xde, 0xad, 0x01]).unwrap();
        assert_eq!(id.to_string(), "dead01");
        assert_eq!("dead01".parse(), Ok(id));
        assert!("dead0".parse::<BuildId>().is_err());
        assert!("ä1".parse::<BuildId>().is_err());
        assert!("".parse::<BuildId>().is_err());
        assert!(BuildId::new(&[0; 21]).is_none());
    }
}
