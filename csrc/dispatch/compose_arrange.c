/* Composite operators that rearrange elements: rolling, tiling, joining, triangles, diagonals, and writing into parts.
 */
#include "dispatch/compose_read.h"

#include "dispatch/write.h"

#include <stdlib.h>

/* -- order of dimensions ---------------------------------------------------------------------------- */

COMPOSE(movedim) {
    ATTRS(movedim);
    int ndim = in[0]->ndim, n = (int)a->source.n;
    int64_t from[AC_MAX_DIMS], to[AC_MAX_DIMS];
    uint32_t taken = 0, filled = 0;
    for (int i = 0; i < n && i < a->destination.n; i++) {
        from[i] = a->source.v[i], to[i] = a->destination.v[i];
        NEED(ac_dim_wrap(&from[i], ndim, "movedim"));
        NEED(ac_dim_wrap(&to[i], ndim, "movedim"));
        if (taken >> from[i] & 1 || filled >> to[i] & 1) n = -1; /* twice */
        else taken |= 1u << from[i], filled |= 1u << to[i];
    }
    if (n != a->destination.n)
        REFUSE(AC_RUNTIME, "movedim: `source` and `destination` must be equally many different dimensions");
    if (ndim == 0) return ac_c_call(s, AC_OP_alias, NULL, 1, in[0]);
    ac_dims order = {.n = ndim};
    for (int d = 0, next = 0; d < ndim; d++) {
        if (filled >> d & 1) {
            for (int i = 0; i < n; i++)
                if (to[i] == d) order.v[d] = from[i];
            continue;
        }
        while (taken >> next & 1) next++;
        order.v[d] = next++;
    }
    return ac_c_permute(s, in[0], &order);
}

COMPOSE(swapaxes) {
    ATTRS(two_dims);
    return ac_c_transpose(s, in[0], a->dim0, a->dim1);
}

COMPOSE(adjoint) {
    if (in[0]->ndim == 1) REFUSE(AC_RUNTIME, "adjoint: needs a matrix or a batch of matrices, got 1 dimension");
    return in[0]->ndim ? ac_c_transpose(s, in[0], -2, -1) : in[0];
}

COMPOSE(broadcast_to) { return ac_c_call(s, AC_OP_expand, attrs, 1, in[0]); }

COMPOSE(ravel) { return ac_c_flat(s, UN(contiguous, in[0])); }

COMPOSE(unflatten) {
    ATTRS(unflatten);
    const ac_tensor *x = in[0];
    int64_t dim = a->dim, known = 1;
    int open = 0;
    NEED(ac_dim_wrap(&dim, x->ndim, "unflatten"));
    if (x->ndim == 0) REFUSE(AC_RUNTIME, "unflatten: a 0-d tensor has no dimension to cut");
    if (x->ndim - 1 + a->sizes.n > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "unflatten: more than %d dimensions", AC_MAX_DIMS);
    for (int i = 0; i < a->sizes.n; i++) {
        if (a->sizes.v[i] == -1) open++;
        else known *= a->sizes.v[i];
    }
    ac_dims shape = {.n = 0};
    for (int d = 0; d < x->ndim; d++) {
        for (int i = 0; d == dim && i < a->sizes.n; i++) {
            int64_t n = a->sizes.v[i]; /* inferred here: another size may be 0 */
            shape.v[shape.n++] = n == -1 && open == 1 && known && x->shape[d] % known == 0 ? x->shape[d] / known : n;
        }
        if (d != dim) shape.v[shape.n++] = x->shape[d];
    }
    return ac_c_reshape(s, in[0], &shape);
}

/* -- repeating -------------------------------------------------------------------------------------- */

/* Tiled times[d] times along each dimension d; as many times as dimensions, or more. */
static T tiled(ac_scratch *s, T x, const ac_dims *times, const char *what) {
    int64_t lead = times->n - x->ndim;
    ac_dims split = {.n = 0}, wide = {.n = 0}, shape = {.n = times->n};
    for (int64_t d = 0; d < times->n; d++) {
        int64_t n = d < lead ? 1 : x->shape[d - lead], k = times->v[d];
        if (k < 0) REFUSE(AC_RUNTIME, "%s: repetitions must be 0 or more, got %" PRId64, what, k);
        if (wide.n + 2 > AC_MAX_DIMS && k != 1)
            REFUSE(AC_RUNTIME, "%s: repeats along too many dimensions at once", what);
        if (k != 1) split.v[split.n++] = 1, wide.v[wide.n++] = k;
        split.v[split.n++] = n, wide.v[wide.n++] = n;
        shape.v[d] = n * k;
    }
    return ac_c_reshape(s, ac_c_expand(s, ac_c_reshape(s, x, &split), &wide), &shape);
}

COMPOSE(repeat) {
    ATTRS(size);
    if (a->size.n < in[0]->ndim)
        REFUSE(AC_RUNTIME, "repeat: %" PRId64 " repetitions given for a tensor of %d dimensions", a->size.n,
               in[0]->ndim);
    return tiled(s, in[0], &a->size, "repeat");
}

COMPOSE(tile) {
    ATTRS(size);
    int64_t lead = a->size.n < in[0]->ndim ? in[0]->ndim - a->size.n : 0;
    ac_dims times = {.n = lead + a->size.n};
    for (int64_t d = 0; d < times.n; d++) times.v[d] = d < lead ? 1 : a->size.v[d - lead];
    return tiled(s, in[0], &times, "tile");
}

/* -- moving values ---------------------------------------------------------------------------------- */

static T flipped(ac_scratch *s, T x, int64_t dim, int64_t other) {
    ac_attrs_dims a = {{other == dim ? 1 : 2, {dim, other}}};
    return ac_c_call(s, AC_OP_flip, &a, 1, x);
}

COMPOSE(flipud) {
    if (in[0]->ndim < 1) REFUSE(AC_RUNTIME, "flipud: expected at least 1 dimension, got 0");
    return flipped(s, in[0], 0, 0);
}

COMPOSE(fliplr) {
    if (in[0]->ndim < 2) REFUSE(AC_RUNTIME, "fliplr: expected at least 2 dimensions, got %d", in[0]->ndim);
    return flipped(s, in[0], 1, 1);
}

COMPOSE(rot90) {
    ATTRS(rot90);
    ac_dims plane = a->dims.n < 0 ? (ac_dims){2, {0, 1}} : a->dims;
    if (plane.n != 2 || in[0]->ndim < 2)
        REFUSE(AC_RUNTIME,
               "rot90: needs two dims, and a tensor of 2 dimensions at least, got %" PRId64 " dims and %d dimensions",
               plane.n, in[0]->ndim);
    int64_t from = plane.v[0], to = plane.v[1];
    NEED(ac_dim_wrap(&from, in[0]->ndim, "rot90"));
    NEED(ac_dim_wrap(&to, in[0]->ndim, "rot90"));
    if (from == to) REFUSE(AC_RUNTIME, "rot90: dims must be two different ones");
    int quarters = (int)((a->k % 4 + 4) % 4);
    if (quarters == 0) return UN(in_rows, in[0]);
    if (quarters == 2) return flipped(s, in[0], from, to);
    int64_t turned = quarters == 1 ? to : from;
    return ac_c_transpose(s, flipped(s, in[0], turned, turned), from, to);
}

static T rolled(ac_scratch *s, T x, int64_t step, int64_t dim) {
    int64_t n = x->shape[dim];
    step = n ? (step % n + n) % n : 0;
    if (!step) return x;
    ac_attrs_one_dim along = {dim};
    return ac_c_call(s, AC_OP_cat, &along, 2, ac_c_slice(s, x, dim, n - step, n), ac_c_slice(s, x, dim, 0, n - step));
}

COMPOSE(roll) {
    ATTRS(roll);
    T x = in[0];
    if (a->dims.n <= 0) {
        ac_dims shape = ac_shape_of(x);
        if (a->shifts.n != 1) REFUSE(AC_RUNTIME, "roll: %" PRId64 " shifts need as many dims", a->shifts.n);
        T y = ac_c_flat(s, x);
        return y ? ac_c_reshape(s, rolled(s, y, a->shifts.v[0], 0), &shape) : NULL;
    }
    if (a->shifts.n != a->dims.n)
        REFUSE(AC_RUNTIME, "roll: %" PRId64 " shifts and %" PRId64 " dims do not match", a->shifts.n, a->dims.n);
    for (int i = 0; i < a->dims.n && x; i++) {
        int64_t dim = a->dims.v[i];
        NEED(ac_dim_wrap(&dim, x->ndim, "roll"));
        if (x->ndim == 0) REFUSE(AC_INDEX, "roll: a 0-d tensor has no dimension %" PRId64, a->dims.v[i]);
        x = rolled(s, x, a->shifts.v[i], dim);
    }
    return x;
}

/* -- joining ---------------------------------------------------------------------------------------- */

/* With dimensions of size 1 as NumPy's atleast_1d, 2d and 3d put them. */
static T at_least(ac_scratch *s, T x, int ndim) {
    ac_dims shape = {.n = ndim, .v = {1, 1, 1}};
    if (x->ndim >= ndim) return x;
    if (x->ndim == 2) return ac_c_unsqueeze(s, x, 2);
    if (x->ndim == 1) shape.v[1] = x->shape[0];
    return ac_c_reshape(s, x, &shape);
}

static T column(ac_scratch *s, T x) {
    ac_dims shape = {2, {x->numel, 1}};
    return x->ndim > 1 ? x : ac_c_reshape(s, x, &shape);
}

/* All with at least `ndim` dimensions (as columns when that is 0), joined along `dim`. */
static T joined(ac_scratch *s, T const *in, int n_in, int ndim, int64_t dim, const char *what) {
    if (n_in == 0) REFUSE(AC_RUNTIME, "%s: needs at least one tensor, got an empty list", what);
    ac_attrs_one_dim along = {dim};
    ac_list every;
    T out[AC_MAX_OUT] = {NULL};
    NEED(ac_list_start(&every, n_in));
    for (int i = 0; i < n_in; i++) every.at[i] = ndim ? at_least(s, in[i], ndim) : column(s, in[i]);
    int failed = ac_c_call_many(s, AC_OP_cat, &along, every.at, n_in, out);
    ac_list_free(&every);
    return failed ? NULL : out[0];
}

COMPOSE(at_least) {
    ATTRS(at_least);
    return at_least(s, in[0], (int)a->ndim);
}

COMPOSE(hstack) { return joined(s, in, n_in, 1, n_in && in[0]->ndim > 1 ? 1 : 0, "hstack"); }
COMPOSE(vstack) { return joined(s, in, n_in, 2, 0, "vstack"); }
COMPOSE(dstack) { return joined(s, in, n_in, 3, 2, "dstack"); }
COMPOSE(column_stack) { return joined(s, in, n_in, 0, 1, "column_stack"); }

/* -- triangles and diagonals ------------------------------------------------------------------------ */

/* x where column - row <= diagonal, or where not `lower` beyond it; zeros elsewhere */
static T triangle(ac_scratch *s, T x, int64_t diagonal, bool lower) {
    if (x->ndim < 2) REFUSE(AC_RUNTIME, "%s: expected at least 2 dimensions, got %d", lower ? "tril" : "triu", x->ndim);
    ac_device device = ac_device_of(x);
    ac_dims number = {0};
    x = UN(contiguous, x);
    if (!x) return NULL;
    T rows = ac_c_unsqueeze(s, ac_c_arange(s, x->shape[x->ndim - 2], device), 1);
    T below = BIN(le, SUB(ac_c_arange(s, x->shape[x->ndim - 1], device), rows), NUM((double)diagonal));
    ac_c_constant(below);
    T zero = x->dtype == AC_bool ? ac_c_full(s, &number, 0, AC_bool, device) : NUM(0);
    return lower ? WHERE(below, x, zero) : WHERE(below, zero, x);
}

COMPOSE(tril) {
    ATTRS(offset);
    return triangle(s, in[0], a->offset, true);
}
COMPOSE(triu) {
    ATTRS(offset);
    return triangle(s, in[0], a->offset - 1, false);
}

/* The last dimension of x on a diagonal of matrices of zeros, whose dimensions are dim1 and dim2. */
static T embedded(ac_scratch *s, T x, ac_attrs_diagonal a) {
    int ndim = x->ndim + 1;
    if (x->ndim == 0) REFUSE(AC_INDEX, "diag_embed: a 0-d tensor has no dimension to lay on a diagonal");
    NEED(ac_dim_wrap(&a.dim1, ndim, "diag_embed"));
    NEED(ac_dim_wrap(&a.dim2, ndim, "diag_embed"));
    if (a.dim1 == a.dim2) REFUSE(AC_RUNTIME, "diag_embed: dim1 and dim2 must differ, both are %" PRId64, a.dim1);
    if (a.dim1 > a.dim2) {
        int64_t first = a.dim2;
        a.dim2 = a.dim1, a.dim1 = first, a.offset = -a.offset;
    }
    if (ndim > AC_MAX_DIMS) REFUSE(AC_RUNTIME, "diag_embed: more than %d dimensions", AC_MAX_DIMS);
    int64_t away = llabs(a.offset), n = x->shape[x->ndim - 1] + away;
    ac_dims shape = {.n = ndim};
    for (int64_t d = 0, next = 0; d < ndim; d++) shape.v[d] = d == a.dim1 || d == a.dim2 ? n : x->shape[next++];
    ac_dims steps = ac_dims_contiguous(&shape);
    ac_attrs_as_strided_scatter at = {ac_shape_of(x), {.n = x->ndim}, 0, 0};
    for (int64_t d = 0, next = 0; d < ndim; d++)
        if (d != a.dim1 && d != a.dim2) at.stride.v[next++] = steps.v[d];
    at.stride.v[x->ndim - 1] = steps.v[a.dim1] + steps.v[a.dim2];
    at.offset = away * (a.offset >= 0 ? steps.v[a.dim2] : steps.v[a.dim1]);
    T room = ac_c_full(s, &shape, 0, x->dtype, ac_device_of(x));
    return ac_c_call(s, AC_OP_as_strided_scatter, &at, 2, room, x);
}

COMPOSE(diag_embed) { return embedded(s, in[0], *(const ac_attrs_diagonal *)attrs); }

COMPOSE(diagflat) {
    ATTRS(offset);
    T x = ac_c_flat(s, in[0]);
    return x ? embedded(s, x, (ac_attrs_diagonal){a->offset, 0, 1}) : NULL;
}

COMPOSE(diag) {
    ATTRS(offset);
    ac_attrs_diagonal plane = {a->offset, 0, 1};
    if (in[0]->ndim == 1) return embedded(s, in[0], plane);
    if (in[0]->ndim != 2) REFUSE(AC_RUNTIME, "diag: expected a vector or a matrix, got %d dimensions", in[0]->ndim);
    return UN(clone, ac_c_call(s, AC_OP_diagonal, &plane, 1, in[0]));
}

/* -- writing into parts ----------------------------------------------------------------------------- */

/* `whole`, after src was written into its view `part` */
static T written(ac_scratch *s, T whole, T part, T src, const char *what) {
    if (!whole || !part) return NULL;
    if (!ac_same_shape(part, src)) {
        char want[AC_SHAPE_TEXT], got[AC_SHAPE_TEXT];
        REFUSE(AC_RUNTIME, "%s: `src` must have the shape of its part, %s, got %s", what, ac_shape_text(part, want),
               ac_shape_text(src, got));
    }
    NEED(ac_copy_into(part, src));
    return whole;
}

COMPOSE(diagonal_scatter) {
    T y = UN(clone, in[0]);
    return written(s, y, ac_c_call(s, AC_OP_diagonal, attrs, 1, y), in[1], "diagonal_scatter");
}
COMPOSE(select_scatter) {
    T y = UN(clone, in[0]);
    return written(s, y, ac_c_call(s, AC_OP_select, attrs, 1, y), in[1], "select_scatter");
}
COMPOSE(slice_scatter) {
    T y = UN(clone, in[0]);
    return written(s, y, ac_c_call(s, AC_OP_slice, attrs, 1, y), in[1], "slice_scatter");
}

/* How many elements of memory a view reaches over. */
static int64_t reach(const ac_dims *size, const ac_dims *stride, int64_t offset) {
    int64_t last = offset + 1;
    for (int d = 0; d < size->n; d++) {
        if (size->v[d] == 0) return 0;
        last += (size->v[d] - 1) * (d < stride->n ? stride->v[d] : 0);
    }
    return last;
}

/* A copy of the memory, laid out as it is. */
COMPOSE(scatter_strided) {
    ATTRS(as_strided);
    T x = in[0];
    ac_attrs_as_strided own = {ac_shape_of(x), ac_strides_of(x), x->offset}, part = *a;
    if (part.offset == AC_ABSENT) part.offset = x->offset;
    int64_t here = reach(&own.size, &own.stride, own.offset), there = reach(&part.size, &part.stride, part.offset);
    ac_attrs_as_strided all = {{1, {here > there ? here : there}}, {1, {1}}, 0};
    T memory = UN(in_rows, ac_c_call(s, AC_OP_as_strided, &all, 1, x));
    T view = ac_c_call(s, AC_OP_as_strided, &part, 1, memory);
    memory = written(s, memory, view, in[1], "as_strided_scatter");
    return memory ? ac_c_call(s, AC_OP_as_strided, &own, 1, memory) : NULL;
}

/* -- powers ----------------------------------------------------------------------------------------- */

COMPOSE(vander) {
    ATTRS(vander);
    if (in[0]->ndim != 1) REFUSE(AC_RUNTIME, "vander: expected a vector, got %d dimensions", in[0]->ndim);
    T x = ac_is_floating(in[0]->dtype) ? in[0] : ac_c_cast(s, in[0], AC_int64);
    int64_t n = a->N == AC_ABSENT ? in[0]->shape[0] : a->N;
    if (n < 0) REFUSE(AC_RUNTIME, "vander: `N` must be 0 or more, got %" PRId64, n);
    T powers = ac_c_arange(s, n, ac_device_of(in[0]));
    if (!a->increasing) powers = flipped(s, powers, 0, 0);
    return x ? BIN(pow, ac_c_unsqueeze(s, x, 1), ac_c_cast(s, powers, x->dtype)) : NULL;
}
