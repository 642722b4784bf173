#![forbid(unsafe_code)]
//! One process as the unwinder sees it.

use std::ops::Range;
use std::sync::Arc;

use uhr_model::{Avma, CodeAddress, FileOffset, StackEnding};

use super::cache::UnwindCache;
use super::derived::CodeCache;
use super::mappings::{CodeMapping, Mappings};
use super::memory::TargetMemory;
use super::module::UnwindModule;
use super::registers::Registers;
use super::stack::{Miss, StackCopy, StackWords};
use super::walk::{Frame, Walk};

/// The executable mappings of one process, and the walk along its stacks. A clone is what a fork inherits; exec begins
/// with a new one.
#[derive(Clone, Default, Debug)]
pub struct ProcessUnwinder {
    mappings: Mappings,
    code: CodeCache,
}

impl ProcessUnwinder {
    /// A process without mappings, as after exec.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes an executable mapping in, in place of whatever was there. `module` is `None` for memory without an ELF
    /// file, where code is taken to keep frame pointers unless its instructions say otherwise. True if other code was there.
    pub fn map(&mut self, range: Range<Avma>, offset: FileOffset, module: Option<Arc<UnwindModule>>) -> bool {
        self.code.clear();
        self.mappings.insert(range, offset, module)
    }

    /// Takes out what is mapped in `range`; mappings that it cuts keep their rest. False if nothing was mapped there.
    pub fn unmap(&mut self, range: Range<Avma>) -> bool {
        // Most of what a process maps is data in new places: code that was read stays as it is.
        let was_mapped = self.mappings.remove(range);
        if was_mapped {
            self.code.clear();
        }
        was_mapped
    }

    /// All executable mappings, in the order of their addresses.
    pub fn code(&self) -> impl Iterator<Item = CodeMapping<'_>> {
        self.mappings.iter()
    }

    /// Whether an address is in an executable mapping that was given.
    pub fn knows(&self, address: Avma) -> bool {
        self.mappings.find(address.0).is_some()
    }

    /// Unwinds a sample, and pushes its frames to `out`, the innermost first. `code` serves to read instructions only:
    /// the thread has moved on since, and what is on its stack now is another moment's.
    pub fn unwind(
        &mut self,
        regs: Registers,
        stack: StackCopy<'_>,
        code: Option<&dyn TargetMemory>,
        cache: &mut UnwindCache,
        out: &mut Vec<CodeAddress<Avma>>,
    ) -> StackEnding {
        let mut walk = self.start_walk(StackWords::of_copy(stack), code, cache, out);
        walk.run(&mut Frame::interrupted(regs)).unwrap_or_else(Miss::ending)
    }

    pub(super) fn start_walk<'a>(
        &'a mut self,
        stack: StackWords<'a>,
        memory: Option<&'a dyn TargetMemory>,
        cache: &'a mut UnwindCache,
        out: &'a mut Vec<CodeAddress<Avma>>,
    ) -> Walk<'a> {
        Walk { mappings: &self.mappings, code: &mut self.code, memory, stack, cache, begin: out.len(), out }
    }
}
