/* Sorting: of pairs by radix, of short rows in shared memory; and sums of what comes before. All of it is stable. */
#include "cuda/device.cuh"

/* -- radix sort of pairs, 4 bits a pass (Satish, Harris and Garland 2009) --------------------------- */

/* A block takes TILE neighbours, a thread EACH of them in order. */
enum { DIGITS = 16, EACH = 4, TILE = AC_GPU_THREADS * EACH };

DEV int digit_of(const ac_gpu_radix &a, int64_t i) { return (int)(a.keys[i] >> a.shift) & (DIGITS - 1); }

AC_KERNEL(ac_radix_count, ac_gpu_radix) {
    int *count = (int *)ac_shared_memory;
    for (int64_t block = blockIdx.x; block < a.blocks; block += gridDim.x) {
        __syncthreads();
        if (threadIdx.x < DIGITS) count[threadIdx.x] = 0;
        __syncthreads();
        for (int e = 0; e < EACH; e++) {
            int64_t i = block * TILE + (int64_t)threadIdx.x * EACH + e;
            if (i < a.n) atomicAdd(&count[digit_of(a, i)], 1);
        }
        __syncthreads();
        if (threadIdx.x < DIGITS) a.counts[threadIdx.x * a.blocks + block] = count[threadIdx.x];
    }
}

/* Exclusive sums of per-thread counts, for one digit after another: rank[d][thread]. */
DEV void rank_threads(int *count) {
    /* 16 x 256 numbers: thread t takes the 16 of its own stretch of the flattened table */
    int *mine = count + threadIdx.x * DIGITS, sum = 0;
    int *totals = count + DIGITS * AC_GPU_THREADS;
    for (int j = 0; j < DIGITS; j++) sum += mine[j];
    int before = block_scan(sum, totals);
    for (int j = 0; j < DIGITS; j++) {
        int own = mine[j];
        mine[j] = before;
        before += own;
    }
    __syncthreads();
}

AC_KERNEL(ac_radix_move, ac_gpu_radix) {
    int *count = (int *)ac_shared_memory; /* [digit][thread], then a total for each thread */
    for (int64_t block = blockIdx.x; block < a.blocks; block += gridDim.x) {
        int64_t first = block * TILE + (int64_t)threadIdx.x * EACH;
        __syncthreads();
        for (int d = 0; d < DIGITS; d++) count[d * AC_GPU_THREADS + threadIdx.x] = 0;
        for (int e = 0; e < EACH; e++)
            if (first + e < a.n) count[digit_of(a, first + e) * AC_GPU_THREADS + threadIdx.x]++;
        __syncthreads();
        rank_threads(count);
        int start[DIGITS]; /* of each digit within the tile */
        for (int d = 0; d < DIGITS; d++) start[d] = count[d * AC_GPU_THREADS];
        __syncthreads();
        for (int e = 0; e < EACH && first + e < a.n; e++) {
            int d = digit_of(a, first + e);
            int64_t to = a.counts[d * a.blocks + block] + count[d * AC_GPU_THREADS + threadIdx.x]++ - start[d];
            a.keys_out[to] = a.keys[first + e];
            a.payload_out[to] = a.payload ? a.payload[first + e] : first + e;
        }
    }
}

/* Exclusive sums in place, by one block. */
AC_KERNEL(ac_scan, ac_gpu_scan) {
    int64_t *sums = (int64_t *)ac_shared_memory, carry = 0;
    for (int64_t at = 0; at < a.n; at += AC_GPU_THREADS) {
        int64_t i = at + threadIdx.x, own = i < a.n ? a.values[i] : 0;
        int64_t before = block_scan(own, sums);
        if (i < a.n) a.values[i] = carry + before;
        carry += sums[AC_GPU_THREADS - 1];
    }
    if (a.total && threadIdx.x == 0) *a.total = carry;
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

/* -- sort and topk: by value, then (stably) by row -------------------------------------------------- */

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

AC_KERNEL(ac_sort_rows, ac_gpu_sort) { EACH_OF_N(i, a.rows * a.n) a.keys[i] = (uint64_t)quotient(a.order[i], a.n); }

template <class R> DEV void sort_values(const ac_gpu_sort &a) {
    EACH_OF_N(i, a.rows * a.k) {
        int64_t row = quotient(i, a.k), j = i - row * a.k;
        put_sorted<R>(a, row, j, a.order[row * a.n + j] - row * a.n);
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
