/* Shape functions of joining, indexing, sorting and normalising. */
#include "ops/infer.h"

#include <inttypes.h>

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

/* -- joining ---------------------------------------------------------------------------------- */

/* torch lets 1-d tensors without elements join anything. */
static bool is_legacy_empty(const ac_tensor *t) { return t->ndim == 1 && t->shape[0] == 0; }

int ac_infer_cat(ac_infer *i) {
    ATTRS(one_dim);
    int lead = 0; /* the tensor that the others must fit */
    if (i->n_in == 0) return ac_fail(AC_VALUE, "cat: needs at least one tensor, got an empty list");
    while (lead < i->n_in - 1 && is_legacy_empty(i->in[lead])) lead++;
    const ac_tensor *first = i->in[lead];
    if (first->ndim == 0) return ac_fail(AC_RUNTIME, "cat: 0-d tensors cannot be joined; use stack");
    int64_t dim = is_legacy_empty(first) ? 0 : a->dim, total = 0; /* with nothing to join, `dim` means nothing */
    AC_TRY(ac_dim_wrap(&dim, first->ndim, "cat"));
    for (int k = 0; k < i->n_in; k++) {
        const ac_tensor *t = i->in[k];
        if (is_legacy_empty(t) && first->ndim != 1) continue;
        bool fits = t->ndim == first->ndim;
        for (int d = 0; fits && d < t->ndim; d++) fits = d == dim || t->shape[d] == first->shape[d];
        if (!fits) {
            char one[AC_SHAPE_TEXT], other[AC_SHAPE_TEXT];
            return ac_fail(AC_RUNTIME,
                           "cat: tensor %d has shape %s and tensor %d has %s; all sizes except "
                           "that of dimension %" PRId64 " must agree",
                           lead, ac_shape_text(first, one), k, ac_shape_text(t, other), dim);
        }
        if (__builtin_add_overflow(total, t->shape[dim], &total))
            return ac_fail(AC_RUNTIME, "cat: the result has more elements than can be counted");
    }
    i->out[0] = (ac_spec){ac_result_type(i->in, i->n_in), ac_shape_of(first), AC_CPU};
    i->out[0].shape.v[dim] = total;
    return 0;
}

/* -- indexing ----------------------------------------------------------------------------------- */

/* Input 1 holds indices in as many dimensions as x has, 0 being as good as 1; without elements, anything. */
static int need_indices_beside(const ac_infer *i) {
    const ac_tensor *x = i->in[0], *index = i->in[1];
    if (index->numel == 0) return 0;
    AC_TRY(ac_need_integer(i, 1));
    bool one = x->ndim < 2 && index->ndim < 2; /* a 0-d tensor counts as one of 1 dimension */
    return one ? 0 : ac_need_ndim(i, 1, x->ndim);
}

int ac_infer_gather(ac_infer *i) {
    ATTRS(index_dim);
    const ac_tensor *x = i->in[0], *index = i->in[1];
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "gather"));
    AC_TRY(need_indices_beside(i));
    for (int d = 0; d < x->ndim && index->numel; d++)
        if (d != dim && index->shape[d] > x->shape[d])
            return ac_fail(AC_RUNTIME,
                           "gather: `index` has size %" PRId64 " in dimension %d where `x` "
                           "has %" PRId64,
                           index->shape[d], d, x->shape[d]);
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(index), AC_CPU};
    return 0;
}

static int check_scatter_add(ac_infer *i) {
    const ac_tensor *x = i->in[0], *index = i->in[1], *src = i->in[2];
    const ac_attrs_index_dim *a = i->attrs;
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, i->info->shown));
    AC_TRY(need_indices_beside(i));
    if (index->numel) AC_TRY(ac_need_ndim(i, 2, index->ndim));
    for (int d = 0; d < x->ndim && index->numel; d++)
        if (index->shape[d] > src->shape[d] || (d != dim && index->shape[d] > x->shape[d]))
            return ac_fail(AC_RUNTIME, "scatter_add: `index` is larger than `src` or `x` in dimension %d", d);
    return ac_need_same_dtype(i, 0, 2);
}

static int need_vector(const ac_infer *i) {
    if (i->in[1]->ndim <= 1) return 0;
    char text[AC_SHAPE_TEXT];
    return ac_fail(AC_INDEX, "%s: `index` must be a vector, got shape %s", i->info->shown,
                   ac_shape_text(i->in[1], text));
}

static int check_index_add(ac_infer *i) {
    const ac_tensor *x = i->in[0];
    const ac_attrs_index_dim *a = i->attrs;
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, i->info->shown));
    AC_TRY(ac_need_integer(i, 1));
    AC_TRY(need_vector(i));
    AC_TRY(ac_need_ndim(i, 1, 1));
    ac_dims want = ac_shape_of(x);
    if (x->ndim) want.v[dim] = i->in[1]->shape[0];
    AC_TRY(ac_need_shape(i, 2, &want));
    return ac_need_same_dtype(i, 0, 2);
}

static int check_as_strided(ac_infer *i) {
    const ac_attrs_as_strided_scatter *a = i->attrs;
    int64_t last = a->offset, numel = ac_dims_numel(&a->size), reach;
    if (numel < 0) return -1;
    if (a->size.n != a->stride.n)
        return ac_fail(AC_RUNTIME, "as_strided_scatter: `size` and `stride` must be of one length");
    for (int64_t d = 0; d < a->size.n && numel; d++)
        if (a->stride.v[d] < 0 || __builtin_mul_overflow(a->stride.v[d], a->size.v[d] - 1, &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return ac_fail(AC_RUNTIME, "as_strided_scatter: strides must be 0 or more and reach no element twice over");
    if (numel && (a->offset < 0 || last >= i->in[0]->numel))
        return ac_fail(AC_RUNTIME, "as_strided_scatter: the view reaches outside the tensor");
    return ac_need_shape(i, 1, &a->size);
}

int ac_infer_scatter(ac_infer *i) {
    if (i->info == &ac_ops[AC_OP_scatter_add]) AC_TRY(check_scatter_add(i));
    else if (i->info == &ac_ops[AC_OP_index_add]) AC_TRY(check_index_add(i));
    else AC_TRY(check_as_strided(i));
    return ac_infer_same(i);
}

int ac_infer_index_select(ac_infer *i) {
    ATTRS(index_dim);
    const ac_tensor *x = i->in[0];
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "index_select"));
    AC_TRY(ac_need_integer(i, 1));
    AC_TRY(need_vector(i));
    if (!x->ndim && i->in[1]->numel != 1)
        return ac_fail(AC_RUNTIME, "index_select: a 0-d tensor has one element to select, `index` asks for %" PRId64,
                       i->in[1]->numel);
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    if (x->ndim) i->out[0].shape.v[dim] = i->in[1]->numel;
    return 0;
}

/* The shape of x[indices]: the broadcast index replaces the indexed dimensions, in front when
 * they are not neighbours. */
static int indexed_shape(ac_infer *i, int n_index, ac_dims *out) {
    const ac_tensor *x = i->in[0];
    ac_dims index = {0};
    int first = -1, last = -1, count = 0;
    if (n_index > x->ndim)
        return ac_fail(AC_INDEX, "%s: %d indices for a tensor of %d dimensions", i->info->shown, n_index, x->ndim);
    for (int k = 0; k < n_index; k++) {
        if (!i->in[1 + k]) continue;
        AC_TRY(ac_need_integer(i, 1 + k));
        ac_dims shape = ac_shape_of(i->in[1 + k]);
        char joint[AC_SHAPE_TEXT], one[AC_SHAPE_TEXT];
        const char *so_far = ac_dims_text(&index, joint);
        if (ac_dims_broadcast(&index, &shape, i->info->shown) < 0)
            return ac_fail(AC_INDEX, "indices of shapes %s and %s do not broadcast", so_far, ac_dims_text(&shape, one));
        first = first < 0 ? k : first, last = k, count++;
    }
    if (count == 0) return ac_fail(AC_INDEX, "%s: no index given", i->info->shown);
    for (int k = 0; k < n_index && ac_dims_numel(&index) > 0; k++)
        if (i->in[1 + k] && x->shape[k] == 0)
            return ac_fail(AC_INDEX, "%s: an index is out of range for a dimension of size 0", i->info->shown);
    bool neighbours = last - first + 1 == count;
    int64_t n = 0;
    if (index.n + x->ndim - count > AC_MAX_DIMS)
        return ac_fail(AC_INDEX, "%s: the result would have more than %d dimensions", i->info->shown, AC_MAX_DIMS);
    for (int d = 0; neighbours && d < first; d++) out->v[n++] = x->shape[d];
    for (int64_t d = 0; d < index.n; d++) out->v[n++] = index.v[d];
    for (int d = neighbours ? first : 0; d < x->ndim; d++)
        if (d >= n_index || !i->in[1 + d]) out->v[n++] = x->shape[d];
    out->n = n;
    return 0;
}

int ac_infer_index(ac_infer *i) {
    i->out[0].dtype = i->in[0]->dtype;
    return indexed_shape(i, i->n_in - 1, &i->out[0].shape);
}

int ac_infer_index_put(ac_infer *i) {
    ac_dims indexed = {0};
    const ac_tensor *values = i->in[i->n_in - 1];
    AC_TRY(indexed_shape(i, i->n_in - 2, &indexed));
    ac_dims joint = indexed, given = ac_shape_of(values);
    AC_TRY(ac_dims_broadcast(&joint, &given, "index_put"));
    if (!ac_dims_equal(&joint, &indexed)) {
        char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
        return ac_fail(AC_RUNTIME, "index_put: `values` of shape %s do not fit the indexed part of shape %s",
                       ac_dims_text(&given, got), ac_dims_text(&indexed, want));
    }
    if (values->dtype != i->in[0]->dtype)
        return ac_fail(AC_RUNTIME,
                       "index_put: the values (%s) and x (%s) must have the same dtype; convert them with "
                       "values.to(x.dtype)",
                       ac_dtypes[values->dtype].name, ac_dtypes[i->in[0]->dtype].name);
    return ac_infer_same(i);
}

int ac_infer_nonzero(ac_infer *i) {
    i->kernel_makes_output = true;
    i->out[0] = (ac_spec){AC_int64, {2, {0, i->in[0]->ndim}}, AC_CPU};
    return 0;
}

int ac_infer_embedding(ac_infer *i) {
    AC_TRY(ac_need_ndim(i, 0, 2));
    AC_TRY(ac_need_integer(i, 1));
    i->out[0] = (ac_spec){i->in[0]->dtype, ac_shape_of(i->in[1]), AC_CPU};
    if (i->out[0].shape.n == AC_MAX_DIMS) return ac_fail(AC_RUNTIME, "embedding: `index` has too many dimensions");
    i->out[0].shape.v[i->out[0].shape.n++] = i->in[0]->shape[1];
    return 0;
}

int ac_infer_embedding_backward(ac_infer *i) {
    ATTRS(rows);
    AC_TRY(ac_need_integer(i, 1));
    const ac_tensor *g = i->in[0];
    bool fits = g->ndim == i->in[1]->ndim + 1 && a->rows >= 0;
    for (int d = 0; fits && d < i->in[1]->ndim; d++) fits = g->shape[d] == i->in[1]->shape[d];
    if (!fits)
        return ac_fail(AC_RUNTIME, "embedding_backward: `g` must have the shape of `index` and one dimension more");
    i->out[0] = (ac_spec){g->dtype, {2, {a->rows, g->shape[g->ndim - 1]}}, AC_CPU};
    return 0;
}

/* -- sorting -------------------------------------------------------------------------------------- */

static int value_and_index(ac_infer *i, int64_t dim, int64_t k) {
    i->out[0] = (ac_spec){i->in[0]->dtype, ac_shape_of(i->in[0]), AC_CPU};
    if (i->in[0]->ndim) i->out[0].shape.v[dim] = k;
    i->out[1] = (ac_spec){AC_int64, i->out[0].shape, AC_CPU};
    return 0;
}

int ac_infer_topk(ac_infer *i) {
    ATTRS(topk);
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, "topk"));
    int64_t size = i->in[0]->ndim ? i->in[0]->shape[dim] : 1;
    if (i->in[0]->ndim == 0 && a->k == 0)
        return ac_fail(AC_RUNTIME, "topk: `k` must be 1 for a 0-d tensor, whose result has its one element");
    if (a->k < 0 || a->k > size)
        return ac_fail(AC_RUNTIME, "topk: `k` is %" PRId64 " and dimension %" PRId64 " has %" PRId64 " elements", a->k,
                       dim, size);
    return value_and_index(i, dim, a->k);
}

int ac_infer_sort(ac_infer *i) {
    ATTRS(sort);
    int64_t dim = a->dim;
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, "sort"));
    return value_and_index(i, dim, i->in[0]->ndim ? i->in[0]->shape[dim] : 1);
}

/* -- normalisation ----------------------------------------------------------------------------------- */

/* The dtype that statistics of t are kept in. */
static ac_dtype statistics(const ac_tensor *t) { return t->dtype == AC_float64 ? AC_float64 : AC_float32; }

/* A norm's weight, bias or statistics: of x's dtype, or float32 beside 16 bits. */
static int need_parameter(const ac_infer *i, int k) {
    ac_dtype x = i->in[0]->dtype;
    if (!i->in[k] || i->in[k]->dtype == x || (ac_is_half(x) && i->in[k]->dtype == AC_float32)) return 0;
    return ac_need_same_dtype(i, 0, k);
}

int ac_infer_layer_norm(ac_infer *i) {
    ATTRS(layer_norm);
    const ac_tensor *x = i->in[0];
    const ac_dims *inner = &a->normalized_shape;
    AC_TRY(ac_need_floating(i, 0));
    bool fits = inner->n >= 1 && inner->n <= x->ndim;
    for (int64_t d = 0; fits && d < inner->n; d++) fits = inner->v[d] == x->shape[x->ndim - inner->n + d];
    if (!fits) {
        char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
        return ac_fail(AC_RUNTIME, "layer_norm: `normalized_shape` %s must be the last dimensions of `x` %s",
                       ac_dims_text(inner, want), ac_shape_text(x, got));
    }
    for (int k = 1; k <= 2; k++)
        if (i->in[k]) AC_TRY(ac_need_shape(i, k, inner));
    for (int k = 1; k <= 2; k++) AC_TRY(need_parameter(i, k));
    ac_dims rows = ac_shape_of(x);
    for (int64_t d = x->ndim - inner->n; d < x->ndim; d++) rows.v[d] = 1;
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), rows, AC_CPU};
    return 0;
}

/* in[which] must hold `n` floating point numbers. */
static int need_numbers(const ac_infer *i, int which, int64_t n) {
    if (!i->in[which]) return 0;
    if (i->in[which]->numel == n && ac_is_floating(i->in[which]->dtype) && ac_is_contiguous(i->in[which])) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must hold %" PRId64 " floating point numbers, contiguous", i->info->shown,
                   ac_input_name(i, which), n);
}

/* g (0) and x (1) must be floating point and of one shape. */
static int need_gradient_of(ac_infer *i) {
    ac_dims shape = ac_shape_of(i->in[1]);
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(ac_need_floating(i, 1));
    return ac_need_shape(i, 0, &shape);
}

int ac_infer_softmax_backward(ac_infer *i) {
    ATTRS(softmax_backward);
    int64_t dim = a->dim;
    AC_TRY(need_gradient_of(i));
    AC_TRY(ac_dim_wrap(&dim, i->in[0]->ndim, i->info->shown));
    return ac_infer_same(i);
}

int ac_infer_layer_norm_backward(ac_infer *i) {
    ATTRS(rows_only);
    const ac_tensor *x = i->in[1];
    AC_TRY(need_gradient_of(i));
    if (a->rows < 0 || (a->rows ? x->numel % a->rows : x->numel) != 0)
        return ac_fail(AC_RUNTIME, "layer_norm_backward: %" PRId64 " elements do not make %" PRId64 " rows", x->numel,
                       a->rows);
    ac_dims inner = {1, {a->rows > 0 ? x->numel / a->rows : 0}};
    AC_TRY(need_numbers(i, 2, a->rows));
    AC_TRY(need_numbers(i, 3, a->rows));
    if (i->in[4] && i->in[4]->numel != inner.v[0]) AC_TRY(need_numbers(i, 4, inner.v[0]));
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), inner, AC_CPU};
    return 0;
}

int ac_infer_batch_norm(ac_infer *i) {
    ATTRS(batch_norm);
    const ac_tensor *x = i->in[0];
    AC_TRY(ac_need_floating(i, 0));
    char text[AC_SHAPE_TEXT];
    if (x->ndim < 2)
        return ac_fail(AC_RUNTIME, "batch_norm: `x` must be [N, C, ...], got shape %s", ac_shape_text(x, text));
    ac_dims channels = {1, {x->shape[1]}};
    for (int k = 1; k <= 4; k++)
        if (i->in[k]) AC_TRY(ac_need_shape(i, k, &channels));
    for (int k = 1; k <= 4; k++) AC_TRY(need_parameter(i, k));
    if (!a->training && (!i->in[1] || !i->in[2]))
        return ac_fail(AC_RUNTIME, "batch_norm: needs running_mean and running_var when not training");
    if (a->training && x->numel == x->shape[1] && x->numel > 0) /* an empty batch trains nothing */
        return ac_fail(
            AC_VALUE,
            "batch_norm: training needs more than 1 value per channel, got shape %s; use batches of 2 samples "
            "or more (DataLoader(drop_last=True) leaves out a last one of 1), or eval() to use the running "
            "statistics",
            ac_shape_text(x, text));
    if (a->training && !(a->eps > 0))
        return ac_fail(AC_VALUE, "batch_norm: training needs an `eps` above 0, got %g", a->eps);
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), channels, AC_CPU};
    return 0;
}

int ac_infer_batch_norm_backward(ac_infer *i) {
    const ac_tensor *x = i->in[1];
    AC_TRY(need_gradient_of(i));
    if (x->ndim < 2) return ac_fail(AC_RUNTIME, "batch_norm_backward: `x` must be [N, C, ...]");
    ac_dims channels = {1, {x->shape[1]}};
    for (int k = 2; k <= 4; k++)
        if (i->in[k]) AC_TRY(ac_need_shape(i, k, &channels));
    AC_TRY(need_numbers(i, 2, x->shape[1]));
    AC_TRY(need_numbers(i, 3, x->shape[1]));
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), channels, AC_CPU};
    return 0;
}

static int need_groups(const ac_tensor *x, int64_t groups, ac_dims *sets) {
    char text[AC_SHAPE_TEXT];
    if (x->ndim < 2)
        return ac_fail(AC_RUNTIME, "group_norm: `x` must be [N, C, ...], got shape %s", ac_shape_text(x, text));
    if (groups < 1 || x->shape[1] % groups)
        return ac_fail(AC_RUNTIME, "group_norm: %" PRId64 " channels are no multiple of %" PRId64 " groups",
                       x->shape[1], groups);
    *sets = (ac_dims){2, {x->shape[0], groups}};
    return 0;
}

int ac_infer_group_norm(ac_infer *i) {
    ATTRS(group_norm);
    const ac_tensor *x = i->in[0];
    ac_dims sets;
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(need_groups(x, a->num_groups, &sets));
    ac_dims channels = {1, {x->shape[1]}};
    char text[AC_SHAPE_TEXT];
    if (x->numel == a->num_groups)
        return ac_fail(AC_VALUE, "group_norm: needs more than 1 value in a group, got shape %s and %" PRId64 " groups",
                       ac_shape_text(x, text), a->num_groups);
    for (int k = 1; k <= 2; k++)
        if (i->in[k]) AC_TRY(ac_need_shape(i, k, &channels));
    for (int k = 1; k <= 2; k++) AC_TRY(need_parameter(i, k));
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), sets, AC_CPU};
    return 0;
}

int ac_infer_group_norm_backward(ac_infer *i) {
    ATTRS(num_groups);
    const ac_tensor *x = i->in[1];
    ac_dims sets;
    AC_TRY(need_gradient_of(i));
    AC_TRY(need_groups(x, a->num_groups, &sets));
    ac_dims channels = {1, {x->shape[1]}};
    for (int k = 2; k <= 3; k++) AC_TRY(ac_need_shape(i, k, &sets));
    if (i->in[4]) AC_TRY(ac_need_shape(i, 4, &channels));
    i->out[0] = (ac_spec){x->dtype, ac_shape_of(x), AC_CPU};
    i->out[1] = i->out[2] = (ac_spec){statistics(x), channels, AC_CPU};
    return 0;
}
