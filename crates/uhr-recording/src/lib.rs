//! The recording: what one capture leaves on disk.
//!
//! A folder with `manifest.json` and one table per file. While recording, tables are append-only Arrow IPC streams, so a
//! killed recorder loses at most the batch it had not written; at the end they become Parquet, which other engines open
//! as they are. Both sides of uhr meet here and nowhere else: the collecting side writes, the analysing side reads.
//!
//! `docs/format.md` is the schema for people; a test holds it against [`tables`].

#![forbid(unsafe_code)]

mod clock_shares;
mod columns;
mod error;
mod finalize;
mod manifest;
mod reader;
mod stream;
pub mod tables;
mod wait_hints;
mod wait_kinds;
mod wait_shares;
mod waker_tree;
mod writer;

pub use columns::{Column, ColumnDoc, Table};
pub use error::RecordingError;
pub use finalize::{
    Added, Busy, CpuWeights, Finalized, Scale, add_names, busy_frames, finalize, kernel_threads,
};
pub use manifest::{
    Clock, CpuTicks, Host, Ledger, MachineLoad, Manifest, ProgramCost, SampleLedger, Settings, State,
    UhrCost, Window, new_id,
};
pub use reader::{Recording, Torn};
pub use wait_hints::{FrameHint, InterruptPart, NodeHint};
pub use wait_kinds::WaitKinds;
pub use wait_shares::{WaitShares, length_class};
pub use waker_tree::WakerTree;
pub use writer::RecordingWriter;
