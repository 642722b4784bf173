//! The command line as a user meets it: the built binary, over a recording made by hand.

#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod answers;
mod doctor;
mod fixture;
mod help;
mod hostile;
mod terminal;
mod text;
mod usage;
