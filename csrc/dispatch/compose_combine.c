/* Composite operators that repeat elements, choose among them, or lay matrices along a diagonal. */
#include "dispatch/compose_read.h"

/* -- repeating each element --------------------------------------------------------------------------- */

static int check_size(int64_t wanted, int64_t made) {
    if (wanted == AC_ABSENT || wanted == made) return 0;
    return ac_fail(AC_RUNTIME, "repeat_interleave: `output_size` is %" PRId64 ", but the repeats make %" PRId64, wanted,
                   made);
}

static T repeated(ac_scratch *s, T x, int64_t times, int64_t dim, int64_t wanted) {
    if (times < 0) REFUSE(AC_RUNTIME, "repeat_interleave: `repeats` must be 0 or more, got %" PRId64, times);
    ac_dims shape = ac_shape_of(x), wide = shape;
    if (x->ndim == AC_MAX_DIMS) REFUSE(AC_RUNTIME, "repeat_interleave: more than %d dimensions", AC_MAX_DIMS - 1);
    if (__builtin_mul_overflow(shape.v[dim], times, &shape.v[dim]))
        REFUSE(AC_RUNTIME, "repeat_interleave: the result has more elements than can be counted");
    NEED(check_size(wanted, shape.v[dim]));
    for (int64_t d = wide.n++; d > dim + 1; d--) wide.v[d] = wide.v[d - 1];
    wide.v[dim + 1] = times;
    return ac_c_reshape(s, ac_c_expand(s, ac_c_unsqueeze(s, x, dim + 1), &wide), &shape);
}

/* The element that each place of the result has. */
static T repeated_indices(ac_scratch *s, T repeats, int64_t n, int64_t wanted) {
    ac_attrs_cumulative first = {0, AC_NO_DTYPE};
    ac_attrs_searchsorted behind = {0, 1, 0};
    char text[AC_SHAPE_TEXT];
    if (repeats->ndim != 1 || repeats->shape[0] != n)
        REFUSE(AC_RUNTIME, "repeat_interleave: `repeats` must hold %" PRId64 " numbers, got shape %s", n,
               ac_shape_text(repeats, text));
    if (ac_c_any(s, BIN(lt, repeats, NUM(0)))) REFUSE(AC_RUNTIME, "repeat_interleave: `repeats` must be 0 or more");
    T ends = ac_c_call(s, AC_OP_cumsum, &first, 1, ac_c_cast(s, repeats, AC_int64));
    int64_t total = n ? (int64_t)ac_c_read(s, ac_c_select(s, ends, 0, n - 1)) : 0;
    NEED(check_size(wanted, total));
    return ac_c_call(s, AC_OP_searchsorted, &behind, 3, ends, ac_c_arange(s, total, ac_device_of(repeats)), ABSENT);
}

static T need_whole(ac_scratch *s, T repeats) {
    if (ac_is_floating(repeats->dtype) || repeats->dtype == AC_bool)
        REFUSE(AC_NOT_IMPLEMENTED, "repeat_interleave: `repeats` must hold integers, got %s",
               ac_dtypes[repeats->dtype].name);
    return repeats;
}

/* x, flattened where dim is absent, and dim. */
static T along(ac_scratch *s, T x, int64_t *dim) {
    if (*dim == AC_ABSENT) return *dim = 0, ac_c_flat(s, x);
    if (x->ndim == 0)
        REFUSE(AC_INDEX, "repeat_interleave: a 0-d tensor has no dimension %" PRId64 " to repeat along", *dim);
    NEED(ac_dim_wrap(dim, x->ndim, "repeat_interleave"));
    return x;
}

COMPOSE(repeat_interleave) {
    ATTRS(repeat_interleave);
    int64_t dim = a->dim;
    T x = along(s, in[0], &dim);
    return x ? repeated(s, x, a->repeats, dim, a->output_size) : NULL;
}

COMPOSE(repeat_each) {
    ATTRS(repeat_each);
    int64_t dim = a->dim;
    T x = along(s, in[0], &dim), repeats = need_whole(s, in[1]);
    if (!x || !repeats) return NULL;
    if (repeats->numel == 1) {
        int64_t times = (int64_t)ac_c_read(s, repeats);
        return s->failed ? NULL : repeated(s, x, times, dim, a->output_size);
    }
    ac_attrs_index_dim slices = {dim};
    T chosen = repeated_indices(s, repeats, x->shape[dim], a->output_size);
    return ac_c_call(s, AC_OP_index_select, &slices, 2, x, chosen);
}

COMPOSE(repeat_indices) {
    ATTRS(output_size);
    T repeats = need_whole(s, in[0]);
    return repeats ? repeated_indices(s, repeats, repeats->numel, a->output_size) : NULL;
}

/* -- blocks ------------------------------------------------------------------------------------------- */

/* A matrix between zeros. */
static T block_row(ac_scratch *s, T block, int64_t before, int64_t after, ac_dtype dtype) {
    ac_dims left = {2, {block->shape[0], before}}, right = {2, {block->shape[0], after}};
    ac_device device = ac_device_of(block);
    T parts[] = {ac_c_full(s, &left, 0, dtype, device), ac_c_cast(s, block, dtype),
                 ac_c_full(s, &right, 0, dtype, device)};
    return ac_c_cat(s, parts, 3, 1);
}

COMPOSE(block_diag) {
    ac_dims none = {2, {1, 0}};
    ac_list rows;
    int64_t width = 0, at = 0;
    if (n_in == 0) return ac_c_full(s, &none, 0, ac_default_dtype(), AC_CPU);
    for (int i = 0; i < n_in; i++) {
        if (in[i]->ndim > 2)
            REFUSE(AC_RUNTIME, "block_diag: tensors must have at most 2 dimensions, tensor %d has %d", i, in[i]->ndim);
        width += in[i]->ndim ? in[i]->shape[in[i]->ndim - 1] : 1;
    }
    ac_dtype dtype = ac_result_type(in, n_in);
    NEED(ac_list_start(&rows, n_in));
    for (int i = 0; i < n_in; i++) {
        int64_t wide = in[i]->ndim ? in[i]->shape[in[i]->ndim - 1] : 1;
        ac_dims shape = {2, {in[i]->ndim == 2 ? in[i]->shape[0] : 1, wide}};
        T block = ac_c_reshape(s, in[i], &shape);
        rows.at[i] = block ? block_row(s, block, at, width - at - wide, dtype) : NULL;
        at += wide;
    }
    T y = s->failed ? NULL : ac_c_cat(s, rows.at, n_in, 0);
    ac_list_free(&rows);
    return y;
}

/* -- choices ------------------------------------------------------------------------------------------ */

/* How many rows the choices of one from each vector make. */
static int count_rows(T const *in, int n_in, int64_t *rows) {
    bool over = false, none = false;
    *rows = 1;
    for (int i = 0; i < n_in; i++) {
        if (in[i]->ndim != 1)
            return ac_fail(AC_RUNTIME, "cartesian_prod: expected each tensor to be a vector, got %d dimensions",
                           in[i]->ndim);
        if (in[i]->dtype != in[0]->dtype)
            return ac_fail(AC_RUNTIME, "cartesian_prod: needs tensors of one dtype, got %s and %s",
                           ac_dtypes[in[0]->dtype].name, ac_dtypes[in[i]->dtype].name);
        none |= in[i]->numel == 0;
        over |= __builtin_mul_overflow(*rows, in[i]->numel, rows);
    }
    if (none) *rows = 0;
    return none || !over ? 0 : ac_fail(AC_RUNTIME, "cartesian_prod: the result would have 2**63 rows or more");
}

COMPOSE(cartesian_prod) {
    int64_t rows, before = 1;
    ac_list columns;
    ac_attrs_one_dim second = {1};
    T out[AC_MAX_OUT] = {NULL};
    if (n_in == 0) REFUSE(AC_RUNTIME, "cartesian_prod: needs at least one tensor, got an empty list");
    NEED(count_rows(in, n_in, &rows));
    if (n_in == 1) return in[0];
    NEED(ac_list_start(&columns, n_in));
    for (int i = 0; i < n_in; i++) { /* each element stands for `after` rows, and the vector comes `before` times */
        int64_t n = in[i]->numel, after = rows ? rows / (before * n) : 0;
        ac_dims line = {3, {1, n, 1}}, wide = {3, {rows ? before : 0, n, after}};
        columns.at[i] = ac_c_flat(s, ac_c_expand(s, ac_c_reshape(s, in[i], &line), &wide));
        before *= n;
    }
    if (!s->failed && ac_c_call_many(s, AC_OP_stack, &second, columns.at, n_in, out) < 0) out[0] = NULL;
    ac_list_free(&columns);
    return out[0];
}

/* The number of choices of r among n, in which no order counts; -1 where it does not fit 64 bits. */
static int64_t count_choices(int64_t n, int64_t r) {
    int64_t count = 1;
    if (r > n) return 0;
    if (r > n - r) r = n - r;
    for (int64_t i = 1; i <= r; i++) {
        if (__builtin_mul_overflow(count, n - r + i, &count)) return -1;
        count /= i;
    }
    return count;
}

/* Rows of r indices below n in order; the last one that can rises, and those behind it follow it. */
static void fill_choices(int64_t *to, int64_t rows, int64_t n, int64_t r, bool again) {
    for (int64_t i = 0; i < r && rows; i++) to[i] = again ? 0 : i;
    for (int64_t row = 1; row < rows; row++, to += r) {
        int64_t at = r - 1;
        while (to[at] == (again ? n - 1 : n - r + at)) at--;
        for (int64_t i = 0; i < r; i++) to[r + i] = i < at ? to[i] : to[at] + 1 + (again ? 0 : i - at);
    }
}

COMPOSE(combinations) {
    ATTRS(combinations);
    int64_t r = a->r;
    if (in[0]->ndim != 1) REFUSE(AC_RUNTIME, "combinations: expected a vector, got %d dimensions", in[0]->ndim);
    if (r < 0) REFUSE(AC_RUNTIME, "combinations: `r` must be 0 or more, got %" PRId64, r);
    ac_dims none = {1, {0}};
    if (r == 0) /* torch's has no row for the one choice of nothing */
        return ac_c_full(s, &none, 0, in[0]->dtype, ac_device_of(in[0]));
    int64_t n = in[0]->numel, from = n;
    bool over = a->with_replacement && n && __builtin_add_overflow(n, r - 1, &from);
    ac_dims shape = {2, {over ? -1 : count_choices(from, r), r}};
    if (shape.v[0] < 0) REFUSE(AC_RUNTIME, "combinations: the result would have 2**63 rows or more");
    T indices = ac_c_keep(s, ac_tensor_new(AC_int64, &shape));
    if (!indices) return NULL;
    fill_choices(ac_data(indices), shape.v[0], n, r, a->with_replacement);
    ac_attrs_to_device there = {ac_device_of(in[0]), 0};
    return ac_c_at(s, in[0], there.device == AC_CPU ? indices : ac_c_call(s, AC_OP_to_device, &there, 1, indices));
}
