/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What user space says about code: which code a process has mapped, and for each address how the caller is found. A row is
   one word (abi.h); the rows of a page of code lie together, sorted, so that few steps find the one. */
#ifndef UHR_UNWIND_ROWS_H
#define UHR_UNWIND_ROWS_H

#include "state.h"

struct chunk {
    u64 words[UHR_CHUNK_WORDS];
};

struct chunk_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __uint(key_size, sizeof(u32));
    __uint(value_size, sizeof(struct chunk));
};

/* Words of tables, in chunks that user space makes as it needs them. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, UHR_CHUNKS);
    __type(key, u32);
    __array(values, struct chunk_map);
} chunks SEC(".maps");

/* One table a file. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, UHR_TABLES);
    __type(key, u32);
    __type(value, struct uhr_table);
} tables SEC(".maps");

/* Executable mappings: those of one process lie together, sorted. */
struct codes {
    struct uhr_code codes[UHR_CODES];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct codes);
} codes SEC(".maps");

/* By pid. A new process has its parent's until user space has seen it. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u32);
    __type(value, struct uhr_space);
} spaces SEC(".maps");

/* Rows that were found lately, of all processes. The row's own low bits, its place in its page, are not needed any more: there
   and above the address is the version of the process's mappings, so that a row is that of this code and no other. */
#define UHR_KNOWN_BITS 10
struct known_row {
    u64 key, row;
};
struct known_rows {
    struct known_row rows[1 << UHR_KNOWN_BITS];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, DRAFTS + 1);
    __type(key, u32);
    __type(value, struct known_rows);
} known_rows SEC(".maps");

/* A new process has the code of the one that made it. */
static __always_inline void inherit_space(struct thread *maker, struct thread *thread)
{
    u32 pid = thread->task.pid, of = maker ? maker->task.pid : 0;
    if (!settings.walks_by_rows || pid != thread->task.tid || !pid) return;
    struct uhr_space *space = bpf_map_lookup_elem(&spaces, &of);
    if (space) bpf_map_update_elem(&spaces, &pid, space, BPF_ANY);
    else bpf_map_delete_elem(&spaces, &pid);
}

static __always_inline struct chunk *chunk_of(u32 word)
{
    u32 number = word / UHR_CHUNK_WORDS, zero = 0;
    void *chunk = bpf_map_lookup_elem(&chunks, &number);
    return chunk ? bpf_map_lookup_elem(chunk, &zero) : 0;
}

/* All bits set if a <= b, of numbers below 2^63. Searches go without branches, and always all their steps: the verifier
   would follow each way through them. */
static __always_inline u64 is_at_most(u64 a, u64 b)
{
    s64 distance = b - a;
    barrier_var(distance);
    return ~(distance >> 63);
}

/* The last of a process's mappings that begins at or below the address. */
static __always_inline bool find_code(struct uhr_space *space, u64 address, struct uhr_code *found)
{
    u32 zero = 0, low = space->first, left = space->count;
    struct codes *all = bpf_map_lookup_elem(&codes, &zero);
    if (!all) return false;
    for (u32 step = 0; step < UHR_CODE_STEPS; step++) {
        u32 half = left / 2;
        low += half & is_at_most(all->codes[(low + half) & (UHR_CODES - 1)].start, address);
        left -= half;
    }
    *found = all->codes[low & (UHR_CODES - 1)];
    return left && address >= found->start && address < found->end;
}

/* The row of a stated address; 0, which is that of code without call frame information, where there is none. */
static __always_inline u64 find_row(struct uhr_table *table, u64 address)
{
    u64 within = address - table->start;
    u64 page = within >> UHR_PAGE_BITS;
    if (page >= table->pages) return 0;
    u32 word = table->index + (u32)page;
    struct chunk *chunk = chunk_of(word);
    if (!chunk) return 0;
    u64 entry = chunk->words[word & (UHR_CHUNK_WORDS - 1)];
    u32 low = (u32)entry, left = entry >> 32;
    within &= (1 << UHR_PAGE_BITS) - 1;
    chunk = chunk_of(low);
    if (!chunk) return 0;
    for (u32 step = 0; step < UHR_ROW_STEPS; step++) {
        u32 half = left / 2;
        low += half & is_at_most((u16)chunk->words[(low + half) & (UHR_CHUNK_WORDS - 1)], within);
        left -= half;
    }
    return chunk->words[low & (UHR_CHUNK_WORDS - 1)];
}

#endif
