/* Cumulative operators along one dimension on a GPU: the host side of scan.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#define KERNELS(rows)                                                                                                  \
    static ac_gpu_kernel rows[2] = {{.image = AC_IMAGE_SCAN, .name = "ac_running_" #rows "_f64"},                      \
                                    {.image = AC_IMAGE_SCAN, .name = "ac_running_" #rows "_i64"}};
KERNELS(sum)
KERNELS(product)
KERNELS(log_sum)
KERNELS(linear)
KERNELS(extreme)
#undef KERNELS

enum { SHORT_ROW = 16, LONG_ROW = 1024, MANY = 4096, WARP = 32, RUN = 4, STATE_BYTES = 24 };

static ac_gpu_rows_of rows_along(const ac_tensor *t, int64_t dim) {
    uint32_t mask = t->ndim ? 1u << dim : 0;
    return (ac_gpu_rows_of){ac_gpu_ref_of(t), ac_space_of(t, ~mask), ac_space_of(t, mask)};
}

/* Whether rows go by runs of four neighbours of a bulk dtype. */
static bool in_runs(const ac_gpu_rows_of *t) {
    bool runs = ac_gpu_aligned(t->ref.data) && ac_gpu_is_bulk((ac_dtype)t->ref.dtype);
    runs = runs && t->inner.n == 1 && t->inner.stride[0] == 1;
    for (int k = 0; k < t->kept.n; k++) runs = runs && t->kept.stride[k] % RUN == 0;
    return runs;
}

/* Threads that take a row, by sizes alone. Short rows, and many that lie side by side, are a thread's. */
static int32_t group_for(const ac_gpu_running *a) {
    const ac_space *kept = &a->x.kept, *inner = &a->x.inner;
    bool beside = kept->stride[kept->n - 1] < inner->stride[inner->n - 1];
    if (a->n <= SHORT_ROW || (beside && a->rows >= MANY)) return 1;
    return a->n <= LONG_ROW || a->rows >= MANY ? WARP : AC_GPU_THREADS;
}

static int run_scan(const ac_run *r, ac_gpu_kernel *kernels, int64_t dim, ac_gpu_running *a) {
    const ac_tensor *x = r->in[0];
    ac_device d = ac_run_device(r);
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    a->n = x->ndim ? x->shape[dim] : 1, a->rows = a->n ? x->numel / a->n : 0;
    a->x = rows_along(x, dim), a->out = rows_along(r->out[0], dim);
    if (r->n_in > 1) a->with = rows_along(r->in[1], dim);
    if (a->rows == 0) return 0;
    a->group = group_for(a);
    a->vector = a->n % RUN == 0 && !a->reverse && r->n_in == 1 && in_runs(&a->x) && in_runs(&a->out);
    int64_t groups = AC_GPU_THREADS / a->group, blocks = (a->rows + groups - 1) / groups;
    int64_t most = (int64_t)ac_gpu_multiprocessors(d) * 64;
    bool real = ac_is_floating(r->out[0]->dtype);
    return ac_gpu_launch(d, &kernels[real ? 0 : 1], blocks < most ? blocks : most,
                         2 * AC_GPU_THREADS / WARP * STATE_BYTES, a);
}

int ac_cuda_cumsum(const ac_run *r) {
    ATTRS(cumulative);
    ac_gpu_running args = {.n = 0};
    return run_scan(r, sum, a->dim, &args);
}
int ac_cuda_cumprod(const ac_run *r) {
    ATTRS(cumulative);
    ac_gpu_running args = {.n = 0};
    return run_scan(r, product, a->dim, &args);
}
int ac_cuda_logcumsumexp(const ac_run *r) {
    ATTRS(one_dim);
    ac_gpu_running args = {.n = 0};
    return run_scan(r, log_sum, a->dim, &args);
}
int ac_cuda_linear_scan(const ac_run *r) {
    ATTRS(linear_scan);
    ac_gpu_running args = {.reverse = a->reverse != 0};
    return run_scan(r, linear, a->dim, &args);
}
int ac_cuda_cummax(const ac_run *r) {
    ATTRS(one_dim);
    ac_gpu_running args = {.indices = ac_data(r->out[1])};
    return run_scan(r, extreme, a->dim, &args);
}
int ac_cuda_cummin(const ac_run *r) {
    ATTRS(one_dim);
    ac_gpu_running args = {.smallest = 1, .indices = ac_data(r->out[1])};
    return run_scan(r, extreme, a->dim, &args);
}
