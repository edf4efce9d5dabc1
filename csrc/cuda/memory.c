/* The caching allocator of GPU memory. It asks the driver for large pieces once, cuts them into blocks and keeps
 * them. A block belongs to the stream it was made on. Work there runs in order, so a freed block can be reused at
 * once, while its last kernels still run. Other streams that use it are recorded, and their events waited for. */
#include "cuda/gpu.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUND = 512,            /* sizes of blocks */
    SMALL = 1 << 20,        /* blocks up to here share pieces of */
    SMALL_PIECE = 2 << 20,  /* this size; */
    MEDIUM = 10 << 20,      /* up to here, of */
    MEDIUM_PIECE = 20 << 20 /* this; larger ones have one each, in whole */
};
enum { LARGE_ROUND = 2 << 20 };

/* Blocks of one device, stream, pool and class that may be cut from each other's pieces. */
typedef struct arena {
    struct arena *next;
    ac_device device;
    CUstream stream;
    uint64_t pool;
    bool small;
    int pieces;         /* of the driver's that its blocks are cut from */
    ac_gpu_block *free; /* one of each size, smallest first; those of its size hang on it */
} arena;

typedef struct usage { /* a stream that uses a block besides its own */
    struct usage *next;
    ac_device device;
    CUstream stream;
    CUevent done; /* recorded when the block was freed */
} usage;

struct ac_gpu_block {
    arena *home;
    CUdeviceptr address;
    int64_t bytes, requested;
    bool live;
    ac_gpu_block *before, *after;   /* neighbours in the piece */
    ac_gpu_block *smaller, *larger; /* in the free list; `larger` also links waiting blocks */
    ac_gpu_block *alike, *holder;   /* free, of the same size: the next, and the one that this hangs on */
    usage *users;
};

static struct {
    arena *arenas;
    ac_gpu_block *waiting; /* freed, but other streams may not be done */
    ac_gpu_memory_stats stats[AC_MAX_GPUS];
    int64_t limit[AC_MAX_GPUS]; /* most bytes to hold; 0: no limit */
} memory;

static _Thread_local uint64_t current_pool[AC_MAX_GPUS];

/* Off, each block is a piece of its own, of the bytes asked for: what a sanitizer wants. */
static bool is_caching(void) {
    static int caching = -1; /* asked for under the lock of the memory, before there is a block */
    const char *set = caching < 0 ? getenv("AMPC_CUDA_CACHING") : NULL;
    if (caching < 0) caching = !set || strcmp(set, "0") != 0;
    return caching;
}

static ac_gpu_memory_stats *stats_of(ac_device d) { return &memory.stats[ac_gpu_index(d)]; }

/* -- free lists ------------------------------------------------------------------------------------- */

/* A walk takes as many steps as there are sizes, however many blocks there are. */
static void list_add(ac_gpu_block *b) {
    ac_gpu_block **at = &b->home->free, *before = NULL;
    stats_of(b->home->device)->free++;
    for (; *at && (*at)->bytes < b->bytes; at = &(*at)->larger) before = *at;
    ac_gpu_block *next = *at;
    if (next && next->bytes == b->bytes) {
        b->holder = next, b->alike = next->alike;
        if (b->alike) b->alike->holder = b;
        next->alike = b;
        return;
    }
    b->smaller = before, b->larger = next;
    if (next) next->smaller = b;
    *at = b;
}

static void list_remove(ac_gpu_block *b) {
    ac_gpu_block *heir = b->holder ? NULL : b->alike; /* takes its place */
    if (b->alike) b->alike->holder = b->holder;
    if (b->holder) b->holder->alike = b->alike;
    else {
        if (heir) heir->smaller = b->smaller, heir->larger = b->larger;
        *(b->smaller ? &b->smaller->larger : &b->home->free) = heir ? heir : b->larger;
        if (b->larger) b->larger->smaller = heir ? heir : b->smaller;
    }
    b->smaller = b->larger = b->alike = b->holder = NULL;
    stats_of(b->home->device)->free--;
}

/* The one that was freed last, of blocks of a size. */
static ac_gpu_block *latest(ac_gpu_block *b) { return b && b->alike ? b->alike : b; }

static bool fits(const arena *a, ac_device d, CUstream s, uint64_t pool, bool small) {
    return a->device == d && a->stream == s && a->pool == pool && a->small == small;
}

static arena *arena_for(ac_device d, CUstream s, uint64_t pool, bool small) {
    for (arena *a = memory.arenas; a; a = a->next)
        if (fits(a, d, s, pool, small)) return a;
    arena *a = ac_calloc(sizeof *a);
    if (!a) return NULL;
    *a = (arena){.next = memory.arenas, .device = d, .stream = s, .pool = pool, .small = small};
    return memory.arenas = a;
}

/* The smallest free block that is large enough; without caching, one of the very size. */
static ac_gpu_block *find_free(ac_device d, CUstream s, uint64_t pool, bool small, int64_t bytes) {
    ac_gpu_block *best = NULL;
    for (arena *a = memory.arenas; a; a = a->next) {
        if (!fits(a, d, s, pool, small)) continue;
        ac_gpu_block *b = a->free;
        while (b && b->bytes < bytes) b = b->larger;
        if (b && (is_caching() || b->bytes == bytes) && (!best || b->bytes < best->bytes)) best = b;
    }
    return latest(best);
}

/* -- pieces of the driver's ------------------------------------------------------------------------- */

static bool is_whole_piece(const ac_gpu_block *b) { return !b->live && !b->before && !b->after; }

static void give_back_piece(ac_gpu_block *b) {
    ac_gpu_memory_stats *s = stats_of(b->home->device);
    list_remove(b);
    (void)ac_cu.cuMemFree_v2(b->address);
    s->reserved -= b->bytes, s->segments--, b->home->pieces--;
    ac_free(b, sizeof *b);
}

static void give_back_unused(ac_device d) {
    for (arena *a = memory.arenas; a; a = a->next)
        for (ac_gpu_block *size = a->free, *larger; size; size = larger) {
            larger = size->larger;
            for (ac_gpu_block *b = size, *next; b; b = next) {
                next = b->alike;
                if (a->device == d && is_whole_piece(b) && !a->pool) give_back_piece(b); /* a graph uses a pool's */
            }
        }
}

/* Each graph had arenas of its own, which no later one uses. */
static void forget_empty_arenas(void) {
    for (arena **at = &memory.arenas; *at;) {
        arena *a = *at;
        if (a->pieces) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        ac_free(a, sizeof *a);
    }
}

static int64_t piece_bytes(int64_t bytes) {
    if (!is_caching()) return bytes;
    if (bytes <= SMALL) return SMALL_PIECE;
    if (bytes < MEDIUM) return MEDIUM_PIECE;
    return (bytes + LARGE_ROUND - 1) / LARGE_ROUND * LARGE_ROUND;
}

static CUresult ask_driver(ac_device d, int64_t bytes, CUdeviceptr *address) {
    ac_gpu_memory_stats *s = stats_of(d);
    int64_t limit = memory.limit[ac_gpu_index(d)];
    if (limit && s->reserved + bytes > limit) return AC_CU_OUT_OF_MEMORY;
    s->driver_calls++;
    CUstreamCaptureMode before = ac_gpu_relax();
    CUresult result = ac_cu.cuMemAlloc_v2(address, (size_t)bytes);
    ac_gpu_relax_end(before);
    return result;
}

static void mib(char *text, size_t size, int64_t bytes) {
    if (bytes < 1 << 20) (void)snprintf(text, size, "%.1f KiB", (double)bytes / 1024);
    else if (bytes < 1 << 30) (void)snprintf(text, size, "%.1f MiB", (double)bytes / (1 << 20));
    else (void)snprintf(text, size, "%.2f GiB", (double)bytes / (1 << 30));
}

static int out_of_memory(ac_device d, int64_t requested) {
    ac_gpu_memory_stats *s = stats_of(d);
    size_t left = 0, total = 0;
    char asked[24], used[24], cached[24], empty[24], all[24], limit[64] = "";
    s->failures++;
    (void)ac_cu.cuMemGetInfo_v2(&left, &total);
    mib(asked, sizeof asked, requested), mib(used, sizeof used, s->allocated);
    mib(cached, sizeof cached, s->reserved - s->allocated), mib(empty, sizeof empty, (int64_t)left);
    mib(all, sizeof all, (int64_t)total);
    if (memory.limit[ac_gpu_index(d)]) {
        char most[24];
        mib(most, sizeof most, memory.limit[ac_gpu_index(d)]);
        (void)snprintf(limit, sizeof limit, "; this process is held to %s", most);
    }
    return ac_fail(AC_GPU_MEMORY,
                   "CUDA out of memory on %s: asked for %s; %s in use and %s cached by this process, %s free of %s%s; "
                   "a smaller batch, autocast or utils.checkpoint needs less, and nvidia-smi shows who else uses it",
                   ac_device_name(d), asked, used, cached, empty, all, limit);
}

/* A free block of that size, the driver's; NULL inside where it has no more. */
static int new_piece(arena *home, int64_t bytes, ac_gpu_block **piece) {
    CUdeviceptr address = 0;
    ac_gpu_block *b = ac_calloc(sizeof *b);
    *piece = NULL;
    if (!b) return -1;
    CUresult result = ask_driver(home->device, bytes, &address);
    if (result != AC_CU_SUCCESS) {
        ac_free(b, sizeof *b);
        return result == AC_CU_OUT_OF_MEMORY ? 0 : ac_cu_check(result, "memory of the GPU");
    }
    *b = (ac_gpu_block){.home = home, .address = address, .bytes = bytes};
    ac_gpu_memory_stats *s = stats_of(home->device);
    s->reserved += bytes, s->segments++, home->pieces++;
    if (s->reserved > s->reserved_peak) s->reserved_peak = s->reserved;
    list_add(b);
    *piece = b;
    return 0;
}

/* -- blocks ----------------------------------------------------------------------------------------- */

/* Cuts what b has too much off into a free block of its own. */
static int cut(ac_gpu_block *b, int64_t bytes) {
    int64_t rest = b->bytes - bytes;
    if (rest < ROUND || (!b->home->small && rest <= SMALL)) return 0;
    ac_gpu_block *r = ac_calloc(sizeof *r);
    if (!r) return -1;
    *r = (ac_gpu_block){
        .home = b->home, .address = b->address + (CUdeviceptr)bytes, .bytes = rest, .before = b, .after = b->after};
    if (b->after) b->after->before = r;
    b->after = r, b->bytes = bytes;
    list_add(r);
    return 0;
}

/* Makes b and the free block after it one. */
static void join(ac_gpu_block *b, ac_gpu_block *after) {
    b->bytes += after->bytes, b->after = after->after;
    if (after->after) after->after->before = b;
    ac_free(after, sizeof *after);
}

static void release(ac_gpu_block *b) {
    ac_gpu_block *after = b->after, *before = b->before;
    b->live = false;
    if (after && !after->live) list_remove(after), join(b, after);
    if (before && !before->live) list_remove(before), join(before, b), b = before;
    list_add(b);
    if (is_caching() || b->home->pool || ac_gpu_any_capture()) return; /* a graph uses a pool's */
    if (is_whole_piece(b)) give_back_piece(b);
}

/* Events behind the work that other streams have queued so far; false when one could not be made. */
static bool mark_users(ac_gpu_block *b) {
    int failed = 0;
    for (usage *u = b->users; u && !failed; u = u->next) {
        if (u->done) continue;
        failed = ac_gpu_event_new(u->device, false, false, &u->done);
        if (!failed) failed = ac_gpu_event_record(u->device, u->done, u->stream);
    }
    if (failed) ac_error_clear();
    return !failed;
}

/* Frees blocks whose other users are done. Captures do not stand the question, and those freed meanwhile have no event
 * yet. */
static void free_waiting(void) {
    ac_gpu_block **at = &memory.waiting;
    if (ac_gpu_any_capture()) return;
    while (*at) {
        ac_gpu_block *b = *at;
        if (!mark_users(b)) {
            at = &b->larger;
            continue;
        }
        while (b->users && ac_cu.cuEventQuery(b->users->done) == AC_CU_SUCCESS) {
            usage *u = b->users;
            b->users = u->next;
            (void)ac_cu.cuEventDestroy_v2(u->done);
            ac_free(u, sizeof *u);
        }
        if (b->users) {
            at = &b->larger;
            continue;
        }
        *at = b->larger;
        b->larger = NULL;
        release(b);
    }
}

/* For the device's work, and for that of other GPUs that waiting blocks wait for. */
static CUresult wait_for_all(ac_device d) {
    CUresult result = ac_cu.cuCtxSynchronize();
    for (ac_gpu_block *b = memory.waiting; b; b = b->larger)
        for (usage *u = b->users; u && b->home->device == d && result == AC_CU_SUCCESS; u = u->next)
            if (u->done) result = ac_cu.cuEventSynchronize(u->done);
    return result;
}

/* A free block of at least so many bytes: one that is there, or a new piece. Where the driver has no more, all work is
 * waited for. That frees waiting blocks: one of them may do, or else unused pieces are given back. */
static ac_gpu_block *find_or_make(arena *home, int64_t bytes, int64_t requested) {
    ac_device d = home->device;
    free_waiting();
    ac_gpu_block *b = find_free(d, home->stream, home->pool, home->small, bytes);
    if (b) return b;
    if (new_piece(home, piece_bytes(bytes), &b) < 0 || b) return b;
    stats_of(d)->retries++;
    if (!ac_gpu_any_capture() && wait_for_all(d) == AC_CU_SUCCESS) {
        free_waiting();
        b = find_free(d, home->stream, home->pool, home->small, bytes);
        if (b) return b;
        give_back_unused(d);
        if (new_piece(home, piece_bytes(bytes), &b) < 0 || b) return b;
    }
    (void)out_of_memory(d, requested);
    return NULL;
}

static ac_gpu_block *take_block(ac_device d, int64_t requested) {
    int64_t round = is_caching() ? ROUND : 1, bytes = requested > 0 ? (requested + round - 1) / round * round : round;
    arena *home = arena_for(d, ac_gpu_stream(d), current_pool[ac_gpu_index(d)], bytes <= SMALL);
    ac_gpu_block *b = home ? find_or_make(home, bytes, requested) : NULL;
    if (!b) return NULL;
    list_remove(b);
    if (cut(b, bytes) < 0) {
        list_add(b);
        return NULL;
    }
    b->live = true, b->requested = requested;
    ac_gpu_memory_stats *s = stats_of(d);
    s->allocated += b->bytes, s->requested += requested, s->blocks++, s->allocations++;
    if (s->allocated > s->allocated_peak) s->allocated_peak = s->allocated;
    return b;
}

ac_gpu_block *ac_gpu_alloc(ac_device d, int64_t bytes) {
    ac_gpu_scope scope;
    ac_gpu_end_given_up(); /* frees memory: not under the lock */
    if (ac_gpu_enter(d, &scope) < 0) return NULL;
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    ac_gpu_block *b = take_block(d, bytes);
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    ac_gpu_leave(&scope);
    return b;
}

ac_gpu_block *ac_gpu_alloc_lasting(ac_device d, int64_t bytes) {
    uint64_t pool = current_pool[ac_gpu_index(d)];
    current_pool[ac_gpu_index(d)] = 0;
    ac_gpu_block *b = ac_gpu_alloc(d, bytes);
    current_pool[ac_gpu_index(d)] = pool;
    return b;
}

bool ac_gpu_is_of_pool(const ac_gpu_block *b, uint64_t pool) { return b->home->pool == pool; }

void *ac_gpu_address(const ac_gpu_block *b) { return (void *)(uintptr_t)b->address; }

void ac_gpu_free(ac_gpu_block *b) {
    ac_gpu_scope scope;
    if (!b || !ac_gpu_usable()) return;    /* a forked child owns nothing */
    bool asks = b->users || !is_caching(); /* the driver, about other streams or to give memory back */
    if (asks && ac_gpu_enter(b->home->device, &scope) < 0) return;
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    ac_gpu_memory_stats *s = stats_of(b->home->device);
    s->allocated -= b->bytes, s->requested -= b->requested, s->blocks--;
    if (!b->users) release(b);
    else if (ac_gpu_any_capture() || mark_users(b)) b->larger = memory.waiting, memory.waiting = b;
    /* else: it cannot be known when it is unused, so it is never used again */
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    if (asks) ac_gpu_leave(&scope);
}

int ac_gpu_record_stream(ac_gpu_block *b, ac_device d, CUstream stream) {
    if (d == b->home->device && stream == b->home->stream) return 0;
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    usage *u = b->users;
    while (u && (u->device != d || u->stream != stream)) u = u->next;
    bool known = u != NULL;
    if (!known) u = ac_calloc(sizeof *u);
    if (u && !known) *u = (usage){.next = b->users, .device = d, .stream = stream}, b->users = u;
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    return u ? 0 : -1;
}

/* -- what people ask -------------------------------------------------------------------------------- */

int ac_gpu_memory_now(ac_device d, ac_gpu_memory_stats *stats) {
    AC_TRY(ac_gpu_check_device(d));
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    *stats = *stats_of(d);
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    return 0;
}

int ac_gpu_memory_reset_peak(ac_device d) {
    AC_TRY(ac_gpu_check_device(d));
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    ac_gpu_memory_stats *s = stats_of(d);
    s->allocated_peak = s->allocated, s->reserved_peak = s->reserved;
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    return 0;
}

int ac_gpu_memory_info(ac_device d, int64_t *left, int64_t *total) {
    ac_gpu_scope scope;
    size_t l = 0, t = 0;
    AC_TRY(ac_gpu_enter(d, &scope));
    CUresult result = ac_cu.cuMemGetInfo_v2(&l, &t);
    ac_gpu_leave(&scope);
    *left = (int64_t)l, *total = (int64_t)t;
    return ac_cu_check(result, "the GPU's memory");
}

int ac_gpu_empty_cache(ac_device d) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_refuse_capture("emptying the cache of memory"));
    AC_TRY(ac_gpu_enter(d, &scope));
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    CUresult result = wait_for_all(d);
    free_waiting();
    give_back_unused(d);
    forget_empty_arenas();
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    ac_gpu_leave(&scope);
    ac_gpu_pinned_trim();
    return ac_cu_check(result, "waiting for the GPU");
}

bool ac_gpu_make_room(ac_device d) { return !ac_gpu_any_capture() && ac_gpu_empty_cache(d) == 0; }

int ac_gpu_memory_limit(ac_device d, double fraction) {
    int64_t left, total;
    AC_TRY(ac_gpu_memory_info(d, &left, &total));
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    memory.limit[ac_gpu_index(d)] = fraction >= 1 ? 0 : (int64_t)(fraction * (double)total) + 1;
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    return 0;
}

int ac_gpu_pool_begin(ac_device d, uint64_t pool) {
    AC_TRY(ac_gpu_check_device(d));
    if (current_pool[ac_gpu_index(d)])
        return ac_fail(AC_RUNTIME, "a memory pool is already in use on %s; leave it first", ac_device_name(d));
    current_pool[ac_gpu_index(d)] = pool;
    return 0;
}
void ac_gpu_pool_end(ac_device d) { current_pool[ac_gpu_index(d)] = 0; }

int ac_gpu_pool_retire(ac_device d, uint64_t pool) {
    AC_TRY(ac_gpu_check_device(d));
    (void)pthread_mutex_lock(&ac_gpu_locks.memory);
    for (arena *a = memory.arenas; a; a = a->next)
        if (a->device == d && a->pool == pool) a->pool = 0;
    (void)pthread_mutex_unlock(&ac_gpu_locks.memory);
    return 0;
}

int ac_gpu_owner(uint64_t address, ac_device *d) {
    ac_gpu_scope scope;
    int index = 0;
    AC_TRY(ac_gpu_enter(AC_CUDA(0), &scope));
    CUresult result = ac_cu.cuPointerGetAttribute(&index, AC_CU_DEVICE_ORDINAL, (CUdeviceptr)address);
    ac_gpu_leave(&scope);
    *d = AC_CUDA(index);
    return ac_cu_check(result, "the GPU of a pointer");
}
