/* Sorting: of pairs by radix, of short rows in shared memory; and sums of what comes before. All of it is stable. */
#include "cuda/device.cuh"

/* -- radix sort of pairs in rows, 8 bits a pass (Satish, Harris and Garland 2009) --------------------- */

/* A block takes TILE neighbours of a row: each warp a stretch of its own, EACH times the lanes side by side. */
enum { DIGITS = AC_GPU_DIGITS, TILE = AC_GPU_SORT_TILE, EACH = TILE / AC_GPU_THREADS, LANES = 32 };
enum { WARPS = AC_GPU_THREADS / LANES, RUN = 4 };

/* Where a job's tile lies, and how much of it there is. */
struct Tile {
    int64_t row, tile, first;
    int size;
    DEV_METHOD Tile(const ac_gpu_radix &a, int64_t job) {
        row = quotient(job, a.tiles), tile = job - row * a.tiles, first = row * a.n + tile * TILE;
        size = a.n - tile * TILE < TILE ? (int)(a.n - tile * TILE) : TILE;
    }
};
DEV int digit_of(const ac_gpu_radix &a, uint64_t key) { return (int)(key >> a.shift) & (DIGITS - 1); }

/* How often a tile has each digit; thread d counts digit d. */
AC_KERNEL(ac_radix_count, ac_gpu_radix) {
    int *count = (int *)ac_shared_memory;
    for (int64_t job = blockIdx.x; job < a.rows * a.tiles; job += gridDim.x) {
        Tile t(a, job);
        __syncthreads();
        count[threadIdx.x] = 0;
        __syncthreads();
        EACH_OF(EACH) {
            int i = threadIdx.x + j * AC_GPU_THREADS;
            if (i < t.size) atomicAdd(&count[digit_of(a, a.keys[t.first + i])], 1);
        }
        __syncthreads();
        a.counts[(t.row * DIGITS + threadIdx.x) * a.tiles + t.tile] = count[threadIdx.x];
    }
}

/* In place of a digit's counts how many it has in the tiles before; and in the row. A warp takes a digit of a row. */
AC_KERNEL(ac_radix_scan, ac_gpu_radix) {
    int lane = threadIdx.x % LANES;
    for (int64_t line = thread_index() / LANES; line < a.rows * DIGITS; line += thread_count() / LANES) {
        int64_t *counts = a.counts + line * a.tiles, so_far = 0;
        for (int64_t at = 0; at < a.tiles; at += LANES * RUN) {
            int64_t own[RUN], all = 0, first = at + lane * RUN;
            EACH_OF(RUN) own[j] = first + j < a.tiles ? counts[first + j] : 0;
            EACH_OF(RUN) all += own[j];
            int64_t before = so_far + warp_scan(&all);
            EACH_OF(RUN) {
                if (first + j < a.tiles) counts[first + j] = before;
                before += own[j];
            }
            so_far += all;
        }
        if (lane == 0) a.totals[line] = so_far;
    }
}

/* The lanes whose digit is this one's, of those that have one. */
DEV uint32_t lanes_alike(int digit, bool there) {
    uint32_t alike = __ballot_sync(0xFFFFFFFFu, there);
#pragma unroll
    for (int bit = 1; bit < DIGITS; bit *= 2) {
        uint32_t set = __ballot_sync(0xFFFFFFFFu, (digit & bit) != 0);
        alike &= digit & bit ? set : ~set;
    }
    return alike;
}

/* Each pair's place among those of its digit and warp, in order; `count`, of this warp, are how many there are. */
DEV void rank_pairs(const ac_gpu_radix &a, const uint64_t *keys, int size, int *count, int *rank) {
    int lane = threadIdx.x % LANES, first = threadIdx.x / LANES * LANES * EACH + lane;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        int digit = digit_of(a, keys[e]);
        bool there = first + e * LANES < size;
        uint32_t alike = lanes_alike(digit, there);
        int before = __popc(alike & ((1u << lane) - 1)), so_far = there ? count[digit] : 0;
        __syncwarp();
        if (there && before == 0) count[digit] = so_far + __popc(alike);
        __syncwarp();
        rank[e] = so_far + before;
    }
}

/* What comes before each digit: in the tile, and for each warp, in `count`; and where in the row a digit's pairs go,
 * less their places in the tile, in `to`. Thread d does digit d. */
DEV void place_digits(const ac_gpu_radix &a, const Tile &t, int *count, int64_t *to, int64_t *room) {
    int own = 0, digit = threadIdx.x;
    for (int w = 0; w < WARPS; w++) {
        int here = count[w * DIGITS + digit];
        count[w * DIGITS + digit] = own;
        own += here;
    }
    int64_t line = t.row * DIGITS + digit, total = a.totals[line];
    int all = own, start = block_scan(&all, (int *)room);
    to[digit] = block_scan(&total, room) + a.counts[line * a.tiles + t.tile] - start;
    for (int w = 0; w < WARPS; w++) count[w * DIGITS + digit] += start;
}

/* Pairs are put in order in shared memory, so that those of a digit are written side by side. */
AC_KERNEL_OF_FOUR(ac_radix_move, ac_gpu_radix) {
    uint64_t *keys = (uint64_t *)ac_shared_memory;                     /* [TILE] */
    int64_t *payload = (int64_t *)(keys + TILE), *to = payload + TILE; /* [TILE], [DIGITS] */
    int64_t *room = to + DIGITS;                                       /* [WARPS] */
    int *count = (int *)(room + WARPS), warp = threadIdx.x / LANES;    /* [WARPS][DIGITS] */
    int first = warp * LANES * EACH + threadIdx.x % LANES, *own = count + warp * DIGITS;
    for (int64_t job = blockIdx.x; job < a.rows * a.tiles; job += gridDim.x) {
        Tile t(a, job);
        uint64_t key[EACH];
        int rank[EACH];
        EACH_OF(EACH) key[j] = first + j * LANES < t.size ? a.keys[t.first + first + j * LANES] : 0;
        __syncthreads(); /* the tile before is written */
        EACH_OF(WARPS) count[j * DIGITS + threadIdx.x] = 0;
        __syncthreads();
        rank_pairs(a, key, t.size, own, rank);
        __syncthreads();
        place_digits(a, t, count, to, room);
        __syncthreads();
        EACH_OF(EACH) {
            int i = first + j * LANES, place = own[digit_of(a, key[j])] + rank[j];
            if (i >= t.size) continue;
            keys[place] = key[j], payload[place] = a.payload ? a.payload[t.first + i] : t.tile * TILE + i;
        }
        __syncthreads();
        EACH_OF(EACH) {
            int i = threadIdx.x + j * AC_GPU_THREADS;
            if (i >= t.size) continue;
            int64_t at = t.row * a.n + to[digit_of(a, keys[i])] + i;
            a.keys_out[at] = keys[i], a.payload_out[at] = payload[i];
        }
    }
}

/* Exclusive sums in place, by one block. */
AC_KERNEL(ac_scan, ac_gpu_scan) {
    enum { OWN = 8 };
    int64_t so_far = 0;
    for (int64_t at = 0; at < a.n; at += AC_GPU_THREADS * OWN) {
        int64_t own[OWN], all = 0, first = at + threadIdx.x * OWN;
        EACH_OF(OWN) own[j] = first + j < a.n ? a.values[first + j] : 0;
        EACH_OF(OWN) all += own[j];
        int64_t before = so_far + block_scan(&all, (int64_t *)ac_shared_memory);
        EACH_OF(OWN) {
            if (first + j < a.n) a.values[first + j] = before;
            before += own[j];
        }
        so_far += all;
    }
    if (a.total && threadIdx.x == 0) *a.total = so_far;
}

/* -- sorting in shared memory (Batcher 1968) -------------------------------------------------------- */

/* Rows of `width` keys, a power of 2, by key and then by place. */
DEV void sort_shared(uint64_t *keys, int32_t *places, int width, int items) {
    for (int size = 2; size <= width; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < items / 2; i += AC_GPU_THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                bool rising = size == width || !(low & size);
                uint64_t one = keys[low], other = keys[high];
                bool after = one > other || (one == other && places[low] > places[high]);
                if (after != rising) continue;
                int32_t place = places[low];
                keys[low] = other, keys[high] = one, places[low] = places[high], places[high] = place;
            }
        }
    __syncthreads();
}

/* All pairs, by one block; their payload is where they were. */
AC_KERNEL(ac_sort_pairs, ac_gpu_radix) {
    uint64_t *keys = (uint64_t *)ac_shared_memory;
    int32_t *places = (int32_t *)(keys + a.width);
    for (int i = threadIdx.x; i < a.width; i += AC_GPU_THREADS)
        keys[i] = i < a.n ? a.keys[i] : UINT64_MAX, places[i] = i;
    sort_shared(keys, places, a.width, a.width);
    for (int i = threadIdx.x; i < a.n; i += AC_GPU_THREADS) a.keys_out[i] = keys[i], a.payload_out[i] = places[i];
}

/* -- sort and topk ---------------------------------------------------------------------------------- */

DEV uint64_t ordered(double x) { /* nan last, zeros equal */
    uint64_t u;
    if (x != x) return UINT64_MAX;
    if (x == 0) x = 0;
    memcpy(&u, &x, sizeof u);
    return u >> 63 ? ~u : u | (uint64_t)1 << 63;
}
DEV uint64_t ordered(float x) {
    if (x != x) return UINT32_MAX;
    uint32_t u = ac_bits(x == 0 ? 0.0f : x);
    return u >> 31 ? ~u : u | 0x80000000u;
}
DEV uint64_t ordered(int64_t x) { return (uint64_t)x ^ (uint64_t)1 << 63; }

template <class R> DEV uint64_t sort_key(const ac_gpu_sort &a, int64_t row, int64_t j) {
    uint64_t key = ordered(load<R>(a.x, space_offset(a.from, row) + j * a.stride));
    uint64_t all = sizeof(R) == 4 ? (uint64_t)UINT32_MAX : UINT64_MAX;
    return a.descending ? all - key : key;
}
/* The j-th of a row comes from place `at`. */
template <class R> DEV void put_sorted(const ac_gpu_sort &a, int64_t row, int64_t j, int64_t at) {
    int64_t to = space_offset(a.to, row) + j * a.values_stride;
    store<R>(a.values, to, load<R>(a.x, space_offset(a.from, row) + at * a.stride));
    a.indices[to] = at;
}

template <class R> DEV void sort_keys(const ac_gpu_sort &a) {
    EACH_OF_N(i, a.rows * a.n) {
        int64_t row = quotient(i, a.n);
        a.keys[i] = sort_key<R>(a, row, i - row * a.n);
    }
}

template <class R> DEV void sort_values(const ac_gpu_sort &a) {
    EACH_OF_N(i, a.rows * a.k) {
        int64_t row = quotient(i, a.k), j = i - row * a.k;
        put_sorted<R>(a, row, j, a.order[row * a.n + j]);
    }
}

/* Rows that shared memory holds. A place beyond a row's end sorts behind all others. */
template <class R> DEV void sort_short(const ac_gpu_sort &a) {
    uint64_t *keys = (uint64_t *)ac_shared_memory;
    int32_t *places = (int32_t *)(keys + a.items);
    int rows = a.items / a.width;
    for (int64_t first = (int64_t)blockIdx.x * rows; first < a.rows; first += (int64_t)gridDim.x * rows) {
        __syncthreads();
        for (int i = threadIdx.x; i < a.items; i += AC_GPU_THREADS) {
            int r = i / a.width, j = i - r * a.width;
            keys[i] = first + r < a.rows && j < a.n ? sort_key<R>(a, first + r, j) : UINT64_MAX, places[i] = j;
        }
        sort_shared(keys, places, a.width, a.items);
        for (int i = threadIdx.x; i < a.items; i += AC_GPU_THREADS) {
            int r = i / a.width, j = i - r * a.width;
            if (first + r < a.rows && j < a.k) put_sorted<R>(a, first + r, j, places[i]);
        }
    }
}

#define SORTS(R, opmath)                                                                                               \
    AC_KERNEL(ac_sort_keys_##opmath, ac_gpu_sort) { sort_keys<R>(a); }                                                 \
    AC_KERNEL(ac_sort_values_##opmath, ac_gpu_sort) { sort_values<R>(a); }                                             \
    AC_KERNEL(ac_sort_short_##opmath, ac_gpu_sort) { sort_short<R>(a); }
SORTS(float, f32)
SORTS(double, f64)
SORTS(int64_t, i64)
