/* Matrix products: operands, and what is done where cuBLASLt has no algorithm for a product as it is. */
#include "cuda/blas.h"

#include "shared/tensor_iter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

bool ac_gpu_allow_tf32;

/* A product c [batch, m, n] = a [batch, m, k] b, as it is asked for and as the steps of the ladder change it. */
typedef struct {
    const ac_run *run;
    ac_tensor *a, *b, *bias, *out; /* retained; bias [n], or NULL; out: the run's own, or what stands in for it */
    const ac_tensor *panels;       /* b as it was packed, or NULL */
    int b_lane, b_k;               /* b's dimensions of n and k */
    int64_t m, n, k, batch, c_ld;
    int64_t done, most; /* batches done already, and the most at once */
    ac_dtype type;      /* what operands are rounded to */
    bool add, padded;   /* to what is in out; a and b are copies with padded lines */
    bool plain;         /* float32 without TF32 */
} request;

/* An operand as the library wants it: `lanes` x k, one stride 1. */
typedef struct {
    ac_tensor *owned; /* the values, perhaps a copy of the caller's */
    const void *data;
    int64_t ld, batch;
    bool k_first; /* neighbours in memory follow k */
} operand;

static int library_type(ac_dtype t) {
    return t == AC_float64 ? AC_LT_F64 : t == AC_float32 ? AC_LT_F32 : t == AC_float16 ? AC_LT_F16 : AC_LT_BF16;
}
static int compute_type(ac_dtype t, bool plain) {
    if (t == AC_float64) return AC_LT_COMPUTE_F64;
    return t == AC_float32 && ac_gpu_allow_tf32 && !plain ? AC_LT_COMPUTE_TF32 : AC_LT_COMPUTE_F32;
}

/* -- operands --------------------------------------------------------------------------------------- */

/* A copy with padded lines, which lie along its last dimension. */
static operand padded_operand(ac_tensor *t, int lane, int k) {
    return (operand){.owned = ac_tensor_retain(t),
                     .data = ac_data(t),
                     .ld = t->strides[t->ndim - 2],
                     .batch = t->ndim > 2 ? t->strides[0] : 0,
                     .k_first = k > lane};
}

/* t as the product wants it; `lane` and `k` are its dimensions of that meaning. */
static int take_operand(operand *o, ac_tensor *t, const request *q, int lane, int k) {
    if (q->padded) return *o = padded_operand(t, lane, k), 0;
    int64_t lanes = t->shape[lane], depth = t->shape[k];
    int64_t by_lane = lanes > 1 ? t->strides[lane] : 0, by_k = depth > 1 ? t->strides[k] : 0;
    bool k_first = by_k == 1 || (by_k == 0 && depth == 1), lane_first = by_lane == 1 || (by_lane == 0 && lanes == 1);
    if (k_first && lanes > 1 && by_lane < depth) k_first = false;
    if (lane_first && depth > 1 && by_k < lanes) lane_first = false;
    *o = (operand){.owned = NULL};
    if (t->dtype == q->type && (k_first || lane_first)) {
        o->owned = ac_tensor_retain(t);
    } else {
        o->owned = ac_gpu_copy_as(t, q->type);
        if (!o->owned) return -1;
        t = o->owned;
        by_lane = t->strides[lane], by_k = t->strides[k];
        k_first = by_k == 1, lane_first = by_lane == 1;
    }
    o->data = ac_data(t), o->k_first = k_first;
    o->ld = k_first ? (lanes > 1 ? by_lane : depth) : (depth > 1 ? by_k : lanes);
    int64_t least = k_first ? depth : lanes;
    if (o->ld < least) o->ld = least; /* one line's may be anything; the library wants it large */
    o->batch = t->ndim > 2 ? t->strides[0] : 0;
    return 0;
}

static int take_right(operand *o, const request *q) {
    if (!q->panels) return take_operand(o, q->b, q, q->b_lane, q->b_k);
    *o = (operand){.owned = ac_tensor_retain((ac_tensor *)(uintptr_t)q->panels), .data = ac_data(q->panels)};
    o->k_first = q->b_k > q->b_lane, o->ld = o->k_first ? q->k : q->n;
    return 0;
}

static int32_t alignment_of(const void *p) {
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low == 0 || low > 256 ? 256 : (int32_t)low;
}

/* -- one attempt ------------------------------------------------------------------------------------ */

static void set_key(ac_product_key *key, const request *q, const operand *left, const operand *right) {
    memset(key, 0, sizeof *key);
    key->m = q->m, key->n = q->n, key->k = q->k;
    key->a_ld = left->ld, key->b_ld = right->ld, key->c_ld = q->c_ld;
    key->a_batch = left->batch, key->b_batch = right->batch, key->c_batch = q->m * q->c_ld;
    key->type = library_type(q->type), key->out_type = library_type(q->out->dtype);
    key->compute = compute_type(q->type, q->plain);
    key->a_k_first = left->k_first, key->b_k_first = right->k_first, key->add = q->add, key->bias = q->bias != NULL;
    key->device = (int8_t)ac_gpu_index(ac_device_of(q->out));
}

/* The batches that are left: 1 when all are queued, 0 where the library has no algorithm for the next ones. */
static int multiply_batches(request *q, const operand *left, const operand *right) {
    ac_multiplication x = {.device = ac_device_of(q->out), .bias = q->bias ? ac_data(q->bias) : NULL};
    int64_t each = ac_itemsize(q->type), c_each = ac_itemsize(q->out->dtype);
    int done = 1;
    set_key(&x.key, q, left, right);
    while (done == 1 && q->done < q->batch) {
        x.key.batch = ac_least(q->batch - q->done, q->most);
        x.a = (const char *)left->data + q->done * left->batch * each;
        x.b = (const char *)right->data + q->done * right->batch * each;
        x.c = (char *)ac_data(q->out) + q->done * x.key.c_batch * c_each;
        x.key.alignment[0] = alignment_of(x.a), x.key.alignment[1] = alignment_of(x.b);
        x.key.alignment[2] = alignment_of(x.c);
        done = ac_gpu_multiply(&x);
        if (done == 1) q->done += x.key.batch;
    }
    return done;
}

static int attempt(request *q) {
    operand left = {.owned = NULL}, right = {.owned = NULL};
    int failed = take_operand(&left, q->a, q, q->a->ndim - 2, q->a->ndim - 1);
    if (!failed) failed = take_right(&right, q);
    int done = failed ? -1 : multiply_batches(q, &left, &right);
    ac_tensor_clear(&left.owned);
    ac_tensor_clear(&right.owned);
    return done;
}

/* -- the ladder: steps that change a refused product, 1; 0 where they have nothing to change ------------- */

/* new: uninitialised, every line at an address for vectors */
static ac_tensor *padded(ac_device d, ac_dtype dtype, const ac_dims *shape) {
    ac_dims whole = *shape;
    int last = (int)shape->n - 1;
    whole.v[last] = (shape->v[last] + 7) / 8 * 8;
    ac_dims strides = ac_dims_contiguous(&whole);
    ac_tensor *room = ac_tensor_new_on(d, dtype, &whole);
    ac_tensor *part = room ? ac_tensor_view(room, shape, &strides, 0) : NULL;
    ac_tensor_clear(&room);
    return part;
}

/* Puts a copy of that dtype in t's place. */
static int replace_by_padded(ac_tensor **t, ac_dtype dtype) {
    ac_dims shape = ac_shape_of(*t);
    ac_tensor *copy = padded(ac_device_of(*t), dtype, &shape);
    int failed = copy ? ac_gpu_copy(copy, *t) : -1;
    if (failed) ac_tensor_clear(&copy);
    else ac_tensor_clear(t), *t = copy;
    return failed;
}

/* new: a result as [batch, m, n] */
static ac_tensor *seen(const request *q, const ac_tensor *t, int64_t ld) {
    ac_dims shape = {3, {q->batch, q->m, q->n}}, strides = {3, {q->m * ld, ld, 1}};
    return ac_tensor_view(t, &shape, &strides, t->offset);
}

static int copy_result(const request *q, ac_tensor *to, int64_t to_ld, ac_tensor *from, int64_t from_ld) {
    ac_tensor *here = seen(q, to, to_ld), *there = here ? seen(q, from, from_ld) : NULL;
    int failed = there ? ac_gpu_copy(here, there) : -1;
    ac_tensor_clear(&there);
    ac_tensor_clear(&here);
    return failed;
}

/* Lets a padded tensor of that dtype take the result, and what is there already. */
static int stand_in(request *q, ac_dtype dtype) {
    ac_dims shape = {3, {q->batch, q->m, q->n}};
    ac_tensor *other = padded(ac_device_of(q->out), dtype, &shape);
    if (!other) return -1;
    int64_t ld = other->strides[1];
    int failed = q->add || q->done ? copy_result(q, other, ld, q->out, q->c_ld) : 0;
    ac_tensor_clear(failed ? &other : &q->out);
    if (!failed) q->out = other, q->c_ld = ld;
    return failed;
}

/* The same numbers: the bias, exact in the result, and the sums are rounded once. */
static int without_epilogue(request *q) {
    if (!q->bias || q->add) return 0;
    AC_TRY(ac_gpu_copy(q->out, q->bias));
    ac_tensor_clear(&q->bias);
    q->add = true;
    return 1;
}

static int in_smaller_batches(request *q) {
    enum { MOST_BATCHES = 1 << 15 };
    if (q->batch <= MOST_BATCHES) return 0;
    q->most = MOST_BATCHES;
    return 1;
}

static int from_aligned_copies(request *q) {
    AC_TRY(replace_by_padded(&q->a, q->type));
    AC_TRY(replace_by_padded(&q->b, q->type));
    AC_TRY(stand_in(q, q->out->dtype));
    q->panels = NULL, q->padded = true;
    return 1;
}

static int in_float32(request *q) {
    bool half = ac_itemsize(q->type) == 2;
    if (!half && (q->type == AC_float64 || !ac_gpu_allow_tf32)) return 0;
    q->plain = true;
    if (!half) return 1;
    AC_TRY(replace_by_padded(&q->a, AC_float32));
    AC_TRY(replace_by_padded(&q->b, AC_float32));
    if (q->bias) AC_TRY(replace_by_padded(&q->bias, AC_float32));
    if (q->out->dtype != AC_float32) AC_TRY(stand_in(q, AC_float32));
    q->type = AC_float32;
    return 1;
}

static const struct {
    int (*take)(request *q);
    const char *says;
} steps[] = {{without_epilogue, "with the bias put there first"},
             {in_smaller_batches, "some batches at a time"},
             {from_aligned_copies, "from copies of its operands"},
             {in_float32, "in float32"}};

static void describe(char *text, size_t size, const request *q) {
    char batch[32] = "";
    if (q->batch > 1) (void)snprintf(batch, sizeof batch, "%lld of ", (long long)q->batch);
    (void)snprintf(text, size, "cuBLASLt has no algorithm for a product (%s%lld x %lld by %lld x %lld, %s%s)", batch,
                   (long long)q->m, (long long)q->k, (long long)q->k, (long long)q->n, ac_dtypes[q->type].name,
                   q->bias ? ", with a bias" : "");
}

/* Once in a process: later ones are as slow, and say nothing. */
static int tell(const char *product, const char *way) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char text[256];
    if (!ac_gpu_warn || atomic_flag_test_and_set(&told)) return 0;
    (void)snprintf(text, sizeof text, "%s, so it is computed %s, which takes longer; this is said once", product, way);
    return ac_gpu_warn(text);
}

static int climb(request *q) {
    char product[160];
    const char *way = NULL;
    int done = 0;
    describe(product, sizeof product, q);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !done; i++) {
        int changed = steps[i].take(q);
        if (changed < 0) return -1;
        if (changed) way = steps[i].says, done = attempt(q);
    }
    if (done < 0) return -1;
    if (!done) return ac_fail(AC_RUNTIME, "%s", product);
    ac_tensor *out = q->run->out[0];
    if (q->out != out) AC_TRY(copy_result(q, out, q->n, q->out, q->c_ld));
    return tell(product, way);
}

/* -- the product ------------------------------------------------------------------------------------ */

/* new: as the library adds it: of the result's dtype, read in vectors */
static ac_tensor *bias_for(const ac_tensor *out, ac_tensor *bias) {
    return ac_gpu_aligned(ac_data(bias)) ? ac_gpu_dense_as(bias, out->dtype) : ac_gpu_copy_as(bias, out->dtype);
}

/* The product of integers, with the arguments of `product`, below. */
static int integer_product(const ac_run *r, const ac_tensor *a, const ac_tensor *b, int b_lane, int b_k,
                           const ac_tensor *bias) {
    static ac_gpu_kernel kernel = {.image = AC_IMAGE_INDEX, .name = "ac_integer_product"};
    int last = a->ndim - 1;
    ac_gpu_product p = {.a = ac_gpu_ref_of(a),
                        .b = ac_gpu_ref_of(b),
                        .c = ac_gpu_ref_of(r->out[0]),
                        .bias = ac_gpu_ref_of(bias),
                        .batch = last > 1 ? a->shape[0] : 1,
                        .m = a->shape[last - 1],
                        .n = b->shape[b_lane],
                        .k = a->shape[last],
                        .a_batch_stride = last > 1 ? a->strides[0] : 0,
                        .a_row = a->strides[last - 1],
                        .a_col = a->strides[last],
                        .b_batch_stride = last > 1 ? b->strides[0] : 0,
                        .b_row = b->strides[b_k],
                        .b_col = b->strides[b_lane],
                        .bias_col = bias ? bias->strides[0] : 0};
    ac_device d = ac_run_device(r);
    return ac_gpu_launch(d, &kernel, ac_gpu_blocks(d, r->out[0]->numel, 1), 0, &p);
}

/* c [batch, m, n] = a [batch, m, k] b, whose dimensions are told apart by number; bias [n] or NULL. */
static int product(const ac_run *r, ac_tensor *a, ac_tensor *b, int b_lane, int b_k, ac_tensor *bias) {
    ac_tensor *out = r->out[0];
    int64_t n = b->shape[b_lane], k = a->shape[a->ndim - 1], m = a->shape[a->ndim - 2];
    int64_t batch = a->ndim > 2 ? a->shape[0] : 1;
    if (out->numel == 0) return 0;
    if (!ac_is_floating(a->dtype)) return integer_product(r, a, b, b_lane, b_k, bias);
    if (k == 0) return r->add ? 0 : bias ? ac_gpu_copy(out, bias) : ac_gpu_clear(out);
    request q = {.run = r, .panels = r->panels, .b_lane = b_lane, .b_k = b_k, .m = m, .n = n, .k = k, .batch = batch};
    q.type = out->dtype == AC_float64 || a->dtype == AC_float64 ? AC_float64 : r->compute;
    q.c_ld = n, q.most = batch, q.add = r->add;
    q.bias = bias ? bias_for(out, bias) : NULL;
    if (bias && !q.bias) return -1;
    q.a = ac_tensor_retain(a), q.b = ac_tensor_retain(b), q.out = ac_tensor_retain(out);
    int done = attempt(&q);
    int failed = done ? (done < 0 ? -1 : 0) : climb(&q);
    ac_tensor_clear(&q.out);
    ac_tensor_clear(&q.b);
    ac_tensor_clear(&q.a);
    ac_tensor_clear(&q.bias);
    return failed;
}

/* -- the rows --------------------------------------------------------------------------------------- */

int ac_cuda_mm(const ac_run *r) { return product(r, r->in[0], r->in[1], 1, 0, NULL); }

int ac_cuda_bmm(const ac_run *r) { return product(r, r->in[0], r->in[1], 2, 1, NULL); }

/* x as [rows, in], which takes a copy when its leading dimensions do not merge. */
int ac_cuda_linear(const ac_run *r) {
    ac_tensor *x = r->in[0], *dense = NULL, *flat;
    int last = x->ndim - 1;
    ac_space rows = ac_space_of(x, ~(1u << last));
    if (rows.n > 1) {
        dense = ac_gpu_contiguous(x);
        if (!dense) return -1;
        x = dense, rows = ac_space_of(x, ~(1u << last));
    }
    ac_dims shape = {2, {rows.numel, x->shape[last]}}, strides = {2, {rows.stride[0], x->strides[last]}};
    flat = ac_tensor_view(x, &shape, &strides, x->offset);
    int failed = flat ? product(r, flat, r->in[1], 0, 1, r->in[2]) : -1;
    ac_tensor_clear(&flat);
    ac_tensor_clear(&dense);
    return failed;
}
