/* Shape functions of attention, recurrent layers and linear algebra. */
#include "ops/infer.h"

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

static int same_lead(const ac_infer *i, int first, int other) {
    const ac_tensor *x = i->in[first], *y = i->in[other];
    bool good = x->ndim == y->ndim && x->ndim >= 2;
    for (int d = 0; good && d + 2 < x->ndim; d++) good = x->shape[d] == y->shape[d];
    if (good) return 0;
    char xt[AC_SHAPE_TEXT], yt[AC_SHAPE_TEXT];
    return ac_fail(
        AC_RUNTIME, "%s: `%s` %s and `%s` %s must have equally many dimensions, all but the last two the same",
        i->info->shown, ac_input_name(i, first), ac_shape_text(x, xt), ac_input_name(i, other), ac_shape_text(y, yt));
}

static int need_dense_rows(const ac_infer *i, int input) {
    const ac_tensor *x = i->in[input];
    if (x->numel == 0 || x->shape[x->ndim - 1] == 1 || x->strides[x->ndim - 1] == 1) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous in its last dimension", i->info->shown,
                   ac_input_name(i, input));
}

/* query, key, value and mask, the first of them being input `at` */
static int check(ac_infer *i, int at) {
    const ac_tensor *q = i->in[at], *k = i->in[at + 1], *v = i->in[at + 2], *mask = i->in[at + 3];
    for (int n = 0; n < 3; n++) {
        AC_TRY(ac_need_floating(i, at + n));
        AC_TRY(same_lead(i, at, at + n));
        AC_TRY(need_dense_rows(i, at + n));
        if (i->low == AC_NO_DTYPE) AC_TRY(ac_need_same_dtype(i, at, at + n));
    }
    int last = q->ndim - 1;
    ac_dims keys = ac_shape_of(k), values = ac_shape_of(v), scores = ac_shape_of(q);
    keys.v[last] = q->shape[last], values.v[last - 1] = k->shape[last - 1], scores.v[last] = k->shape[last - 1];
    AC_TRY(ac_need_shape(i, at + 1, &keys));
    AC_TRY(ac_need_shape(i, at + 2, &values));
    i->compute = i->low == AC_NO_DTYPE ? q->dtype : (ac_dtype)i->low;
    if (!mask) return 0;
    if (mask->dtype != AC_bool) AC_TRY(ac_need_floating(i, at + 3));
    return ac_need_shape(i, at + 3, &scores);
}

static int out_dtype(const ac_infer *i, int64_t asked, ac_dtype *dtype) {
    *dtype = asked == AC_NO_DTYPE ? i->compute : (ac_dtype)asked;
    if (ac_is_floating(*dtype)) return 0;
    return ac_fail(AC_RUNTIME, "%s: `out_dtype` must be floating point, got %s", i->info->shown,
                   ac_dtypes[*dtype].name);
}

int ac_infer_fused_attention(ac_infer *i) {
    ATTRS(fused_attention);
    AC_TRY(check(i, 0));
    AC_TRY(out_dtype(i, a->out_dtype, &i->out[0].dtype));
    i->out[0].shape = ac_shape_of(i->in[0]);
    i->out[0].shape.v[i->in[0]->ndim - 1] = i->in[2]->shape[i->in[2]->ndim - 1];
    return 0;
}

int ac_infer_fused_attention_backward(ac_infer *i) {
    ATTRS(fused_attention);
    AC_TRY(check(i, 1));
    ac_dims shape = ac_shape_of(i->in[1]);
    shape.v[shape.n - 1] = i->in[3]->shape[shape.n - 1];
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_shape(i, 0, &shape));
    AC_TRY(need_dense_rows(i, 0));
    for (int n = 0; n < 3; n++) {
        AC_TRY(out_dtype(i, a->out_dtype, &i->out[n].dtype));
        i->out[n].shape = ac_shape_of(i->in[n + 1]);
    }
    return 0;
}

int ac_infer_flash_attention(ac_infer *i) {
    AC_TRY(check(i, 0));
    i->out[0] = (ac_spec){i->compute, ac_shape_of(i->in[0]), AC_CPU};
    i->out[0].shape.v[i->in[0]->ndim - 1] = i->in[2]->shape[i->in[2]->ndim - 1];
    i->out[1] = (ac_spec){AC_float32, ac_shape_of(i->in[0]), AC_CPU};
    i->out[1].shape.v[i->in[0]->ndim - 1] = 2;
    return 0;
}

int ac_infer_flash_attention_backward(ac_infer *i) {
    ATTRS(flash_attention_backward);
    AC_TRY(check(i, 1));
    ac_dims y = ac_shape_of(i->in[1]), sums = y, scores = y;
    int64_t last = y.n - 1;
    y.v[last] = i->in[3]->shape[last], scores.v[last] = i->in[2]->shape[last - 1], sums.v[last] = 2;
    AC_TRY(ac_need_same_dtype(i, 0, 1));
    AC_TRY(ac_need_same_dtype(i, 1, 5));
    AC_TRY(ac_need_shape(i, 0, &y));
    AC_TRY(ac_need_shape(i, 5, &y));
    AC_TRY(ac_need_shape(i, 6, &sums));
    if (i->in[6]->dtype != AC_float32)
        return ac_fail(AC_RUNTIME, "%s: `log_sums` must be float32, got %s", i->info->shown,
                       ac_dtypes[i->in[6]->dtype].name);
    for (int n = 0; n < 3; n++) i->out[n] = (ac_spec){i->compute, ac_shape_of(i->in[n + 1]), AC_CPU};
    i->out[3] = (ac_spec){AC_float32, a->mask_gradient ? scores : (ac_dims){1, {0}}, AC_CPU};
    return 0;
}

/* -- recurrent layers -------------------------------------------------------------------------------------- */

/* Steps of a packed batch: how many sequences still run, all of them at first. Their sum is `*rows`. */
static int check_sizes(const ac_infer *i, const ac_tensor *sizes, int64_t batch, int64_t *rows) {
    const char *wrong = NULL;
    *rows = 0;
    if (sizes->ndim != 1 || sizes->dtype != AC_int64 || ac_device_of(sizes) != AC_CPU || !ac_is_contiguous(sizes))
        return ac_fail(AC_RUNTIME, "%s: `sizes` must be a contiguous int64 tensor of one dimension on the CPU",
                       i->info->shown);
    const int64_t *n = ac_data(sizes);
    if (sizes->numel == 0) wrong = "no step";
    for (int64_t t = 0; t < sizes->numel && !wrong; t++) {
        if (n[t] < 1) wrong = "a step without a sequence";
        else if (t ? n[t] > n[t - 1] : n[t] != batch)
            wrong = t ? "more sequences than the step before" : "not all states";
        *rows += n[t];
    }
    return wrong ? ac_fail(AC_RUNTIME, "%s: `sizes` has %s; pack sequences with nn.utils.rnn", i->info->shown, wrong)
                 : 0;
}

/* The dtype of all operands, unless autocast rounds them. */
static int need_one_dtype(const ac_infer *i, int a, int b) {
    return i->low == AC_NO_DTYPE ? ac_need_same_dtype(i, a, b) : ac_need_floating(i, b);
}

static int check_recurrence(ac_infer *i, int state, int weight, int sizes, ac_cell cell, ac_dims *rows) {
    int64_t gates = ac_cell_gates(cell), packed;
    const ac_tensor *s = i->in[state];
    AC_TRY(ac_need_ndim(i, state, 3));
    ac_dims states = {3, {ac_cell_states(cell), s->shape[1], s->shape[2]}},
            matrix = {2, {gates * s->shape[2], s->shape[2]}};
    AC_TRY(ac_need_floating(i, state));
    AC_TRY(ac_need_shape(i, state, &states));
    AC_TRY(ac_need_shape(i, weight, &matrix));
    for (int n = state; n <= weight; n++) {
        AC_TRY(need_one_dtype(i, state, n));
        if (!ac_is_contiguous(i->in[n]))
            return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous", i->info->shown, ac_input_name(i, n));
    }
    i->compute = i->low == AC_NO_DTYPE ? s->dtype : (ac_dtype)i->low;
    if (!i->in[sizes]) {
        const ac_tensor *x = i->in[state == 1 ? 0 : 2]; /* [steps, sequences, features] */
        AC_TRY(ac_need_ndim(i, state == 1 ? 0 : 2, 3));
        *rows = (ac_dims){3, {x->shape[0], s->shape[1], 0}};
        return x->shape[0] ? 0 : ac_fail(AC_RUNTIME, "%s: there are no steps", i->info->shown);
    }
    AC_TRY(check_sizes(i, i->in[sizes], s->shape[1], &packed));
    *rows = (ac_dims){2, {packed, 0}};
    return 0;
}

int ac_infer_recurrence(ac_infer *i) {
    ATTRS(recurrence);
    int64_t gates = ac_cell_gates(a->cell), keeps = ac_cell_keeps(a->cell);
    ac_dims rows, bias;
    AC_TRY(check_recurrence(i, 1, 2, 4, (ac_cell)a->cell, &rows));
    ac_dims y = rows, x = rows;
    int64_t units = i->in[1]->shape[2], last = rows.n - 1;
    y.v[last] = units, x.v[last] = gates * units, bias = (ac_dims){1, {gates * units}};
    AC_TRY(ac_need_shape(i, 0, &x));
    AC_TRY(need_one_dtype(i, 1, 0));
    AC_TRY(need_dense_rows(i, 0));
    if (i->in[3]) {
        AC_TRY(ac_need_shape(i, 3, &bias));
        AC_TRY(need_one_dtype(i, 1, 3));
        AC_TRY(need_dense_rows(i, 3));
    }
    i->out[0] = (ac_spec){i->compute, y, AC_CPU}, i->out[1] = (ac_spec){i->compute, ac_shape_of(i->in[1]), AC_CPU};
    y.v[last] = keeps * units;
    i->out[2] = (ac_spec){i->compute, a->keep ? y : (ac_dims){1, {0}}, AC_CPU};
    return 0;
}

int ac_infer_recurrence_backward(ac_infer *i) {
    ATTRS(recurrence);
    int64_t gates = ac_cell_gates(a->cell), keeps = ac_cell_keeps(a->cell);
    ac_dims rows, states = ac_shape_of(i->in[4]);
    AC_TRY(check_recurrence(i, 4, 5, 6, (ac_cell)a->cell, &rows));
    int64_t units = states.v[2], last = rows.n - 1, all = gates * units;
    rows.v[last] = units;
    AC_TRY(ac_need_shape(i, 0, &rows));
    AC_TRY(ac_need_shape(i, 1, &states));
    AC_TRY(ac_need_shape(i, 2, &rows));
    rows.v[last] = keeps * units;
    AC_TRY(ac_need_shape(i, 3, &rows));
    for (int n = 0; n < 4; n++) {
        AC_TRY(need_one_dtype(i, 4, n));
        if (!ac_is_contiguous(i->in[n]))
            return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous", i->info->shown, ac_input_name(i, n));
    }
    ac_dtype sums = i->compute == AC_float64 ? AC_float64 : AC_float32;
    rows.v[last] = all;
    i->out[0] = (ac_spec){i->compute, rows, AC_CPU}, i->out[1] = (ac_spec){sums, states, AC_CPU};
    i->out[2] = (ac_spec){sums, ac_shape_of(i->in[5]), AC_CPU};
    i->out[3] = (ac_spec){sums, {1, {a->keep ? all : 0}}, AC_CPU};
    return 0;
}

/* -- linear algebra ------------------------------------------------------------------------------------ */

static int need_matrices(const ac_infer *i, int input, bool square) {
    const ac_tensor *x = i->in[input];
    char text[AC_SHAPE_TEXT];
    if (x->dtype != AC_float32 && x->dtype != AC_float64)
        return ac_fail(AC_RUNTIME, "%s: needs float32 or float64, got %s", i->info->shown, ac_dtypes[x->dtype].name);
    bool good = x->ndim >= 2 && (!square || x->shape[x->ndim - 1] == x->shape[x->ndim - 2]);
    if (good) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs %smatrices [..., rows, columns], got shape %s", i->info->shown,
                   square ? "square " : "", ac_shape_text(x, text));
}

/* One number for each matrix: 0, or where it is not what the operator needs. */
static ac_spec info_of(const ac_infer *i) {
    ac_spec s = {AC_int32, ac_shape_of(i->in[0]), AC_CPU};
    s.shape.n -= 2;
    return s;
}

int ac_infer_cholesky(ac_infer *i) {
    AC_TRY(need_matrices(i, 0, true));
    AC_TRY(ac_infer_same(i));
    i->out[1] = info_of(i);
    return 0;
}

static int fit_square(ac_infer *i, int right, ac_spec *out) {
    AC_TRY(need_matrices(i, 0, true));
    AC_TRY(need_matrices(i, right, false));
    AC_TRY(ac_need_same_dtype(i, 0, right));
    ac_dims want = ac_shape_of(i->in[0]);
    want.v[want.n - 1] = i->in[right]->shape[i->in[right]->ndim - 1];
    AC_TRY(ac_need_shape(i, right, &want));
    *out = (ac_spec){i->in[0]->dtype, want, AC_CPU};
    return 0;
}

int ac_infer_solve(ac_infer *i) {
    AC_TRY(fit_square(i, 1, &i->out[0]));
    i->out[1] = info_of(i);
    return 0;
}

int ac_infer_solve_triangle(ac_infer *i) { return fit_square(i, 1, &i->out[0]); }

int ac_infer_det(ac_infer *i) {
    AC_TRY(need_matrices(i, 0, true));
    ac_dims lead = ac_shape_of(i->in[0]);
    lead.n -= 2;
    i->out[0] = (ac_spec){i->in[0]->dtype, lead, AC_CPU};
    return 0;
}

int ac_infer_slogdet(ac_infer *i) {
    AC_TRY(ac_infer_det(i));
    i->out[1] = i->out[0];
    return 0;
}

static ac_spec part(const ac_infer *i, int64_t rows, int64_t cols) {
    ac_spec s = {i->in[0]->dtype, ac_shape_of(i->in[0]), AC_CPU};
    s.shape.v[s.shape.n - 2] = rows, s.shape.v[s.shape.n - 1] = cols;
    return s;
}

int ac_infer_qr(ac_infer *i) {
    AC_TRY(need_matrices(i, 0, false));
    int64_t m = i->in[0]->shape[i->in[0]->ndim - 2], n = i->in[0]->shape[i->in[0]->ndim - 1], k = m < n ? m : n;
    i->out[0] = part(i, m, k), i->out[1] = part(i, k, n);
    return 0;
}

int ac_infer_eigh(ac_infer *i) {
    AC_TRY(need_matrices(i, 0, true));
    int64_t n = i->in[0]->shape[i->in[0]->ndim - 1];
    i->out[1] = part(i, n, n), i->out[0] = i->out[1];
    i->out[0].shape.n--;
    return 0;
}

int ac_infer_svd(ac_infer *i) {
    ATTRS(full_matrices);
    AC_TRY(need_matrices(i, 0, false));
    int64_t m = i->in[0]->shape[i->in[0]->ndim - 2], n = i->in[0]->shape[i->in[0]->ndim - 1], k = m < n ? m : n;
    i->out[0] = part(i, m, a->full ? m : k), i->out[2] = part(i, a->full ? n : k, n), i->out[1] = part(i, k, k);
    i->out[1].shape.n--;
    return 0;
}

/* k numbers for each matrix */
static ac_spec line_of(const ac_infer *i, int64_t k, ac_dtype dtype) {
    ac_spec s = part(i, k, k);
    s.shape.n--, s.dtype = dtype;
    return s;
}

static int infer_factor(ac_infer *i, bool square, bool info, ac_dtype line) {
    AC_TRY(need_matrices(i, 0, square));
    int64_t m = i->in[0]->shape[i->in[0]->ndim - 2], n = i->in[0]->shape[i->in[0]->ndim - 1];
    i->out[0] = part(i, m, n), i->out[1] = line_of(i, m < n ? m : n, line);
    if (info) i->out[2] = info_of(i);
    return 0;
}
int ac_infer_lu_factor(ac_infer *i) { return infer_factor(i, false, true, AC_int32); }
int ac_infer_ldl_factor(ac_infer *i) { return infer_factor(i, true, true, AC_int32); }
int ac_infer_reflections(ac_infer *i) { return infer_factor(i, false, false, i->in[0]->dtype); }

/* int32, next to each other in memory */
static int need_pivots(const ac_infer *i, int input) {
    const ac_tensor *p = i->in[input];
    if (p->dtype == AC_int32 && p->ndim >= 1 && ac_is_contiguous(p)) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must be a contiguous int32 tensor of at least one dimension", i->info->shown,
                   ac_input_name(i, input));
}

int ac_infer_ldl_solve(ac_infer *i) {
    AC_TRY(fit_square(i, 2, &i->out[0]));
    AC_TRY(need_pivots(i, 1));
    ac_dims line = ac_shape_of(i->in[0]);
    line.n--;
    return ac_need_shape(i, 1, &line);
}

int ac_infer_row_order(ac_infer *i) {
    ATTRS(row_count);
    AC_TRY(need_pivots(i, 0));
    int64_t last = i->in[0]->ndim - 1;
    if (a->rows < i->in[0]->shape[last]) return ac_fail(AC_RUNTIME, "%s: more pivots than rows", i->info->shown);
    i->out[0] = (ac_spec){AC_int64, ac_shape_of(i->in[0]), AC_CPU};
    i->out[0].shape.v[last] = a->rows;
    return 0;
}
