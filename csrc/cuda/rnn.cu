/* One time step of a recurrent layer, the product of its states done: a thread computes all gates of one unit. */
#include "cuda/scalar.cuh"

template <class Cell> DEV void cell_step(const ac_gpu_cell &a) {
    typedef typename Cell::real R;
    enum { GATES = Cell::GATES, KEEPS = Cell::KEEPS };
    const R *sums = (const R *)a.sums;
    R *carried = (R *)a.carried;
    for (int64_t i = thread_index(); i < a.rows * a.units; i += thread_count()) {
        int64_t row = quotient(i, a.units), unit = i - row * a.units;
        R x[GATES], u[GATES], keep[KEEPS + 1], h = 0, c = 0, &own = Cell::LSTM ? c : h;
#pragma unroll
        for (int k = 0; k < GATES; k++) {
            x[k] = load_real<R>(a.x, row * a.x_row + k * a.units + unit);
            u[k] = sums[(row * GATES + k) * a.units + unit];
            if (a.bias.data) u[k] += load_real<R>(a.bias, k * a.units + unit);
        }
        if (KEEPS > 0) own = row >= a.starts ? load_real<R>(a.start, i) : carried[i];
        Cell::step(x, u, &h, &c, keep);
        if (KEEPS > 0) carried[i] = own;
        store_real(a.y, i, h);
        if (row >= a.ends) {
            store_real(a.last, i, h);
            if (Cell::LSTM) store_real(a.last, a.last_cell + i, c);
        }
        if (!a.kept.data) continue;
#pragma unroll
        for (int k = 0; k < KEEPS; k++) store_real(a.kept, (row * KEEPS + k) * a.units + unit, keep[k]);
    }
}

template <class Cell> DEV void cell_step_back(const ac_gpu_cell_back &a) {
    typedef typename Cell::real R;
    enum { GATES = Cell::GATES, KEEPS = Cell::KEEPS };
    R *grad_h = (R *)a.dh, *grad_c = (R *)a.dc;
    for (int64_t i = thread_index(); i < a.rows * a.units; i += thread_count()) {
        int64_t row = quotient(i, a.units), unit = i - row * a.units;
        bool starts = row >= a.starts, ends = row >= a.ends;
        R keep[KEEPS + 1], dx[GATES], du[GATES], before = 0, dc = 0;
        R dh = (ends ? load_real<R>(a.g_last, i) : grad_h[i]) + load_real<R>(a.g, i);
        if (Cell::LSTM) dc = ends ? load_real<R>(a.g_last, a.last_cell + i) : grad_c[i];
#pragma unroll
        for (int k = 0; k < KEEPS; k++) keep[k] = load_real<R>(a.kept, (row * KEEPS + k) * a.units + unit);
        if (KEEPS > 0) before = starts ? load_real<R>(a.start, i) : load_real<R>(a.before, row * a.before_row + unit);
        Cell::back(keep, before, KEEPS > 0 ? 0 : load_real<R>(a.y, i), &dh, &dc, dx, du);
        if (Cell::LSTM) grad_c[i] = dc;
        if (Cell::GRU) grad_h[i] = dh; /* the product adds to it; without this, it comes in its place */
#pragma unroll
        for (int k = 0; k < GATES; k++) {
            store_real(a.dx, (row * GATES + k) * a.units + unit, dx[k]);
            if (Cell::GRU) store_real(a.du, (row * GATES + k) * a.units + unit, du[k]);
        }
        if (a.entered.data)
            store_real(a.entered, i, starts ? load_real<R>(a.hidden_start, i) : load_real<R>(a.hidden, i));
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
