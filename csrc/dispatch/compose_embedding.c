/* Composite operators of tables that are read by number: embedding, bags of it, and classes as ones. */
#include "dispatch/compose_read.h"

#include "autograd/node.h"

static int need_dense(const char *what, int64_t sparse) {
    if (!sparse) return 0;
    return ac_fail(AC_NOT_IMPLEMENTED, "%s: sparse=True needs sparse gradients, which are not in ampc; leave it out",
                   what);
}

/* Scales the rows of the table at `index` down, in place, to a norm of at most max_norm. */
static int shorten_rows(ac_scratch *s, T table, T index, ac_scalar max_norm, double norm_type) {
    ac_attrs_index_dim first = {0};
    ac_attrs_renorm most = {{.kind = AC_FLOAT, .f = norm_type}, 0, max_norm};
    if (max_norm.kind == AC_NONE) return 0;
    ac_tensor *rows = ac_tensor_alias(table);
    T at = ac_c_flat(s, index), all[3] = {rows, NULL, NULL};
    if (at && at->dtype == AC_int32) at = ac_c_cast(s, at, AC_int64);
    all[1] = at;
    if (rows) all[2] = ac_c_call(s, AC_OP_renorm, &most, 1, ac_c_call(s, AC_OP_index_select, &first, 2, rows, at));
    int failed = all[2] ? ac_call_into(AC_OP_index_copy, all, 3, &first, rows) : -1;
    ac_tensor_release(rows);
    return failed;
}

COMPOSE(embedding_rows) {
    ATTRS(embedding);
    int64_t rows = in[1]->ndim ? in[1]->shape[0] : 0, row = a->padding_idx;
    ac_attrs_padding pad = {-1, a->scale_grad_by_freq};
    NEED(need_dense("embedding", a->sparse));
    if (row != AC_ABSENT) {
        if (row < -rows || row >= rows)
            REFUSE(AC_ASSERTION, "embedding: `padding_idx` %" PRId64 " is outside a table of %" PRId64 " rows", row,
                   rows);
        pad.padding_idx = row < 0 ? row + rows : row;
    }
    NEED(shorten_rows(s, in[1], in[0], a->max_norm, a->norm_type));
    return ac_c_call(s, AC_OP_embedding, &pad, 2, in[1], in[0]);
}

/* The smallest and the largest of a tensor with elements. */
static void limits(ac_scratch *s, T x, double *low, double *high) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    *low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, x));
    *high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, x));
}

/* The classes themselves, looked up: a bad one of a GPU is told of where the script waits. */
static T looked_up(ac_scratch *s, T x, int64_t classes) {
    ac_attrs_index_dim first = {0};
    ac_dims shape = ac_shape_of(x);
    T all = ac_c_arange(s, classes, ac_device_of(x));
    return ac_c_reshape(s, ac_c_call(s, AC_OP_gather, &first, 2, all, ac_c_flat(s, x)), &shape);
}

/* How many classes there are. Where that is given, those of a GPU are not looked at, which would be waiting for them.
 */
static int count_classes(ac_scratch *s, T x, int64_t *n) {
    double low = 0, high = -1;
    if (*n != -1 && ac_device_of(x) != AC_CPU) return 0;
    if (x->numel) limits(s, x, &low, &high);
    if (*n == -1) *n = (int64_t)high + 1;
    if (low >= 0 && high < (double)*n) return 0;
    return ac_fail(AC_RUNTIME, "one_hot: classes must lie between 0 and %" PRId64 ", got %.0f to %.0f", *n - 1, low,
                   high);
}

COMPOSE(one_hot) {
    ATTRS(classes);
    T x = in[0];
    int64_t n = a->num_classes;
    if (x->dtype != AC_int64)
        REFUSE(AC_RUNTIME, "one_hot: the classes must be int64, got %s; convert it with .long()",
               ac_dtypes[x->dtype].name);
    if (n < -1 || (n == -1 && x->numel == 0))
        REFUSE(AC_RUNTIME, "one_hot: `num_classes` must be given, and above 0, got %" PRId64 " for %" PRId64 " classes",
               n, x->numel);
    NEED(count_classes(s, x, &n));
    if (ac_device_of(x) != AC_CPU && x->numel) x = looked_up(s, x, n);
    x = UN(contiguous, x);
    return x ? ac_c_cast(s, BIN(eq, ac_c_unsqueeze(s, x, -1), ac_c_arange(s, n, ac_device_of(x))), AC_int64) : NULL;
}

/* -- bags ------------------------------------------------------------------------------------------------------- */

enum { MEAN, SUM, MAX };

static int check_bag_shapes(T const *in, const ac_attrs_embedding_bag *a) {
    const ac_tensor *x = in[0], *weight = in[1], *offsets = in[2];
    char xt[AC_SHAPE_TEXT], wt[AC_SHAPE_TEXT];
    AC_TRY(need_dense("embedding_bag", a->sparse));
    if (a->scale_grad_by_freq)
        return ac_fail(AC_NOT_IMPLEMENTED, "embedding_bag: scale_grad_by_freq is not in ampc; embedding has it");
    if (in[3] && a->mode != SUM)
        return ac_fail(AC_NOT_IMPLEMENTED, "embedding_bag: per_sample_weights go with mode='sum'");
    if (weight->ndim != 2 || (x->ndim != 1 && x->ndim != 2))
        return ac_fail(AC_VALUE, "embedding_bag: needs a weight of 2 dimensions and an input of 1 or 2, got %s and %s",
                       ac_shape_text(weight, wt), ac_shape_text(x, xt));
    if (!ac_is_floating(weight->dtype))
        return ac_fail(AC_RUNTIME, "embedding_bag: the weight must be floating point, got %s",
                       ac_dtypes[weight->dtype].name);
    if (a->padding_idx != AC_ABSENT && (a->padding_idx < -weight->shape[0] || a->padding_idx >= weight->shape[0]))
        return ac_fail(AC_RUNTIME, "embedding_bag: `padding_idx` %" PRId64 " is outside a table of %" PRId64 " rows",
                       a->padding_idx, weight->shape[0]);
    if (in[3] && !ac_same_shape(in[3], x))
        return ac_fail(AC_VALUE, "embedding_bag: `per_sample_weights` must have the input's shape %s, got %s",
                       ac_shape_text(x, xt), ac_shape_text(in[3], wt));
    if (in[3] && in[3]->dtype != weight->dtype)
        return ac_fail(AC_RUNTIME, "embedding_bag: `per_sample_weights` must have the weight's dtype %s, got %s",
                       ac_dtypes[weight->dtype].name, ac_dtypes[in[3]->dtype].name);
    if (x->ndim == 2 && offsets) return ac_fail(AC_VALUE, "embedding_bag: offsets go with 1-d input");
    if (x->ndim == 1 && !offsets)
        return ac_fail(AC_VALUE, "embedding_bag: expected input [B, n], or [n] with offsets; got shape %s",
                       ac_shape_text(x, xt));
    return 0;
}

/* What lies on a GPU is not looked at, which would be waiting for it. */
static int check_bag_numbers(ac_scratch *s, T x, T weight, T offsets) {
    double low, high;
    if (offsets && offsets->numel && ac_device_of(offsets) == AC_CPU) {
        double first = ac_c_read(s, ac_c_slice(s, ac_c_flat(s, offsets), 0, 0, 1));
        limits(s, offsets, &low, &high);
        if (ac_is_floating(offsets->dtype) || first != 0 || low < 0 || high > (double)x->numel)
            return ac_fail(AC_RUNTIME, "embedding_bag: offsets must be integers from 0 to at most %" PRId64, x->numel);
    }
    if (x->numel == 0 || ac_device_of(x) != AC_CPU || ac_is_floating(x->dtype)) return 0;
    limits(s, x, &low, &high);
    if (low >= 0 && high < (double)weight->shape[0]) return 0;
    return ac_fail(AC_RUNTIME, "embedding_bag: indices must lie between 0 and %" PRId64 ", got %.0f to %.0f",
                   weight->shape[0] - 1, low, high);
}

/* The bag that each element of the flattened input is in; in *bags how many there are. */
static T bag_of(ac_scratch *s, T x, T offsets, bool has_end, int64_t *bags) {
    ac_device device = ac_device_of(x);
    if (!offsets) {
        ac_dims shape = ac_shape_of(x);
        *bags = x->shape[0];
        return ac_c_flat(s, ac_c_expand(s, ac_c_unsqueeze(s, ac_c_arange(s, *bags, device), 1), &shape));
    }
    *bags = offsets->numel - (has_end && offsets->numel ? 1 : 0);
    T starts = ac_c_slice(s, ac_c_flat(s, offsets), 0, 0, *bags);
    T behind = BIN(ge, ac_c_unsqueeze(s, ac_c_arange(s, x->numel, device), 1), starts);
    return PLUS(ac_c_sum(s, behind, 1), -1);
}

static T added_up(ac_scratch *s, T rows, T bag, int64_t bags) {
    ac_dims shape = ac_shape_of(rows);
    ac_attrs_index_dim first = {0};
    shape.v[0] = bags;
    return ac_c_call(s, AC_OP_index_add, &first, 3, ac_c_full(s, &shape, 0, rows->dtype, ac_device_of(rows)), bag,
                     rows);
}

static T averaged(ac_scratch *s, T rows, T bag, T counted, int64_t bags) {
    ac_dims line = {1, {rows->shape[0]}};
    T wide = ac_c_wide(s, rows),
      ones = counted ? ac_c_cast(s, counted, AC_float32) : ac_c_full(s, &line, 1, AC_float32, ac_device_of(rows));
    if (!wide || !ones) return NULL;
    T counts = ac_c_clamp_min(s, added_up(s, ones, bag, bags), 1);
    return ac_c_cast(s, DIV(added_up(s, wide, bag, bags), ac_c_unsqueeze(s, counts, 1)), rows->dtype);
}

/* Where x's columns go in order. */
static T column_order(ac_scratch *s, T x, bool descending) {
    ac_attrs_sort how = {0, descending, 1};
    T out[AC_MAX_OUT];
    return ac_c_call_many(s, AC_OP_sort, &how, &x, 1, out) < 0 ? NULL : out[1];
}

/* The largest value of each column of each bag, of equal ones the first, which gets the gradient; 0 where nothing is
 * counted. Rows are sorted by value, then by bag, which keeps equal ones in their order. */
static T first_largest(ac_scratch *s, T rows, T bag, T counted, int64_t bags) {
    ac_dims shape = ac_shape_of(rows), line = {1, {bags + 1}};
    ac_attrs_index_dim first = {0};
    ac_device device = ac_device_of(rows);
    if (rows->numel == 0) return added_up(s, rows, bag, bags);
    if (counted) bag = WHERE(counted, bag, NUM((double)bags)); /* a bag that nobody asks for */
    ac_grad_mode mode = ac_mode;
    ac_mode.no_grad = true;
    T down = column_order(s, rows, true);
    T bag_there = ac_c_call(s, AC_OP_gather, &first, 2, ac_c_expand(s, ac_c_unsqueeze(s, bag, 1), &shape), down);
    T order = ac_c_call(s, AC_OP_gather, &first, 2, down, column_order(s, bag_there, false));
    ac_mode = mode;
    ac_dims each = {1, {rows->shape[0]}};
    T ones = ac_c_full(s, &each, 1, AC_int64, device), none = ac_c_full(s, &line, 0, AC_int64, device);
    T counts = ac_c_call(s, AC_OP_index_add, &first, 3, none, bag, ones);
    ac_attrs_cumulative along = {0, AC_NO_DTYPE};
    T starts = SUB(ac_c_call(s, AC_OP_cumsum, &along, 1, counts), counts);
    T at = ac_c_cast(s, ac_c_clamp(s, ac_c_slice(s, starts, 0, 0, bags), 0, (double)rows->shape[0] - 1), AC_int64);
    T chosen = ac_c_call(s, AC_OP_gather, &first, 2, rows, ac_c_call(s, AC_OP_index_select, &first, 2, order, at));
    T empty = ac_c_unsqueeze(s, BIN(eq, ac_c_slice(s, counts, 0, 0, bags), NUM(0)), 1);
    return WHERE(empty, REAL(0), chosen);
}

COMPOSE(embedding_bag) {
    ATTRS(embedding_bag);
    T weight = in[1], counted = NULL;
    int64_t bags = 0;
    NEED(check_bag_shapes(in, a));
    NEED(check_bag_numbers(s, in[0], weight, in[2]));
    NEED(shorten_rows(s, weight, in[0], a->max_norm, a->norm_type));
    T flat = ac_c_flat(s, in[0]), bag = bag_of(s, in[0], in[2], a->include_last_offset, &bags);
    ac_attrs_padding none = {-1, 0};
    T rows = ac_c_call(s, AC_OP_embedding, &none, 2, weight, flat);
    if (a->padding_idx != AC_ABSENT) {
        int64_t row = a->padding_idx + (a->padding_idx < 0 ? weight->shape[0] : 0);
        counted = BIN(ne, flat, NUM((double)row));
        rows = WHERE(ac_c_unsqueeze(s, counted, 1), rows, REAL(0));
    }
    ac_dims column = {2, {-1, 1}};
    if (in[3]) rows = MUL(rows, ac_c_reshape(s, in[3], &column));
    if (!rows || !bag) return NULL;
    if (a->mode == MAX) return first_largest(s, rows, bag, counted, bags);
    return a->mode == SUM ? added_up(s, rows, bag, bags) : averaged(s, rows, bag, counted, bags);
}
