//! Closed sets of words that are stored as one byte.

/// Defines an enum whose variants have a stored code and a name in words, with the conversions both ways.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $code:literal $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every value, in the order of the codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The byte that stands for it in a recording. Codes are never reused.
            pub fn code(self) -> u8 {
                match self { $(Self::$variant => $code,)* }
            }
            /// The value of a stored byte, or `None` if no version of uhr wrote it.
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
            /// The word that users see and write.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
            /// The value of a word.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}
pub(crate) use codes;
