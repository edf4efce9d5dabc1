/* The collectives of ranks that share memory. A piece goes through three steps: `put`, `combine` and `take`. Those of
 * neighbouring pieces overlap, so that ranks wait for each other little. */
#include "cpu/ranks/ranks.h"

#include <string.h>

/* Up to so many bytes from the other ranks each combines all of a piece itself: they meet once, not twice. It was as
 * fast with 2, 3 and 4 ranks of two cores at 512 KiB, and faster below. */
enum { SMALL_BYTES = 1 << 19, LINE_BYTES = 64, BLOCK_BYTES = 8192 };

/* A piece of a collective. */
typedef struct {
    uint64_t number;
    int64_t at, n; /* its elements: of each part for reduce_scatter */
    bool whole;    /* of all_reduce: each rank combines all of it */
} piece;

static int64_t elements_of_a_piece(const ac_ranks *g, const ac_rank_call *c) {
    int64_t bytes = c->kind == AC_REDUCE_SCATTER ? g->bytes / g->size / LINE_BYTES * LINE_BYTES : g->bytes;
    return bytes / ac_itemsize(c->dtype);
}

static piece piece_of(const ac_ranks *g, const ac_rank_call *c, int64_t most, int64_t k) {
    int64_t left = c->n - k * most;
    piece p = {.number = g->piece + (uint64_t)k, .at = k * most, .n = left < most ? left : most};
    p.whole = p.n * ac_itemsize(c->dtype) * (g->size - 1) <= SMALL_BYTES;
    return p;
}

static char *buffer_of(const ac_ranks *g, int rank, const piece *p) {
    return g->buffers + (2 * rank + (int)(p->number % 2)) * g->bytes;
}

/* Where the share of a rank begins, in elements. */
static int64_t share(const ac_ranks *g, const ac_rank_call *c, const piece *p, int rank) {
    int64_t line = LINE_BYTES / ac_itemsize(c->dtype);
    return rank == g->size ? p->n : p->n * rank / g->size / line * line;
}

/* Elements of a call that are contiguous in memory: from element i on, at most `most`, up to the end of its part. */
typedef struct {
    char *data;
    int64_t n;
} run;

static run run_of(const ac_rank_call *c, char *row, int64_t i, int64_t most) {
    int64_t k = 0;
    if (!c->parts) return (run){row + i * ac_itemsize(c->dtype), most};
    for (; i >= c->parts[k].n; k++) i -= c->parts[k].n;
    int64_t left = c->parts[k].n - i;
    return (run){c->parts[k].data + i * ac_itemsize(c->dtype), left < most ? left : most};
}

static run given(const ac_rank_call *c, int64_t i, int64_t most) { return run_of(c, (char *)c->from, i, most); }

static run wanted(const ac_rank_call *c, int64_t i, int64_t most) { return run_of(c, c->to, i, most); }

/* Whether this rank takes the result of all_reduce. */
static bool takes(const ac_rank_call *c) { return c->to || c->parts; }

/* Waits until all ranks have put, combined or read so many pieces; `first` is rank 0's counter. */
static int wait_for_all(ac_ranks *g, const _Atomic uint64_t *first, uint64_t count) {
    const char *counter = (const char *)first;
    for (int r = 0; r < g->size; r++)
        if (r != g->rank && ac_ranks_wait(g, r, (const void *)(counter + (size_t)r * sizeof *g->lines), count) < 0)
            return -1;
    return 0;
}

static void is_done(ac_ranks *g, const piece *p) { ac_ranks_set(g, &g->lines[g->rank].done, p->number + 1); }

/* -- into this rank's buffer ------------------------------------------------------------------ */

/* Copies elements `begin` to `end` of a piece of all_reduce into this rank's buffer. */
static void put_run(const ac_rank_call *c, const piece *p, int64_t begin, int64_t end, char *buffer) {
    int64_t size = ac_itemsize(c->dtype);
    for (run r; begin < end; begin += r.n) {
        r = given(c, p->at + begin, end - begin);
        memcpy(buffer + begin * size, r.data, (size_t)(r.n * size));
    }
}

static void put_values(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    int64_t size = ac_itemsize(c->dtype);
    char *to = buffer_of(g, g->rank, p);
    if (c->kind == AC_REDUCE_SCATTER) {
        for (int r = 0; r < g->size; r++)
            if (r != g->rank) memcpy(to + r * p->n * size, c->from + (r * c->n + p->at) * size, (size_t)(p->n * size));
    } else if (c->kind == AC_ALL_REDUCE) {
        put_run(c, p, 0, p->whole ? p->n : share(g, c, p, g->rank), to);
        if (!p->whole) put_run(c, p, share(g, c, p, g->rank + 1), p->n, to);
    } else if (c->kind != AC_BROADCAST || c->root == g->rank) {
        memcpy(to, c->from + p->at * size, (size_t)(p->n * size));
    }
}

/* Waits until nobody reads the piece before the last any more, whose buffer is written. Where both are pieces of one
 * all_reduce with the same shares, what others may still read is this rank's own share, which is not written yet. */
static int put(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    bool first = p->at == 0,
         same_shares = c->kind == AC_ALL_REDUCE && !p->whole && p->at >= 2 * p->n && p->n == elements_of_a_piece(g, c);
    uint64_t before = p->number < 1 ? 0 : p->number - 1;
    if (wait_for_all(g, same_shares ? &g->lines->combined : &g->lines->done, before) < 0) return -1;
    ac_rank_line *own = &g->lines[g->rank];
    if (first) own->said[p->number % 2] = c->said;
    if (p->n > 0) put_values(g, c, p);
    ac_ranks_set(g, &own->put, p->number + 1);
    return 0;
}

/* 1 where the ranks do not agree: then all of them leave after this piece. */
static int compare(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    if (c->unchecked) return 0;
    if (wait_for_all(g, &g->lines->put, p->number + 1) < 0) return -1;
    for (int r = 0; r < g->size; r++)
        if (g->lines[r].said[p->number % 2] != c->said) {
            is_done(g, p);
            return 1;
        }
    return 0;
}

/* -- combining, and reading from others' buffers ----------------------------------------------- */

/* This rank's share: `offset` bytes into each other's buffer and into its own values. */
static void combine_from(ac_ranks *g, const ac_rank_call *c, const piece *p, int64_t offset, const char *own, int64_t n,
                         char *to) {
    const void *from[AC_MOST_RANKS];
    for (int r = 0; r < g->size; r++) from[r] = r == g->rank ? own : buffer_of(g, r, p) + offset;
    ac_cpu_combine(c->how, c->dtype, n, g->size, from, c->divisor, c->dtype, to);
}

/* The result goes into the buffer and to the caller in blocks, so that it is copied while it lies in the L1 cache. */
static void combine_share(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    int64_t size = ac_itemsize(c->dtype), most = BLOCK_BYTES / size;
    int64_t end = share(g, c, p, g->rank + 1), n;
    for (int64_t i = share(g, c, p, g->rank); i < end; i += n) {
        run own = given(c, p->at + i, end - i < most ? end - i : most);
        n = own.n;
        char *result = buffer_of(g, g->rank, p) + i * size;
        combine_from(g, c, p, i * size, own.data, n, result);
        if (takes(c)) memcpy(wanted(c, p->at + i, n).data, result, (size_t)(n * size));
    }
    ac_ranks_set(g, &g->lines[g->rank].combined, p->number + 1);
}

static void combine_whole(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    run own;
    for (int64_t i = 0; i < p->n && takes(c); i += own.n) {
        own = given(c, p->at + i, p->n - i);
        combine_from(g, c, p, i * ac_itemsize(c->dtype), own.data, own.n, wanted(c, p->at + i, own.n).data);
    }
}

static void combine_or_read(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    int64_t size = ac_itemsize(c->dtype), bytes = p->n * size, at = p->at * size;
    switch (c->kind) {
    case AC_ALL_REDUCE: combine_whole(g, c, p); break;
    case AC_REDUCE_SCATTER:
        combine_from(g, c, p, g->rank * bytes, c->from + (g->rank * c->n + p->at) * size, p->n, c->to + at);
        break;
    case AC_ALL_GATHER:
        for (int r = 0; r < g->size; r++)
            memcpy(c->to + r * c->n * size + at, r == g->rank ? c->from + at : buffer_of(g, r, p), (size_t)bytes);
        break;
    case AC_BROADCAST:
        if (c->root != g->rank) memcpy(c->to + at, buffer_of(g, c->root, p), (size_t)bytes);
        break;
    default: break;
    }
}

static int combine(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    bool one = c->kind == AC_BROADCAST;
    int waited = one ? ac_ranks_wait(g, c->root, &g->lines[c->root].put, p->number + 1)
                     : wait_for_all(g, &g->lines->put, p->number + 1);
    if (waited < 0) return -1;
    if (c->kind == AC_ALL_REDUCE && !p->whole) {
        combine_share(g, c, p);
        return 0;
    }
    if (p->n > 0) combine_or_read(g, c, p);
    is_done(g, p);
    return 0;
}

static int take(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    if (c->kind != AC_ALL_REDUCE || p->whole) return 0;
    if (wait_for_all(g, &g->lines->combined, p->number + 1) < 0) return -1;
    int64_t size = ac_itemsize(c->dtype);
    for (int r = 0; r < g->size && takes(c); r++) {
        int64_t end = r == g->rank ? 0 : share(g, c, p, r + 1);
        run to;
        for (int64_t i = share(g, c, p, r); i < end; i += to.n) {
            to = wanted(c, p->at + i, end - i);
            memcpy(to.data, buffer_of(g, r, p) + i * size, (size_t)(to.n * size));
        }
    }
    is_done(g, p);
    return 0;
}

/* What is left of a collective where the ranks do not agree: 1 piece has passed. */
static int left_early(ac_ranks *g, int differ) {
    g->piece += differ > 0;
    return differ;
}

static int run_one(ac_ranks *g, const ac_rank_call *c, const piece *p) {
    if (put(g, c, p) < 0) return -1;
    int differ = compare(g, c, p);
    if (differ != 0) return left_early(g, differ);
    if (combine(g, c, p) < 0 || take(g, c, p) < 0) return -1;
    g->piece++;
    return 0;
}

int ac_ranks_run(ac_ranks *g, const ac_rank_call *c) {
    int64_t most = elements_of_a_piece(g, c);
    piece now = piece_of(g, c, most, 0), last = now, before = now;
    if (c->n <= most) return run_one(g, c, &now);
    int64_t pieces = (c->n + most - 1) / most;
    for (int64_t k = 0; k < pieces + 2; k++, before = last, last = now) {
        if (k < pieces) now = piece_of(g, c, most, k);
        if (k >= 2 && take(g, c, &before) < 0) return -1;
        int differ = k == 1 ? compare(g, c, &last) : 0;
        if (differ != 0) return left_early(g, differ);
        if (k < pieces && put(g, c, &now) < 0) return -1;
        if (k >= 1 && k <= pieces && combine(g, c, &last) < 0) return -1;
    }
    g->piece += (uint64_t)pieces;
    return 0;
}
