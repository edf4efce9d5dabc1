/* Matrix products by cuBLASLt. What a shape needs (descriptors, layouts, the algorithm) is made once and kept, and that
 * there is no algorithm for it, too. */
#include "cuda/blas.h"

#include <string.h>

typedef struct {
    ac_product_key key;
    bool used, refused; /* refused: there is no algorithm for it */
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
    const ac_product_key *k = &p->key;
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

/* Parts of a sum over k are joined in the type of the sums alone: left to itself the library joins some of them in the
 * result's, and rounds each part to 16 bits. */
static int prefer(cublasLtMatmulPreference_t wish, const ac_product_key *k) {
    size_t bytes = MOST_WORKSPACE;
    const uint32_t reductions = AC_LT_REDUCTION_COMPUTE_TYPE;
    const int which[4] = {AC_LT_ALIGNMENT_A, AC_LT_ALIGNMENT_B, AC_LT_ALIGNMENT_C, AC_LT_ALIGNMENT_D};
    const int32_t at[4] = {k->alignment[1], k->alignment[0], k->alignment[2], k->alignment[2]};
    LT(ac_lt.cublasLtMatmulPreferenceSetAttribute(wish, AC_LT_MAX_WORKSPACE, &bytes, sizeof bytes));
    LT(ac_lt.cublasLtMatmulPreferenceSetAttribute(wish, AC_LT_REDUCTIONS, &reductions, sizeof reductions));
    for (int i = 0; i < 4; i++) {
        uint32_t bound = (uint32_t)at[i];
        LT(ac_lt.cublasLtMatmulPreferenceSetAttribute(wish, (cublasLtMatmulPreferenceAttributes_t)which[i], &bound,
                                                      sizeof bound));
    }
    return 0;
}

/* What the library says of a product that it has no algorithm for. */
static bool is_refusal(cublasStatus_t status) {
    return status == AC_LT_NOT_SUPPORTED || status == AC_LT_ARCH_MISMATCH || status == AC_LT_INVALID_VALUE;
}

static int choose_algorithm(plan *p, cublasLtHandle_t handle) {
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    LT(ac_lt.cublasLtMatmulPreferenceCreate(&wish));
    cublasStatus_t status = AC_LT_SUCCESS;
    int failed = prefer(wish, &p->key);
    if (!failed)
        status = ac_lt.cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->a, p->b, p->c, p->c, wish, 1, &found, &n);
    (void)ac_lt.cublasLtMatmulPreferenceDestroy(wish);
    p->refused = !failed && (is_refusal(status) || (status == AC_LT_SUCCESS && n == 0));
    if (!failed && !p->refused) failed = ac_lt_check(status, "choosing how to multiply on the GPU");
    if (!failed && !p->refused) p->algo = found.algo, p->workspace = found.workspaceSize;
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
static plan *plan_for(const ac_product_key *key, cublasLtHandle_t handle) {
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

static int multiply(const ac_multiplication *x, plan *p, void *workspace) {
    const float one = 1, zero = 0;
    const double one_wide = 1, zero_wide = 0;
    bool wide = x->key.type == AC_LT_F64;
    const void *alpha = wide ? (const void *)&one_wide : &one;
    const void *beta = x->key.add ? alpha : wide ? (const void *)&zero_wide : &zero;
    if (x->bias) LT(ac_lt.cublasLtMatmulDescSetAttribute(p->desc, AC_LT_BIAS_POINTER, &x->bias, sizeof x->bias));
    cublasStatus_t status =
        ac_lt.cublasLtMatmul(blas.handles[ac_gpu_index(x->device)], p->desc, alpha, x->b, p->a, x->a, p->b, beta, x->c,
                             p->c, x->c, p->c, &p->algo, workspace, p->workspace, ac_gpu_stream(x->device));
    p->refused = is_refusal(status);
    if (!p->refused) LT(status);
    return !p->refused;
}

static cublasStatus_t start(ac_device d, cublasLtHandle_t *handle) {
    CUstreamCaptureMode before = ac_gpu_relax();
    cublasStatus_t made = ac_lt.cublasLtCreate(handle);
    if (made != AC_LT_SUCCESS && ac_gpu_make_room(d)) made = ac_lt.cublasLtCreate(handle);
    ac_gpu_relax_end(before);
    return made;
}

/* One product at a time talks to the library: a plan's bias pointer is part of it. */
static int multiply_locked(const ac_multiplication *x) {
    cublasLtHandle_t *handle = &blas.handles[ac_gpu_index(x->device)];
    if (!*handle) AC_TRY(ac_lt_check(start(x->device, handle), "starting cuBLASLt"));
    plan *p = plan_for(&x->key, *handle);
    if (!p) return -1;
    if (p->refused) return 0;
    ac_gpu_block *workspace = p->workspace ? ac_gpu_alloc(x->device, (int64_t)p->workspace) : NULL;
    if (p->workspace && !workspace) return -1;
    int done = multiply(x, p, workspace ? ac_gpu_address(workspace) : NULL);
    ac_gpu_free(workspace);
    return done;
}

int ac_gpu_multiply(const ac_multiplication *x) {
    ac_gpu_scope scope;
    AC_TRY(ac_lt_open());
    AC_TRY(ac_gpu_enter(x->device, &scope));
    (void)pthread_mutex_lock(&ac_gpu_locks.products);
    int done = multiply_locked(x);
    (void)pthread_mutex_unlock(&ac_gpu_locks.products);
    ac_gpu_leave(&scope);
    return done;
}
