//! The layouts of `bpf/abi.h`. The only file that knows them; the sizes are held against those that the C side asserts.

/// Bytes of stack in one event, of most stacks
pub(crate) const COPY_BYTES: u32 = 16 << 10;
/// and of deeper ones.
pub const MAX_COPY_BYTES: u32 = 60 << 10;
/// Programs of one CPU that each put a sample together.
pub(crate) const DRAFTS: usize = 3;
/// Slots of waits in one event.
pub(crate) const SLOTS: usize = 12;
/// Wakers behind the waker.
pub(crate) const HOPS: usize = 3;
/// Slots of system calls in one event.
pub(crate) const CALLS: usize = 64;
/// No system call.
pub(crate) const NO_SYSCALL: u16 = 0xffff;

pub(crate) const CPU: u32 = 1;
pub(crate) const FAULT: u32 = 2;
pub(crate) const WAIT_STACK: u32 = 3;
pub(crate) const WAKER_STACK: u32 = 4;
pub(crate) const WOKEN: u32 = 5;
pub(crate) const WAIT_END: u32 = 6;
pub(crate) const TIMES: u32 = 7;
pub(crate) const THREAD_END: u32 = 8;
pub(crate) const RENAMED: u32 = 9;
pub(crate) const COUNTED: u32 = 10;

pub(crate) const IN_KERNEL: u16 = 1;
pub(crate) const CHAIN_FULL: u16 = 2;
pub(crate) const IS_32_BIT: u16 = 4;
pub(crate) const KERNEL_THREAD: u16 = 8;
pub(crate) const MAJOR: u16 = 16;
pub(crate) const CHAIN: u16 = 32;
pub(crate) const AT_SWITCH: u16 = 64;
pub(crate) const WALKED: u16 = 128;
pub(crate) const FROM_OUTSIDE: u16 = 256;
/// UHR_MAX_WALK / 2: what is kept of a walk from the leaf on, and again from the root.
pub(crate) const HALF_OF_WALK: usize = 512;

pub(crate) const ON_ITS_WAY: u16 = 0;
pub(crate) const FIRST: u16 = 1;
pub(crate) const NO_SPACE: u16 = 3;
pub(crate) const UNKNOWN_CODE: u16 = 5;
pub(crate) const INSTRUCTION: u64 = 1 << 63;
pub(crate) const FROM_BP: u64 = 1 << 62;

/// Bytes of a page of code, as a power of two.
pub(crate) const PAGE_BITS: u32 = 9;
/// Rows of a page, at most.
pub(crate) const ROWS_OF_PAGE: usize = (1 << 7) - 1;
pub(crate) const ROW_NONE: u64 = 0;
pub(crate) const ROW_SP: u64 = 1;
pub(crate) const ROW_BP: u64 = 2;
pub(crate) const ROW_SAVED: u64 = 3;
pub(crate) const ROW_PLT: u64 = 4;
pub(crate) const ROW_SIGNAL: u64 = 5;
pub(crate) const ROW_FIRST: u64 = 6;
pub(crate) const ROW_COMPLEX: u64 = 7;
pub(crate) const ROW_A64: u64 = 8;
pub(crate) const ROW_A64_FROM_FP: u64 = 16;
pub(crate) const ROW_A64_RETURN_ADDRESS: u64 = 32;
pub(crate) const ROW_A64_FP: u64 = 64;
pub(crate) const ROW_A64_SIGNED: u64 = 128;
pub(crate) const BP_NOWHERE: i16 = i16::MIN;
pub(crate) const CHUNK_WORDS: usize = 1 << 17;
pub(crate) const CHUNKS: usize = 128;
pub(crate) const TABLES: usize = 4096;
pub(crate) const CODES: usize = 131_072;
/// Mappings of one process, at most.
pub(crate) const CODES_OF_ONE: usize = 1 << 12;
pub(crate) const BY_NOTHING: u32 = 0;
pub(crate) const BY_ROWS: u32 = 1;
pub(crate) const BY_FRAME_POINTERS: u32 = 2;
pub(crate) const BY_READING_CODE: u32 = 4;
/// In `Why::file`: the wait was short.
pub(crate) const SHORT: u8 = 0x80;

/// Values of the C side: plain numbers without padding, so that any bytes are one of them.
///
/// # Safety
/// `repr(C)`, only integers, no padding.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $bytes:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        // SAFETY: repr(C) of integers and of other such values; the assertion excludes padding.
        unsafe impl Plain for $name {}
        const _: () = assert!(size_of::<$name>() == $bytes && 0 $(+ size_of::<$type>())* == $bytes);
    )*};
}

plain! {
    /// struct uhr_head
    Head = 24 { kind: u32, cpu: u32, time_ns: u64, pid: u32, tid: u32, }
    /// struct uhr_sample
    Sample = 96 {
        head: Head, ip: u64, sp: u64, bp: u64, address: u64, as_of_ns: u64, wait: u32, wait_tid: u32, kernel_frames: u16,
        user_frames: u16, copied: u16, ending: u16, syscall: u16, flags: u16, share: u32, left_out: u32, unused: u32,
    }
    /// struct uhr_task
    Task = 8 { pid: u32, tid: u32, }
    /// struct uhr_woken
    Woken = 80 { head: Head, wait: u32, is_interrupt: u32, waker: Task, hops: [Task; HOPS], name: [u8; 16], }
    /// struct uhr_why
    Why = 4 { syscall: u16, how: u8, file: u8, }
    /// struct uhr_wait_end
    WaitEnd = 48 { head: Head, since_ns: u64, woken_ns: u64, wait: u32, why: Why, }
    /// struct uhr_slot
    Slot = 16 { ns: u64, count: u32, why: Why, }
    /// struct uhr_times
    Times = 288 {
        head: Head, since_ns: u64, woken_ns: u64, on_cpu_ns: u64, runqueue_ns: u64, minor_faults: u64,
        major_faults: u64, switches: u32, crowded: u32, unwoken: u32, why: Why, wait: u32, state: u32,
        slots: [Slot; SLOTS],
    }
    /// struct uhr_call
    Call = 16 { ns: u64, count: u32, syscall: u16, error: u16, }
    /// struct uhr_calls
    Calls = 1104 {
        head: Head, began_ns: u64, since_ns: u64, ran_ns: u64, syscall: u32, count: u32, is_last: u32, unused: u32, others: Call,
        calls: [Call; CALLS],
    }
    /// struct uhr_counters
    Counters = 312 {
        ticks: u64, idle: u64, samples: u64, foreign: u64, faults: u64, refused: [u64; 11], no_storage: u64, torn: u64,
        looked: u64, moved_on: u64, postponed: u64, waits: u64, unseen_wakers: u64,
        walks: [u64; 13], place: u64, moment: u64, wakers: u64,
    }
    /// struct uhr_settings
    Settings = 56 {
        cgroup: u64, pid_namespace: u64, cgroup_level: u32, scope: u32, copy_bytes: u32,
        follow_frame_pointers: u32, walks_by_rows: u32, copies_too: u32, looks_a_pass: u32, measures_calls: u32, calibration: u64,
    }
    /// struct uhr_dial
    Dial = 40 { start_ns: u64, period_ns: u64, pass_ns: u64, taken: u32, share: u32, counting: u32, unused: u32, }
    /// struct uhr_table
    Table = 16 { start: u64, pages: u32, index: u32, }
    /// struct uhr_code
    Code = 40 { start: u64, end: u64, bias: u64, root: u64, table: u32, how: u32, }
    /// struct uhr_space
    Space = 24 { as_of_ns: u64, first: u32, count: u32, version: u32, is_deep: u32, }
    /// struct uhr_cursor
    Cursor = 16 { from: u64, next: u64, }
}

/// The value at the beginning of `bytes`, and what lies behind it.
pub(crate) fn read<T: Plain>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (own, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: `own` has the size of T, any bytes are a T, and the read needs no alignment.
    Some((unsafe { std::ptr::read_unaligned(own.as_ptr().cast()) }, rest))
}

/// The bytes of a value.
pub(crate) fn bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: T has no padding, and lives as long as the slice.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The bytes of words.
pub(crate) fn words(words: &[u64]) -> &[u8] {
    // SAFETY: integers have no padding, and live as long as the slice.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}
