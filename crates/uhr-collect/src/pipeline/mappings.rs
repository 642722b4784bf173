//! What processes map, as records tell it and as `/proc` shows it.

use uhr_model::{Avma, FileOffset, PageSize, Region};
use uhr_recording::tables::MappingRow;

use super::Pipeline;
use crate::address_space::{Mapped, MappedCode, region_of};
use crate::evidence::is_jitdump;
use crate::modules::Identity;
use crate::perf::{FileIdentity, Mapping, NO_TASK};
use crate::procfs;

/// The memory that a page fault fell on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) address: u64,
    pub(super) region: Region,
    /// Row of the recording's names.
    pub(super) name: Option<u32>,
    pub(super) page: PageSize,
}

/// Mappings of one process are read again from `/proc` at most this often.
const MAPS_PAUSE_NS: u64 = 1_000_000_000;

impl Pipeline {
    /// Makes sure that the mapping of a code address is known: mremap gives no record, and a process that lived before
    /// the recording gave none either.
    pub(super) fn know(&mut self, pid: u32, address: Avma, now_ns: u64) {
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let is_fresh = process.maps_read_ns.is_some_and(|read| now_ns.saturating_sub(read) < MAPS_PAUSE_NS);
        if !is_fresh && !process.unwinder.knows(address) {
            self.read_maps(pid, now_ns);
        }
    }

    /// What memory an address is in that so many page faults fell on.
    pub(super) fn memory_at(&mut self, pid: u32, address: Avma, faults: u64, now_ns: u64) -> Memory {
        let region = self.region(pid, address, now_ns);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let is_asked = self.anonymous_names.see(process, pid, address, now_ns);
        self.mapping_names.unasked += if is_asked { 0 } else { faults };
        let page = self.page_sizes.at((process.row.id, pid), address);
        let name = process.space.find(address).and_then(|(_, mapped)| mapped.name.clone());
        let name = name.and_then(|name| self.mapping_names.number(&name, faults, &mut self.writer));
        Memory { address: address.0, region, name, page }
    }

    fn region(&mut self, pid: u32, address: Avma, now_ns: u64) -> Region {
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let region = process.space.region(address);
        let is_fresh = process.maps_read_ns.is_some_and(|read| now_ns.saturating_sub(read) < MAPS_PAUSE_NS);
        if region != Region::Unknown || is_fresh {
            return region;
        }
        self.read_maps(pid, now_ns);
        self.tasks.process(pid, now_ns, &mut self.writer).space.region(address)
    }

    /// Reads the mappings of a living process from `/proc`.
    pub(crate) fn read_maps(&mut self, pid: u32, now_ns: u64) {
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        process.maps_read_ns = Some(now_ns);
        let lines = procfs::maps(pid);
        if lines.is_empty() && procfs::hides_maps(pid) {
            self.hidden_maps.insert(process.row.id);
        }
        for line in lines {
            let identity =
                if line.inode == 0 { Identity::None } else { Identity::Inode(line.device, line.inode) };
            let range = (line.start, line.end);
            self.map(
                pid,
                range,
                line.file_offset,
                &line.path,
                identity,
                line.executable,
                line.shared,
                now_ns,
            );
        }
    }

    pub(super) fn mapping(&mut self, mapping: &Mapping<'_>, now_ns: u64) {
        let Some(end) = mapping.start.checked_add(mapping.length) else { return };
        let identity = match &mapping.file {
            FileIdentity::BuildId(build_id) => Identity::BuildId(build_id.clone()),
            FileIdentity::Inode { inode: 0, .. } => Identity::None,
            FileIdentity::Inode { major, minor, inode, .. } => {
                Identity::Inode(u64::from(*major) << 32 | u64::from(*minor), *inode)
            }
        };
        let executable = mapping.protection & libc::PROT_EXEC as u32 != 0;
        let range = (mapping.start, end);
        // The first mapping of a kernel image record has pid -1; only processes have mappings here.
        if mapping.pid != NO_TASK && mapping.pid != 0 {
            self.map(
                mapping.pid,
                range,
                mapping.file_offset,
                mapping.path,
                identity,
                executable,
                mapping.is_shared,
                now_ns,
            );
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one mapping, from two sources")]
    fn map(
        &mut self,
        pid: u32,
        (start, end): (u64, u64),
        file_offset: u64,
        path: &[u8],
        identity: Identity,
        executable: bool,
        shared: bool,
        now_ns: u64,
    ) {
        let region = region_of(path, shared);
        let process = self.tasks.process(pid, now_ns, &mut self.writer);
        let id = process.row.id;
        if start >= end {
            return;
        }
        let text = String::from_utf8_lossy(path);
        if is_jitdump(&text) {
            self.names.jitdump(process, &text);
        }
        let offset = FileOffset(file_offset);
        let has_replaced;
        let name = self.shared_names.of(path);
        // Such a name can change; other names are those of files.
        let asked_ns = if path.starts_with(b"[anon") { now_ns } else { 0 };
        let mut mapped = Mapped { end: Avma(end), file_offset: offset, region, name, asked_ns, code: None };
        if executable {
            let module = match (path, region) {
                (b"[vdso]", _) => self.modules.vdso(&mut self.writer),
                (_, Region::File) => {
                    self.modules.of_file(pid, path, (start, end), identity, &mut self.writer)
                }
                _ => {
                    self.names.look(process);
                    self.modules.generated(id, &mut self.writer)
                }
            };
            has_replaced = process.unwinder.map(Avma(start)..Avma(end), offset, module.unwind.clone());
            let (module, kind, segments) = (module.id, module.kind, module.segments);
            self.writer.push_mapping(MappingRow {
                time_ns: now_ns,
                process: id,
                start,
                end,
                file_offset,
                module: module.0,
            });
            mapped.code = Some(MappedCode { module, kind, segments });
        } else {
            has_replaced = process.unwinder.unmap(Avma(start)..Avma(end));
        }
        if has_replaced {
            process.replaced_ns = now_ns;
        }
        process.space.map(Avma(start), mapped);
        if executable || has_replaced {
            self.code_changed(pid);
        }
    }

    /// What the kernel knows of the code of a process is to be brought up to date.
    pub(super) fn code_changed(&mut self, pid: u32) {
        if let Some(tables) = &mut self.kernel_tables {
            tables.see_change(pid);
        }
    }

    /// Forgets in the kernel what no process has any more.
    pub(crate) fn sweep_kernel_tables(&mut self) {
        if let Some(tables) = &mut self.kernel_tables {
            tables.sweep(&self.tasks);
        }
    }

    /// Brings what the kernel walks by up to date.
    pub(crate) fn update_kernel_tables(&mut self) {
        if let Some(tables) = &mut self.kernel_tables {
            tables.update(&self.tasks, self.handled_ns);
        }
    }

    /// Looks again for perf maps, which runtimes may make after they have mapped code.
    pub(crate) fn look_for_names(&mut self) {
        for process in self.tasks.processes() {
            if process.space.has_generated_code() {
                self.names.look(process);
            }
        }
    }
}
