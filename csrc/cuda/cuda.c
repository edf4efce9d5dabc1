/* The CUDA backend: for every operator in the table the function that launches its kernel. */
#include "cuda/gpu.h"

/* The 16-bit copy of a weight is the weight, cast: one layout serves every product. */
static int64_t copy_bytes(const ac_tensor *w, ac_dtype round, bool out_first) {
    (void)out_first;
    return w->numel * ac_itemsize(round);
}

static bool copy_weight(const ac_tensor *w, ac_dtype round, bool out_first, ac_tensor *copy) {
    ac_tensor typed = *copy;
    (void)out_first;
    typed.dtype = round, typed.ndim = w->ndim, typed.numel = w->numel, typed.offset = 0;
    for (int d = w->ndim - 1; d >= 0; d--) {
        typed.shape[d] = w->shape[d];
        typed.strides[d] = d + 1 < w->ndim ? typed.strides[d + 1] * typed.shape[d + 1] : 1;
    }
    return ac_gpu_copy(&typed, w) == 0;
}

static int new_storage(ac_device d, int64_t bytes, char **data, void **block) {
    ac_gpu_block *b = ac_gpu_alloc(d, bytes);
    if (!b) return -1;
    *block = b, *data = ac_gpu_address(b);
    return 0;
}
static void free_storage(void *block) { ac_gpu_free(block); }

static int copy_memory(ac_device d, char *to, const char *from, int64_t bytes) {
    ac_gpu_scope scope;
    if (bytes == 0) return 0;
    AC_TRY(ac_gpu_enter(d, &scope));
    CUresult result = ac_cu.cuMemcpyDtoDAsync_v2((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                                 (size_t)bytes, ac_gpu_stream(d));
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "copying memory");
}

const ac_gpu_memory_hooks ac_cuda_memory = {new_storage, free_storage, copy_memory};

ac_gpu_block *ac_gpu_block_of(const ac_storage *s) {
    if (s->moved && s->moved->keeps) s = s->moved->keeps; /* whose memory it has taken over */
    return s->release == free_storage ? s->owner : NULL;
}

const ac_backend ac_cuda = {
    .name = "cuda",
    .kernels =
        {
#define POINT1(name, ...) [AC_OP_##name] = ac_cuda_pointwise,
#define POINT2 POINT1
#define POINT3 POINT1
#define KERNEL(name, py, home, infer, kernel, ...) [AC_OP_##name] = ac_cuda_##kernel,
#include "ops/ops.def"
        },
    .panels_bytes = copy_bytes,
    .pack = copy_weight,
    .grad_stats = ac_cuda_grad_stats,
    .scale = ac_cuda_scale,
    .step = ac_cuda_step,
    .attends = ac_gpu_attends,
};
