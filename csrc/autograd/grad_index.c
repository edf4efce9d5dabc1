/* Backward formulas of joining, indexing and view operators. */
#include "base/alloc.h"
#include "autograd/formula_list.h"
#include "autograd/split.h"

/* What each input that wants a gradient has of g; how many there are. One of other dimensions is torch's empty 1-d
 * tensor, and has nothing. */
static int spans_of_inputs(ac_formula *c, int64_t ndim, int64_t dim, ac_section *spans) {
    int64_t start = 0;
    int n = 0;
    for (int i = 0; i < c->node->n_in; i++) {
        const ac_dims *shape = &ac_f_input(c, i)->shape;
        if (shape->n != ndim) continue;
        if (WANTS(i)) spans[n++] = (ac_section){start, shape->v[dim]};
        start += shape->v[dim];
    }
    return n;
}

static void give_parts(ac_formula *c, int64_t ndim, ac_tensor *const *parts) {
    ac_scratch *s = &c->scratch;
    for (int i = 0; i < c->node->n_in; i++) {
        const ac_spec *input = ac_f_input(c, i);
        if (WANTS(i)) ac_f_give(c, i, input->shape.n == ndim ? *parts++ : ac_c_zeros(s, input));
    }
}

FORMULA(cat) {
    ATTR(one_dim);
    T g = G;
    if (!g) return -1;
    int64_t dim = g->ndim == 1 ? 0 : a->dim; /* joined out of nothing, by whatever `dim` */
    if (ac_dim_wrap(&dim, g->ndim, "cat") < 0) return -1;
    size_t bytes = (size_t)c->node->n_in * sizeof(ac_section);
    ac_section *spans = ac_alloc(bytes);
    if (!spans) return -1;
    int n = spans_of_inputs(c, g->ndim, dim, spans);
    ac_list parts;
    int failed = ac_list_start(&parts, n);
    if (!failed) failed = ac_split(g, dim, spans, n, false, parts.at);
    if (!failed) give_parts(c, g->ndim, parts.at);
    ac_list_release(&parts);
    ac_free(spans, bytes);
    return failed || s->failed ? -1 : 0;
}

FORMULA(flip) {
    GIVE(0, ac_c_call(s, AC_OP_flip, c->node->attrs, 1, G));
    DONE;
}

FORMULA(gather) {
    GIVE(0, ac_c_call(s, AC_OP_scatter_add, c->node->attrs, 3, ac_c_zeros(s, ac_f_input(c, 0)), SAVED(1), G));
    DONE;
}

FORMULA(scatter_add) {
    GIVE(0, G);
    if (!WANTS(2)) DONE;
    if (SAVED(1)->numel == 0) { /* nothing of src was read, and index may have other dimensions */
        GIVE(2, ac_c_zeros(s, ac_f_input(c, 2)));
        DONE;
    }
    T g = ac_c_call(s, AC_OP_gather, c->node->attrs, 2, G, SAVED(1));
    const ac_dims *src = &ac_f_input(c, 2)->shape;
    if (!g) return -1;
    ac_dims got = ac_shape_of(g);
    if (ac_dims_equal(&got, src)) ac_f_give(c, 2, g);
    else { /* src was larger than index: what index did not read gets 0 */ ac_dims dense = ac_dims_contiguous(src);
        ac_attrs_as_strided_scatter scatter = {got, dense, 0, 0};
        ac_f_give(c, 2, ac_c_call(s, AC_OP_as_strided_scatter, &scatter, 2, ac_c_zeros(s, ac_f_input(c, 2)), g));
    }
    DONE;
}

FORMULA(index_select) {
    GIVE(0, ac_c_call(s, AC_OP_index_add, c->node->attrs, 3, ac_c_zeros(s, ac_f_input(c, 0)), SAVED(1), G));
    DONE;
}

FORMULA(index_add) {
    GIVE(0, G);
    GIVE(2,
         ac_c_reshape(s, ac_c_call(s, AC_OP_index_select, c->node->attrs, 2, G, SAVED(1)), &ac_f_input(c, 2)->shape));
    DONE;
}

/* The saved indices of index (x, indices) and index_put (x, indices, values), after `first`. */
static int indices(ac_formula *c, T *in, int n) {
    for (int i = 0; i < n; i++) in[i] = MAYBE(i + 1);
    return c->scratch.failed ? -1 : 0;
}

FORMULA(index) {
    T in[AC_MAX_DIMS + 2], out[AC_MAX_OUT];
    int n = c->node->n_in - 1;
    ac_attrs_index_put add = {.accumulate = 1};
    in[0] = ac_c_zeros(s, ac_f_input(c, 0));
    if (indices(c, in + 1, n) < 0) return -1;
    in[n + 1] = G;
    if (ac_c_call_many(s, AC_OP_index_put, &add, in, n + 2, out) == 0) GIVE(0, out[0]);
    DONE;
}

FORMULA(index_put) {
    ATTR(index_put);
    T in[AC_MAX_DIMS + 2], out[AC_MAX_OUT];
    int n = c->node->n_in - 2;
    in[0] = G;
    if (indices(c, in + 1, n) < 0) return -1;
    if (WANTS(n + 1) && ac_c_call_many(s, AC_OP_index, NULL, in, n + 1, out) == 0) ac_f_give(c, n + 1, out[0]);
    if (!WANTS(0)) DONE;
    if (a->accumulate) ac_f_give(c, 0, G);
    else {
        ac_spec zero = {ac_f_input(c, 0)->dtype, {0}, ac_f_input(c, 0)->device};
        ac_attrs_index_put set = {0};
        in[n + 1] = ac_c_zeros(s, &zero);
        if (ac_c_call_many(s, AC_OP_index_put, &set, in, n + 2, out) == 0) ac_f_give(c, 0, out[0]);
    }
    DONE;
}

/* How often each number of index stands in it, [..., 1]. */
static T frequency(ac_scratch *s, T index, int64_t n) {
    if (!index) return NULL;
    ac_dims column = ac_shape_of(index);
    column.v[column.n++] = 1;
    ac_attrs_rows rows = {n, -1};
    ac_attrs_padding none = {-1, 0};
    T ones = ac_c_full(s, &column, 1, AC_float32, ac_device_of(index));
    return ac_c_call(s, AC_OP_embedding, &none, 2, ac_c_call(s, AC_OP_embedding_backward, &rows, 2, ones, index),
                     index);
}

FORMULA(embedding) {
    ATTR(padding);
    T g = G, index = SAVED(1);
    ac_attrs_rows rows = {ac_f_input(c, 0)->shape.v[0], a->padding_idx};
    if (a->by_frequency && g) g = ac_c_cast(s, DIV(g, frequency(s, index, rows.rows)), g->dtype);
    GIVE(0, ac_c_call(s, AC_OP_embedding_backward, &rows, 2, g, index));
    DONE;
}

FORMULA(embedding_backward) {
    ATTR(rows);
    T index = SAVED(1);
    ac_attrs_padding none = {-1, 0};
    T g = ac_c_call(s, AC_OP_embedding, &none, 2, G, index);
    if (g && a->padding_idx >= 0) { /* padding rows took no part */
        ac_dims column = ac_shape_of(g);
        column.v[column.n - 1] = 1;
        g = WHERE(ac_c_reshape(s, BIN(eq, index, NUM((double)a->padding_idx)), &column), NUM(0), g);
    }
    GIVE(0, g);
    DONE;
}

/* -- views ---------------------------------------------------------------------------------------- */

FORMULA(alias) {
    GIVE(0, G);
    DONE;
}
FORMULA(view) {
    GIVE(0, ac_c_reshape(s, G, &ac_f_input(c, 0)->shape));
    DONE;
}
FORMULA(stands_for) {
    GIVE(1, G);
    DONE;
}
FORMULA(expand) {
    GIVE(0, G);
    DONE;
} /* the engine sums to the input's shape */
FORMULA(transpose) {
    GIVE(0, ac_c_call(s, AC_OP_transpose, c->node->attrs, 1, G));
    DONE;
}

FORMULA(permute) {
    ATTR(size);
    ac_attrs_size back = {{.n = a->size.n}};
    for (int64_t d = 0; d < a->size.n; d++) {
        int64_t from = a->size.v[d] < 0 ? a->size.v[d] + a->size.n : a->size.v[d];
        back.size.v[from] = d;
    }
    GIVE(0, ac_c_call(s, AC_OP_permute, &back, 1, G));
    DONE;
}

/* Zeros of the input's shape with g placed where the view lay, in a contiguous layout. */
static T placed(ac_formula *c, const ac_dims *stride, int64_t offset, bool accumulate) {
    ac_scratch *s = &c->scratch;
    T g = G;
    if (!g) return NULL;
    ac_attrs_as_strided_scatter at = {ac_shape_of(g), *stride, offset, accumulate};
    return ac_c_call(s, AC_OP_as_strided_scatter, &at, 2, ac_c_zeros(s, ac_f_input(c, 0)), g);
}

FORMULA(select) {
    ATTR(select);
    ac_dims dense = ac_dims_contiguous(&ac_f_input(c, 0)->shape), stride = {.n = 0};
    int64_t dim = a->dim, index = a->index, n = dense.n;
    if (dim < 0) dim += n;
    if (index < 0) index += ac_f_input(c, 0)->shape.v[dim];
    for (int64_t d = 0; d < n; d++)
        if (d != dim) stride.v[stride.n++] = dense.v[d];
    GIVE(0, placed(c, &stride, index * dense.v[dim], false));
    DONE;
}

FORMULA(diagonal) {
    ATTR(diagonal);
    ac_dims dense = ac_dims_contiguous(&ac_f_input(c, 0)->shape), stride = {.n = 0};
    int64_t a1 = a->dim1 < 0 ? a->dim1 + dense.n : a->dim1, a2 = a->dim2 < 0 ? a->dim2 + dense.n : a->dim2;
    for (int64_t d = 0; d < dense.n; d++)
        if (d != a1 && d != a2) stride.v[stride.n++] = dense.v[d];
    stride.v[stride.n++] = dense.v[a1] + dense.v[a2];
    bool empty = c->node->outputs[0].shape.v[stride.n - 1] == 0;
    int64_t at = empty ? 0 : a->offset < 0 ? -a->offset * dense.v[a1] : a->offset * dense.v[a2];
    GIVE(0, placed(c, &stride, at, false));
    DONE;
}

FORMULA(slice) {
    ATTR(slice);
    const ac_dims *shape = &ac_f_input(c, 0)->shape;
    ac_dims stride = ac_dims_contiguous(shape);
    int64_t dim = a->dim < 0 ? a->dim + shape->n : a->dim, size = shape->v[dim],
            start = a->start == AC_ABSENT ? 0 : a->start;
    if (start < 0) start += size;
    if (start < 0) start = 0;
    if (start > size) start = size;
    int64_t offset = start * stride.v[dim];
    stride.v[dim] *= a->step;
    GIVE(0, placed(c, &stride, offset, false));
    DONE;
}

FORMULA(unfold) {
    ATTR(unfold);
    ac_dims stride = ac_dims_contiguous(&ac_f_input(c, 0)->shape);
    int64_t dim = a->dim < 0 ? a->dim + stride.n : a->dim, along = stride.n ? stride.v[dim] : 1;
    if (stride.n) stride.v[dim] = along * a->step;
    stride.v[stride.n++] = along;
    GIVE(0, placed(c, &stride, 0, true));
    DONE;
}

FORMULA(as_strided) {
    ATTR(as_strided);
    GIVE(0, placed(c, &a->stride, a->offset, true));
    DONE;
}

FORMULA(as_strided_scatter) {
    ATTR(as_strided_scatter);
    T g = UN(contiguous, G);
    if (!g) return -1;
    ac_spec part = {ac_f_input(c, 1)->dtype, a->size, ac_device_of(g)};
    if (WANTS(1)) { /* an empty view may begin behind the last element */
        ac_attrs_as_strided view = {a->size, a->stride, g->offset + a->offset};
        bool empty = ac_dims_numel(&a->size) == 0;
        ac_f_give(c, 1, empty ? ac_c_zeros(s, &part) : ac_c_call(s, AC_OP_as_strided, &view, 1, g));
    }
    if (!WANTS(0)) DONE;
    if (a->accumulate) ac_f_give(c, 0, g);
    else {
        ac_f_give(c, 0, ac_c_call(s, AC_OP_as_strided_scatter, a, 2, g, ac_c_zeros(s, &part)));
    }
    DONE;
}
