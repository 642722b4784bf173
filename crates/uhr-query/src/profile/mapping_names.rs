//! What mappings are called that page faults fell on.

use uhr_recording::Recording;
use uhr_recording::tables::MappingNames as Stored;

use crate::QueryError;

/// The names, by number.
#[derive(Debug, Default)]
pub(crate) struct MappingNames(Vec<String>);

impl MappingNames {
    pub(super) fn load(recording: &Recording) -> Result<Self, QueryError> {
        let stored: Stored = recording.table()?;
        if stored.id.iter().enumerate().any(|(at, id)| *id as usize != at) {
            return Err(QueryError::Damaged("the names of mappings are not in their order".to_owned()));
        }
        Ok(Self(stored.name))
    }

    /// A number out of the recording, if there is such a name.
    pub(crate) fn checked(&self, number: u32) -> Result<u32, QueryError> {
        match self.0.get(number as usize) {
            Some(_) => Ok(number),
            None => Err(QueryError::Damaged(format!("there is no name {number} of a mapping"))),
        }
    }

    /// The name.
    pub(crate) fn get(&self, number: u32) -> &str {
        self.0.get(number as usize).map_or("", String::as_str)
    }
}
