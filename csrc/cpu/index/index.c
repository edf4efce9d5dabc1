/* Joining and indexing. Additions that may meet at one index run in order on one thread, so sums do not depend on
 * threads. 16-bit sums accumulate in float32 and are rounded once. */
#include "cpu/kernels.h"

#include "base/alloc.h"
#include "base/inline.h"
#include "cpu/conv/im2col.h"

#include <inttypes.h>
#include <string.h>

static char *address(const ac_tensor *t, int64_t offset) { return (char *)ac_data(t) + offset * ac_itemsize(t->dtype); }

static void add_element(const ac_tensor *t, int64_t at, const ac_tensor *src, int64_t from) {
    if (ac_is_floating(t->dtype)) {
        double sum = ac_read_double(ac_data(t), t->dtype, at) + ac_read_double(ac_data(src), src->dtype, from);
        ac_write_double(ac_data(t), t->dtype, at, sum);
        return;
    }
    uint64_t sum =
        (uint64_t)ac_read_int(ac_data(t), t->dtype, at) + (uint64_t)ac_read_int(ac_data(src), src->dtype, from);
    ac_write_int(ac_data(t), t->dtype, at, (int64_t)sum);
}

enum { INDICES = 512 };

/* Elements at + i * step + offsets[i] of t += elements from + i * src_step of src, for i < n <= INDICES, one after
 * another; without offsets they are all 0. */
static void add_run(const ac_tensor *t, int64_t n, int64_t at, int64_t step, const int64_t *offsets,
                    const ac_tensor *src, int64_t from, int64_t src_step) {
    if (t->dtype == AC_float32 && ac_is_floating(src->dtype) && src->dtype != AC_float64) {
        float room[INDICES], *to = (float *)(void *)address(t, at);
        const float *x = ac_read_run(ac_cpu_loops(), AC_OPMATH_F32, src->dtype, n, address(src, from), src_step, room);
        for (int64_t i = 0; i < n; i++) to[i * step + (offsets ? offsets[i] : 0)] += x[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        add_element(t, at + i * step + (offsets ? offsets[i] : 0), src, from + i * src_step);
}

/* Where a result is added up: the result itself, or float32 numbers of its shape where it has 16 bits. */
typedef struct {
    ac_tensor t;
    ac_storage storage;
    size_t bytes;
} sums;

/* They begin as `start`, or as zeros. */
static int open_sums(sums *s, const ac_tensor *out, const ac_tensor *start) {
    s->t = *out, s->bytes = 0;
    if (ac_is_floating(out->dtype) && ac_itemsize(out->dtype) == 2) {
        ac_dims shape = ac_shape_of(out);
        s->bytes = (size_t)out->numel * sizeof(float) + 1;
        void *data = ac_alloc(s->bytes);
        if (!data) return -1;
        s->t = ac_tensor_over(&s->storage, data, AC_float32, &shape);
    }
    if (start) ac_cpu_copy_into(&s->t, start);
    else memset(ac_data(&s->t), 0, (size_t)(s->t.numel * ac_itemsize(s->t.dtype)));
    return 0;
}

/* Rounds them into the result, unless something failed, which it returns. */
static int close_sums(sums *s, ac_tensor *out, int failed) {
    if (!s->bytes) return failed;
    if (!failed) ac_cpu_copy_into(out, &s->t);
    ac_free(s->storage.data, s->bytes);
    return failed;
}

static int bad_index(const char *what, int64_t i, int64_t size) {
    return ac_fail(AC_INDEX, "%s: index %" PRId64 " is out of range for a dimension of size %" PRId64 "%s", what, i,
                   size, ac_index_hint(i, size));
}

/* The checked value of index element `at`. */
static int64_t index_value(const ac_tensor *index, int64_t at, int64_t size, const char *what) {
    int64_t i = ac_read_int(ac_data(index), index->dtype, at);
    return i < 0 || i >= size ? bad_index(what, i, size) : i;
}

/* -- cat ---------------------------------------------------------------------------------------- */

int ac_cpu_cat(const ac_run *r) {
    ATTRS(one_dim);
    ac_tensor part = *r->out[0];
    int64_t dim = a->dim;
    if (part.numel == 0) return 0;
    AC_TRY(ac_dim_wrap(&dim, part.ndim, "cat"));
    for (int k = 0; k < r->n_in && !ac_stop_at(k); k++) {
        const ac_tensor *t = r->in[k];
        if (t->ndim != part.ndim || t->numel == 0) continue;
        part.shape[dim] = t->shape[dim];
        part.numel = t->numel;
        ac_cpu_copy_into(&part, t);
        part.offset += t->shape[dim] * part.strides[dim];
    }
    return 0;
}

/* -- along one dimension ------------------------------------------------------------------------- */

/* A walk over the elements of an index, run by run of its last dimension, beside that of other tensors. */
typedef struct {
    ac_space index, from; /* all dimensions but the last */
    int64_t n, index_step, from_step;
} walk;

static walk walk_of(const ac_tensor *index, const ac_tensor *from) {
    int last = index->ndim - 1;
    uint32_t before = index->ndim ? ~(1u << last) : 0;
    walk w = {.index = ac_space_of(index, before), .from = ac_space_of(from, before), .n = 1};
    if (index->ndim) w.n = index->shape[last], w.index_step = index->strides[last], w.from_step = from->strides[last];
    return w;
}

/* Offsets along dim, in elements of a tensor of `size` there with that stride, of n <= INDICES elements of an index,
 * which are at least `least`: -size, or 0 where none counts from the end. */
static int read_offsets(const ac_tensor *index, int64_t at, int64_t step, int64_t n, int64_t size, int64_t stride,
                        int64_t least, const char *what, int64_t *offsets) {
    const char *from = address(index, at);
    ac_cpu_loops()->load[index->dtype][AC_OPMATH_I64](n, from, step, offsets);
    for (int64_t i = 0; i < n; i++) {
        if (offsets[i] < least || offsets[i] >= size) return bad_index(what, offsets[i], size);
        offsets[i] = (offsets[i] + (offsets[i] < 0 ? size : 0)) * stride;
    }
    return 0;
}

/* to[i] = from[i * step + offsets[i]] */
static void take_run(int64_t n, int64_t item, const char *from, int64_t step, const int64_t *offsets, char *to) {
#define TAKE(bytes)                                                                                                    \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * bytes, from + (i * step + offsets[i]) * bytes, bytes)
    if (item == 4) TAKE(4);
    else if (item == 8) TAKE(8);
    else if (item == 2) TAKE(2);
    else TAKE(1);
#undef TAKE
}

/* to[offsets[i]] = from[i * step] */
static void put_run(int64_t n, int64_t item, const char *from, int64_t step, const int64_t *offsets, char *to) {
#define PUT(bytes)                                                                                                     \
    for (int64_t i = 0; i < n; i++) memcpy(to + offsets[i] * bytes, from + i * step * bytes, bytes)
    if (item == 4) PUT(4);
    else if (item == 8) PUT(8);
    else if (item == 2) PUT(2);
    else PUT(1);
#undef PUT
}

/* out[..., i, ...] = x[..., index[..., i, ...], ...] */
int ac_cpu_gather(const ac_run *r) {
    ATTRS(index_dim);
    const ac_tensor *x = r->in[0], *index = r->in[1];
    int64_t dim = a->dim, size = 1, offsets[INDICES];
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "gather"));
    if (x->ndim) size = x->shape[dim];
    ac_tensor along = *x; /* x walked by index's shape, without the stride along dim */
    memcpy(along.shape, index->shape, sizeof along.shape);
    along.strides[dim] = 0;
    walk w = walk_of(index, &along);
    int64_t stride = x->ndim ? x->strides[dim] : 0, item = ac_itemsize(x->dtype);
    for (int64_t at = 0, n; at < index->numel && !ac_stop_at(at / INDICES); at += n) {
        int64_t row = at / w.n, i = at % w.n;
        n = ac_least(INDICES, w.n - i);
        int64_t first = ac_space_offset(&w.index, row) + i * w.index_step;
        AC_TRY(read_offsets(index, first, w.index_step, n, size, stride, 0, "gather", offsets));
        take_run(n, item, address(x, ac_space_offset(&w.from, row) + i * w.from_step), w.from_step, offsets,
                 address(r->out[0], at));
    }
    return 0;
}

/* to[..., index[..., i, ...], ...] += src[..., i, ...] along dim */
static int scatter_into(const ac_tensor *to, int64_t dim, const ac_tensor *index, const ac_tensor *src) {
    ac_tensor along = *to, part = *src;
    memcpy(along.shape, index->shape, sizeof along.shape);
    memcpy(part.shape, index->shape, sizeof part.shape);
    int64_t size = to->ndim ? to->shape[dim] : 1, stride = to->ndim ? to->strides[dim] : 0, offsets[INDICES];
    along.strides[dim] = 0;
    walk w = walk_of(index, &along), v = walk_of(index, &part);
    for (int64_t at = 0, n; at < index->numel && !ac_stop_at(at / INDICES); at += n) {
        int64_t row = at / w.n, i = at % w.n;
        n = ac_least(INDICES, w.n - i);
        int64_t first = ac_space_offset(&w.index, row) + i * w.index_step;
        AC_TRY(read_offsets(index, first, w.index_step, n, size, stride, 0, "scatter_add", offsets));
        int64_t there = ac_space_offset(&w.from, row) + i * w.from_step,
                from = ac_space_offset(&v.from, row) + i * v.from_step;
        add_run(to, n, there, w.from_step, offsets, src, from, v.from_step);
    }
    return 0;
}

int ac_cpu_scatter_add(const ac_run *r) {
    ATTRS(index_dim);
    ac_tensor *out = r->out[0];
    int64_t dim = a->dim;
    sums s;
    AC_TRY(ac_dim_wrap(&dim, out->ndim, "scatter_add"));
    AC_TRY(open_sums(&s, out, r->in[0]));
    return close_sums(&s, out, scatter_into(&s.t, dim, r->in[1], r->in[2]));
}

/* Slice i of t along dim, as a tensor on the caller's stack. */
static ac_tensor slice_of(const ac_tensor *t, int64_t dim, int64_t i) {
    ac_tensor s = *t;
    if (t->ndim) {
        s.offset += i * t->strides[dim];
        s.numel = t->shape[dim] ? t->numel / t->shape[dim] : 0;
        s.shape[dim] = 1;
    }
    return s;
}

int ac_cpu_index_select(const ac_run *r) {
    ATTRS(index_dim);
    const ac_tensor *x = r->in[0], *index = r->in[1];
    int64_t dim = a->dim, size = 1;
    AC_TRY(ac_dim_wrap(&dim, x->ndim, "index_select"));
    if (x->ndim) size = x->shape[dim];
    ac_space at = ac_space_of(index, UINT32_MAX);
    for (int64_t i = 0; i < index->numel && !ac_stop_at(i); i++) {
        int64_t j = index_value(index, ac_space_offset(&at, i), size, "index_select");
        if (j < 0) return -1;
        ac_tensor to = slice_of(r->out[0], dim, i), from = slice_of(x, dim, j);
        ac_cpu_copy_into(&to, &from);
    }
    return 0;
}

/* Slice index[i] of `to` += slice i of src, along dim. */
static int add_slices(const ac_tensor *to, int64_t dim, const ac_tensor *index, const ac_tensor *src) {
    ac_space at = ac_space_of(index, UINT32_MAX);
    int64_t size = to->ndim ? to->shape[dim] : 1;
    for (int64_t i = 0; i < index->numel && !ac_stop_at(i); i++) {
        int64_t j = index_value(index, ac_space_offset(&at, i), size, "index_add");
        if (j < 0) return -1;
        ac_tensor slice = slice_of(to, dim, j), from = slice_of(src, dim, i);
        ac_space positions = ac_space_of(&slice, UINT32_MAX), from_space = ac_space_of(&from, UINT32_MAX);
        for (int64_t e = 0; e < slice.numel; e++)
            add_element(&slice, ac_space_offset(&positions, e), &from, ac_space_offset(&from_space, e));
    }
    return 0;
}

int ac_cpu_index_add(const ac_run *r) {
    ATTRS(index_dim);
    ac_tensor *out = r->out[0];
    int64_t dim = a->dim;
    sums s;
    AC_TRY(ac_dim_wrap(&dim, out->ndim, "index_add"));
    AC_TRY(open_sums(&s, out, r->in[0]));
    return close_sums(&s, out, add_slices(&s.t, dim, r->in[1], r->in[2]));
}

/* -- advanced indexing ------------------------------------------------------------------------------ */

/* x[indices] as positions: the broadcast index walks `positions` positions of x, each followed by a
 * block of the dimensions that are not indexed. */
typedef struct {
    const ac_tensor *x;
    int n;                        /* indices, some NULL */
    ac_tensor index[AC_MAX_DIMS]; /* broadcast to one shape */
    ac_space walk[AC_MAX_DIMS];
    ac_tensor rest; /* x with indexed dimensions of size 1 */
    ac_space block;
    int64_t positions, run;     /* and those along the last dimension of the index */
    bool from_start;            /* indices below 0 do not count from the end */
    bool neighbours;            /* the index dimensions stay where they are in the result */
    int64_t before, index_dims; /* result dimensions in front of the index, and of it */
} picker;

static int picker_init(picker *p, const ac_tensor *x, ac_tensor *const *indices, int n) {
    ac_dims shape = {0};
    int first = -1, last = -1, count = 0;
    p->x = x, p->n = n, p->rest = *x, p->positions = 1, p->from_start = false;
    for (int k = 0; k < n; k++) {
        if (!indices[k]) continue;
        ac_dims own = ac_shape_of(indices[k]);
        AC_TRY(ac_dims_broadcast(&shape, &own, "index"));
        first = first < 0 ? k : first, last = k, count++;
    }
    p->neighbours = last - first + 1 == count;
    p->before = p->neighbours ? first : 0, p->index_dims = shape.n;
    p->run = shape.n ? shape.v[shape.n - 1] : 1;
    for (int64_t d = 0; d < shape.n; d++) p->positions *= shape.v[d];
    for (int k = 0; k < n; k++) {
        if (!indices[k]) continue;
        ac_tensor *t = &p->index[k];
        *t = *indices[k];
        int64_t lead = shape.n - t->ndim;
        for (int64_t d = shape.n - 1; d >= 0; d--) {
            bool own = d >= lead && indices[k]->shape[d - lead] != 1;
            t->strides[d] = own ? indices[k]->strides[d - lead] : 0;
            t->shape[d] = shape.v[d];
        }
        t->ndim = (int)shape.n;
        p->walk[k] = ac_space_of(t, UINT32_MAX);
        p->rest.shape[k] = 1;
    }
    p->rest.numel = 1;
    for (int d = 0; d < x->ndim; d++) p->rest.numel *= p->rest.shape[d];
    p->block = ac_space_of(&p->rest, UINT32_MAX);
    return 0;
}

/* How many positions from the i-th on, at most INDICES, lie in one run of the index's last dimension. */
static int64_t run_from(const picker *p, int64_t i) { return ac_least(INDICES, p->run - i % p->run); }

/* The offsets in x of n index positions from the i-th on, which are in one run. */
static int pick_offsets(const picker *p, ac_tensor *const *indices, int64_t i, int64_t n, const char *what,
                        int64_t *offsets) {
    int64_t along[INDICES];
    memset(offsets, 0, (size_t)n * sizeof *offsets);
    for (int k = 0; k < p->n; k++) {
        if (!indices[k]) continue;
        const ac_tensor *t = &p->index[k];
        int64_t step = t->ndim ? t->strides[t->ndim - 1] : 0;
        int64_t size = p->x->shape[k], least = p->from_start ? 0 : -size;
        AC_TRY(read_offsets(t, ac_space_offset(&p->walk[k], i), step, n, size, p->x->strides[k], least, what, along));
        for (int64_t q = 0; q < n; q++) offsets[q] += along[q];
    }
    return 0;
}

/* Where element (position i, block element e) lies in a contiguous result of the indexed shape. */
static int64_t in_result(const picker *p, int64_t i, int64_t e) {
    int64_t inner = 1; /* block elements behind the index dimensions */
    for (int d = (int)p->before; d < p->rest.ndim; d++) inner *= p->rest.shape[d];
    if (!p->neighbours || inner == 0) return i * p->block.numel + e;
    return e / inner * p->positions * inner + i * inner + e % inner;
}

/* Whether a block is one run of memory, in x and in the result. */
static bool has_whole_blocks(const picker *p) { return p->before == 0 && p->block.n == 1 && p->block.stride[0] == 1; }

int ac_cpu_index(const ac_run *r) {
    picker p;
    int64_t offsets[INDICES], item = ac_itemsize(r->in[0]->dtype);
    AC_TRY(picker_init(&p, r->in[0], r->in + 1, r->n_in - 1));
    bool whole = has_whole_blocks(&p);
    for (int64_t i = 0, n; i < p.positions && p.block.numel && !ac_poll(); i += n) {
        n = run_from(&p, i);
        AC_TRY(pick_offsets(&p, r->in + 1, i, n, "index", offsets));
        if (p.block.numel == 1) take_run(n, item, address(p.x, 0), 0, offsets, address(r->out[0], i));
        for (int64_t q = 0; q < n && p.block.numel > 1; q++) {
            char *to = address(r->out[0], in_result(&p, i + q, 0));
            if (whole) memcpy(to, address(p.x, offsets[q]), (size_t)(p.block.numel * item));
            for (int64_t e = 0; e < p.block.numel && !whole; e++)
                memcpy(address(r->out[0], in_result(&p, i + q, e)),
                       address(p.x, offsets[q] + ac_space_offset(&p.block, e)), (size_t)item);
        }
    }
    return 0;
}

/* values broadcast to the shape that indexing gives */
static ac_tensor as_picked(const picker *p, ac_tensor *const *indices, const ac_tensor *values) {
    ac_dims shape = {0};
    int64_t lead = p->before;
    for (int64_t d = 0; d < lead; d++) shape.v[shape.n++] = p->x->shape[d];
    for (int64_t d = 0; d < p->index_dims; d++) {
        int64_t size = 1;
        for (int k = 0; k < p->n; k++)
            if (indices[k]) size = p->index[k].shape[d];
        shape.v[shape.n++] = size;
    }
    for (int d = p->neighbours ? (int)lead : 0; d < p->x->ndim; d++)
        if (d >= p->n || !indices[d]) shape.v[shape.n++] = p->x->shape[d];
    ac_tensor wide = *values;
    int64_t missing = shape.n - values->ndim;
    for (int64_t d = shape.n - 1; d >= 0; d--) {
        bool own = d >= missing && values->shape[d - missing] != 1;
        wide.strides[d] = own ? values->strides[d - missing] : 0;
        wide.shape[d] = shape.v[d];
    }
    wide.ndim = (int)shape.n;
    return wide;
}

static int put(const ac_tensor *to, ac_tensor *const *indices, int n, const ac_tensor *values,
               const ac_attrs_index_put *how) {
    picker p;
    int64_t offsets[INDICES];
    AC_TRY(picker_init(&p, to, indices, n));
    p.from_start = how->from_start;
    bool accumulate = how->accumulate;
    ac_tensor wide = as_picked(&p, indices, values);
    ac_space from = ac_space_of(&wide, UINT32_MAX);
    int64_t item = ac_itemsize(to->dtype);
    for (int64_t i = 0, run; i < p.positions && p.block.numel && !ac_poll(); i += run) {
        run = run_from(&p, i);
        AC_TRY(pick_offsets(&p, indices, i, run, "index_put", offsets));
        bool single = p.block.numel == 1 && from.n == 1;
        if (single && !accumulate)
            put_run(run, item, address(&wide, i * from.stride[0]), from.stride[0], offsets, address(to, 0));
        for (int64_t at = 0; at < run * p.block.numel && (!single || accumulate); at++) {
            int64_t q = at / p.block.numel, e = at % p.block.numel;
            int64_t there = offsets[q] + ac_space_offset(&p.block, e);
            int64_t src = ac_space_offset(&from, in_result(&p, i + q, e));
            if (accumulate) add_element(to, there, &wide, src);
            else memcpy(address(to, there), address(&wide, src), (size_t)item);
        }
    }
    return 0;
}

int ac_cpu_index_put(const ac_run *r) {
    ATTRS(index_put);
    ac_tensor *out = r->out[0];
    const ac_tensor *values = r->in[r->n_in - 1];
    sums s;
    if (!a->accumulate) {
        ac_cpu_copy_into(out, r->in[0]);
        return put(out, r->in + 1, r->n_in - 2, values, a);
    }
    AC_TRY(open_sums(&s, out, r->in[0]));
    return close_sums(&s, out, put(&s.t, r->in + 1, r->n_in - 2, values, a));
}

int ac_cpu_nonzero(const ac_run *r) {
    const ac_tensor *x = r->in[0];
    ac_space all = ac_space_of(x, UINT32_MAX);
    int64_t count = 0;
    for (int64_t i = 0; i < x->numel && !ac_stop_at(i); i++)
        count += ac_read_double(ac_data(x), x->dtype, ac_space_offset(&all, i)) != 0;
    ac_dims shape = {2, {count, x->ndim}};
    ac_tensor *out = ac_tensor_new(AC_int64, &shape);
    if (!out) return -1;
    int64_t *to = ac_data(out);
    for (int64_t i = 0; i < x->numel && to < (int64_t *)ac_data(out) + out->numel && !ac_stop_at(i); i++) {
        if (ac_read_double(ac_data(x), x->dtype, ac_space_offset(&all, i)) == 0) continue;
        int64_t rest = i;
        for (int d = x->ndim - 1; d >= 0; d--) to[d] = rest % x->shape[d], rest /= x->shape[d];
        to += x->ndim;
    }
    r->out[0] = out;
    return 0;
}

/* -- a view's values in its base -------------------------------------------------------------------- */

/* The view of t that the attributes tell. */
static ac_tensor strided_part(const ac_tensor *t, const ac_attrs_as_strided_scatter *a) {
    ac_tensor part = *t;
    part.ndim = (int)a->size.n, part.offset += a->offset, part.numel = 1;
    for (int d = 0; d < part.ndim; d++) {
        part.shape[d] = a->size.v[d], part.strides[d] = a->stride.v[d];
        part.numel *= part.shape[d];
    }
    return part;
}

int ac_cpu_as_strided_scatter(const ac_run *r) {
    ATTRS(as_strided_scatter);
    ac_tensor *out = r->out[0];
    const ac_tensor *values = r->in[1];
    if (!a->accumulate) {
        ac_tensor part = strided_part(out, a);
        ac_cpu_copy_into(out, r->in[0]);
        ac_cpu_copy_into(&part, values);
        return 0;
    }
    sums s;
    AC_TRY(open_sums(&s, out, r->in[0]));
    ac_tensor part = strided_part(&s.t, a);
    ac_space to = ac_space_of(&part, UINT32_MAX), from = ac_space_of(values, UINT32_MAX);
    for (int64_t i = 0; i < part.numel; i++) /* positions may repeat, so one after another */
        add_element(&part, ac_space_offset(&to, i), values, ac_space_offset(&from, i));
    return close_sums(&s, out, 0);
}

/* -- embedding ----------------------------------------------------------------------------------------- */

int ac_cpu_embedding(const ac_run *r) {
    const ac_tensor *w = r->in[0], *index = r->in[1];
    ac_space at = ac_space_of(index, UINT32_MAX);
    int64_t width = w->shape[1], item = ac_itemsize(w->dtype);
    for (int64_t i = 0; i < index->numel && !ac_stop_at(i); i++) {
        int64_t row = ac_read_int(ac_data(index), index->dtype, ac_space_offset(&at, i));
        if (row < 0 || row >= w->shape[0])
            return ac_fail(AC_INDEX, "embedding: index %" PRId64 " is out of range for a table of %" PRId64 " rows",
                           row, w->shape[0]);
        char *to = address(r->out[0], i * width);
        if (w->strides[1] == 1) memcpy(to, address(w, row * w->strides[0]), (size_t)(width * item));
        else
            for (int64_t j = 0; j < width; j++)
                memcpy(to + j * item, address(w, row * w->strides[0] + j * w->strides[1]), (size_t)item);
    }
    return 0;
}

/* Rows of g to those of `to` at index, but for the padding's. */
static int add_rows(const ac_tensor *to, const ac_tensor *g, const ac_tensor *index, int64_t padding) {
    int64_t width = to->shape[1];
    ac_space at = ac_space_of(index, UINT32_MAX), from = ac_space_of(g, UINT32_MAX);
    int64_t last = from.size[from.n - 1], step = from.stride[from.n - 1];
    for (int64_t i = 0; i < index->numel && !ac_stop_at(i); i++) {
        int64_t row = ac_read_int(ac_data(index), index->dtype, ac_space_offset(&at, i));
        if (row < 0 || row >= to->shape[0])
            return ac_fail(AC_INDEX, "embedding: index %" PRId64 " is out of range", row);
        if (row == padding) continue;
        for (int64_t j = 0, n; j < width; j += n) {
            n = ac_least(ac_least(INDICES, width - j), last - (i * width + j) % last);
            add_run(to, n, row * width + j, 1, NULL, g, ac_space_offset(&from, i * width + j), step);
        }
    }
    return 0;
}

int ac_cpu_embedding_backward(const ac_run *r) {
    ATTRS(rows);
    sums s;
    AC_TRY(open_sums(&s, r->out[0], NULL));
    return close_sums(&s, r->out[0], add_rows(&s.t, r->in[0], r->in[1], a->padding_idx));
}
