/* sort and topk along one dimension. A value becomes an unsigned key of the same order, in which -0.0 equals 0.0 and
 * nan is above all; a sort in the other direction inverts keys. So every dtype and both directions are one sort of
 * keys, which keeps the order of equal ones. Values are copied by their index at the end, bit by bit. */
#include "cpu/kernels.h"

#include "base/inline.h"
#include "base/ways.h"

#include <string.h>

typedef struct {
    uint64_t key;
    int64_t index;
} entry;

enum {
    FEW = 32,        /* entries that are sorted by insertion */
    BLOCK = 256,     /* keys that topk looks at together */
    LONG = 2048,     /* entries from which on wider digits pay, */
    SHORT_BITS = 8,  /* bits of a digit below */
    LONG_BITS = 11,  /* and above */
    POLLED = 1 << 14 /* values after which to ask whether to stop */
};

typedef struct {
    const ac_run *r;
    const ac_loops *loops;
    ac_opmath opmath;
    int64_t n, k, stride, out_stride;
    uint64_t flip; /* inverts keys */
    size_t room;   /* entries in each half of a thread's memory */
    ac_space from, to;
} sorting;

/* -- sorting entries ---------------------------------------------------------------------------------- */

/* Puts e where it belongs among n entries in order, behind those of the same key. */
static void insert(entry *sorted, int64_t n, entry e) {
    for (; n > 0 && sorted[n - 1].key > e.key; n--) sorted[n] = sorted[n - 1];
    sorted[n] = e;
}

/* By the digit from bit `shift` on of what a key is above `low`. */
static void sort_by_digit(const entry *from, entry *to, int64_t n, uint64_t low, int shift, int bits) {
    int64_t place[1 << LONG_BITS], sum = 0;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(place, 0, sizeof *place << bits);
    for (int64_t i = 0; i < n; i++) place[(from[i].key - low) >> shift & mask]++;
    for (uint64_t d = 0; d <= mask; d++) {
        int64_t count = place[d];
        place[d] = sum, sum += count;
    }
    for (int64_t i = 0; i < n && !ac_stop_at(i); i++) to[place[(from[i].key - low) >> shift & mask]++] = from[i];
}

/* Radix sort, from the lowest digit in which keys may differ. Returns where the result is: `from` or `to`. */
static entry *sort_entries(entry *from, entry *to, int64_t n) {
    if (n <= FEW) {
        for (int64_t i = 1; i < n; i++) insert(from, i, from[i]);
        return from;
    }
    uint64_t low = from[0].key, high = low;
    for (int64_t i = 1; i < n; i++) {
        low = from[i].key < low ? from[i].key : low;
        high = from[i].key > high ? from[i].key : high;
    }
    int bits = n < LONG ? SHORT_BITS : LONG_BITS;
    for (int shift = 0; shift < 64 && (high - low) >> shift; shift += bits) {
        sort_by_digit(from, to, n, low, shift, bits);
        entry *swap = from;
        from = to, to = swap;
    }
    return from;
}

/* -- the entries of a row ------------------------------------------------------------------------------- */

/* Whether to give up before the at-th value, asked now and then; `at` counts blocks. */
static bool stops_at(int64_t at) { return at > 0 && at % POLLED == 0 && ac_poll(); }

/* The keys of up to `most` values of the row at `base`, from the `at`-th on. Returns how many. */
static int64_t read_keys(const sorting *c, int64_t base, int64_t at, int64_t most, uint64_t *keys) {
    double buffer[AC_TILE];
    const ac_tensor *x = c->r->in[0];
    int64_t n = ac_least(most, c->n - at);
    const char *from = (const char *)ac_data(x) + (base + at * c->stride) * ac_itemsize(x->dtype);
    c->loops->order[c->opmath](n, ac_read_run(c->loops, c->opmath, x->dtype, n, from, c->stride, buffer), c->flip,
                               keys);
    return n;
}

static entry *sorted_row(const sorting *c, int64_t base, entry *room) {
    uint64_t keys[AC_TILE];
    for (int64_t at = 0, n; at < c->n && !stops_at(at); at += n) {
        n = read_keys(c, base, at, AC_TILE, keys);
        for (int64_t i = 0; i < n; i++) room[at + i] = (entry){keys[i], at + i};
    }
    return sort_entries(room, room + c->room, c->n);
}

/* The first k of a row, for few k: an entry below the k-th so far is inserted. */
static entry *first_few(const sorting *c, int64_t base, entry *best) {
    uint64_t keys[BLOCK], limit = UINT64_MAX;
    int64_t kept = 0;
    for (int64_t at = 0, n; at < c->n && !stops_at(at); at += n) {
        n = read_keys(c, base, at, BLOCK, keys);
        for (int64_t i = 0; i < n; i++) {
            if (kept == c->k) i += c->loops->first_below(n - i, keys + i, limit);
            if (i == n) break;
            kept = ac_least(kept + 1, c->k);
            insert(best, kept - 1, (entry){keys[i], at + i});
            limit = best[kept - 1].key;
        }
    }
    return best;
}

/* The first k of a row: entries below a limit are kept, and when memory is full, sorted. The k-th is the next limit. */
static entry *first_many(const sorting *c, int64_t base, entry *room) {
    uint64_t keys[BLOCK], limit = UINT64_MAX;
    entry *here = room, *there = room + c->room;
    int64_t kept = 0;
    bool limited = false;
    for (int64_t at = 0, n; at < c->n && !stops_at(at); at += n) {
        n = read_keys(c, base, at, BLOCK, keys);
        for (int64_t i = 0; i < n; i++) {
            if (limited) i += c->loops->first_below(n - i, keys + i, limit);
            if (i < n) here[kept++] = (entry){keys[i], at + i};
        }
        if (kept + BLOCK <= (int64_t)c->room && at + n < c->n) continue;
        entry *sorted = sort_entries(here, there, kept);
        there = sorted == here ? there : here, here = sorted;
        kept = ac_least(kept, c->k), limited = true;
        limit = here[kept - 1].key;
    }
    return here;
}

/* -- rows ----------------------------------------------------------------------------------------------- */

#define COPY_BY_INDEX(ctype)                                                                                           \
    for (int64_t j = 0; j < c->k; j++)                                                                                 \
        ((ctype *)to)[j * c->out_stride] = ((const ctype *)from)[row[j].index * c->stride];

static void store_row(const sorting *c, int64_t base, int64_t out, const entry *row) {
    const ac_tensor *x = c->r->in[0];
    int64_t item = ac_itemsize(x->dtype), *indices = (int64_t *)ac_data(c->r->out[1]) + out;
    const void *from = (const char *)ac_data(x) + base * item;
    void *to = (char *)ac_data(c->r->out[0]) + out * item;
    for (int64_t j = 0; j < c->k; j++) indices[j * c->out_stride] = row[j].index;
    if (item == 1) COPY_BY_INDEX(uint8_t)
    else if (item == 2) COPY_BY_INDEX(uint16_t)
    else if (item == 4) COPY_BY_INDEX(uint32_t)
    else COPY_BY_INDEX(uint64_t)
}

static bool takes_few(const sorting *c) { return c->k <= FEW && c->n >= 2 * c->k; }
static bool takes_all(const sorting *c) { return c->n <= FEW || c->k >= c->n / 4; }

static void sort_rows(void *context, int64_t begin, int64_t end, char *scratch) {
    const sorting *c = context;
    entry *room = (entry *)(void *)scratch;
    for (int64_t i = begin; i < end; i++) {
        int64_t base = ac_space_offset(&c->from, i), out = ac_space_offset(&c->to, i);
        const entry *row = takes_few(c)   ? first_few(c, base, room)
                           : takes_all(c) ? sorted_row(c, base, room)
                                          : first_many(c, base, room);
        if (c->n > POLLED / 2 && ac_poll()) return; /* entries may not have been made */
        store_row(c, base, out, row);
    }
}

static int run_sort(const ac_run *r, int64_t dim, int64_t k, bool down) {
    const ac_tensor *x = r->in[0];
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    uint32_t kept = x->ndim ? ~(1u << dim) : 0;
    sorting c = {.r = r,
                 .loops = ac_cpu_loops(),
                 .opmath = ac_opmath_of(x->dtype),
                 .n = x->ndim ? x->shape[dim] : 1,
                 .stride = x->ndim ? x->strides[dim] : 1,
                 .out_stride = x->ndim ? r->out[0]->strides[dim] : 1,
                 .flip = down ? UINT64_MAX : 0,
                 .from = ac_space_of(x, kept),
                 .to = ac_space_of(r->out[0], kept)};
    c.k = k < 0 ? c.n : k;
    if (c.n == 0 || c.k == 0) return 0;
    if (takes_few(&c)) AC_WAY(topk_few);
    else if (takes_all(&c)) AC_WAY(sort_whole);
    else AC_WAY(topk_many);
    c.room = (size_t)(takes_few(&c) ? FEW : takes_all(&c) ? c.n : ac_least(2 * c.k + 2 * BLOCK, c.n + BLOCK));
    return ac_for_range_with(x->numel / c.n, AC_GRAIN_SLOW / (c.n + 1), 2 * c.room * sizeof(entry), sort_rows, &c);
}

int ac_cpu_topk(const ac_run *r) {
    ATTRS(topk);
    return run_sort(r, a->dim, a->k, a->largest != 0);
}

int ac_cpu_sort(const ac_run *r) {
    ATTRS(sort);
    return run_sort(r, a->dim, -1, a->descending != 0);
}
