/* Joining, indexing and nll_loss on a GPU: the host side of index.cu. All indexing has one form:
 * each item has a position in the indexed tensor, from up to AC_GPU_INDICES indices, and a block of elements there. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#include <inttypes.h>
#include <string.h>

#define INDEX_KERNEL(id, text) static ac_gpu_kernel id = {.image = AC_IMAGE_INDEX, .name = text}

/* -- joining ---------------------------------------------------------------------------------------- */

/* Joins the parts that have been listed. */
static int join_listed(const ac_run *r, ac_gpu_parts *p) {
    static ac_gpu_kernel kernels[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_INDEX, "ac_join");
    if (p->n == 0) return 0;
    AC_TRY(ac_gpu_launch(ac_run_device(r), &kernels[ac_gpu_opmath(r->out[0]->dtype)], p->pieces, 0, p));
    p->n = 0, p->pieces = 0;
    return 0;
}

/* The largest power of two, up to 16, that divides all of them. */
static int32_t common_unit(const uint64_t *v, int n) {
    uint64_t bits = 16;
    for (int i = 0; i < n; i++) bits |= v[i];
    return (int32_t)(bits & -bits);
}

/* How t lies in the rows, from element `start` of each on. */
static ac_gpu_part part_of(const ac_gpu_parts *p, const ac_tensor *t, int64_t start) {
    ac_gpu_part part = {ac_data(t), start, t->numel / p->rows, p->pieces, (int32_t)t->dtype, 0};
    if (p->out.dtype != part.dtype) return part;
    uint64_t item = (uint64_t)p->item, all[5] = {(uintptr_t)part.data, (uintptr_t)p->out.data, (uint64_t)start * item,
                                                 (uint64_t)part.width * item, (uint64_t)p->row_stride * item};
    part.unit = common_unit(all, p->rows == 1 ? 4 : 5);
    part.start = start * p->item / part.unit, part.width = part.width * p->item / part.unit;
    return part;
}

/* t goes into the rows of the result, from element `start` of each on. Small tensors are listed, and one launch joins
 * many of them; a large one is worth a launch of its own. */
static int join(const ac_run *r, ac_gpu_parts *p, const ac_tensor *t, ac_tensor *target, int64_t start) {
    enum { SMALL = 65536 };
    if (t->numel > SMALL || !ac_is_contiguous(t)) return ac_gpu_copy(target, t);
    ac_gpu_part *part = &p->part[p->n++];
    *part = part_of(p, t, start);
    p->pieces += (p->rows * part->width + AC_GPU_PART_PIECE - 1) / AC_GPU_PART_PIECE;
    return p->n == AC_GPU_PARTS ? join_listed(r, p) : 0;
}

int ac_cuda_cat(const ac_run *r) {
    ATTRS(one_dim);
    ac_tensor *out = r->out[0], target = *out;
    int64_t dim = a->dim, start = 0;
    ac_gpu_parts p = {.out = ac_gpu_ref_of(out), .rows = 1};
    if (out->numel == 0) return 0;
    AC_TRY(ac_dim_wrap(&dim, out->ndim, "cat"));
    for (int64_t d = 0; d < dim; d++) p.rows *= out->shape[d];
    p.row_stride = out->numel / p.rows, p.item = (int32_t)ac_itemsize(out->dtype);
    for (int k = 0; k < r->n_in; k++) {
        const ac_tensor *t = r->in[k];
        if (t->ndim != out->ndim || t->numel == 0) continue;
        target.shape[dim] = t->shape[dim], target.numel = t->numel;
        target.offset = out->offset + start;
        AC_TRY(join(r, &p, t, &target, start));
        start += t->numel / p.rows;
    }
    return join_listed(r, &p);
}

/* -- picking ---------------------------------------------------------------------------------------- */

/* What a bad index is told of: the operator that the script has called. */
static int32_t told_as(ac_op op) {
    bool part = ac_whole && strcmp(ac_whole->shown, ac_ops[op].shown) != 0;
    return part ? (int32_t)(ac_whole - ac_ops) : (int32_t)op;
}

static const ac_space nowhere = {1, 1, {1}, {0}};

/* Starts a pick of `op` in `indexed`; spaces and indices are the caller's. */
static int pick_init(ac_gpu_pick *p, const ac_run *r, const ac_tensor *indexed, const ac_tensor *other) {
    memset(p, 0, sizeof *p);
    p->indexed = ac_data(indexed), p->other = other ? ac_data(other) : NULL;
    p->item_bytes = (int32_t)ac_itemsize(indexed->dtype), p->op = told_as(r->op);
    p->wrap = 1, p->skip = INT64_MIN, p->width = 1;
    p->base = p->inner = p->other_items = p->other_inner = nowhere;
    p->trouble = ac_gpu_trouble_at(ac_run_device(r));
    return p->trouble ? 0 : -1;
}

static void add_index(ac_gpu_pick *p, const ac_tensor *index, int input, const ac_space *at, int64_t size,
                      int64_t stride) {
    p->index[p->n_index++] = (ac_gpu_axis){ac_data(index), (int32_t)index->dtype, input, *at, size, stride};
}

static bool divides(const ac_space *s, int64_t by) {
    for (int d = 0; d < s->n; d++)
        if (s->stride[d] % by) return false;
    return true;
}
static void divide(ac_space *s, int64_t by) {
    for (int d = 0; d < s->n; d++) s->stride[d] /= by;
}

/* Blocks of neighbours on both sides, on boundaries of 16 bytes, are copied 16 bytes at a time: as elements of that
 * size. */
static void widen(ac_gpu_pick *p) {
    int64_t per = 16 / p->item_bytes;
    bool fits = p->width % per == 0 && p->inner.n == 1 && p->inner.stride[0] == 1 && p->other_inner.n == 1 &&
                p->other_inner.stride[0] == 1 && ac_gpu_aligned(p->indexed) && ac_gpu_aligned(p->other) &&
                divides(&p->base, per) && divides(&p->other_items, per);
    for (int k = 0; k < p->n_index; k++) fits = fits && p->index[k].stride % per == 0;
    if (!fits) return;
    divide(&p->base, per);
    divide(&p->other_items, per);
    for (int k = 0; k < p->n_index; k++) p->index[k].stride /= per;
    p->width /= per, p->item_bytes = 16;
    p->inner = p->other_inner = (ac_space){1, p->width, {p->width}, {1}};
}

static int run_pick(const ac_run *r, ac_gpu_kernel *k, ac_gpu_pick *p) {
    widen(p);
    int64_t n = p->items * p->width;
    ac_device d = ac_run_device(r);
    return n ? ac_gpu_launch(d, k, ac_gpu_blocks(d, n, 1), 0, p) : 0;
}
INDEX_KERNEL(take_kernel, "ac_take");
INDEX_KERNEL(put_kernel, "ac_put");

/* Adds the runs of items whose keys are sorted. */
static int add_sorted(ac_device d, ac_gpu_add *a) {
    static ac_gpu_kernel runs[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_INDEX, "ac_add_runs"),
                         pieces[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_INDEX, "ac_add_pieces");
    int opmath = ac_gpu_opmath((ac_dtype)a->to.dtype);
    int64_t chunks = (a->items + AC_GPU_ADD_CHUNK - 1) / AC_GPU_ADD_CHUNK;
    ac_gpu_block *room = NULL;
    if (chunks > 1) {
        room = ac_gpu_alloc(d, chunks * 2 * a->width * 8);
        if (!room) return -1;
        a->pieces = ac_gpu_address(room);
    }
    int failed = ac_gpu_launch(d, &runs[opmath], ac_gpu_blocks(d, a->items * a->width, 1), 0, a);
    if (!failed && room) failed = ac_gpu_launch(d, &pieces[opmath], ac_gpu_blocks(d, (chunks - 1) * a->width, 1), 0, a);
    ac_gpu_free(room);
    return failed;
}

/* The items by their targets in `to`: p's keys, and each item's number behind them. Owned by the caller. */
static ac_gpu_block *sort_picked(const ac_run *r, ac_gpu_pick *p, const ac_tensor *to) {
    INDEX_KERNEL(keys_kernel, "ac_pick_keys");
    ac_device d = ac_run_device(r);
    ac_gpu_block *room = ac_gpu_alloc(d, 2 * p->items * 8);
    if (!room) return NULL;
    p->keys = ac_gpu_address(room);
    int failed = ac_gpu_launch(d, &keys_kernel, ac_gpu_blocks(d, p->items, 1), 0, p);
    /* one bit more than the indices need: left-out items have every bit set, and go last */
    int bits = ac_gpu_bits_for((uint64_t)(to->storage->bytes / ac_itemsize(to->dtype))) + 1;
    if (!failed)
        failed = ac_gpu_sort_pairs(d, 1, p->items, bits < 64 ? bits : 64, (uint64_t *)p->keys, p->keys + p->items);
    if (!failed) return room;
    ac_gpu_free(room);
    return NULL;
}

/* to[target of item i] += from[item i]: each target's run of items. `inner` of both are the pick's. */
static int add_picked(const ac_run *r, ac_gpu_pick *p, ac_tensor *to, const ac_tensor *from) {
    if (p->items == 0 || p->width == 0) return 0;
    ac_gpu_block *room = sort_picked(r, p, to);
    if (!room) return -1;
    ac_gpu_add a = {.items = p->items,
                    .width = p->width,
                    .keys = (const uint64_t *)p->keys,
                    .order = p->keys + p->items,
                    .to = ac_gpu_ref_of(to),
                    .from = ac_gpu_ref_of(from),
                    .inner = p->inner,
                    .other_items = p->other_items,
                    .other_inner = p->other_inner};
    int failed = add_sorted(ac_run_device(r), &a);
    ac_gpu_free(room);
    return failed;
}

/* Whether all items are the same memory, as those of a number are. */
static bool is_one_item(const ac_space *items) {
    for (int d = 0; d < items->n; d++)
        if (items->size[d] > 1 && items->stride[d]) return false;
    return true;
}

/* to[target of item i] = from[item i]; of items that meet the last stands, as on the CPU. */
static int put_picked(const ac_run *r, ac_gpu_pick *p, const ac_tensor *to) {
    INDEX_KERNEL(last_kernel, "ac_put_last");
    if (p->items <= 1 || p->width == 0 || is_one_item(&p->other_items)) return run_pick(r, &put_kernel, p);
    widen(p); /* the keys count what is copied */
    ac_gpu_block *room = sort_picked(r, p, to);
    int failed = room ? run_pick(r, &last_kernel, p) : -1;
    ac_gpu_free(room);
    return failed;
}

/* -- along one dimension ---------------------------------------------------------------------------- */

/* gather and scatter_add: every element of `index` is an item; `indexed` is walked by index's shape, but along dim. */
static int pick_elements(ac_gpu_pick *p, const ac_run *r, int64_t dim, const ac_tensor *indexed, const ac_tensor *other,
                         const ac_tensor *index) {
    ac_tensor along = *indexed, part = *other;
    AC_TRY(pick_init(p, r, indexed, other));
    memcpy(along.shape, index->shape, sizeof along.shape);
    memcpy(part.shape, index->shape, sizeof part.shape);
    along.strides[dim] = 0;
    ac_space at = ac_space_of(index, UINT32_MAX);
    p->wrap = 0, p->items = index->numel, p->base = ac_space_of(&along, UINT32_MAX),
    p->other_items = ac_space_of(&part, UINT32_MAX);
    p->base.numel = p->other_items.numel = index->numel;
    add_index(p, index, 1, &at, indexed->ndim ? indexed->shape[dim] : 1, indexed->ndim ? indexed->strides[dim] : 0);
    return 0;
}

int ac_cuda_gather(const ac_run *r) {
    ATTRS(index_dim);
    int64_t dim = a->dim;
    ac_gpu_pick p;
    AC_TRY(ac_dim_wrap(&dim, r->in[0]->ndim, "gather"));
    AC_TRY(pick_elements(&p, r, dim, r->in[0], r->out[0], r->in[1]));
    return run_pick(r, &take_kernel, &p);
}

int ac_cuda_scatter_add(const ac_run *r) {
    ATTRS(index_dim);
    int64_t dim = a->dim;
    ac_gpu_pick p;
    AC_TRY(ac_dim_wrap(&dim, r->out[0]->ndim, "scatter_add"));
    AC_TRY(ac_gpu_copy(r->out[0], r->in[0]));
    AC_TRY(pick_elements(&p, r, dim, r->out[0], r->in[2], r->in[1]));
    return add_picked(r, &p, r->out[0], r->in[2]);
}

/* index_select and index_add: slices along dim are the items. */
static int pick_slices(ac_gpu_pick *p, const ac_run *r, int64_t dim, const ac_tensor *indexed, const ac_tensor *other,
                       const ac_tensor *index) {
    uint32_t mask = indexed->ndim ? 1u << dim : 0;
    AC_TRY(pick_init(p, r, indexed, other));
    ac_space at = ac_space_of(index, UINT32_MAX);
    p->wrap = 0, p->items = index->numel;
    p->inner = ac_space_of(indexed, ~mask), p->other_inner = ac_space_of(other, ~mask);
    if (indexed->ndim) p->other_items = (ac_space){1, index->numel, {index->numel}, {other->strides[dim]}};
    p->width = 1;
    for (int d = 0; d < indexed->ndim; d++)
        if (d != dim) p->width *= indexed->shape[d];
    add_index(p, index, 1, &at, indexed->ndim ? indexed->shape[dim] : 1, indexed->ndim ? indexed->strides[dim] : 0);
    return 0;
}

int ac_cuda_index_select(const ac_run *r) {
    ATTRS(index_dim);
    int64_t dim = a->dim;
    ac_gpu_pick p;
    AC_TRY(ac_dim_wrap(&dim, r->in[0]->ndim, "index_select"));
    AC_TRY(pick_slices(&p, r, dim, r->in[0], r->out[0], r->in[1]));
    return run_pick(r, &take_kernel, &p);
}

int ac_cuda_index_add(const ac_run *r) {
    ATTRS(index_dim);
    int64_t dim = a->dim;
    ac_gpu_pick p;
    AC_TRY(ac_dim_wrap(&dim, r->out[0]->ndim, "index_add"));
    AC_TRY(ac_gpu_copy(r->out[0], r->in[0]));
    AC_TRY(pick_slices(&p, r, dim, r->out[0], r->in[2], r->in[1]));
    return add_picked(r, &p, r->out[0], r->in[2]);
}

/* -- embedding -------------------------------------------------------------------------------------- */

/* Rows of `table` [rows, width] picked by all of index; `other` holds one row of width for each. */
static int pick_rows(ac_gpu_pick *p, const ac_run *r, const ac_tensor *table, const ac_tensor *other) {
    const ac_tensor *index = r->in[1];
    uint32_t last = 1u << (other->ndim - 1);
    AC_TRY(pick_init(p, r, table, other));
    ac_space at = ac_space_of(index, UINT32_MAX);
    p->items = index->numel, p->width = table->shape[1], p->wrap = 0;
    p->inner = ac_space_of(table, 2u), p->other_items = ac_space_of(other, ~last),
    p->other_inner = ac_space_of(other, last);
    add_index(p, index, 1, &at, table->shape[0], table->strides[0]);
    return 0;
}

int ac_cuda_embedding(const ac_run *r) {
    ac_gpu_pick p;
    AC_TRY(pick_rows(&p, r, r->in[0], r->out[0]));
    return run_pick(r, &take_kernel, &p);
}

int ac_cuda_embedding_backward(const ac_run *r) {
    ATTRS(rows);
    ac_gpu_pick p;
    AC_TRY(ac_gpu_clear(r->out[0]));
    AC_TRY(pick_rows(&p, r, r->out[0], r->in[0]));
    p.skip = a->padding_idx >= 0 ? a->padding_idx : INT64_MIN;
    return add_picked(r, &p, r->out[0], r->in[0]);
}

/* -- advanced indexing ------------------------------------------------------------------------------ */

/* The shape all indices broadcast to, and which dimensions of x are indexed. */
typedef struct {
    ac_dims shape;
    uint32_t indexed; /* bits */
    int64_t before;   /* result dimensions in front of the index's */
} index_layout;

static int layout_of(index_layout *l, ac_tensor *const *indices, int n) {
    int first = -1, last = -1, count = 0;
    *l = (index_layout){.indexed = 0};
    for (int k = 0; k < n; k++) {
        if (!indices[k]) continue;
        ac_dims own = ac_shape_of(indices[k]);
        AC_TRY(ac_dims_broadcast(&l->shape, &own, "index"));
        first = first < 0 ? k : first, last = k, count++;
        l->indexed |= 1u << k;
    }
    l->before = last - first + 1 == count ? first : 0;
    return 0;
}

/* t broadcast to `shape`, on the caller's stack */
static ac_tensor broadcast(const ac_tensor *t, const ac_dims *shape) {
    ac_tensor wide = *t;
    int64_t lead = shape->n - t->ndim;
    for (int64_t d = shape->n - 1; d >= 0; d--) {
        bool own = d >= lead && t->shape[d - lead] != 1;
        wide.strides[d] = own ? t->strides[d - lead] : 0, wide.shape[d] = shape->v[d];
    }
    wide.ndim = (int)shape->n;
    return wide;
}

/* x[indices], beside `other` of the result's shape (which it may be broadcast to). */
static int pick_advanced(ac_gpu_pick *p, const ac_run *r, const ac_tensor *x, ac_tensor *const *indices, int n,
                         const ac_tensor *other) {
    index_layout l;
    AC_TRY(layout_of(&l, indices, n));
    ac_dims result = {.n = 0};
    for (int64_t d = 0; d < l.before; d++) result.v[result.n++] = x->shape[d];
    for (int64_t d = 0; d < l.shape.n; d++) result.v[result.n++] = l.shape.v[d];
    for (int d = (int)l.before; d < x->ndim; d++)
        if (!(l.indexed >> d & 1)) result.v[result.n++] = x->shape[d];
    ac_tensor wide = broadcast(other, &result);
    uint32_t items = ((1u << l.shape.n) - 1) << l.before;
    AC_TRY(pick_init(p, r, x, &wide));
    p->items = p->width = 1;
    for (int64_t d = 0; d < l.shape.n; d++) p->items *= l.shape.v[d];
    for (int d = 0; d < x->ndim; d++)
        if (!(l.indexed >> d & 1)) p->width *= x->shape[d];
    p->inner = ac_space_of(x, ~l.indexed);
    p->other_items = ac_space_of(&wide, items), p->other_inner = ac_space_of(&wide, ~items);
    for (int k = 0; k < n; k++) {
        if (!indices[k]) continue;
        if (p->n_index == AC_GPU_INDICES)
            return ac_fail(AC_INDEX, "index: on the GPU at most %d dimensions can be indexed by tensors",
                           AC_GPU_INDICES);
        ac_tensor index = broadcast(indices[k], &l.shape);
        ac_space at = ac_space_of(&index, UINT32_MAX);
        add_index(p, indices[k], 1 + k, &at, x->shape[k], x->strides[k]);
    }
    return 0;
}

int ac_cuda_index(const ac_run *r) {
    ac_gpu_pick p;
    AC_TRY(pick_advanced(&p, r, r->in[0], r->in + 1, r->n_in - 1, r->out[0]));
    return run_pick(r, &take_kernel, &p);
}

int ac_cuda_index_put(const ac_run *r) {
    ATTRS(index_put);
    ac_gpu_pick p;
    const ac_tensor *values = r->in[r->n_in - 1];
    AC_TRY(ac_gpu_copy(r->out[0], r->in[0]));
    AC_TRY(pick_advanced(&p, r, r->out[0], r->in + 1, r->n_in - 2, values));
    p.wrap = !a->from_start;
    return a->accumulate ? add_picked(r, &p, r->out[0], values) : put_picked(r, &p, r->out[0]);
}

int ac_cuda_as_strided_scatter(const ac_run *r) {
    ATTRS(as_strided_scatter);
    ac_tensor *out = r->out[0], target = *out;
    ac_gpu_pick p;
    AC_TRY(ac_gpu_copy(out, r->in[0]));
    target.ndim = (int)a->size.n;
    target.offset = out->offset + a->offset;
    target.numel = 1;
    for (int d = 0; d < target.ndim; d++) {
        target.shape[d] = a->size.v[d], target.strides[d] = a->stride.v[d];
        target.numel *= a->size.v[d];
    }
    if (!a->accumulate) return ac_gpu_copy(&target, r->in[1]);
    AC_TRY(pick_init(&p, r, &target, r->in[1]));
    p.items = target.numel, p.base = ac_space_of(&target, UINT32_MAX),
    p.other_items = ac_space_of(r->in[1], UINT32_MAX);
    return add_picked(r, &p, &target, r->in[1]);
}

enum { TILE = AC_GPU_THREADS * 4 };

/* -- nonzero: how many there are must be known before the result can be made ------------------------ */

int ac_cuda_nonzero(const ac_run *r) {
    INDEX_KERNEL(count, "ac_nonzero_count");
    INDEX_KERNEL(write, "ac_nonzero_write");
    const ac_tensor *x = r->in[0];
    ac_device d = ac_device_of(x);
    ac_gpu_nonzero a = {.x = ac_gpu_ref_of(x), .all = ac_space_of(x, UINT32_MAX), .ndim = x->ndim};
    memcpy(a.shape, x->shape, sizeof a.shape);
    a.blocks = (x->numel + TILE - 1) / TILE;
    ac_gpu_block *room = ac_gpu_alloc(d, (a.blocks + 1) * 8);
    if (!room) return -1;
    a.counts = ac_gpu_address(room);
    int64_t total = 0;
    int failed = 0;
    if (a.blocks) {
        failed = ac_gpu_launch(d, &count, a.blocks, AC_GPU_THREADS / 32 * 8, &a);
        if (!failed) failed = ac_gpu_scan_sums(d, a.counts, a.blocks, a.counts + a.blocks);
        if (!failed) failed = ac_gpu_refuse_capture("a result whose size depends on values");
        if (!failed) failed = ac_gpu_fetch(d, &total, a.counts + a.blocks, sizeof total);
    }
    ac_dims shape = {2, {total, x->ndim}};
    r->out[0] = failed ? NULL : ac_tensor_new_on(d, AC_int64, &shape);
    if (r->out[0] && r->out[0]->numel) {
        a.out = ac_data(r->out[0]);
        failed = ac_gpu_launch(d, &write, a.blocks, AC_GPU_THREADS * 4, &a);
    }
    ac_gpu_free(room);
    if (failed) ac_tensor_clear(&r->out[0]);
    return r->out[0] ? 0 : -1;
}

/* -- nll loss --------------------------------------------------------------------------------------- */

int ac_gpu_classes_of(ac_gpu_classes *c, const ac_run *r, int64_t classes, int64_t ignore) {
    const ac_tensor *target = r->in[1], *weight = r->in[2];
    *c = (ac_gpu_classes){.target = ac_gpu_ref_of(target),
                          .weight = ac_gpu_ref_of(weight),
                          .at = ac_space_of(target, UINT32_MAX),
                          .classes = classes,
                          .weight_stride = weight ? weight->strides[0] : 0,
                          .ignore = ignore,
                          .trouble = ac_gpu_trouble_at(ac_run_device(r)),
                          .op = told_as(r->op)};
    return c->trouble ? 0 : -1;
}

/* x [N, C, ...] or [C]: the loss's input, or its gradient. */
static int nll_init(ac_gpu_nll *p, const ac_run *r, const ac_tensor *x, int64_t ignore) {
    int channel = x->ndim > 1;
    *p = (ac_gpu_nll){.samples = ac_space_of(x, ~(1u << channel)),
                      .n = r->in[1]->numel,
                      .class_stride = x->strides[channel],
                      .inner = 1};
    for (int d = 2; d < x->ndim; d++) p->inner *= x->shape[d];
    return ac_gpu_classes_of(&p->of, r, x->shape[channel], ignore);
}
INDEX_KERNEL(nll_sum, "ac_nll_sum");
enum { NLL_SHARED = AC_GPU_THREADS / 32 * 8 };

int ac_cuda_nll_loss(const ac_run *r) {
    ATTRS(nll);
    INDEX_KERNEL(each, "ac_nll_each");
    ac_device d = ac_run_device(r);
    ac_gpu_nll p;
    AC_TRY(nll_init(&p, r, r->in[0], a->ignore_index));
    p.x = ac_gpu_ref_of(r->in[0]), p.out = ac_gpu_ref_of(r->out[0]);
    p.reduction = (int32_t)a->reduction;
    if (a->reduction != AC_REDUCE_NONE) return ac_gpu_launch(d, &nll_sum, 1, NLL_SHARED, &p);
    return p.n ? ac_gpu_launch(d, &each, ac_gpu_blocks(d, p.n, 1), 0, &p) : 0;
}

int ac_cuda_nll_loss_backward(const ac_run *r) {
    ATTRS(nll_backward);
    INDEX_KERNEL(kernel, "ac_nll_backward");
    ac_device d = ac_run_device(r);
    ac_gpu_nll p;
    ac_gpu_block *total = NULL;
    AC_TRY(nll_init(&p, r, r->out[0], a->ignore_index));
    p.grad = ac_gpu_ref_of(r->in[0]), p.grad_at = ac_space_of(r->in[0], UINT32_MAX);
    p.reduction = (int32_t)a->reduction;
    if (r->out[0]->numel == 0) return 0;
    int failed = 0;
    if (a->reduction == AC_REDUCE_MEAN) {
        total = ac_gpu_alloc(d, 8);
        if (!total) return -1;
        p.total = ac_gpu_address(total);
        failed = ac_gpu_launch(d, &nll_sum, 1, NLL_SHARED, &p);
    }
    p.out = ac_gpu_ref_of(r->out[0]);
    if (!failed) failed = ac_gpu_clear(r->out[0]);
    if (!failed) failed = ac_gpu_launch(d, &kernel, ac_gpu_blocks(d, p.n, 1), 0, &p);
    ac_gpu_free(total);
    return failed;
}
