/* Convolution as an implicit matrix product on tensor cores. The image's side of the product is read from the image
 * itself, under the taps of the window, so there are no columns. Forward and transposed have the taps along k and the
 * positions along j; the weight's gradient has them the other way round. A block computes 128 x 128 results, a warp
 * 64 x 32 of them. While they multiply one tile of 32 ks, the next is on its way: runs that lie side by side in memory
 * are copied to shared memory, others pass through registers. Sums are float32. */
#include "cuda/device.cuh"

#include <mma.h>

using namespace nvcuda;

enum { RUN = 8, RUNS = AC_GPU_TILE * AC_GPU_KEYS / RUN / AC_GPU_THREADS, SIDE = 16, AWAY = INT32_MIN / 2 };
enum { WARP_M = 64, WARP_J = 32, SCRAP = SIDE + 4, CELLS = AC_GPU_TILE * AC_GPU_ROW_STRIDE };
enum { KEY_STRIDE = AC_GPU_TILE + 8, TILE_RUNS = AC_GPU_TILE / RUN }; /* of tiles whose ms, or js, lie side by side */

typedef pack<uint16_t, RUN> run;

/* A tap or a position: its share of the image's offset and of the pixel there, and its offset in `rows` or `out`. */
struct entry {
    int32_t image, other, at[3];
};

struct rooms {
    alignas(32) uint16_t rows[2][CELLS], image[2][CELLS]; /* tiles, the one in use and the next; ks side by side */
    entry keys[2][AC_GPU_KEYS], js[AC_GPU_TILE];
};
static_assert(sizeof(rooms) == AC_GPU_CONVOLVE_ROOM, "what the host asks for");
static_assert(AC_GPU_KEYS * KEY_STRIDE <= CELLS, "tiles of either kind");
static_assert(sizeof(float) * SIDE * SCRAP * AC_GPU_THREADS / 32 <= sizeof(((rooms *)0)->rows), "results pass here");

DEV_CALL entry tap_of(const ac_gpu_implicit &a, int i) {
    int taps = a.taps[0] * a.taps[1] * a.taps[2];
    int channel = a.channels_last ? i % a.channels : i / taps;
    int tap = a.channels_last ? i / a.channels : i - channel * taps;
    entry e = {channel * a.image_stride[1], channel * a.tap_stride[0], {0, 0, 0}};
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        int q = tap % a.taps[d];
        tap /= a.taps[d];
        e.at[d] = a.first[d] + q * a.shift[d];
        e.image += e.at[d] * a.image_stride[2 + d], e.other += q * a.tap_stride[1 + d];
    }
    return e;
}

DEV_CALL entry position_of(const ac_gpu_implicit &a, int i) {
    entry e = {0, 0, {0, 0, 0}};
#pragma unroll
    for (int d = 2; d >= 0; d--) {
        int u = i % a.lattice[d];
        i /= a.lattice[d];
        e.at[d] = u * a.pace[d];
        e.image += e.at[d] * a.image_stride[2 + d], e.other += u * a.position_stride[1 + d];
    }
    e.image += i * a.image_stride[0], e.other += i * a.position_stride[0];
    return e;
}

template <bool POSITIONS> DEV entry entry_of(const ac_gpu_implicit &a, int i, int end) {
    if (i >= end) return {0, -1, {AWAY, 0, 0}};
    return POSITIONS ? position_of(a, i) : tap_of(a, i);
}

DEV bool meet(const ac_gpu_implicit &a, const entry &p, const entry &q) {
    return (uint32_t)(p.at[0] + q.at[0]) < (uint32_t)a.in[0] && (uint32_t)(p.at[1] + q.at[1]) < (uint32_t)a.in[1] &&
           (uint32_t)(p.at[2] + q.at[2]) < (uint32_t)a.in[2];
}

/* This thread's i-th run of a tile: its row, and the first of its ks. */
DEV int row_of(int i, bool across) {
    int n = (int)threadIdx.x + i * AC_GPU_THREADS;
    return across ? n % AC_GPU_TILE : n / (AC_GPU_KEYS / RUN);
}
DEV int key_of(int i, bool across) {
    int n = (int)threadIdx.x + i * AC_GPU_THREADS;
    return (across ? n / AC_GPU_TILE : n % (AC_GPU_KEYS / RUN)) * RUN;
}

/* Eight neighbours of a line of pixels from an odd one on: of the two runs that they lie in, on a boundary each. A line
 * has whole runs, so those beyond its ends hold no pixel. */
DEV run line_run(const ac_gpu_implicit &a, const uint16_t *image, const entry &j, const entry &key) {
    int x = j.at[2] + key.at[2], off = x & (RUN - 1), first = x - off;
    bool line =
        (uint32_t)(j.at[0] + key.at[0]) < (uint32_t)a.in[0] && (uint32_t)(j.at[1] + key.at[1]) < (uint32_t)a.in[1];
    pack<uint32_t, 4> low = {}, high = {};
    const uint16_t *at = image + j.image + key.image - off;
    if (line && (uint32_t)first < (uint32_t)a.in[2]) low = *(const pack<uint32_t, 4> *)at;
    if (line && off && (uint32_t)(first + RUN) < (uint32_t)a.in[2]) high = *(const pack<uint32_t, 4> *)(at + RUN);
    uint32_t v[8];
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = low.v[i], v[4 + i] = high.v[i];
#pragma unroll
    for (int i = 0; i < 6; i++) v[i] = off & 4 ? v[i + 2] : v[i];
#pragma unroll
    for (int i = 0; i < 5; i++) v[i] = off & 2 ? v[i + 1] : v[i];
    pack<uint32_t, 4> r;
#pragma unroll
    for (int i = 0; i < 4; i++) r.v[i] = off & 1 ? v[i] >> 16 | v[i + 1] << 16 : v[i];
    run whole;
    memcpy(&whole, &r, sizeof whole);
    return whole;
}

/* Eight ks of an image whose runs cannot be copied as they are. */
template <bool WEIGHT>
DEV run image_run(const ac_gpu_implicit &a, const uint16_t *image, const entry &j, const entry *keys) {
    if (WEIGHT && a.image_lines) return line_run(a, image, j, keys[0]);
    run r = {};
#pragma unroll
    for (int e = 0; e < RUN; e++)
        if (meet(a, j, keys[e])) r.v[e] = image[j.image + keys[e].image];
    return r;
}

/* `row` is NULL beyond the last. */
DEV run row_run(const uint16_t *row, const entry *keys) {
    run r = {};
#pragma unroll
    for (int e = 0; e < RUN; e++)
        if (row && keys[e].other >= 0) r.v[e] = row[keys[e].other];
    return r;
}

/* Which results a block makes, of which group, over which ks. */
struct job {
    int group, part, m, j, k, end;
};
DEV job job_of(const ac_gpu_implicit &a, int block) {
    int m_tiles = (a.m + AC_GPU_TILE - 1) / AC_GPU_TILE, j_tiles = (a.j + AC_GPU_TILE - 1) / AC_GPU_TILE;
    job w;
    w.m = block % m_tiles * AC_GPU_TILE, block /= m_tiles;
    w.j = block % j_tiles * AC_GPU_TILE, block /= j_tiles;
    w.part = block % a.parts, w.group = block / a.parts;
    w.k = w.part * a.part, w.end = w.k + a.part < a.k ? w.k + a.part : a.k;
    return w;
}

DEV_CALL void put(const ac_gpu_implicit &a, const job &w, int m, int j, int32_t at, float v) {
    if (a.parts > 1) {
        a.partial[(((int64_t)w.group * a.parts + w.part) * a.m + m) * a.j + j] = v;
        return;
    }
    if (a.bias.data) v += load_real<float>(a.bias, w.group * a.m + m);
    store_real<float>(a.out, w.group * a.out_group + m * a.out_row + at, v);
}

enum { M_SIDES = WARP_M / SIDE, J_SIDES = WARP_J / SIDE };
typedef wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sums;

/* One tile of ks: sums += rows image^T, of this warp's part. */
template <class E> DEV void multiply(sums (&s)[M_SIDES][J_SIDES], const uint16_t *rows, const uint16_t *image) {
#pragma unroll
    for (int k = 0; k < AC_GPU_KEYS; k += SIDE) {
        wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::col_major> b[J_SIDES];
#pragma unroll
        for (int j = 0; j < J_SIDES; j++)
            wmma::load_matrix_sync(b[j], (const E *)image + j * SIDE * AC_GPU_ROW_STRIDE + k, AC_GPU_ROW_STRIDE);
#pragma unroll
        for (int m = 0; m < M_SIDES; m++) {
            wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, E, wmma::row_major> r;
            wmma::load_matrix_sync(r, (const E *)rows + m * SIDE * AC_GPU_ROW_STRIDE + k, AC_GPU_ROW_STRIDE);
#pragma unroll
            for (int j = 0; j < J_SIDES; j++) wmma::mma_sync(s[m][j], r, b[j], s[m][j]);
        }
    }
}

/* The same, where ms and js lie side by side. */
template <class E> DEV void multiply_across(sums (&s)[M_SIDES][J_SIDES], const uint16_t *rows, const uint16_t *image) {
#pragma unroll
    for (int k = 0; k < AC_GPU_KEYS; k += SIDE) {
        wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::row_major> b[J_SIDES];
#pragma unroll
        for (int j = 0; j < J_SIDES; j++)
            wmma::load_matrix_sync(b[j], (const E *)image + k * KEY_STRIDE + j * SIDE, KEY_STRIDE);
#pragma unroll
        for (int m = 0; m < M_SIDES; m++) {
            wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, E, wmma::col_major> r;
            wmma::load_matrix_sync(r, (const E *)rows + k * KEY_STRIDE + m * SIDE, KEY_STRIDE);
#pragma unroll
            for (int j = 0; j < J_SIDES; j++) wmma::mma_sync(s[m][j], r, b[j], s[m][j]);
        }
    }
}

/* A warp's sums leave by way of its own scrap of shared memory: lanes along j. */
DEV void give(const ac_gpu_implicit &a, const job &w, const sums (&s)[M_SIDES][J_SIDES], int m0, int j0, rooms &room) {
    float *scrap = (float *)room.rows + (int)threadIdx.x / 32 * SIDE * SCRAP;
    int lane = (int)threadIdx.x % 32, column = lane % SIDE;
#pragma unroll
    for (int j = 0; j < J_SIDES; j++) {
        int col = j0 + j * SIDE + column;
        int32_t to = room.js[col - w.j].other;
#pragma unroll
        for (int m = 0; m < M_SIDES; m++) {
            wmma::store_matrix_sync(scrap, s[m][j], SCRAP, wmma::mem_row_major);
            __syncwarp();
#pragma unroll 1
            for (int row = lane / SIDE; row < SIDE; row += 32 / SIDE)
                if (m0 + m * SIDE + row < a.m && col < a.j)
                    put(a, w, m0 + m * SIDE + row, col, to, scrap[row * SCRAP + column]);
            __syncwarp();
        }
    }
}

/* The results of a job. fetch(t) begins to bring tile t of ks into tile t & 1 of the room; while it is on its way
 * multiply_tile(s, m0, j0, which) adds the products of the one before; land(t) waits for what was fetched. */
template <bool WEIGHT, class Fetch, class Multiply, class Land>
DEV void over_tiles(const ac_gpu_implicit &a, rooms &room, const job &w, Fetch fetch, Multiply multiply_tile,
                    Land land) {
    if (threadIdx.x < AC_GPU_TILE) room.js[threadIdx.x] = entry_of<!WEIGHT>(a, w.j + (int)threadIdx.x, a.j);
    auto list_keys = [&](int k_step) {
        if (threadIdx.x < AC_GPU_KEYS)
            room.keys[k_step & 1][threadIdx.x] =
                entry_of<WEIGHT>(a, w.k + k_step * AC_GPU_KEYS + (int)threadIdx.x, w.end);
    };
    int warp = (int)threadIdx.x / 32, m0 = warp % 2 * WARP_M, j0 = warp / 2 * WARP_J;
    bool works = w.m + m0 < a.m && w.j + j0 < a.j;
    sums s[M_SIDES][J_SIDES];
#pragma unroll
    for (int m = 0; m < M_SIDES; m++)
#pragma unroll
        for (int j = 0; j < J_SIDES; j++) wmma::fill_fragment(s[m][j], 0.0f);

    int k_steps = (w.end - w.k + AC_GPU_KEYS - 1) / AC_GPU_KEYS;
    list_keys(0);
    __syncthreads();
    for (int k_step = -1; k_step < k_steps; k_step++) {
        if (k_step + 1 < k_steps) fetch(k_step + 1);
        list_keys(k_step + 2); /* where the keys of `k_step` were, which nobody reads any more */
        if (works && k_step >= 0) multiply_tile(s, m0, j0, k_step & 1);
        land(k_step + 1);
        __syncthreads();
    }
    if (works) give(a, w, s, w.m + m0, w.j + j0, room);
}

template <class E, bool WEIGHT> DEV void implicit_product(const ac_gpu_implicit &a) {
    rooms &room = *(rooms *)ac_shared_memory;
    job w = job_of(a, (int)blockIdx.x);
    const uint16_t *image = (const uint16_t *)a.image.data + w.group * a.image_group;
    const uint16_t *rows = (const uint16_t *)a.rows.data + w.group * a.rows_group;
    run next_rows[RUNS] = {}, next_image[RUNS] = {};
    const bool image_runs = !WEIGHT && a.image_runs; /* positions of a tap begin at any of a line */
    auto row_at = [&](int k_step, int i) {
        return &room.rows[k_step & 1][row_of(i, a.rows_across) * AC_GPU_ROW_STRIDE + key_of(i, a.rows_across)];
    };
    auto image_at = [&](int k_step, int i) {
        return &room.image[k_step & 1][row_of(i, a.image_across) * AC_GPU_ROW_STRIDE + key_of(i, a.image_across)];
    };
    auto fetch = [&](int k_step) {
        const entry *keys = room.keys[k_step & 1];
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            const entry *of_row = keys + key_of(i, a.rows_across), *of_image = keys + key_of(i, a.image_across);
            const entry &j = room.js[row_of(i, a.image_across)];
            int m = w.m + row_of(i, a.rows_across);
            const uint16_t *row = m < a.m ? rows + m * a.rows_row : NULL;
            if (a.rows_runs) {
                bool there = row && of_row->other >= 0;
                copy_begins(row_at(k_step, i), there ? row + of_row->other : rows, there);
            } else next_rows[i] = row_run(row, of_row);
            if (image_runs) {
                bool there = meet(a, j, *of_image);
                copy_begins(image_at(k_step, i), there ? image + j.image + of_image->image : image, there);
            } else next_image[i] = image_run<WEIGHT>(a, image, j, of_image);
        }
    };
    auto multiply_tile = [&](sums(&s)[M_SIDES][J_SIDES], int m0, int j0, int which) {
        multiply<E>(s, room.rows[which] + m0 * AC_GPU_ROW_STRIDE, room.image[which] + j0 * AC_GPU_ROW_STRIDE);
    };
    auto land = [&](int k_step) { /* what passed through registers, too */
#pragma unroll
                                  for (int i = 0; i < RUNS; i++) {
                                      if (!a.rows_runs) *(run *)row_at(k_step, i) = next_rows[i];
                                      if (!image_runs) *(run *)image_at(k_step, i) = next_image[i];
                                  }
                                  copies_done();
    };
    over_tiles<WEIGHT>(a, room, w, fetch, multiply_tile, land);
}

/* The weight's gradient where both operands have eight channels side by side: every run is copied as it is. */
template <class E> DEV void weight_of_channel_runs(const ac_gpu_implicit &a) {
    rooms &room = *(rooms *)ac_shared_memory;
    job w = job_of(a, (int)blockIdx.x);
    const uint16_t *image = (const uint16_t *)a.image.data + w.group * a.image_group;
    const uint16_t *rows = (const uint16_t *)a.rows.data + w.group * a.rows_group + w.m;
    int run = (int)threadIdx.x % TILE_RUNS * RUN, first_key = (int)threadIdx.x / TILE_RUNS;
    bool has_row = w.m + run < a.m;
    auto fetch = [&](int k_step) {
#pragma unroll
        for (int i = 0; i < RUNS; i++) {
            int at = first_key + i * (AC_GPU_THREADS / TILE_RUNS);
            const entry &key = room.keys[k_step & 1][at], &j = room.js[run];
            bool row = has_row && key.other >= 0, pixel = meet(a, j, key);
            copy_begins(&room.rows[k_step & 1][at * KEY_STRIDE + run], row ? rows + run + key.other : rows, row);
            copy_begins(&room.image[k_step & 1][at * KEY_STRIDE + run], pixel ? image + j.image + key.image : image,
                        pixel);
        }
    };
    auto multiply_tile = [&](sums(&s)[M_SIDES][J_SIDES], int m0, int j0, int which) {
        multiply_across<E>(s, room.rows[which] + m0, room.image[which] + j0);
    };
    over_tiles<true>(a, room, w, fetch, multiply_tile, [](int) { copies_done(); });
}

AC_KERNEL_OF_TWO(ac_convolve_f16, ac_gpu_implicit) { implicit_product<__half, false>(a); }
AC_KERNEL_OF_TWO(ac_convolve_weight_f16, ac_gpu_implicit) { implicit_product<__half, true>(a); }
AC_KERNEL_OF_TWO(ac_convolve_channels_f16, ac_gpu_implicit) { weight_of_channel_runs<__half>(a); }
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
AC_KERNEL_OF_TWO(ac_convolve_bf16, ac_gpu_implicit) { implicit_product<__nv_bfloat16, false>(a); }
AC_KERNEL_OF_TWO(ac_convolve_weight_bf16, ac_gpu_implicit) { implicit_product<__nv_bfloat16, true>(a); }
AC_KERNEL_OF_TWO(ac_convolve_channels_bf16, ac_gpu_implicit) { weight_of_channel_runs<__nv_bfloat16>(a); }
#endif

/* Sums of parts, joined in order. */
template <bool WEIGHT> DEV void join_parts(const ac_gpu_implicit &a) {
    int64_t each = (int64_t)a.m * a.j, n = a.groups * each;
    for (int64_t i = thread_index(); i < n; i += thread_count()) {
        int group = (int)(i / each);
        int64_t at = i - group * each;
        const float *from = a.partial + group * a.parts * each + at;
        float sum = 0;
        for (int p = 0; p < a.parts; p++) sum += from[p * each];
        int m = (int)quotient(at, a.j), j = (int)(at - (int64_t)m * a.j);
        if (a.bias.data) sum += load_real<float>(a.bias, group * a.m + m);
        store_real<float>(a.out, group * a.out_group + m * a.out_row + entry_of<!WEIGHT>(a, j, a.j).other, sum);
    }
}
/* The largest number stands for all that is larger where a library's kernel saturates: it becomes an infinity. */
DEV bool show_infinity(uint16_t *bits) {
    enum { LARGEST = 0x7BFF, MAGNITUDE = 0x7FFF }; /* the next bits are an infinity's */
    bool largest = (*bits & MAGNITUDE) == LARGEST;
    *bits = (uint16_t)(*bits + largest);
    return largest;
}
AC_KERNEL(ac_show_infinities, ac_gpu_halves) {
    constexpr int RUN = 8;
    pack<uint16_t, RUN> *packs = (pack<uint16_t, RUN> *)a.values;
    int64_t whole = a.n / RUN;
    for (int64_t i = thread_index(); i < whole; i += thread_count()) {
        pack<uint16_t, RUN> run = packs[i];
        bool found = false;
        EACH_OF(RUN) found |= show_infinity(&run.v[j]);
        if (found) packs[i] = run;
    }
    for (int64_t i = whole * RUN + thread_index(); i < a.n; i += thread_count()) (void)show_infinity(&a.values[i]);
}

AC_KERNEL(ac_convolve_join, ac_gpu_implicit) { join_parts<false>(a); }
AC_KERNEL(ac_convolve_weight_join, ac_gpu_implicit) { join_parts<true>(a); }
