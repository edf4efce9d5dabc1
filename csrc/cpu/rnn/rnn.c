/* Recurrent layers over whole sequences. The input's products have been computed for all time steps; this file
 * computes what must go step by step. The sequences of a batch are independent: PART of them go through all time
 * steps on one thread. Their states and sums stay in its caches, and no thread waits for another.
 *
 * The rows of a time step are its sequences. A packed batch has the longest sequences first, so each step has as many
 * rows as sequences still run, and the states of those that have ended stay as they are. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "cpu/gemm/gemm.h"

#include <stdatomic.h>
#include <string.h>

enum { PART = 16 };

typedef struct {
    ac_cell cell;
    bool reverse, biased;
    ac_opmath opmath;
    ac_dtype dtype; /* of results and of what is kept, and what products round to; operands may have others */
    int64_t item, opmath_item;
    int64_t steps, batch, units, gates, keeps; /* sums and kept values a unit */
    int64_t *first;                            /* row of each step's first sequence, and the end */
    const ac_tensor *x, *g, *g_last, *state, *weight, *bias, *y, *kept;
    ac_tensor *out, *last, *keep, *dx, *dstate;
    char *du;           /* gradients of the state's sums: dx itself, unless the cell is a GRU */
    const void *panels; /* the weight packed for every step's product, or NULL */
    double *sums;       /* of du, a row each part */
    const ac_loops *loops;
    _Atomic int failed;
} recurrence;

static int64_t round_up(int64_t bytes) { return (bytes + AC_ALIGNMENT - 1) / AC_ALIGNMENT * AC_ALIGNMENT; }
static int64_t parts_of(const recurrence *c) { return (c->batch + PART - 1) / PART; }
static int64_t sequences(const recurrence *c, int64_t step) { return c->first[step + 1] - c->first[step]; }
static int64_t states_of(const recurrence *c) { return ac_cell_states(c->cell); }

static char *values(const ac_tensor *t, int64_t at) { return (char *)ac_data(t) + at * ac_itemsize(t->dtype); }

static int open_recurrence(recurrence *c, ac_dtype dtype, const ac_tensor *state, const ac_tensor *sizes,
                           int64_t rows) {
    c->gates = ac_cell_gates(c->cell), c->keeps = ac_cell_keeps(c->cell);
    c->state = state, c->dtype = dtype, c->opmath = ac_opmath_of(dtype);
    c->item = ac_itemsize(dtype), c->opmath_item = ac_opmath_bytes(c->opmath);
    c->batch = state->shape[1], c->units = state->shape[2];
    c->steps = sizes ? sizes->numel : c->batch ? rows / c->batch : 0;
    c->loops = ac_cpu_loops();
    c->first = ac_alloc((size_t)(c->steps + 1) * sizeof *c->first);
    if (!c->first) return -1;
    const int64_t *given = sizes ? ac_data(sizes) : NULL;
    c->first[0] = 0;
    for (int64_t t = 0; t < c->steps; t++) c->first[t + 1] = c->first[t] + (given ? given[t] : c->batch);
    return 0;
}
static void close_recurrence(recurrence *c) { ac_free(c->first, (size_t)(c->steps + 1) * sizeof *c->first); }

/* -- products ------------------------------------------------------------------------------------------------- */

/* The weight [gates * units, units] as the right operand: forward along its columns, backward along its rows. */
static ac_operand weight_operand(const recurrence *c, bool back) {
    int64_t all = c->gates * c->units;
    return (ac_operand){.data = ac_data(c->weight),
                        .dtype = c->weight->dtype,
                        .lanes = back ? c->units : all,
                        .k = back ? all : c->units,
                        .lane_stride = back ? 1 : c->units,
                        .k_stride = back ? c->units : 1,
                        .round = c->dtype};
}

/* out [rows, b.lanes] = (what is there, if `add`, +) rows of `dtype`, `row` values apart, times b; in the opmath type
 */
static int multiply(const recurrence *c, const void *a, ac_dtype dtype, int64_t rows, int64_t row, ac_operand b,
                    const void *panels, void *out, bool add) {
    ac_operand left = {
        .data = a, .dtype = dtype, .lanes = rows, .k = b.k, .lane_stride = row, .k_stride = 1, .round = c->dtype};
    ac_gemm_call g = {.a = left,
                      .b = b,
                      .panels = panels,
                      .c = out,
                      .c_dtype = AC_float32,
                      .c_row = b.lanes,
                      .alpha = 1,
                      .beta = add ? 1 : 0,
                      .alone = true,
                      .batch = 1};
    return ac_gemm_run_any(&g);
}

/* Packs the weight once for all steps; without memory, or with values against it, each product packs. */
static size_t pack_weight(recurrence *c, bool back) {
    ac_operand w = weight_operand(c, back);
    size_t bytes = c->opmath == AC_OPMATH_F32 ? (size_t)ac_gemm_panels_bytes(&w) : 0;
    void *room = bytes ? ac_alloc(bytes) : NULL;
    c->panels = room && ac_gemm_pack(&w, room) ? room : NULL;
    if (room && !c->panels) ac_free(room, bytes);
    if (c->panels) AC_WAY(recurrence_packed);
    else AC_WAY(recurrence_unpacked);
    if (parts_of(c) > 1) AC_WAY(recurrence_parts);
    return c->panels ? bytes : 0;
}
static void drop_weight(recurrence *c, size_t bytes) {
    if (c->panels) ac_free((void *)(uintptr_t)c->panels, bytes);
}

static const void *read(const recurrence *c, ac_dtype dtype, int64_t n, const void *from, void *buffer) {
    return ac_read_run(c->loops, c->opmath, dtype, n, from, 1, buffer);
}
static void write(const recurrence *c, ac_dtype dtype, int64_t n, const void *from, void *to) {
    c->loops->store[c->opmath][dtype](n, from, to, 1);
}

/* Rows [0, n) of one of the states, from or to a part's memory. */
static void take_state(const recurrence *c, const ac_tensor *state, int64_t which, int64_t first, int64_t n, void *to) {
    const void *from = values(state, (which * c->batch + first) * c->units);
    c->loops->load[state->dtype][c->opmath](n * c->units, from, 1, to);
}
static void give_state(const recurrence *c, ac_tensor *state, int64_t which, int64_t first, int64_t n,
                       const void *from) {
    write(c, state->dtype, n * c->units, from, values(state, (which * c->batch + first) * c->units));
}

/* -- forward ---------------------------------------------------------------------------------------------------- */

/* Memory of one thread: both states and the state's sums of a part, then rows to convert through. */
typedef struct {
    char *h, *c, *sums, *x, *kept;
} forward_room;

static forward_room forward_rooms(const recurrence *c, char *at, int64_t *bytes) {
    int64_t states = round_up(PART * c->units * c->opmath_item), row = round_up(c->units * c->opmath_item);
    forward_room m = {at, at + states, at + 2 * states, NULL, NULL};
    m.x = m.sums + c->gates * states;
    m.kept = m.x + c->gates * row;
    *bytes = m.kept + (c->keeps + 1) * row - at;
    return m;
}

static char *x_row(const recurrence *c, int64_t step, int64_t sequence) {
    const ac_tensor *x = c->x;
    if (x->ndim == 3) return values(x, step * x->strides[0] + sequence * x->strides[1]);
    return values(x, (c->first[step] + sequence) * x->strides[0]);
}

static int forward_step(recurrence *c, const forward_room *m, int64_t step, int64_t lo, int64_t n) {
    int64_t width = c->gates * c->units, kept = c->keeps * c->units, row = c->units * c->opmath_item;
    bool in_place = c->keep && c->dtype == ac_opmath_dtype(c->opmath);
    ac_dtype dtype = ac_opmath_of(c->x->dtype) == c->opmath ? c->x->dtype : ac_opmath_dtype(c->opmath);
    AC_TRY(multiply(c, m->h, ac_opmath_dtype(c->opmath), n, c->units, weight_operand(c, false), c->panels, m->sums,
                    false));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = c->first[step] + lo + i;
        char *u = m->sums + i * width * c->opmath_item, *keep = in_place ? values(c->keep, at * kept) : m->kept;
        if (c->bias) {
            const void *sums[2] = {u, read(c, c->bias->dtype, width, ac_data(c->bias), m->x)};
            c->loops->point[AC_OP_add][c->opmath](width, sums, u, &(ac_attrs_alpha){{AC_INT, {1}}});
        }
        const void *x = x_row(c, step, lo + i);
        if (dtype != c->x->dtype) x = read(c, c->x->dtype, width, x, m->x);
        c->loops->cell[c->cell][dtype](c->units, x, u, m->h + i * row, m->c + i * row, keep);
        write(c, c->dtype, c->units, m->h + i * row, values(c->out, at * c->units));
        if (c->keep && !in_place) write(c, c->dtype, kept, keep, values(c->keep, at * kept));
    }
    return 0;
}

static int forward_part(recurrence *c, int64_t part, char *scratch) {
    int64_t bytes, lo = part * PART, all = c->batch - lo < PART ? c->batch - lo : PART;
    forward_room m = forward_rooms(c, scratch, &bytes);
    take_state(c, c->state, 0, lo, all, m.h);
    if (c->cell == AC_CELL_lstm) take_state(c, c->state, 1, lo, all, m.c);
    for (int64_t s = 0; s < c->steps && !ac_poll(); s++) {
        int64_t step = c->reverse ? c->steps - 1 - s : s, n = sequences(c, step) - lo;
        if (n > 0) AC_TRY(forward_step(c, &m, step, lo, n < all ? n : all));
    }
    give_state(c, c->last, 0, lo, all, m.h);
    if (c->cell == AC_CELL_lstm) give_state(c, c->last, 1, lo, all, m.c);
    return 0;
}

static void forward_parts(void *context, int64_t begin, int64_t end, char *scratch) {
    recurrence *c = context;
    for (int64_t i = begin; i < end; i++)
        if (forward_part(c, i, scratch) < 0) atomic_store(&c->failed, 1);
}

static int finish(const recurrence *c, int failed) {
    if (failed || !atomic_load(&c->failed)) return failed;
    return ac_fail(AC_MEMORY, "not enough memory for a recurrent layer's products");
}

int ac_cpu_recurrence(const ac_run *r) {
    ATTRS(recurrence);
    recurrence c = {.cell = (ac_cell)a->cell,
                    .reverse = a->reverse != 0,
                    .x = r->in[0],
                    .weight = r->in[2],
                    .bias = r->in[3],
                    .out = r->out[0],
                    .last = r->out[1],
                    .keep = r->out[2]->numel ? r->out[2] : NULL};
    if (c.x->numel == 0 || r->in[1]->numel == 0) { /* no step changes the states */
        ac_cpu_copy_into(r->out[1], r->in[1]);
        return 0;
    }
    AC_TRY(open_recurrence(&c, r->compute, r->in[1], r->in[4], r->out[0]->numel / r->in[1]->shape[2]));
    int64_t bytes;
    (void)forward_rooms(&c, NULL, &bytes);
    size_t packed = pack_weight(&c, false);
    int failed = ac_for_range_with(parts_of(&c), 1, (size_t)bytes, forward_parts, &c);
    drop_weight(&c, packed);
    close_recurrence(&c);
    return finish(&c, failed);
}

/* -- backward ------------------------------------------------------------------------------------------------------ */

/* Memory of one thread: gradients of both states of a part, then rows to convert through. */
typedef struct {
    char *dh, *dc, *kept, *before, *y, *g, *dx, *du;
    double *wide; /* du */
} backward_room;

static backward_room backward_rooms(const recurrence *c, char *at, int64_t *bytes) {
    int64_t states = round_up(PART * c->units * c->opmath_item), row = round_up(c->units * c->opmath_item);
    backward_room m = {.dh = at, .dc = at + states, .kept = at + 2 * states};
    m.before = m.kept + (c->keeps + 1) * row;
    m.y = m.before + row, m.g = m.y + row, m.dx = m.g + row, m.du = m.dx + c->gates * row;
    m.wide = (double *)(void *)(m.du + c->gates * row);
    *bytes = (char *)m.wide + round_up(c->gates * c->units * (int64_t)sizeof *m.wide) - at;
    return m;
}

/* The step that went before `step`, for this sequence; -1 where the state came from outside. */
static int64_t step_before(const recurrence *c, int64_t step, int64_t sequence) {
    int64_t before = c->reverse ? step + 1 : step - 1;
    return before >= 0 && before < c->steps && sequence < sequences(c, before) ? before : -1;
}

/* The hidden (or, of an LSTM, the cell) state that a step began with; *dtype says in what. */
static const char *state_before(const recurrence *c, int64_t step, int64_t sequence, bool cell, ac_dtype *dtype) {
    int64_t before = step_before(c, step, sequence), at = before < 0 ? sequence : c->first[before] + sequence;
    *dtype = before < 0 ? c->state->dtype : cell ? c->kept->dtype : c->y->dtype;
    if (before < 0) return values(c->state, ((cell ? c->batch : 0) + sequence) * c->units);
    return cell ? values(c->kept, (at * c->keeps + 4) * c->units) : values(c->y, at * c->units);
}

/* The cell of one sequence, whose values are those of row `at`. Operands of several dtypes are converted. */
static void cell_back(const recurrence *c, const backward_room *m, int64_t step, int64_t sequence, char *dh, char *dc) {
    int64_t at = c->first[step] + sequence, kept = c->keeps * c->units;
    ac_dtype old = c->dtype, dtype = c->dtype;
    const void *g = values(c->g, at * c->units), *y = values(c->y, at * c->units);
    const void *keep = kept ? values(c->kept, at * kept) : NULL, *before = NULL;
    if (kept) before = state_before(c, step, sequence, c->cell == AC_CELL_lstm, &old);
    if (c->g->dtype != dtype || c->y->dtype != dtype || (kept && c->kept->dtype != dtype) || old != dtype) {
        dtype = ac_opmath_dtype(c->opmath);
        g = read(c, c->g->dtype, c->units, g, m->g), y = read(c, c->y->dtype, c->units, y, m->y);
        if (kept)
            keep = read(c, c->kept->dtype, kept, keep, m->kept), before = read(c, old, c->units, before, m->before);
    }
    c->loops->cell_back[c->cell][dtype](c->units, keep, before, y, g, dh, dc, m->dx, m->du);
}

static int backward_step(recurrence *c, const backward_room *m, int64_t step, int64_t lo, int64_t n, double *sums) {
    int64_t width = c->gates * c->units, row = c->units * c->opmath_item;
    bool gru = c->cell == AC_CELL_gru;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = c->first[step] + lo + i;
        cell_back(c, m, step, lo + i, m->dh + i * row, m->dc + i * row);
        write(c, c->dtype, width, m->dx, values(c->dx, at * width));
        if (gru) write(c, c->dtype, width, m->du, c->du + at * width * c->item);
        if (!sums) continue;
        c->loops->load[ac_opmath_dtype(c->opmath)][AC_OPMATH_F64](width, gru ? m->du : m->dx, 1, m->wide);
        c->loops->fold_columns[AC_FOLD_SUM][AC_OPMATH_F64](1, width, m->wide, 0, 0, sums);
    }
    return multiply(c, c->du + (c->first[step] + lo) * width * c->item, c->dtype, n, width, weight_operand(c, true),
                    c->panels, m->dh, true);
}

static int backward_part(recurrence *c, int64_t part, char *scratch) {
    int64_t bytes, lo = part * PART, all = c->batch - lo < PART ? c->batch - lo : PART;
    backward_room m = backward_rooms(c, scratch, &bytes);
    double *sums = c->sums ? c->sums + part * c->gates * c->units : NULL;
    take_state(c, c->g_last, 0, lo, all, m.dh);
    if (c->cell == AC_CELL_lstm) take_state(c, c->g_last, 1, lo, all, m.dc);
    for (int64_t s = 0; s < c->steps && !ac_poll(); s++) {
        int64_t step = c->reverse ? s : c->steps - 1 - s, running = sequences(c, step) - lo;
        if (running > 0) AC_TRY(backward_step(c, &m, step, lo, running < all ? running : all, sums));
    }
    for (int64_t which = 0; which < states_of(c); which++)
        give_state(c, c->dstate, which, lo, all, which ? m.dc : m.dh);
    return 0;
}

static void backward_parts(void *context, int64_t begin, int64_t end, char *scratch) {
    recurrence *c = context;
    for (int64_t i = begin; i < end; i++)
        if (backward_part(c, i, scratch) < 0) atomic_store(&c->failed, 1);
}

/* dw [gates * units, units]: du turned, times the hidden states that the steps began with (copied to `before`). */
static int weight_gradient(const recurrence *c, char *before, void *row, ac_tensor *dw) {
    int64_t rows = c->first[c->steps], width = c->gates * c->units;
    for (int64_t step = 0; step < c->steps; step++)
        for (int64_t i = 0; i < sequences(c, step); i++) {
            ac_dtype old;
            const char *from = state_before(c, step, i, false, &old);
            char *to = before + (c->first[step] + i) * c->units * c->item;
            if (old == c->dtype) memcpy(to, from, (size_t)(c->units * c->item));
            else write(c, c->dtype, c->units, read(c, old, c->units, from, row), to);
        }
    ac_operand a = {.data = c->du,
                    .dtype = c->dtype,
                    .lanes = width,
                    .k = rows,
                    .lane_stride = 1,
                    .k_stride = width,
                    .round = c->dtype};
    ac_operand b = {.data = before,
                    .dtype = c->dtype,
                    .lanes = c->units,
                    .k = rows,
                    .lane_stride = 1,
                    .k_stride = c->units,
                    .round = c->dtype};
    ac_gemm_call g = {
        .a = a, .b = b, .c = ac_data(dw), .c_dtype = AC_float32, .c_row = c->units, .alpha = 1, .batch = 1};
    return ac_gemm_run_any(&g);
}

static void bias_gradient(const recurrence *c, ac_tensor *db) {
    for (int64_t part = 1; part < parts_of(c); part++)
        for (int64_t j = 0; j < c->gates * c->units; j++) c->sums[j] += c->sums[part * c->gates * c->units + j];
    c->loops->store[AC_OPMATH_F64][db->dtype](c->gates * c->units, c->sums, ac_data(db), 1);
}

static int run_backward(recurrence *c, ac_tensor *dw, ac_tensor *db) {
    int64_t rows = c->first[c->steps], width = c->gates * c->units, bytes, row = round_up(rows * c->units * c->item);
    size_t states = (size_t)(row + c->units * c->opmath_item),
           /* with room for a row to convert through */ sums = (size_t)(parts_of(c) * width) * sizeof *c->sums,
           packed = pack_weight(c, true), own_du = c->cell == AC_CELL_gru ? (size_t)(rows * width * c->item) : 0;
    char *before = ac_alloc(states);
    c->du = own_du ? ac_alloc(own_du) : ac_data(c->dx);
    c->sums = c->biased ? ac_calloc(sums) : NULL;
    (void)backward_rooms(c, NULL, &bytes);
    int failed = before && c->du && (c->sums || !c->biased) ? 0 : -1;
    if (!failed) failed = ac_for_range_with(parts_of(c), 1, (size_t)bytes, backward_parts, c);
    failed = finish(c, failed);
    if (!failed && !ac_interrupted()) failed = weight_gradient(c, before, before + row, dw);
    if (!failed && c->biased) bias_gradient(c, db);
    if (c->biased) ac_free(c->sums, sums);
    if (own_du) ac_free(c->du, own_du);
    ac_free(before, states);
    drop_weight(c, packed);
    return failed;
}

int ac_cpu_recurrence_backward(const ac_run *r) {
    ATTRS(recurrence);
    ac_tensor *const *in = r->in;
    recurrence c = {.cell = (ac_cell)a->cell,
                    .reverse = a->reverse != 0,
                    .biased = a->keep != 0,
                    .g = in[0],
                    .g_last = in[1],
                    .y = in[2],
                    .kept = in[3],
                    .weight = in[5],
                    .dx = r->out[0],
                    .dstate = r->out[1]};
    if (in[2]->numel == 0) {
        ac_cpu_copy_into(r->out[1], in[1]);
        for (int i = 2; i < 4; i++)
            memset(ac_data(r->out[i]), 0, (size_t)(r->out[i]->numel * ac_itemsize(r->out[i]->dtype)));
        return 0;
    }
    AC_TRY(open_recurrence(&c, r->compute, in[4], in[6], in[2]->numel / in[4]->shape[2]));
    int failed = run_backward(&c, r->out[2], r->out[3]);
    close_recurrence(&c);
    return failed;
}
