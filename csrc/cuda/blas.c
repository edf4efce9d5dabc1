/* Matrix products by cuBLASLt. Its matrices are stored by columns, so a row-major C = A B is requested as C' = B' A'.
 * What a shape needs (descriptors, layouts, the algorithm) is made once and kept. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#include <string.h>

bool ac_gpu_allow_tf32;

/* An operand as the library wants it: `lanes` x k, one stride 1. */
typedef struct {
    ac_tensor *owned; /* the values, perhaps a copy of the caller's */
    const void *data;
    int64_t ld, batch;
    bool k_first; /* neighbours in memory follow k */
} operand;

/* Everything that decides how a product is computed; compared byte by byte. */
typedef struct {
    int64_t m, n, k, batch; /* of the row-major product */
    int64_t a_ld, b_ld, c_ld, a_batch, b_batch, c_batch;
    int32_t type, out_type, compute, alignment[3];
    int8_t a_k_first, b_k_first, bias, add, device, unused[3];
} product_key;

typedef struct {
    product_key key;
    bool used;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c; /* in the library's order: its A is our B */
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes that the algorithm wants */
} plan;

enum { PLANS = 1024, PROBES = 8, MOST_WORKSPACE = 32 << 20 };
static struct {
    plan plans[PLANS];
    cublasLtHandle_t handles[AC_MAX_GPUS];
} blas;

static int library_type(ac_dtype t) {
    return t == AC_float64 ? AC_LT_F64 : t == AC_float32 ? AC_LT_F32 : t == AC_float16 ? AC_LT_F16 : AC_LT_BF16;
}
static int compute_type(ac_dtype t) {
    if (t == AC_float64) return AC_LT_COMPUTE_F64;
    return t == AC_float32 && ac_gpu_allow_tf32 ? AC_LT_COMPUTE_TF32 : AC_LT_COMPUTE_F32;
}

/* -- operands --------------------------------------------------------------------------------------- */

/* t as values of `dtype`; `lane` and `k` are its dimensions of that meaning. */
static int take_operand(operand *o, ac_tensor *t, ac_dtype dtype, int lane, int k) {
    int64_t lanes = t->shape[lane], depth = t->shape[k];
    int64_t by_lane = lanes > 1 ? t->strides[lane] : 0, by_k = depth > 1 ? t->strides[k] : 0;
    bool k_first = by_k == 1 || (by_k == 0 && depth == 1), lane_first = by_lane == 1 || (by_lane == 0 && lanes == 1);
    if (k_first && lanes > 1 && by_lane < depth) k_first = false;
    if (lane_first && depth > 1 && by_k < lanes) lane_first = false;
    *o = (operand){.owned = NULL};
    if (t->dtype == dtype && (k_first || lane_first)) {
        o->owned = ac_tensor_retain(t);
    } else {
        ac_dims shape = ac_shape_of(t);
        o->owned = ac_tensor_new_on(ac_device_of(t), dtype, &shape);
        if (!o->owned || ac_gpu_copy(o->owned, t) < 0) return -1;
        t = o->owned;
        by_lane = t->strides[lane], by_k = t->strides[k];
        k_first = by_k == 1, lane_first = by_lane == 1;
    }
    o->data = ac_data(t), o->k_first = k_first;
    o->ld = k_first ? (lanes > 1 ? by_lane : depth) : (depth > 1 ? by_k : lanes);
    int64_t least =
        k_first ? depth : lanes; /* a leading dimension of one line may be anything; the library wants it large */
    if (o->ld < least) o->ld = least;
    o->batch = t->ndim > 2 ? t->strides[0] : 0;
    return 0;
}

static int32_t alignment_of(const void *p) {
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low == 0 || low > 256 ? 256 : (int32_t)low;
}

/* -- plans ------------------------------------------------------------------------------------------ */

#define LT(call) AC_TRY(ac_lt_check((call), "a matrix product on the GPU"))

static int make_layout(cublasLtMatrixLayout_t *layout, int type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                       int64_t offset) {
    int32_t count = (int32_t)batch;
    LT(ac_lt.cublasLtMatrixLayoutCreate(layout, (cudaDataType_t)type, (uint64_t)rows, (uint64_t)cols, ld));
    if (batch == 1) return 0;
    LT(ac_lt.cublasLtMatrixLayoutSetAttribute(*layout, AC_LT_BATCH_COUNT, &count, sizeof count));
    LT(ac_lt.cublasLtMatrixLayoutSetAttribute(*layout, AC_LT_BATCH_OFFSET, &offset, sizeof offset));
    return 0;
}

static int describe(plan *p) {
    const product_key *k = &p->key;
    int32_t a_op = k->b_k_first ? AC_LT_TRANSPOSED : AC_LT_PLAIN, b_op = k->a_k_first ? AC_LT_PLAIN : AC_LT_TRANSPOSED;
    int scale = k->type == AC_LT_F64 ? AC_LT_F64 : AC_LT_F32;
    uint32_t epilogue = AC_LT_EPILOGUE_BIAS;
    LT(ac_lt.cublasLtMatmulDescCreate(&p->desc, (cublasComputeType_t)k->compute, (cudaDataType_t)scale));
    LT(ac_lt.cublasLtMatmulDescSetAttribute(p->desc, AC_LT_TRANSA, &a_op, sizeof a_op));
    LT(ac_lt.cublasLtMatmulDescSetAttribute(p->desc, AC_LT_TRANSB, &b_op, sizeof b_op));
    if (k->bias) LT(ac_lt.cublasLtMatmulDescSetAttribute(p->desc, AC_LT_EPILOGUE, &epilogue, sizeof epilogue));
    AC_TRY(make_layout(&p->a, k->type, k->b_k_first ? k->k : k->n, k->b_k_first ? k->n : k->k, k->b_ld, k->batch,
                       k->b_batch));
    AC_TRY(make_layout(&p->b, k->type, k->a_k_first ? k->k : k->m, k->a_k_first ? k->m : k->k, k->a_ld, k->batch,
                       k->a_batch));
    return make_layout(&p->c, k->out_type, k->n, k->m, k->c_ld, k->batch, k->c_batch);
}

static int prefer(cublasLtMatmulPreference_t wish, const product_key *k) {
    size_t bytes = MOST_WORKSPACE;
    const int which[4] = {AC_LT_ALIGNMENT_A, AC_LT_ALIGNMENT_B, AC_LT_ALIGNMENT_C, AC_LT_ALIGNMENT_D};
    const int32_t at[4] = {k->alignment[1], k->alignment[0], k->alignment[2], k->alignment[2]};
    LT(ac_lt.cublasLtMatmulPreferenceSetAttribute(wish, AC_LT_MAX_WORKSPACE, &bytes, sizeof bytes));
    for (int i = 0; i < 4; i++) {
        uint32_t bound = (uint32_t)at[i];
        LT(ac_lt.cublasLtMatmulPreferenceSetAttribute(wish, (cublasLtMatmulPreferenceAttributes_t)which[i], &bound,
                                                      sizeof bound));
    }
    return 0;
}

static int choose_algorithm(plan *p, cublasLtHandle_t handle) {
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    LT(ac_lt.cublasLtMatmulPreferenceCreate(&wish));
    int failed = prefer(wish, &p->key);
    if (!failed)
        failed = ac_lt_check(
            ac_lt.cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->a, p->b, p->c, p->c, wish, 1, &found, &n),
            "choosing how to multiply on the GPU");
    (void)ac_lt.cublasLtMatmulPreferenceDestroy(wish);
    if (!failed && n == 0) failed = ac_lt_check(AC_LT_NOT_SUPPORTED, "choosing how to multiply on the GPU");
    if (!failed) p->algo = found.algo, p->workspace = found.workspaceSize;
    return failed;
}

static void forget(plan *p) {
    if (p->desc) (void)ac_lt.cublasLtMatmulDescDestroy(p->desc);
    if (p->a) (void)ac_lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->b) (void)ac_lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->c) (void)ac_lt.cublasLtMatrixLayoutDestroy(p->c);
    memset(p, 0, sizeof *p);
}

/* The plan for a key, made when there is none; the place of another is taken when all near it are. */
static plan *plan_for(const product_key *key, cublasLtHandle_t handle) {
    uint64_t h = ac_gpu_hash(key, sizeof *key);
    plan *free = NULL;
    for (int i = 0; i < PROBES; i++) {
        plan *p = &blas.plans[(h + (uint64_t)i) % PLANS];
        if (p->used && memcmp(&p->key, key, sizeof *key) == 0) return p;
        if (!p->used && !free) free = p;
    }
    if (!free) forget(free = &blas.plans[h % PLANS]);
    free->key = *key;
    if (describe(free) == 0 && choose_algorithm(free, handle) == 0) {
        free->used = true;
        return free;
    }
    forget(free);
    return NULL;
}

/* -- the product ------------------------------------------------------------------------------------ */

typedef struct {
    ac_device device;
    product_key key;
    const operand *a, *b;
    void *c;
    const void *bias;
} multiplication;

static int multiply(const multiplication *x, plan *p, void *workspace) {
    const float one = 1, zero = 0;
    const double one_wide = 1, zero_wide = 0;
    bool wide = x->key.type == AC_LT_F64;
    const void *alpha = wide ? (const void *)&one_wide : &one;
    const void *beta = x->key.add ? alpha : wide ? (const void *)&zero_wide : &zero;
    if (x->bias) LT(ac_lt.cublasLtMatmulDescSetAttribute(p->desc, AC_LT_BIAS_POINTER, &x->bias, sizeof x->bias));
    LT(ac_lt.cublasLtMatmul(blas.handles[ac_gpu_index(x->device)], p->desc, alpha, x->b->data, p->a, x->a->data, p->b,
                            beta, x->c, p->c, x->c, p->c, &p->algo, workspace, p->workspace, ac_gpu_stream(x->device)));
    return 0;
}

/* One product at a time talks to the library: a plan's bias pointer is part of it. */
static int multiply_locked(const multiplication *x) {
    cublasLtHandle_t *handle = &blas.handles[ac_gpu_index(x->device)];
    if (!*handle) AC_TRY(ac_lt_check(ac_lt.cublasLtCreate(handle), "starting cuBLASLt"));
    plan *p = plan_for(&x->key, *handle);
    if (!p) return -1;
    ac_gpu_block *workspace = p->workspace ? ac_gpu_alloc(x->device, (int64_t)p->workspace) : NULL;
    if (p->workspace && !workspace) return -1;
    int failed = multiply(x, p, workspace ? ac_gpu_address(workspace) : NULL);
    ac_gpu_free(workspace);
    return failed;
}

static int run_product(const multiplication *x) {
    ac_gpu_scope scope;
    AC_TRY(ac_lt_open());
    AC_TRY(ac_gpu_enter(x->device, &scope));
    (void)pthread_mutex_lock(&ac_gpu_locks.products);
    int failed = multiply_locked(x);
    (void)pthread_mutex_unlock(&ac_gpu_locks.products);
    ac_gpu_leave(&scope);
    return failed;
}

static int clear_output(const ac_run *r, const ac_tensor *bias) {
    if (bias) return ac_gpu_copy(r->out[0], bias);
    ac_tensor *zero = ac_tensor_scalar(AC_float32, 0);
    int failed = zero ? ac_gpu_copy(r->out[0], zero) : -1;
    ac_tensor_clear(&zero);
    return failed;
}

/* c [batch, m, n] = a [batch, m, k] b, whose dimensions are told apart by number; bias [n] or NULL. */
static int product(const ac_run *r, ac_tensor *a, ac_tensor *b, int b_lane, int b_k, ac_tensor *bias) {
    ac_tensor *out = r->out[0], *row = NULL;
    operand left, right = {.owned = NULL};
    int64_t n = b->shape[b_lane], k = a->shape[a->ndim - 1], m = a->shape[a->ndim - 2];
    int64_t batch = a->ndim > 2 ? a->shape[0] : 1;
    if (out->numel == 0) return 0;
    if (k == 0) return r->add ? 0 : clear_output(r, bias);
    ac_dtype type = out->dtype == AC_float64 || a->dtype == AC_float64 ? AC_float64 : r->compute;
    int failed = take_operand(&left, a, type, a->ndim - 2, a->ndim - 1);
    if (!failed && r->panels) {
        right = (operand){.owned = ac_tensor_retain((ac_tensor *)(uintptr_t)r->panels), .data = ac_data(r->panels)};
        right.k_first = b_k > b_lane, right.ld = right.k_first ? k : n;
    } else if (!failed) failed = take_operand(&right, b, type, b_lane, b_k);
    if (!failed && bias) { /* the library adds a bias of the result's dtype */
        ac_dims shape = ac_shape_of(bias);
        bool fits = bias->dtype == out->dtype && ac_is_contiguous(bias);
        row = fits ? ac_tensor_retain(bias) : ac_tensor_new_on(ac_device_of(out), out->dtype, &shape);
        failed = !row ? -1 : fits ? 0 : ac_gpu_copy(row, bias);
    }
    if (!failed) {
        multiplication x = {.device = ac_device_of(out), .a = &left, .b = &right, .c = ac_data(out)};
        memset(&x.key, 0, sizeof x.key);
        x.key.m = m, x.key.n = n, x.key.k = k, x.key.batch = batch;
        x.key.a_ld = left.ld, x.key.b_ld = right.ld, x.key.c_ld = n;
        x.key.a_batch = left.batch, x.key.b_batch = right.batch, x.key.c_batch = m * n;
        x.key.type = library_type(type), x.key.out_type = library_type(out->dtype), x.key.compute = compute_type(type);
        x.key.alignment[0] = alignment_of(left.data), x.key.alignment[1] = alignment_of(right.data);
        x.key.alignment[2] = alignment_of(x.c);
        x.key.a_k_first = left.k_first, x.key.b_k_first = right.k_first, x.key.add = r->add, x.key.bias = row != NULL;
        x.key.device = (int8_t)ac_gpu_index(x.device);
        x.bias = row ? ac_data(row) : NULL;
        failed = run_product(&x);
    }
    ac_tensor_clear(&left.owned);
    ac_tensor_clear(&right.owned);
    ac_tensor_clear(&row);
    return failed;
}

/* -- the rows --------------------------------------------------------------------------------------- */

static int integer_product(const ac_run *r) {
    static ac_gpu_kernel k = {.image = AC_IMAGE_INDEX, .name = "ac_integer_product"};
    const ac_tensor *a = r->in[0], *b = r->in[1];
    int last = a->ndim - 1;
    ac_gpu_product p = {.a = ac_gpu_ref_of(a),
                        .b = ac_gpu_ref_of(b),
                        .c = ac_gpu_ref_of(r->out[0]),
                        .batch = last > 1 ? a->shape[0] : 1,
                        .m = a->shape[last - 1],
                        .n = b->shape[last],
                        .k = a->shape[last],
                        .a_batch_stride = last > 1 ? a->strides[0] : 0,
                        .a_row = a->strides[last - 1],
                        .a_col = a->strides[last],
                        .b_batch_stride = last > 1 ? b->strides[0] : 0,
                        .b_row = b->strides[last - 1],
                        .b_col = b->strides[last]};
    int64_t n = r->out[0]->numel;
    ac_device d = ac_run_device(r);
    return n ? ac_gpu_launch(d, &k, ac_gpu_blocks(d, n, 1), 0, &p) : 0;
}

int ac_cuda_mm(const ac_run *r) {
    if (!ac_is_floating(r->in[0]->dtype)) return integer_product(r);
    return product(r, r->in[0], r->in[1], 1, 0, NULL);
}

int ac_cuda_bmm(const ac_run *r) {
    if (!ac_is_floating(r->in[0]->dtype)) return integer_product(r);
    return product(r, r->in[0], r->in[1], 2, 1, NULL);
}

/* x as [rows, in], which takes a copy when its leading dimensions do not merge. */
int ac_cuda_linear(const ac_run *r) {
    ac_tensor *x = r->in[0], *dense = NULL, *flat;
    int last = x->ndim - 1;
    if (!ac_is_floating(r->in[1]->dtype))
        return ac_fail(AC_RUNTIME, "linear: needs floating point, got %s", ac_dtypes[r->in[1]->dtype].name);
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
