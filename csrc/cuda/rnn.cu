/* Recurrent layers. A thread computes all gates of one unit (cell_unit): of one time step, whose product has been made,
 * or of all of them. There a block takes 16 sequences through every step and needs no other block; it makes the
 * products itself, on tensor cores, with the hidden states in shared memory and the weight from the caches. */
#include "cuda/scalar.cuh"
#include "cuda/tiles.cuh"

enum { WARPS = AC_GPU_THREADS / 32, PAD = AC_GPU_CELL_PAD };

/* -- one unit ----------------------------------------------------------------------------------------- */

/* Where a unit is: its sequence, that among the rows from which results count, and the sums from its input. */
struct place {
    int64_t sequence, row, x, unit;
    bool starts, ends; /* the sequence, with this step */
};

/* `u`: the sums from the states. The new hidden state. */
template <class Cell> DEV typename Cell::real cell_unit(const ac_gpu_cell &a, const place &p, typename Cell::real *u) {
    typedef typename Cell::real R;
    enum { GATES = Cell::GATES, KEEPS = Cell::KEEPS };
    R *carried = (R *)a.carried;
    R x[GATES], keep[KEEPS + 1], h = 0, c = 0, &own = Cell::LSTM ? c : h;
    int64_t at = p.row * a.units + p.unit, state = p.sequence * a.units + p.unit;
#pragma unroll
    for (int k = 0; k < GATES; k++) {
        x[k] = load_real<R>(a.x, p.x + k * a.units + p.unit);
        if (a.bias.data) u[k] += load_real<R>(a.bias, k * a.units + p.unit);
    }
    if (KEEPS > 0) own = p.starts ? load_real<R>(a.start, state) : carried[state];
    Cell::step(x, u, &h, &c, keep);
    if (KEEPS > 0) carried[state] = own;
    store_real(a.y, at, h);
    if (p.ends) {
        store_real(a.last, state, h);
        if (Cell::LSTM) store_real(a.last, a.last_cell + state, c);
    }
    if (!a.kept.data) return h;
#pragma unroll
    for (int k = 0; k < KEEPS; k++) store_real(a.kept, (p.row * KEEPS + k) * a.units + p.unit, keep[k]);
    return h;
}

/* dh: the gradient of the new hidden state without that of the result, then of the old one without what goes through
 * the product. du: of the sums. */
template <class Cell>
DEV void cell_unit_back(const ac_gpu_cell_back &a, const place &p, typename Cell::real *dh, typename Cell::real *du) {
    typedef typename Cell::real R;
    enum { GATES = Cell::GATES, KEEPS = Cell::KEEPS };
    R *grad_c = (R *)a.dc, keep[KEEPS + 1], dx[GATES], before = 0, dc = 0;
    int64_t at = p.row * a.units + p.unit, state = p.sequence * a.units + p.unit;
    if (p.ends) *dh = load_real<R>(a.g_last, state);
    *dh += load_real<R>(a.g, at);
    if (Cell::LSTM) dc = p.ends ? load_real<R>(a.g_last, a.last_cell + state) : grad_c[state];
#pragma unroll
    for (int k = 0; k < KEEPS; k++) keep[k] = load_real<R>(a.kept, (p.row * KEEPS + k) * a.units + p.unit);
    if (KEEPS > 0)
        before = p.starts ? load_real<R>(a.start, state) : load_real<R>(a.before, p.row * a.before_row + p.unit);
    Cell::back(keep, before, KEEPS > 0 ? 0 : load_real<R>(a.y, at), dh, &dc, dx, du);
    if (Cell::LSTM) grad_c[state] = dc;
#pragma unroll
    for (int k = 0; k < GATES; k++) {
        store_real(a.dx, (p.row * GATES + k) * a.units + p.unit, dx[k]);
        if (Cell::GRU) store_real(a.du, (p.row * GATES + k) * a.units + p.unit, du[k]);
        else du[k] = dx[k];
    }
    if (a.entered.data)
        store_real(a.entered, at, p.starts ? load_real<R>(a.hidden_start, state) : load_real<R>(a.hidden, at));
}

/* -- one step ----------------------------------------------------------------------------------------- */

template <class Args> DEV place place_of(const Args &a, int64_t i) {
    int64_t row = quotient(i, a.units);
    return {row, row, 0, i - row * a.units, row >= a.starts, row >= a.ends};
}

template <class Cell> DEV void cell_step(const ac_gpu_cell &a) {
    typedef typename Cell::real R;
    const R *sums = (const R *)a.sums;
    for (int64_t i = thread_index(); i < a.rows * a.units; i += thread_count()) {
        R u[Cell::GATES];
        place p = place_of(a, i);
        p.x = p.row * a.x_row;
#pragma unroll
        for (int k = 0; k < Cell::GATES; k++) u[k] = sums[(p.row * Cell::GATES + k) * a.units + p.unit];
        cell_unit<Cell>(a, p, u);
    }
}

template <class Cell> DEV void cell_step_back(const ac_gpu_cell_back &a) {
    typedef typename Cell::real R;
    R *grad_h = (R *)a.dh;
    for (int64_t i = thread_index(); i < a.rows * a.units; i += thread_count()) {
        place p = place_of(a, i);
        R du[Cell::GATES], dh = p.ends ? 0 : grad_h[i];
        cell_unit_back<Cell>(a, p, &dh, du);
        if (Cell::GRU) grad_h[i] = dh; /* the product adds to it; without this, it comes in its place */
    }
}

/* -- all steps, in 16 bits ------------------------------------------------------------------------------ */

/* to[i] += rows of `a`, in shared memory, times rows of b, `b_apart` further for each i; all of `count` values */
template <class E, int N>
DEV void multiply_rows(sums (&to)[N], const uint16_t *a, int a_row, const uint16_t *b, int b_apart, int count) {
#pragma unroll 4
    for (int k = 0; k < count; k += SIDE) {
        left<E> l;
        wmma::load_matrix_sync(l, (const E *)a + k, (unsigned)a_row);
#pragma unroll
        for (int i = 0; i < N; i++) {
            turned<E> r;
            wmma::load_matrix_sync(r, (const E *)b + i * b_apart + k, (unsigned)count);
            wmma::mma_sync(to[i], l, r, to[i]);
        }
    }
}

/* Shared memory: the hidden states of this step and the next, and each warp's sums. */
template <class Cell, class E> DEV void cell_steps(const ac_gpu_cells &r) {
    enum { GATES = Cell::GATES, TILE = SIDE * SIDE };
    const ac_gpu_cell &a = r.step;
    const uint16_t *weight = (const uint16_t *)r.weight;
    int units = (int)a.units, h_row = units + PAD, warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    uint16_t *now = (uint16_t *)ac_shared_memory, *next = now + SIDE * h_row;
    float *scrap = (float *)(next + SIDE * h_row) + warp * GATES * TILE;
    int64_t first = (int64_t)blockIdx.x * SIDE;
    for (int i = (int)threadIdx.x; i < SIDE * units; i += AC_GPU_THREADS) {
        int64_t sequence = first + i / units, unit = i % units;
        float h = sequence < a.rows ? load_real<float>(r.hidden, sequence * units + unit) : 0;
        now[i / units * h_row + unit] = Rounding<E>::bits(h);
    }
    __syncthreads();
    for (int64_t s = 0; s < r.steps; s++) {
        for (int t = warp * SIDE; t < units; t += WARPS * SIDE) {
            sums from_h[GATES];
#pragma unroll
            for (int k = 0; k < GATES; k++) wmma::fill_fragment(from_h[k], 0.0f);
            multiply_rows<E>(from_h, now, h_row, weight + t * units, units * units, units);
#pragma unroll
            for (int k = 0; k < GATES; k++)
                wmma::store_matrix_sync(scrap + k * TILE, from_h[k], SIDE, wmma::mem_row_major);
            __syncwarp();
            for (int i = lane; i < TILE; i += 32) {
                float u[GATES], h = 0;
                int64_t sequence = first + i / SIDE;
                place p = {sequence,
                           sequence + s * r.rows_apart,
                           sequence * a.x_row + s * r.x_apart,
                           t + i % SIDE,
                           s == 0,
                           s + 1 == r.steps};
#pragma unroll
                for (int k = 0; k < GATES; k++) u[k] = scrap[k * TILE + i];
                if (sequence < a.rows) h = cell_unit<Cell>(a, p, u);
                next[i / SIDE * h_row + p.unit] = Rounding<E>::bits(h);
            }
            __syncwarp();
        }
        __syncthreads();
        uint16_t *old = now;
        now = next, next = old;
    }
}

/* Shared memory: the gradients of a step's sums, and of its states. The weight is turned. */
template <class Cell, class E> DEV void cell_steps_back(const ac_gpu_cells_back &r) {
    enum { GATES = Cell::GATES };
    const ac_gpu_cell_back &a = r.step;
    const uint16_t *weight = (const uint16_t *)r.weight;
    int units = (int)a.units, width = GATES * units, u_row = width + PAD, h_row = units + PAD;
    uint16_t *grad_u = (uint16_t *)ac_shared_memory;
    float *grad_h = (float *)(grad_u + SIDE * u_row);
    int64_t first = (int64_t)blockIdx.x * SIDE;
    for (int64_t s = 0; s < r.steps; s++) {
        for (int i = (int)threadIdx.x; i < SIDE * units; i += AC_GPU_THREADS) {
            int row = i / units, unit = i % units;
            int64_t sequence = first + row;
            place p = {sequence, sequence + s * r.rows_apart, 0, unit, s + 1 == r.steps, s == 0};
            float du[GATES] = {0}, dh = s ? grad_h[row * h_row + unit] : 0;
            if (sequence < a.rows) cell_unit_back<Cell>(a, p, &dh, du);
            grad_h[row * h_row + unit] = dh;
#pragma unroll
            for (int k = 0; k < GATES; k++) grad_u[row * u_row + k * units + unit] = Rounding<E>::bits(du[k]);
        }
        __syncthreads();
        for (int t = (int)threadIdx.x / 32 * SIDE; t < units; t += WARPS * SIDE) {
            sums dh[1];
            wmma::load_matrix_sync(dh[0], grad_h + t, (unsigned)h_row, wmma::mem_row_major);
            multiply_rows<E>(dh, grad_u, u_row, weight + t * width, 0, width);
            wmma::store_matrix_sync(grad_h + t, dh[0], (unsigned)h_row, wmma::mem_row_major);
        }
        __syncthreads();
    }
    for (int i = (int)threadIdx.x; i < SIDE * units; i += AC_GPU_THREADS) {
        int64_t sequence = first + i / units;
        if (sequence < a.rows) ((float *)a.dh)[sequence * units + i % units] = grad_h[i / units * h_row + i % units];
    }
}

#define CELL(name, gates, keeps, R, opmath)                                                                            \
    struct name##_cell_##opmath {                                                                                      \
        typedef R real;                                                                                                \
        enum { GATES = gates, KEEPS = keeps };                                                                         \
        static constexpr bool LSTM = AC_CELL_##name == AC_CELL_lstm, GRU = AC_CELL_##name == AC_CELL_gru;              \
        DEV_METHOD static void step(const R *x, const R *u, R *h, R *c, R *kept) {                                     \
            name##_unit_##opmath(x, u, h, c, kept);                                                                    \
        }                                                                                                              \
        DEV_METHOD static void back(const R *kept, R before, R h, R *dh, R *dc, R *dx, R *du) {                        \
            name##_unit_back_##opmath(kept, before, h, dh, dc, dx, du);                                                \
        }                                                                                                              \
    };                                                                                                                 \
    AC_KERNEL(ac_cell_##name##_##opmath, ac_gpu_cell) { cell_step<name##_cell_##opmath>(a); }                          \
    AC_KERNEL(ac_cell_##name##_back_##opmath, ac_gpu_cell_back) { cell_step_back<name##_cell_##opmath>(a); }
#define CELLS(name, gates, keeps) CELL(name, gates, keeps, float, f32) CELL(name, gates, keeps, double, f64)
AC_CELLS(CELLS)

#define ALL_STEPS(name, E, dtype)                                                                                      \
    AC_KERNEL(ac_cells_##name##_##dtype, ac_gpu_cells) { cell_steps<name##_cell_f32, E>(a); }                          \
    AC_KERNEL(ac_cells_##name##_back_##dtype, ac_gpu_cells_back) { cell_steps_back<name##_cell_f32, E>(a); }
#define CELLS_F16(name, gates, keeps) ALL_STEPS(name, __half, f16)
#define CELLS_BF16(name, gates, keeps) ALL_STEPS(name, __nv_bfloat16, bf16)
AC_CELLS(CELLS_F16)
/* Tensor cores know bfloat16 from generation 8 on; the host asks for these there alone. */
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
AC_CELLS(CELLS_BF16)
#endif
