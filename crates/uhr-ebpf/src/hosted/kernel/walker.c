/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What takes samples in the kernel, as an ordinary program under sanitizers. It reads requests on standard input: what user
   space writes to maps, what memory a process has, and then registers; for these it writes the event that the kernel would
   send, its length before it. ../machine.rs is the other side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings are constant for the programs; the loader, which this is too, sets them. */
#define const
#include "../../../bpf/sample.h"
#undef const

enum { MEMORY = 1, FORGET, WORDS, TABLE, CODES, SPACE, SETTINGS, CLEAR, RING, SAMPLE };

struct request {
    u32 kind;
    u32 number; /* of a table, a process; of a sample: 1 if it is taken from outside */
    u64 at;     /* an address, the number of a word or of a mapping; of a sample: when its thread last executed a program */
    u64 bytes;  /* that follow */
};

/* The map's elements are allocated one by one: the sanitizer sees who leaves one. */
struct map {
    void *map;
    u32 count;
    u32 bytes;
    bool is_hash; /* elements that were not put are not there */
    void **elements;
};

#define MAP(name, is_hash) {&name, sizeof *name.max_entries / sizeof(int), sizeof *name.value, is_hash, 0}

/* A map that the walkers begin to use is added here. */
static struct map maps[] = {
    MAP(tables, false), MAP(codes, false), MAP(counters, false), MAP(drafts, false),
    MAP(known_rows, false), MAP(spaces, true),
};
#define MAPS (sizeof maps / sizeof *maps)

static u64 *chunk_words[UHR_CHUNKS];

struct piece {
    u64 start, bytes;
    u8 *content;
};
static struct piece memory[64];
static u32 pieces;

static void stop(char *why)
{
    fprintf(stderr, "walker: %s\n", why);
    exit(2);
}

static void *allocated(u64 bytes)
{
    void *made = calloc(1, bytes);
    if (!made) stop("no memory");
    return made;
}

static void **element(struct map *map, u32 key)
{
    if (key >= map->count) return 0;
    if (!map->elements) map->elements = allocated(map->count * sizeof(void *));
    return &map->elements[key];
}

static struct map *map_of(void *wanted)
{
    for (u32 at = 0; at < MAPS; at++)
        if (maps[at].map == wanted) return &maps[at];
    return 0;
}

void *bpf_map_lookup_elem(void *wanted, void *key)
{
    u32 number = *(u32 *)key;
    u64 **chunk = wanted;
    if (wanted == &chunks) return number < UHR_CHUNKS && chunk_words[number] ? &chunk_words[number] : 0;
    if (chunk >= chunk_words && chunk < chunk_words + UHR_CHUNKS) return *chunk;
    struct map *map = map_of(wanted);
    if (!map) stop("a map that is not listed");
    void **found = element(map, number);
    if (found && !*found && !map->is_hash) *found = allocated(map->bytes);
    return found ? *found : 0;
}

/* As the kernel's: nothing is read if not all can be, and what could not be is zeroes. */
long bpf_probe_read_user(void *to, u32 bytes, void *from)
{
    u64 at = (u64)from;
    for (u32 done = 0; done < bytes;) {
        struct piece *piece = memory;
        while (piece < memory + pieces && at + done - piece->start >= piece->bytes) piece++;
        if (piece == memory + pieces) {
            memset(to, 0, bytes);
            return -14;
        }
        u64 left = piece->bytes - (at + done - piece->start);
        if (left > bytes - done) left = bytes - done;
        memcpy((u8 *)to + done, piece->content + (at + done - piece->start), left);
        done += left;
    }
    return 0;
}

long bpf_copy_from_user_task(void *to, u32 bytes, void *from, void *task, u64 flags)
{
    return bpf_probe_read_user(to, bytes, from);
}

long bpf_loop(u32 times, void *each, void *context, u64 flags)
{
    long (*callback)(u32, void *) = each;
    u32 done = 0;
    while (done < times)
        if (callback(done++, context)) break;
    return done;
}

u64 bpf_ktime_get_ns(void)
{
    return 1;
}

u32 bpf_get_smp_processor_id(void)
{
    return 0;
}

/* As a request says. */
static u64 bytes_in_ring;

u64 bpf_ringbuf_query(void *ring, u64 what)
{
    return what == BPF_RB_RING_SIZE ? 8 << 20 : bytes_in_ring;
}

static bool is_sent;

long bpf_ringbuf_output(void *ring, void *event, u64 bytes, u64 flags)
{
    is_sent = true;
    fwrite(&bytes, sizeof bytes, 1, stdout);
    fwrite(event, bytes, 1, stdout);
    return 0;
}

static void take_sample(struct request *request, struct uhr_sample *wanted)
{
    struct thread thread = {.exec_ns = request->at};
    struct task_struct other;
    struct draft *draft = draft_of(DRAFT_CPU);
    begin_sample(draft, wanted->head.kind, (struct uhr_task){wanted->head.pid, wanted->head.tid}, 1);
    draft->sample.ip = wanted->ip;
    draft->sample.sp = wanted->sp;
    draft->sample.bp = wanted->bp;
    for (u32 at = 0; at < wanted->kernel_frames; at++) ((u64 *)draft->payload)[at] = ~0ull - at;
    put_kernel_stack(draft, wanted->kernel_frames * 8);
    if (settings.follow_frame_pointers) put_chain(draft);
    else if (request->number) put_user_stack(draft, DRAFT_LOOK, &thread, &other);
    else put_user_stack(draft, DRAFT_CPU, &thread, 0);
    is_sent = false;
    emit_sample(draft);
    u64 nothing = 0;
    if (!is_sent) fwrite(&nothing, sizeof nothing, 1, stdout);
    fflush(stdout);
}

static void put_words(u64 at, u64 *words, u64 count)
{
    for (u64 each = 0; each < count; each++, at++) {
        if (at >= (u64)UHR_CHUNKS * UHR_CHUNK_WORDS) stop("a word that lies in no chunk");
        u64 **chunk = &chunk_words[at / UHR_CHUNK_WORDS];
        if (!*chunk) *chunk = allocated(sizeof(struct chunk));
        (*chunk)[at % UHR_CHUNK_WORDS] = words[each];
    }
}

static void put(void *map, u32 key, u64 at, void *value, u64 bytes)
{
    struct map *own = map_of(map);
    void **found = element(own, key);
    if (!found || at > own->bytes || bytes > own->bytes - at) stop("an element that is too large");
    if (!*found) *found = allocated(own->bytes);
    memcpy((u8 *)*found + at, value, bytes);
}

static void clear(void)
{
    for (u32 at = 0; at < MAPS; at++) {
        for (u32 key = 0; maps[at].elements && key < maps[at].count; key++) free(maps[at].elements[key]);
        free(maps[at].elements);
        maps[at].elements = 0;
    }
    for (u32 at = 0; at < UHR_CHUNKS; at++) {
        free(chunk_words[at]);
        chunk_words[at] = 0;
    }
}

static void put_memory(u64 at, u8 *content, u64 bytes)
{
    if (pieces == sizeof memory / sizeof *memory) stop("memory in too many pieces");
    memory[pieces++] = (struct piece){at, bytes, content};
}

static void forget_memory(void)
{
    while (pieces) free(memory[--pieces].content);
}

static void answer(struct request *request, u8 *content)
{
    switch (request->kind) {
    case MEMORY: put_memory(request->at, content, request->bytes); return;
    case FORGET: forget_memory(); break;
    case WORDS: put_words(request->at, (u64 *)content, request->bytes / 8); break;
    case TABLE: put(&tables, request->number, 0, content, request->bytes); break;
    case CODES: put(&codes, 0, request->at * sizeof(struct uhr_code), content, request->bytes); break;
    case SPACE: put(&spaces, request->number, 0, content, request->bytes); break;
    case SETTINGS: settings = *(struct uhr_settings *)content; break;
    case CLEAR: clear(); break;
    case RING: bytes_in_ring = request->at; break;
    case SAMPLE: take_sample(request, (struct uhr_sample *)content); break;
    default: stop("a request of no known kind");
    }
    free(content);
}

int main(void)
{
    struct request request;
    while (fread(&request, sizeof request, 1, stdin) == 1) {
        u8 *content = allocated(request.bytes ? request.bytes : 1);
        if (request.bytes && fread(content, request.bytes, 1, stdin) != 1) stop("half a request");
        answer(&request, content);
    }
    return 0;
}
