/* Sorting on a GPU, and sums of what comes before: the host side of sort.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#define SORT_KERNEL(id, text) static ac_gpu_kernel id = {.image = AC_IMAGE_SORT, .name = text}

enum { DIGITS = AC_GPU_DIGITS, TILE = AC_GPU_SORT_TILE, WARPS = AC_GPU_THREADS / 32 };

int ac_gpu_scan_sums(ac_device d, int64_t *values, int64_t n, int64_t *total) {
    SORT_KERNEL(kernel, "ac_scan");
    ac_gpu_scan a = {values, n, total};
    return ac_gpu_launch(d, &kernel, 1, WARPS * 8, &a);
}

/* The power of 2 that holds a row of n. */
static int32_t sort_width(int64_t n) {
    int32_t width = 1;
    while (width < n) width *= 2;
    return width;
}

/* One pass: how often digits are in the tiles, where those of each tile go, and moving them there. */
static int radix_pass(ac_device d, const ac_gpu_radix *a) {
    SORT_KERNEL(count, "ac_radix_count");
    SORT_KERNEL(scan, "ac_radix_scan");
    SORT_KERNEL(move, "ac_radix_move");
    int64_t jobs = a->rows * a->tiles;
    AC_TRY(ac_gpu_launch(d, &count, jobs, DIGITS * 4, a));
    AC_TRY(ac_gpu_launch(d, &scan, a->rows * DIGITS / WARPS, 0, a));
    return ac_gpu_launch(d, &move, jobs, TILE * 16 + DIGITS * 8 + WARPS * 8 + WARPS * DIGITS * 4, a);
}

int ac_gpu_sort_pairs(ac_device d, int64_t rows, int64_t n, int bits, uint64_t *keys, int64_t *payload) {
    SORT_KERNEL(whole, "ac_sort_pairs");
    if (n <= AC_GPU_SORT_MOST && rows == 1) {
        ac_gpu_radix a = {.n = n, .keys = keys, .keys_out = keys, .payload_out = payload, .width = sort_width(n)};
        return ac_gpu_launch(d, &whole, 1, (size_t)a.width * AC_GPU_SORT_ITEM, &a);
    }
    int64_t tiles = (n + TILE - 1) / TILE, all = rows * n;
    ac_gpu_block *room = ac_gpu_alloc(d, (2 * all + rows * DIGITS * (tiles + 1)) * 8);
    if (!room) return -1;
    uint64_t *other_keys = ac_gpu_address(room), *k[2] = {keys, other_keys};
    int64_t *other_payload = (int64_t *)(other_keys + all), *v[2] = {payload, other_payload};
    int passes = (bits + AC_GPU_DIGIT_BITS - 1) / AC_GPU_DIGIT_BITS, failed = 0;
    passes += passes % 2; /* an even number ends where it began */
    for (int pass = 0; pass < passes && !failed; pass++) {
        int from = pass % 2;
        ac_gpu_radix a = {.rows = rows,
                          .n = n,
                          .tiles = tiles,
                          .keys = k[from],
                          .payload = pass == 0 ? NULL : v[from],
                          .keys_out = k[1 - from],
                          .payload_out = v[1 - from],
                          .totals = other_payload + all,
                          .counts = other_payload + all + rows * DIGITS,
                          .shift = pass * AC_GPU_DIGIT_BITS};
        failed = radix_pass(d, &a);
    }
    ac_gpu_free(room);
    return failed;
}

/* Rows that a block sorts in shared memory. */
static int sort_short_rows(ac_device d, int opmath, ac_gpu_sort *a) {
    static ac_gpu_kernel kernels[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_SORT, "ac_sort_short");
    a->width = sort_width(a->n);
    a->items = a->width < AC_GPU_SORT_LEAST ? AC_GPU_SORT_LEAST : a->width;
    int64_t together = a->items / a->width, blocks = (a->rows + together - 1) / together;
    int64_t most = (int64_t)ac_gpu_multiprocessors(d) * 32;
    return ac_gpu_launch(d, &kernels[opmath], blocks < most ? blocks : most, (size_t)a->items * AC_GPU_SORT_ITEM, a);
}

static int sort_long_rows(ac_device d, int opmath, ac_gpu_sort *a) {
    static ac_gpu_kernel keys[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_SORT, "ac_sort_keys"),
                         values[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_SORT, "ac_sort_values");
    int64_t n = a->rows * a->n;
    ac_gpu_block *room = ac_gpu_alloc(d, 2 * n * 8);
    if (!room) return -1;
    a->keys = ac_gpu_address(room);
    int64_t *order = (int64_t *)(a->keys + n);
    a->order = order;
    int failed = ac_gpu_launch(d, &keys[opmath], ac_gpu_blocks(d, n, 1), 0, a);
    if (!failed) failed = ac_gpu_sort_pairs(d, a->rows, a->n, opmath == AC_OPMATH_F32 ? 32 : 64, a->keys, order);
    if (!failed) failed = ac_gpu_launch(d, &values[opmath], ac_gpu_blocks(d, a->rows * a->k, 1), 0, a);
    ac_gpu_free(room);
    return failed;
}

static int run_sort(const ac_run *r, int64_t dim, int64_t k, bool descending) {
    const ac_tensor *x = r->in[0];
    int opmath = ac_gpu_opmath(x->dtype);
    AC_TRY(ac_dim_wrap(&dim, x->ndim, ac_ops[r->op].shown));
    uint32_t kept = x->ndim ? ~(1u << dim) : 0;
    ac_gpu_sort a = {.x = ac_gpu_ref_of(x),
                     .values = ac_gpu_ref_of(r->out[0]),
                     .indices = ac_data(r->out[1]),
                     .from = ac_space_of(x, kept),
                     .to = ac_space_of(r->out[0], kept),
                     .n = x->ndim ? x->shape[dim] : 1,
                     .stride = x->ndim ? x->strides[dim] : 1,
                     .values_stride = x->ndim ? r->out[0]->strides[dim] : 1,
                     .descending = descending};
    if (x->numel == 0 || r->out[0]->numel == 0) return 0;
    a.rows = x->numel / a.n, a.k = k < 0 ? a.n : k;
    return (a.n <= AC_GPU_SORT_MOST ? sort_short_rows : sort_long_rows)(ac_run_device(r), opmath, &a);
}

int ac_cuda_topk(const ac_run *r) {
    ATTRS(topk);
    return run_sort(r, a->dim, a->k, a->largest != 0);
}
int ac_cuda_sort(const ac_run *r) {
    ATTRS(sort);
    return run_sort(r, a->dim, -1, a->descending != 0);
}
