/* Recurrent layers over whole sequences, on a GPU: the host side of rnn.cu. The input's products have been computed for
 * all time steps. Each step is one product of the hidden states and one launch of the cell (shared/cells.inc);
 * backward, one launch and one product. The weight's gradient is one product of all steps.
 *
 * The rows of a step are its sequences. Those of a packed batch become fewer, so at each step some end, and in the
 * other direction some start. */
#include "cuda/gpu.h"

#include "base/alloc.h"

typedef struct {
    ac_device device;
    ac_cell cell;
    bool reverse;
    ac_dtype dtype, wide; /* of results and of what products round to; of states between the steps */
    int64_t steps, batch, units, width, keeps; /* width: of all gates */
    int64_t *first;                            /* row of each step's first sequence, and the end */
    ac_tensor *state, *weight;                 /* weight: new, in dtype */
} recurrence;

/* A step: its first row, the sequences that run, those that ran at the step before in the order of forward, and those
 * that run at the next. */
typedef struct {
    int64_t first, rows, started, staying, first_before;
} moment;

static int64_t sequences(const recurrence *c, int64_t step) {
    return step < 0 || step >= c->steps ? 0 : c->first[step + 1] - c->first[step];
}

static moment moment_of(const recurrence *c, int64_t step) {
    int64_t before = c->reverse ? step + 1 : step - 1, next = c->reverse ? step - 1 : step + 1;
    int64_t rows = sequences(c, step), ran = sequences(c, before);
    return (moment){.first = c->first[step],
                    .rows = rows,
                    .started = ac_least(ran, rows),
                    .staying = ac_least(sequences(c, next), rows),
                    .first_before = ran ? c->first[before] : 0};
}

/* A cell's kernels, forward and backward: of one step, by opmath type, and of all steps, by dtype. */
typedef struct {
    ac_gpu_kernel step[2][2], all[2][2];
} cell_kernels;
#define KERNEL(text) {.image = AC_IMAGE_RNN, .name = text}
#define PAIR(name, a, b) {KERNEL(name a), KERNEL(name b)}
#define BOTH_WAYS(name, a, b) {PAIR(name, a, b), PAIR(name "_back", a, b)}
#define KERNELS(cell, ...)                                                                                             \
    [AC_CELL_##cell] = {.step = BOTH_WAYS("ac_cell_" #cell, "_f32", "_f64"),                                           \
                        .all = BOTH_WAYS("ac_cells_" #cell, "_f16", "_bf16")},
static cell_kernels kernels[AC_N_CELLS] = {AC_CELLS(KERNELS)};
#undef KERNELS
#undef BOTH_WAYS
#undef PAIR
#undef KERNEL

/* -- tensors and products --------------------------------------------------------------------------- */

/* Borrowed: rows of a contiguous tensor, seen as [.., width]. */
static ac_tensor rows_of(const ac_tensor *t, int64_t first, int64_t rows, int64_t width) {
    ac_tensor view = *t;
    view.refs = 1, view.py = NULL, view.ndim = 2, view.offset += first * width, view.numel = rows * width;
    view.shape[0] = rows, view.shape[1] = width, view.strides[0] = width, view.strides[1] = 1;
    return view;
}
static ac_tensor turned(ac_tensor t) {
    ac_tensor view = t;
    for (int d = 0; d < 2; d++) view.shape[d] = t.shape[1 - d], view.strides[d] = t.strides[1 - d];
    return view;
}
static ac_gpu_ref ref_at(const ac_tensor *t, int64_t at) {
    ac_gpu_ref r = ac_gpu_ref_of(t);
    if (t) r.data = (char *)r.data + at * ac_itemsize(t->dtype);
    return r;
}

/* out = (what is there, if `add`, +) a b, of matrices */
static int multiply(const recurrence *c, ac_tensor a, ac_tensor b, ac_tensor out, bool add) {
    ac_tensor *in[2] = {&a, &b}, *to = &out;
    ac_run product = {.op = AC_OP_mm, .in = in, .n_in = 2, .out = &to, .n_out = 1, .compute = c->dtype, .add = add};
    return ac_cuda_mm(&product);
}

static ac_tensor *room(const recurrence *c, ac_dtype dtype, int64_t rows, int64_t width) {
    ac_dims shape = {2, {rows, width}};
    return ac_tensor_new_on(c->device, dtype, &shape);
}

/* -- both directions of time -------------------------------------------------------------------------- */

static int open_recurrence(recurrence *c, const ac_run *r, ac_tensor *const *operands, const ac_tensor *sizes,
                           const ac_tensor *y) {
    ATTRS(recurrence);
    ac_tensor *state = operands[0], *weight = operands[1];
    *c = (recurrence){.device = ac_run_device(r), .cell = (ac_cell)a->cell, .reverse = a->reverse != 0};
    c->dtype = r->compute, c->wide = ac_opmath_dtype(ac_opmath_of(r->compute)), c->state = state;
    c->batch = state->shape[1], c->units = state->shape[2], c->keeps = ac_cell_keeps(c->cell);
    c->width = ac_cell_gates(c->cell) * c->units, c->steps = sizes ? sizes->numel : y->shape[0];
    c->first = ac_alloc((size_t)(c->steps + 1) * sizeof *c->first);
    if (!c->first) return -1;
    const int64_t *given = sizes ? ac_data(sizes) : NULL;
    c->first[0] = 0;
    for (int64_t t = 0; t < c->steps; t++) c->first[t + 1] = c->first[t] + (given ? given[t] : c->batch);
    c->weight = ac_gpu_dense_as(weight, c->dtype);
    return c->weight ? 0 : -1;
}
static void close_recurrence(recurrence *c) {
    ac_tensor_clear(&c->weight);
    ac_free(c->first, (size_t)(c->steps + 1) * sizeof *c->first);
}

static int launch(const recurrence *c, const moment *m, bool back, const void *args) {
    int64_t n = m->rows * c->units;
    return n ? ac_gpu_launch(c->device, &kernels[c->cell].step[back][ac_gpu_opmath(c->dtype)],
                             ac_gpu_blocks(c->device, n, 1), 0, args)
             : 0;
}

/* -- all steps in one launch -------------------------------------------------------------------------- */

/* Forward two rows of hidden states and the warps' sums; backward the gradients of the sums and of the states. */
static int64_t shared_bytes(const recurrence *c, bool back) {
    enum { TILE = AC_GPU_CELL_ROWS * AC_GPU_CELL_ROWS, WARPS = AC_GPU_THREADS / 32 };
    int64_t units = c->units + AC_GPU_CELL_PAD, width = c->width + AC_GPU_CELL_PAD, gates = c->width / c->units;
    if (back) return AC_GPU_CELL_ROWS * (2 * width + 4 * units);
    return AC_GPU_CELL_ROWS * 2 * 2 * units + WARPS * gates * TILE * 4;
}

/* A block reads the whole weight at every step. Up to here it lies in the multiprocessor's first-level cache, or most
 * of it does; beyond, the second-level one takes longer for it than a product that many blocks share. */
static bool goes_at_once(const recurrence *c, const ac_tensor *sizes, bool back) {
    enum { MOST_WEIGHT = 128 << 10, BOUNDARY = 32, BF16_GENERATION = 8 };
    if (sizes || !ac_is_half(c->dtype) || !c->batch || !c->units || c->units % AC_GPU_CELL_ROWS) return false;
    if (c->dtype == AC_bfloat16 && ac_gpu_generation(c->device) < BF16_GENERATION) return false;
    bool fits = 2 * c->width * c->units <= MOST_WEIGHT && shared_bytes(c, back) <= AC_GPU_CELL_ROOM;
    return fits && (uintptr_t)ac_data(c->weight) % BOUNDARY == 0;
}

static int launch_all(const recurrence *c, bool back, const void *args) {
    int64_t blocks = ac_ceil_div(c->batch, AC_GPU_CELL_ROWS);
    return ac_gpu_launch(c->device, &kernels[c->cell].all[back][c->dtype == AC_bfloat16], blocks,
                         (size_t)shared_bytes(c, back), args);
}

/* Which of the states a cell carries beside the hidden one that products read: an LSTM the second one. */
static int64_t carried_at(const recurrence *c, int64_t row) {
    return ((c->cell == AC_CELL_lstm ? c->batch : 0) + row) * c->units;
}

/* -- forward ---------------------------------------------------------------------------------------------- */

typedef struct {
    recurrence r;
    const ac_tensor *x, *bias;
    ac_tensor *y, *last, *kept, *sums, *carried; /* kept: NULL where backward is not wanted */
} forward;

/* The sums that come from the states: of sequences that ran before from their last result, of others from the first
 * state. */
static int multiply_states(const forward *f, const moment *m) {
    const recurrence *c = &f->r;
    int64_t starting = m->rows - m->started;
    ac_tensor w = turned(rows_of(c->weight, 0, c->width, c->units));
    if (m->started)
        AC_TRY(multiply(c, rows_of(f->y, m->first_before, m->started, c->units), w,
                        rows_of(f->sums, 0, m->started, c->width), false));
    if (!starting) return 0;
    return multiply(c, rows_of(c->state, m->started, starting, c->units), w,
                    rows_of(f->sums, m->started, starting, c->width), false);
}

static ac_gpu_cell forward_args(const forward *f, int64_t step, const moment *m) {
    const recurrence *c = &f->r;
    const ac_tensor *x = f->x;
    bool packed = x->ndim == 2;
    return (ac_gpu_cell){.rows = m->rows,
                         .units = c->units,
                         .starts = m->started,
                         .ends = m->staying,
                         .x = ref_at(x, (packed ? m->first : step) * x->strides[0]),
                         .x_row = x->strides[packed ? 0 : 1],
                         .bias = ac_gpu_ref_of(f->bias),
                         .sums = f->sums ? ac_data(f->sums) : NULL,
                         .carried = ac_data(f->carried),
                         .start = ref_at(c->state, carried_at(c, 0)),
                         .last = ac_gpu_ref_of(f->last),
                         .last_cell = c->batch * c->units,
                         .y = ref_at(f->y, m->first * c->units),
                         .kept = ref_at(f->kept, m->first * c->keeps * c->units)};
}

static int forward_step_by_step(forward *f) {
    const recurrence *c = &f->r;
    f->sums = room(c, c->wide, c->batch, c->width);
    if (!f->sums) return -1;
    for (int64_t s = 0; s < c->steps; s++) {
        int64_t step = c->reverse ? c->steps - 1 - s : s;
        moment m = moment_of(c, step);
        AC_TRY(multiply_states(f, &m));
        ac_gpu_cell args = forward_args(f, step, &m);
        AC_TRY(launch(c, &m, false, &args));
    }
    return 0;
}

static int forward_at_once(const forward *f) {
    const recurrence *c = &f->r;
    int64_t step = c->reverse ? c->steps - 1 : 0, forth = c->reverse ? -1 : 1;
    moment m = moment_of(c, step);
    ac_gpu_cells args = {.step = forward_args(f, step, &m),
                         .weight = ac_data(c->weight),
                         .hidden = ac_gpu_ref_of(c->state),
                         .steps = c->steps,
                         .rows_apart = forth * c->batch,
                         .x_apart = forth * f->x->strides[0]};
    return launch_all(c, false, &args);
}

int ac_cuda_recurrence(const ac_run *r) {
    ac_tensor *const *in = r->in;
    forward f = {
        .x = in[0], .bias = in[3], .y = r->out[0], .last = r->out[1], .kept = r->out[2]->numel ? r->out[2] : NULL};
    recurrence *c = &f.r;
    int failed = open_recurrence(c, r, in + 1, in[4], f.y);
    if (!failed) failed = (f.carried = room(c, c->wide, c->batch, c->keeps ? c->units : 0)) ? 0 : -1;
    if (!failed) failed = goes_at_once(c, in[4], false) ? forward_at_once(&f) : forward_step_by_step(&f);
    ac_tensor_clear(&f.carried);
    ac_tensor_clear(&f.sums);
    close_recurrence(c);
    return failed;
}

/* -- backward ---------------------------------------------------------------------------------------------- */

typedef struct {
    recurrence r;
    const ac_tensor *g, *g_last, *y, *kept;
    ac_tensor *dx, *dstate, *du, *entered; /* du: new where it is not dx; entered: new, of a packed batch, or NULL */
} backward;

/* dstate has the gradients of the states between the steps, too: they become those of the first states. */
static ac_gpu_cell_back backward_args(const backward *b, const moment *m) {
    const recurrence *c = &b->r;
    bool gru = c->cell == AC_CELL_gru, lstm = c->cell == AC_CELL_lstm;
    int64_t hidden = m->first_before * c->units, cell = (m->first_before * c->keeps + c->keeps - 1) * c->units;
    return (ac_gpu_cell_back){.rows = m->rows,
                              .units = c->units,
                              .starts = m->started,
                              .ends = m->staying,
                              .g = ref_at(b->g, m->first * c->units),
                              .g_last = ac_gpu_ref_of(b->g_last),
                              .kept = ref_at(b->kept, m->first * c->keeps * c->units),
                              .y = ref_at(b->y, m->first * c->units),
                              .last_cell = c->batch * c->units,
                              .start = ref_at(c->state, carried_at(c, 0)),
                              .before = lstm ? ref_at(b->kept, cell) : ref_at(b->y, hidden),
                              .before_row = (lstm ? c->keeps : 1) * c->units,
                              .hidden_start = ac_gpu_ref_of(c->state),
                              .hidden = ref_at(b->y, hidden),
                              .entered = ref_at(b->entered, m->first * c->units),
                              .dx = ref_at(b->dx, m->first * c->width),
                              .du = gru ? ref_at(b->du, m->first * c->width) : (ac_gpu_ref){.data = NULL},
                              .dh = ac_data(b->dstate),
                              .dc = ref_at(b->dstate, carried_at(c, 0)).data};
}

static int backward_step_by_step(const backward *b) {
    const recurrence *c = &b->r;
    ac_tensor w = rows_of(c->weight, 0, c->width, c->units);
    for (int64_t s = 0; s < c->steps; s++) {
        moment m = moment_of(c, c->reverse ? s : c->steps - 1 - s);
        ac_gpu_cell_back args = backward_args(b, &m);
        AC_TRY(launch(c, &m, true, &args));
        AC_TRY(multiply(c, rows_of(b->du, m.first, m.rows, c->width), w, rows_of(b->dstate, 0, m.rows, c->units),
                        c->cell == AC_CELL_gru));
    }
    return 0;
}

static int backward_at_once(const backward *b) {
    const recurrence *c = &b->r;
    moment m = moment_of(c, c->reverse ? 0 : c->steps - 1);
    ac_tensor *w = room(c, c->dtype, c->units, c->width), from = turned(rows_of(c->weight, 0, c->width, c->units));
    int failed = w ? ac_gpu_copy(w, &from) : -1;
    ac_gpu_cells_back args = {.step = backward_args(b, &m),
                              .weight = w ? ac_data(w) : NULL,
                              .steps = c->steps,
                              .rows_apart = c->reverse ? c->batch : -c->batch};
    if (!failed) failed = launch_all(c, true, &args);
    ac_tensor_clear(&w);
    return failed;
}

/* dw [width, units]: du turned, times the hidden states that the steps began with. Those of a batch that is not packed
 * are the results, a step apart, and the first states. */
static int weight_gradient(const backward *b, ac_tensor *dw) {
    const recurrence *c = &b->r;
    int64_t all = c->first[c->steps], later = all - c->batch, from = c->reverse ? later : 0;
    ac_tensor to = rows_of(dw, 0, c->width, c->units);
    if (b->entered)
        return multiply(c, turned(rows_of(b->du, 0, all, c->width)), rows_of(b->entered, 0, all, c->units), to, false);
    AC_TRY(multiply(c, turned(rows_of(b->du, from, c->batch, c->width)), rows_of(c->state, 0, c->batch, c->units), to,
                    false));
    if (!later) return 0;
    return multiply(c, turned(rows_of(b->du, c->reverse ? 0 : c->batch, later, c->width)),
                    rows_of(b->y, c->reverse ? c->batch : 0, later, c->units), to, true);
}

static int bias_gradient(const backward *b, ac_tensor *db) {
    ac_tensor du = rows_of(b->du, 0, b->r.first[b->r.steps], b->r.width), *in = &du;
    ac_attrs_reduce rows = {.dim = {1, {0}}, .dtype = (int64_t)db->dtype};
    ac_run sum = {.op = AC_OP_sum, .in = &in, .n_in = 1, .attrs = &rows, .out = &db, .n_out = 1, .compute = b->r.wide};
    return ac_cuda_sum(&sum);
}

int ac_cuda_recurrence_backward(const ac_run *r) {
    ATTRS(recurrence);
    ac_tensor *const *in = r->in;
    backward b = {.g = in[0], .g_last = in[1], .y = in[2], .kept = in[3], .dx = r->out[0], .dstate = r->out[1]};
    recurrence *c = &b.r;
    int failed = open_recurrence(c, r, in + 4, in[6], b.y);
    int64_t all = failed ? 0 : c->first[c->steps];
    if (!failed && in[6]) failed = (b.entered = room(c, c->dtype, all, c->units)) ? 0 : -1;
    if (!failed) b.du = c->cell == AC_CELL_gru ? room(c, c->dtype, all, c->width) : ac_tensor_retain(b.dx);
    if (!failed) failed = b.du ? 0 : -1;
    if (!failed) failed = goes_at_once(c, in[6], true) ? backward_at_once(&b) : backward_step_by_step(&b);
    if (!failed) failed = weight_gradient(&b, r->out[2]);
    if (!failed && a->keep) failed = bias_gradient(&b, r->out[3]);
    ac_tensor_clear(&b.du);
    ac_tensor_clear(&b.entered);
    close_recurrence(c);
    return failed;
}
