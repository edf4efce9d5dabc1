/* Optimizer steps over lists of parameters, in one pass over memory. The pass also packs again the copies that
 * products read, while the new values are in the cache. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "cpu/gemm/gemm.h"

#include <stdatomic.h>
#include <string.h>

typedef struct {
    ac_update *updates;
    int n;
    int64_t *first; /* the first piece of each update, and their number at [n] */
    const ac_step_args *constants;
    ac_update_rule rule;
} step_call;

/* -- how parameters are cut ---------------------------------------------------------------------------- */

/* Pieces are parts of a matrix; a parameter without copies is a single row. */
typedef struct {
    int64_t rows, cols;                      /* of the parameter */
    int64_t piece_rows, piece_cols, per_row; /* of a piece; pieces side by side */
} cutting;

static cutting cutting_of(const ac_update *u) {
    const ac_tensor *p = u->param;
    cutting c = {.rows = 1, .cols = p->numel, .piece_rows = 1, .piece_cols = AC_PIECE};
    if (u->kept[0].panels) {
        c.rows = p->shape[0], c.cols = p->shape[1];
        c.piece_rows = AC_PART, c.piece_cols = AC_PIECE / AC_PART;
        if (c.cols < c.piece_cols) c.piece_rows = AC_PIECE / c.cols / AC_PART * AC_PART;
    }
    c.per_row = (c.cols + c.piece_cols - 1) / c.piece_cols;
    return c;
}

static int64_t pieces_of(const ac_update *u) {
    cutting c = cutting_of(u);
    return (c.rows + c.piece_rows - 1) / c.piece_rows * c.per_row;
}

static ac_part part_of(const cutting *c, int64_t piece) {
    ac_part p = {.row = piece / c->per_row * c->piece_rows, .col = piece % c->per_row * c->piece_cols};
    p.rows = c->rows - p.row < c->piece_rows ? c->rows - p.row : c->piece_rows;
    p.cols = c->cols - p.col < c->piece_cols ? c->cols - p.col : c->piece_cols;
    return p;
}

/* -- values ---------------------------------------------------------------------------------------------- */

/* Elements [at, at + n) of t in row-major order, in opmath type: the memory itself, or `buffer`. */
static void *read_at(const ac_loops *loops, ac_opmath opmath, const ac_tensor *t, int64_t at, int64_t n,
                     double *buffer) {
    int64_t item = ac_itemsize(t->dtype);
    if (ac_is_contiguous(t)) {
        char *from = (char *)ac_data(t) + at * item;
        if (t->dtype == ac_opmath_dtype(opmath)) return from;
        loops->load[t->dtype][opmath](n, from, 1, buffer);
        return buffer;
    }
    ac_space all = ac_space_of(t, UINT32_MAX);
    for (int64_t i = 0; i < n; i++) {
        const char *from = (char *)ac_data(t) + ac_space_offset(&all, at + i) * item;
        loops->load[t->dtype][opmath](1, from, 1, (char *)buffer + i * ac_opmath_bytes(opmath));
    }
    return buffer;
}

static void write_at(const ac_loops *loops, ac_opmath opmath, const ac_tensor *t, int64_t at, int64_t n,
                     const void *values) {
    int64_t item = ac_itemsize(t->dtype);
    if (ac_is_contiguous(t)) {
        if (values != (char *)ac_data(t) + at * item)
            loops->store[opmath][t->dtype](n, values, (char *)ac_data(t) + at * item, 1);
        return;
    }
    ac_space all = ac_space_of(t, UINT32_MAX);
    for (int64_t i = 0; i < n; i++)
        loops->store[opmath][t->dtype](1, (const char *)values + i * ac_opmath_bytes(opmath),
                                       (char *)ac_data(t) + ac_space_offset(&all, at + i) * item, 1);
}

static float nearest(ac_dtype dtype, float x) {
    return dtype == AC_bfloat16 ? ac_bf16_to_f32(ac_f32_to_bf16(x)) : ac_f16_to_f32(ac_f32_to_f16(x));
}

/* The values that a 16-bit parameter takes, in float32: from what it had and what the update rule made. */
static void round_run(const ac_loops *loops, const ac_update *u, int64_t at, int64_t n, const float *old,
                      float *values) {
    ac_dtype dtype = u->param->dtype;
    double room[AC_TILE];
    if (u->rounding == AC_ROUND_master) write_at(loops, AC_OPMATH_F32, u->extra, at, n, values);
    if (u->rounding == AC_ROUND_kahan) {
        float *lost = read_at(loops, AC_OPMATH_F32, u->extra, at, n, room);
        for (int64_t i = 0; i < n; i++) {
            float by = values[i] - old[i] + lost[i];
            values[i] = nearest(dtype, old[i] + by);
            lost[i] = by - (values[i] - old[i]);
        }
        write_at(loops, AC_OPMATH_F32, u->extra, at, n, lost);
    }
    for (int64_t i = 0; i < n && u->rounding == AC_ROUND_stochastic; i++) {
        uint64_t number = (uint64_t)(at + i);
        ac_philox_block random = ac_philox(u->seed, u->offset + number / 4);
        values[i] = ac_round_stochastic(values[i], dtype == AC_bfloat16, random.v[number % 4]);
    }
}

/* All of an update's tensors lie in one run each, in opmath type: it needs no buffers. */
static bool is_direct(const ac_update *u) {
    ac_dtype opmath = ac_opmath_dtype(ac_opmath_of(u->param->dtype));
    bool direct = u->grad->dtype == opmath && ac_is_contiguous(u->grad) && u->param->dtype == opmath &&
                  ac_is_contiguous(u->param);
    for (int k = 0; k < AC_MAX_STATE; k++)
        if (u->state[k]) direct = direct && u->state[k]->dtype == opmath && ac_is_contiguous(u->state[k]);
    return direct;
}

static void zero_run(const ac_tensor *grad, int64_t at, int64_t n) {
    int64_t item = ac_itemsize(grad->dtype);
    char *data = ac_data(grad);
    if (ac_is_contiguous(grad)) {
        memset(data + at * item, 0, (size_t)(n * item));
        return;
    }
    ac_space all = ac_space_of(grad, UINT32_MAX);
    for (int64_t i = at; i < at + n; i++) memset(data + ac_space_offset(&all, i) * item, 0, (size_t)item);
}

/* At most AC_TILE values, unless the update is direct. */
static void step_run(ac_update_rule rule, const ac_step_args *how, const ac_update *u, int64_t at, int64_t n) {
    const ac_loops *loops = ac_cpu_loops();
    ac_opmath opmath = ac_opmath_of(u->param->dtype);
    double g[AC_TILE], p[AC_TILE], s[AC_MAX_STATE][AC_TILE];
    const void *grad = read_at(loops, opmath, u->grad, at, n, g);
    void *param = read_at(loops, opmath, u->rounding == AC_ROUND_master ? u->extra : u->param, at, n, p);
    void *state[AC_MAX_STATE];
    float old[AC_TILE];
    if (u->rounding == AC_ROUND_kahan) memcpy(old, param, (size_t)n * sizeof *old);
    for (int k = 0; k < AC_MAX_STATE; k++)
        state[k] = u->state[k] ? read_at(loops, opmath, u->state[k], at, n, s[k]) : NULL;
    loops->step[rule][opmath](n, &how->options, &u->at, grad, param, state);
    if (u->rounding != AC_ROUND_nearest) round_run(loops, u, at, n, old, param);
    write_at(loops, opmath, u->param, at, n, param);
    for (int k = 0; k < AC_MAX_STATE; k++)
        if (u->state[k]) write_at(loops, opmath, u->state[k], at, n, state[k]);
    if (how->zero) zero_run(u->grad, at, n);
}

/* -- pieces ------------------------------------------------------------------------------------------------ */

static void one_piece(const step_call *c, ac_update *u, int64_t piece) {
    cutting cut = cutting_of(u);
    ac_part part = part_of(&cut, piece);
    bool direct = is_direct(u);
    if (direct) AC_WAY(step_in_place);
    else AC_WAY(step_in_tiles);
    bool one_run = part.cols == cut.cols; /* whole rows follow each other in memory */
    int64_t runs = one_run ? 1 : part.rows, length = one_run ? part.rows * part.cols : part.cols;
    for (int64_t i = 0; i < runs; i++) {
        int64_t at = (part.row + i) * cut.cols + part.col, end = at + length;
        int64_t most = direct ? length : AC_TILE;
        for (; at < end; at += most) step_run(c->rule, c->constants, u, at, end - at < most ? end - at : most);
    }
    for (int k = 0; k < AC_KEPT && u->kept[k].panels; k++) {
        ac_kept *kept = &u->kept[k];
        AC_WAY(copy_renewed);
        if (!ac_cpu_pack_part(u->param, kept->kind.dtype, kept->kind.out_first, &part, ac_data(kept->panels)))
            atomic_store(&kept->refuse, true);
    }
}

static void step_pieces(void *context, int64_t begin, int64_t end) {
    const step_call *c = context;
    for (int64_t piece = begin; piece < end; piece++) {
        int owner = ac_owner_of(c->first, c->n, piece);
        one_piece(c, &c->updates[owner], piece - c->first[owner]);
    }
}

int ac_cpu_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants) {
    size_t bytes = (size_t)(n + 1) * sizeof(int64_t);
    step_call c = {updates, n, ac_alloc(bytes), constants, rule};
    if (!c.first) return -1;
    c.first[0] = 0;
    int64_t elements = 0;
    for (int i = 0; i < n; i++) {
        c.first[i + 1] = c.first[i] + pieces_of(&updates[i]);
        elements += updates[i].param->numel;
    }
    if (c.first[n] > n) AC_WAY(step_pieces);
    ac_for_range(c.first[n], ac_pieces_grain(c.first[n], elements), step_pieces, &c);
    ac_free(c.first, bytes);
    return 0;
}
