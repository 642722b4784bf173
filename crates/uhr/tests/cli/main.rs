//! The command line as a user meets it: the built binary, over a recording made by hand.

#![allow(missing_docs, unreachable_pub, reason = "nobody uses a test from outside")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

mod answers;
mod doctor;
mod fixture;
mod help;
mod hostile;
mod terminal;
mod text;
mod usage;
mod waits;
mod waits_fixture;
