//! Where observations come from: row groups of finished tables, read when they are asked for and in parallel; or the
//! tables of a recording that is not finished, which stay in memory.

use std::ops::Range;
use std::path::PathBuf;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rustc_hash::FxHashMap;
use uhr_recording::tables::{Faults, OffCpu, Resident, Samples, SyscallWindows, Syscalls, ThreadRow};
use uhr_recording::{
    CpuWeights, FrameHint, NodeHint, Recording, Scale, Table, WaitKinds, WaitShares, WakerTree,
};

use super::StackTree;
use crate::QueryError;

/// The tables of observations.
#[derive(Debug)]
pub(crate) enum Observations {
    /// In the folder, in their finished form.
    Finished(PathBuf),
    /// Read as they were when the question was asked.
    Growing(Box<Growing>),
}

/// The tables of a recording without its finished form.
#[derive(Debug)]
pub(crate) struct Growing {
    samples: Samples,
    off_cpu: OffCpu,
    faults: Faults,
    resident: Resident,
    syscalls: Syscalls,
    syscall_windows: SyscallWindows,
}

/// A table of observations: how to find it among the growing ones.
pub(crate) trait Observed: Table + Sync {
    /// The table of an unfinished recording.
    fn growing(tables: &Growing) -> &Self;
}

macro_rules! observed {
    ($($Table:ident $field:ident,)*) => {
        $(impl Observed for $Table {
            fn growing(tables: &Growing) -> &Self { &tables.$field }
        })*
    };
}
observed! {
    Samples samples, OffCpu off_cpu, Faults faults, Resident resident, Syscalls syscalls,
    SyscallWindows syscall_windows,
}

/// Rows of a growing table that are counted at once, as many as a row group has.
const ROWS_AT_ONCE: usize = 1 << 18;

impl Observations {
    pub(super) fn load(recording: &Recording, threads: &[ThreadRow]) -> Result<Self, QueryError> {
        if recording.is_finished() {
            return Ok(Self::Finished(recording.folder().to_owned()));
        }
        let mut samples: Samples = recording.table()?;
        let mut weights = CpuWeights::of(threads);
        weights.learn(&samples);
        weights.apply(&mut samples);
        let (mut off_cpu, mut faults, resident) =
            (recording.table::<OffCpu>()?, recording.table::<Faults>()?, recording.table()?);
        let mut shares = WaitShares::of(&recording.manifest);
        shares.learn(&off_cpu);
        shares.settle();
        shares.apply(&mut off_cpu);
        let sampled = faults.weight.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
        // What the kernel counted is known only when the capture has ended.
        let counted = recording.manifest.ledger.faults.expected;
        if counted > 0 {
            Scale::new(sampled, counted).scale(&mut faults.weight);
        }
        let (syscalls, syscall_windows) = (recording.table()?, recording.table()?);
        let growing = Growing { samples, off_cpu, faults, resident, syscalls, syscall_windows };
        Ok(Self::Growing(Box::new(growing)))
    }

    /// The end of the last thing that was seen, for a recording whose manifest does not say yet when it ended.
    pub(super) fn last_ns(&self) -> u64 {
        match self {
            Self::Finished(_) => 0,
            Self::Growing(tables) => {
                let moments = tables.samples.time_ns.iter().chain(&tables.resident.time_ns);
                let ends =
                    moments.map(|time| time.saturating_add(1)).chain(tables.off_cpu.end_ns.iter().copied());
                ends.max().unwrap_or(0)
            }
        }
    }

    /// Tells an unfinished recording's samples and waits what their stacks tell: the finished form has it.
    pub(super) fn tell(
        &mut self,
        tree: &StackTree,
        of_frame: &[FrameHint],
        is_kernel_thread: Vec<bool>,
        wakers: &mut WakerTree,
    ) {
        let Self::Growing(tables) = self else { return };
        let nodes = tree.parent.iter().copied().zip(tree.frame.iter().copied()).skip(1);
        // What was interrupted stays on the stack of the interrupt: the finished form does without.
        let of_interrupt = FxHashMap::default();
        let kinds =
            WaitKinds { of_node: NodeHint::of_nodes(nodes, of_frame), of_interrupt, is_kernel_thread };
        // Rows name stacks by their stored number, the tree by its own.
        let mut row_of_node = vec![0; tree.len()];
        for (row, node) in (0..).map_while(|row| Some((row, tree.node(row)?))) {
            row_of_node[node as usize] = row;
        }
        let nodes: Vec<u32> = tables.samples.stack.iter().map(|row| tree.node(*row).unwrap_or(0)).collect();
        NodeHint::tell_syscalls(&kinds.of_node, &nodes, &mut tables.samples.syscall);
        let rows = &mut tables.off_cpu;
        let to_node = |stack: &mut u32| *stack = tree.node(*stack).unwrap_or(0);
        rows.stack.iter_mut().for_each(to_node);
        rows.waker_stack.iter_mut().for_each(to_node);
        rows.waker.iter_mut().for_each(|waker| *waker = wakers.of(*waker));
        kinds.tell(rows, wakers);
        wakers.settle();
        let to_row = |node: &mut u32| *node = row_of_node[*node as usize];
        rows.stack.iter_mut().for_each(to_row);
        rows.waker_stack.iter_mut().for_each(to_row);
    }

    /// Hands out the rows of a table in parts, in parallel; the results are in the order of the rows. Only the named
    /// columns are there.
    pub(crate) fn read<T: Observed, R: Send>(
        &self,
        names: &[&str],
        part: impl Fn(&T, Range<usize>) -> Result<R, QueryError> + Sync,
    ) -> Result<Vec<R>, QueryError> {
        match self {
            Self::Finished(folder) => {
                let recording = Recording::open(folder)?;
                if !recording.has_parquet::<T>() {
                    return Ok(Vec::new());
                }
                let groups = recording.row_groups::<T>()?;
                let read = |group| {
                    let mut rows = T::default();
                    recording.read_row_group(group, names, &mut rows)?;
                    part(&rows, 0..rows.len())
                };
                (0..groups).into_par_iter().map(read).collect()
            }
            Self::Growing(tables) => {
                let table = T::growing(tables);
                let parts = table.len().div_ceil(ROWS_AT_ONCE);
                let range = |at: usize| at * ROWS_AT_ONCE..((at + 1) * ROWS_AT_ONCE).min(table.len());
                (0..parts).into_par_iter().map(|at| part(table, range(at))).collect()
            }
        }
    }
}
