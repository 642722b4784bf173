#![forbid(unsafe_code)]
//! One process as the unwinder sees it.

use std::ops::Range;
use std::sync::Arc;

use uhr_model::{Avma, CodeAddress, FileOffset, StackEnding};

use super::cache::UnwindCache;
use super::derived::CodeCache;
use super::evidence::Evidence;
use super::mappings::{CodeMapping, Mappings, Removed};
use super::memory::TargetMemory;
use super::module::UnwindModule;
use super::registers::Registers;
use super::stack::{Miss, StackCopy, StackWords};
use super::walk::{Frame, Walk};

/// The executable mappings of one process, and the walk along its stacks. A clone is what a fork inherits; exec begins
/// with a new one.
#[derive(Default, Debug)]
pub struct ProcessUnwinder {
    mappings: Mappings,
    code: CodeCache,
    evidence: Evidence,
}

impl ProcessUnwinder {
    /// A process without mappings, as after exec.
    pub fn new() -> Self {
        Self::default()
    }

    /// That of a process which this one has made. What was read of code is read anew if it is needed: most execute another program
    /// at once.
    #[must_use]
    pub fn of_child(&self) -> Self {
        let (mappings, evidence) = (self.mappings.clone(), self.evidence.clone());
        Self { mappings, evidence, code: CodeCache::default() }
    }

    /// Takes an executable mapping in, in place of whatever was there. `module` is `None` for memory without an ELF
    /// file, where code is taken to keep frame pointers unless its instructions say otherwise. True if code of another file
    /// was there.
    pub fn map(&mut self, range: Range<Avma>, offset: FileOffset, module: Option<Arc<UnwindModule>>) -> bool {
        let is_generated = module.is_none();
        let removed = self.mappings.insert(range.clone(), offset, module);
        match removed {
            Removed::Nothing => {}
            Removed::Generated if is_generated => self.code.see_growth(range),
            Removed::Generated | Removed::OfFile => self.code.forget_in(range),
        }
        removed == Removed::OfFile
    }

    /// Takes out what is mapped in `range`; mappings that it cuts keep their rest. True if code of a file was
    /// there.
    pub fn unmap(&mut self, range: Range<Avma>) -> bool {
        // Most of what a process maps is data in new places: code that was read stays as it is.
        let removed = self.mappings.remove(range.clone());
        if removed != Removed::Nothing {
            self.code.forget_in(range);
        }
        removed == Removed::OfFile
    }

    /// The code of a file (`None`: generated code) without call frame information that keeps frame pointers, as far as the
    /// frames that were walked have shown: ranges of stated addresses, sorted.
    pub fn keeps_frame_pointers(&self, module: Option<&UnwindModule>) -> Vec<Range<u64>> {
        self.evidence.keeps_frame_pointers(module.map(|module| module.id()))
    }

    /// What the first functions of goroutines return to, in a file of Go's linker, once one was seen.
    pub fn goroutine_root(&self, module: &UnwindModule) -> Option<Avma> {
        self.evidence.root(module.id())
    }

    /// Whether that has changed, for any code, since this was last asked.
    pub fn take_changed_evidence(&mut self) -> bool {
        self.evidence.take_change()
    }

    /// Whether a call stands before an address, as far as the code can be read.
    pub fn is_behind_call(
        &mut self,
        address: Avma,
        code: &dyn TargetMemory,
        cache: &mut UnwindCache,
    ) -> bool {
        let nothing = StackWords::of_copy(StackCopy { start: Avma(0), bytes: &[] });
        let mut out = Vec::new();
        self.start_walk(nothing, Some(code), cache, &mut out).is_return_address(address.0)
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
        let begin = out.len();
        let Self { mappings, code, evidence } = self;
        code.begin_walk();
        Walk { mappings, code, evidence, memory, stack, cache, begin, out }
    }
}
