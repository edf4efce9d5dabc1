/* Composite operators that sample at any positions, and that move values between channels and positions. */
#include "dispatch/compose.h"

#include <math.h>

/* -- sampling at a grid -------------------------------------------------------------------------------------- */

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { MOST = 3 }; /* dimensions */

static T detached(ac_scratch *s, T x) { return x ? ac_c_keep(s, ac_tensor_alias(x)) : NULL; }

static T unnormalised(ac_scratch *s, T at, double size, bool corners) {
    if (corners) return TIMES(PLUS(at, 1), (size - 1) / 2);
    return DIV(PLUS(TIMES(PLUS(at, 1), size), -1), NUM(2));
}

/* Positions beyond an edge, thrown back as often as it takes. */
static T reflected(ac_scratch *s, T at, double size, bool corners) {
    double low = corners ? 0 : -0.5, span = corners ? size - 1 : size;
    if (span <= 0) return TIMES(at, 0);
    T off = UN(abs, PLUS(at, -low)), turns = detached(s, UN(floor, DIV(off, REAL(span))));
    T rest = SUB(off, TIMES(turns, span)), even = BIN(eq, BIN(remainder, turns, NUM(2)), NUM(0));
    return WHERE(even, PLUS(rest, low), PLUS(SUB(REAL(span), rest), low));
}

static T placed(ac_scratch *s, T at, double size, int64_t padding, bool corners) {
    if (padding == ZEROS) return at;
    return ac_c_clamp(s, padding == REFLECTION ? reflected(s, at, size, corners) : at, 0, size - 1);
}

static T without_nan(ac_scratch *s, T x) {
    ac_attrs_nan_to_num limits = {0, INFINITY, -INFINITY};
    return ac_c_call(s, AC_OP_nan_to_num, &limits, 1, x);
}

/* x [N, C, ...] at whole positions, one tensor [N, ...] a dimension: [N, C, ...]; zeros outside. */
static T values_at(ac_scratch *s, T x, T const *at, int nd) {
    if (!at[0]) return ac_c_refuse(s, -1);
    ac_spec like = {AC_int64, ac_shape_of(at[0]), ac_device_of(at[0])};
    T flat = ac_c_zeros(s, &like), inside = BIN(eq, at[0], at[0]);
    for (int d = 0; d < nd; d++) {
        double last = (double)x->shape[2 + d] - 1;
        inside = BIN(logical_and, BIN(logical_and, inside, BIN(ge, at[d], NUM(0))), BIN(le, at[d], NUM(last)));
        T whole = ac_c_cast(s, ac_c_clamp(s, without_nan(s, detached(s, at[d])), 0, last), AC_int64);
        flat = ADD(TIMES(flat, last + 1), whole);
    }
    ac_dims shape = {.n = at[0]->ndim + 1, .v = {x->shape[0], x->shape[1]}}, rows = {3, {x->shape[0], 1, 1}}, wide,
            planes = {3, {x->shape[0], x->shape[1], 1}};
    for (int d = 1; d < at[0]->ndim; d++) shape.v[d + 1] = at[0]->shape[d], rows.v[2] *= at[0]->shape[d];
    for (int d = 0; d < nd; d++) planes.v[2] *= x->shape[2 + d];
    wide = rows, wide.v[1] = x->shape[1];
    ac_attrs_index_dim along = {2};
    T index = ac_c_expand(s, ac_c_reshape(s, flat, &rows), &wide);
    T values = ac_c_reshape(s, ac_c_call(s, AC_OP_gather, &along, 2, ac_c_reshape(s, x, &planes), index), &shape);
    return WHERE(ac_c_unsqueeze(s, inside, 1), values, REAL(0));
}

static T sample_linear(ac_scratch *s, T x, T const *at, int nd) {
    T low[MOST], part[MOST], sum = NULL;
    for (int d = 0; d < nd; d++) low[d] = detached(s, UN(floor, at[d])), part[d] = SUB(at[d], low[d]);
    for (int corner = 0; corner < 1 << nd; corner++) {
        T weight = NULL, where[MOST];
        for (int d = 0; d < nd; d++) {
            int up = corner >> d & 1;
            T one = up ? part[d] : SUB(NUM(1), part[d]);
            weight = d ? MUL(weight, one) : one;
            where[d] = PLUS(low[d], up);
        }
        T term = MUL(values_at(s, x, where, nd), ac_c_unsqueeze(s, weight, 1));
        sum = corner ? ADD(sum, term) : term;
    }
    return sum;
}

/* Keys' weights of the four neighbours of a position that lies `t` behind the second one. */
static T far_weight(ac_scratch *s, T t) {
    static const double a = -0.75;
    return PLUS(MUL(PLUS(MUL(PLUS(TIMES(t, a), -5 * a), t), 8 * a), t), -4 * a);
}
static T near_weight(ac_scratch *s, T t) {
    static const double a = -0.75;
    return PLUS(MUL(MUL(PLUS(TIMES(t, a + 2), -(a + 3)), t), t), 1);
}
static void cubic_weights(ac_scratch *s, T t, T *weight) {
    weight[0] = far_weight(s, PLUS(t, 1)), weight[1] = near_weight(s, t);
    weight[2] = near_weight(s, SUB(NUM(1), t)), weight[3] = far_weight(s, SUB(NUM(2), t));
}

static T sample_cubic(ac_scratch *s, T x, T const *at, const ac_attrs_grid_sample *a) {
    T low[2], weight[2][4], sum = NULL;
    for (int d = 0; d < 2; d++) {
        low[d] = detached(s, UN(floor, at[d]));
        cubic_weights(s, SUB(at[d], low[d]), weight[d]);
    }
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 4; i++) {
            T where[2] = {placed(s, PLUS(low[0], j - 1), (double)x->shape[2], a->padding_mode, a->align_corners),
                          placed(s, PLUS(low[1], i - 1), (double)x->shape[3], a->padding_mode, a->align_corners)};
            T term = MUL(values_at(s, x, where, 2), ac_c_unsqueeze(s, MUL(weight[0][j], weight[1][i]), 1));
            sum = sum ? ADD(sum, term) : term;
        }
    return sum;
}

static int check_grid(const ac_tensor *x, const ac_tensor *grid, int64_t mode) {
    int nd = x->ndim - 2;
    char xt[AC_SHAPE_TEXT], gt[AC_SHAPE_TEXT];
    if ((nd != 2 && nd != 3) || grid->ndim != x->ndim || grid->shape[x->ndim - 1] != nd ||
        grid->shape[0] != x->shape[0])
        return ac_fail(AC_RUNTIME, "grid_sample: grid %s does not fit input %s; expected [N, ..., %d]",
                       ac_shape_text(grid, gt), ac_shape_text(x, xt), nd);
    for (int d = 0; d < nd; d++)
        if (x->shape[2 + d] == 0)
            return ac_fail(AC_RUNTIME, "grid_sample: input %s has no values to sample from", ac_shape_text(x, xt));
    if (mode == BICUBIC && nd != 2) return ac_fail(AC_RUNTIME, "grid_sample: bicubic takes 4-d input only");
    if (x->dtype != grid->dtype)
        return ac_fail(AC_RUNTIME, "grid_sample: input and grid must have one dtype, got %s and %s",
                       ac_dtypes[x->dtype].name, ac_dtypes[grid->dtype].name);
    return 0;
}

COMPOSE(grid_sample) {
    ATTRS(grid_sample);
    int nd = in[0]->ndim - 2;
    T at[MOST], y;
    NEED(check_grid(in[0], in[1], a->mode));
    T x = ac_c_wide(s, in[0]), grid = ac_c_wide(s, in[1]);
    for (int d = 0; d < nd && x; d++) {
        at[d] = unnormalised(s, ac_c_select(s, grid, -1, nd - 1 - d), (double)x->shape[2 + d], a->align_corners);
        if (a->mode != BICUBIC) at[d] = placed(s, at[d], (double)x->shape[2 + d], a->padding_mode, a->align_corners);
        if (a->mode == NEAREST) at[d] = UN(round, at[d]);
    }
    if (s->failed || !x) return NULL;
    if (a->mode == BICUBIC) y = sample_cubic(s, x, at, a);
    else if (a->mode == BILINEAR) y = sample_linear(s, x, at, nd);
    else { /* the gradient of the grid is zero, not absent */
        T nothing = WHERE(BIN(lt, grid, REAL(-INFINITY)), grid, REAL(0));
        y = ADD(values_at(s, x, at, nd), ac_c_unsqueeze(s, ac_c_sum(s, nothing, -1), 1));
    }
    return ac_c_cast(s, y, in[0]->dtype);
}

/* Position i of n, over [-1, 1]; without corners the values' middles. */
static double grid_position(int64_t i, int64_t n, bool corners) {
    double at = n == 1 ? 0 : i == n - 1 ? 1 : (double)i * (2.0 / (double)(n - 1)) - 1;
    return corners ? at : at * (double)(n - 1) / (double)n;
}

/* (x, y[, z], 1) of every position of a grid: [positions, dimensions + 1] */
static T all_positions(ac_scratch *s, const ac_dims *size, bool corners) {
    int64_t nd = size->n - 2, total = 1;
    for (int64_t d = 0; d < nd; d++) total *= size->v[d + 2];
    ac_dims shape = {2, {total, nd + 1}};
    T all = ac_c_keep(s, ac_tensor_new(AC_float64, &shape));
    for (int64_t i = 0; i < total && all; i++) {
        double *row = (double *)ac_data(all) + i * (nd + 1);
        int64_t rest = i;
        for (int64_t d = nd - 1; d >= 0; d--) {
            row[nd - 1 - d] = grid_position(rest % size->v[d + 2], size->v[d + 2], corners);
            rest /= size->v[d + 2];
        }
        row[nd] = 1;
    }
    return all;
}

COMPOSE(affine_grid) {
    ATTRS(affine_grid);
    T theta = in[0];
    int64_t nd = a->size.n - 2;
    char text[AC_SHAPE_TEXT];
    if (!ac_is_floating(theta->dtype))
        REFUSE(AC_VALUE, "affine_grid: theta must be floating point, got %s", ac_dtypes[theta->dtype].name);
    for (int64_t d = 0; d < a->size.n; d++)
        if (a->size.v[d] < 1)
            REFUSE(AC_VALUE, "affine_grid: sizes must be above 0, got %s", ac_dims_text(&a->size, text));
    ac_dims want = {3, {a->size.v[0], nd, nd + 1}}, shape = a->size, given = ac_shape_of(theta);
    if ((nd != 2 && nd != 3) || !ac_dims_equal(&want, &given))
        REFUSE(AC_VALUE, "affine_grid: theta %s does not fit `size`; it must be [N, 2, 3] or [N, 3, 4] for [N, C, ...]",
               ac_shape_text(theta, text));
    if (ac_dims_numel(&shape) < 0) return ac_c_refuse(s, -1);
    ac_attrs_to_device to = {ac_device_of(theta), 0};
    T map = ac_c_wide(s, theta), all = all_positions(s, &a->size, a->align_corners);
    if (!map) return NULL;
    all = ac_c_cast(s, all, map->dtype);
    if (to.device != AC_CPU) all = ac_c_call(s, AC_OP_to_device, &to, 1, all);
    for (int64_t d = 0; d < nd; d++) shape.v[d + 1] = a->size.v[d + 2];
    shape.v[nd + 1] = nd;
    T grid = ac_c_reshape(s, ac_c_product(s, ac_c_constant(all), ac_c_transpose(s, map, 1, 2)), &shape);
    return ac_is_half(theta->dtype) ? ac_c_cast(s, grid, theta->dtype) : grid;
}

/* -- channels and positions ---------------------------------------------------------------------------------- */

/* x, cut into the given sizes behind its first dimensions, these rearranged, and joined to others. */
static T rearranged(ac_scratch *s, T x, const ac_dims *cut, const int *order, const ac_dims *joined) {
    int64_t lead = x->ndim - joined->n;
    ac_dims apart = {.n = lead + cut->n}, moved = {.n = lead + cut->n}, whole = {.n = x->ndim};
    if (apart.n > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "%d dimensions are too many to be cut further", x->ndim);
    for (int64_t d = 0; d < lead; d++) apart.v[d] = whole.v[d] = x->shape[d], moved.v[d] = d;
    for (int64_t d = 0; d < cut->n; d++) apart.v[lead + d] = cut->v[d], moved.v[lead + d] = lead + order[d];
    for (int64_t d = 0; d < joined->n; d++) whole.v[lead + d] = joined->v[d];
    return ac_c_reshape(s, ac_c_permute(s, ac_c_reshape(s, x, &apart), &moved), &whole);
}

static int need_planes(const char *what, const ac_tensor *x) {
    if (x->ndim >= 3) return 0;
    return ac_fail(AC_RUNTIME, "%s: expected at least 3 dimensions ([..., C, H, W]), got %d", what, x->ndim);
}

COMPOSE(pixel_shuffle) {
    ATTRS(factor);
    NEED(need_planes("pixel_shuffle", in[0]));
    const int64_t *size = in[0]->shape + in[0]->ndim - 3, r = a->factor;
    if (r < 1 || r > INT32_MAX || size[0] % (r * r))
        REFUSE(AC_RUNTIME, "pixel_shuffle: %" PRId64 " channels are no multiple of the square of %" PRId64, size[0], r);
    ac_dims cut = {5, {size[0] / (r * r), r, r, size[1], size[2]}},
            joined = {3, {size[0] / (r * r), size[1] * r, size[2] * r}};
    return rearranged(s, in[0], &cut, (const int[]){0, 3, 1, 4, 2}, &joined);
}

COMPOSE(pixel_unshuffle) {
    ATTRS(factor);
    NEED(need_planes("pixel_unshuffle", in[0]));
    const int64_t *size = in[0]->shape + in[0]->ndim - 3, r = a->factor;
    if (r < 1 || r > INT32_MAX || size[1] % r || size[2] % r)
        REFUSE(AC_RUNTIME, "pixel_unshuffle: %" PRId64 " x %" PRId64 " is no multiple of %" PRId64, size[1], size[2],
               r);
    ac_dims cut = {5, {size[0], size[1] / r, r, size[2] / r, r}},
            joined = {3, {size[0] * r * r, size[1] / r, size[2] / r}};
    return rearranged(s, in[0], &cut, (const int[]){0, 2, 4, 1, 3}, &joined);
}

COMPOSE(channel_shuffle) {
    ATTRS(num_groups);
    T x = in[0];
    int64_t groups = a->num_groups, c = x->ndim > 1 ? x->shape[1] : 0;
    ac_dims shape = ac_shape_of(x), apart = {.n = x->ndim + 1};
    if (x->ndim < 3 || x->ndim == AC_MAX_DIMS)
        REFUSE(AC_RUNTIME, "channel_shuffle: expected at least 3 dimensions ([N, C, ...]), got %d", x->ndim);
    if (groups < 1 || c % groups)
        REFUSE(AC_RUNTIME, "channel_shuffle: %" PRId64 " channels are no multiple of %" PRId64 " groups", c, groups);
    apart.v[0] = x->shape[0], apart.v[1] = groups, apart.v[2] = c / groups;
    for (int d = 2; d < x->ndim; d++) apart.v[d + 1] = x->shape[d];
    return ac_c_reshape(s, ac_c_transpose(s, ac_c_reshape(s, x, &apart), 1, 2), &shape);
}
