/* Launches kernels by name, which are looked up once per device. */
#include "cuda/gpu.h"

static CUresult look_up(CUmodule module, const char *name, CUfunction *function) {
    CUstreamCaptureMode before = ac_gpu_relax();
    CUresult result = ac_cu.cuModuleGetFunction(function, module, name);
    ac_gpu_relax_end(before);
    return result;
}

static int find_kernel(ac_device d, ac_gpu_kernel *k) {
    CUmodule module;
    CUfunction function = NULL;
    AC_TRY(ac_gpu_module(d, k->image, &module));
    CUresult result = look_up(module, k->name, &function);
    if (result == AC_CU_OUT_OF_MEMORY && ac_gpu_make_room(d)) result = look_up(module, k->name, &function);
    k->found[ac_gpu_index(d)] = function;
    return ac_cu_check(result, k->name);
}

int64_t ac_gpu_blocks(ac_device d, int64_t n, int64_t each) {
    int64_t blocks = (n + each * AC_GPU_THREADS - 1) / (each * AC_GPU_THREADS);
    int64_t most = (int64_t)ac_gpu_multiprocessors(d) * 32;
    return blocks < 1 ? 1 : blocks < most ? blocks : most;
}

static CUresult launch(ac_device d, const ac_gpu_kernel *k, unsigned blocks, size_t shared, const void *args) {
    void *params[] = {(void *)(uintptr_t)args};
    unsigned threads = k->threads ? k->threads : AC_GPU_THREADS;
    return ac_cu.cuLaunchKernel(k->found[ac_gpu_index(d)], blocks, 1, 1, threads, 1, 1, (unsigned)shared,
                                ac_gpu_stream(d), params, NULL);
}

int ac_gpu_launch(ac_device d, ac_gpu_kernel *k, int64_t blocks, size_t shared, const void *args) {
    ac_gpu_scope scope;
    enum { MOST_BLOCKS = 1 << 30 };
    unsigned some = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    AC_TRY(ac_gpu_check_trouble());
    AC_TRY(ac_gpu_enter(d, &scope));
    int failed = k->found[ac_gpu_index(d)] ? 0 : find_kernel(d, k);
    if (!failed) {
        CUresult result = launch(d, k, some, shared, args);
        if (result == AC_CU_OUT_OF_MEMORY && ac_gpu_make_room(d)) result = launch(d, k, some, shared, args);
        failed = ac_cu_check(result, k->name);
    }
    ac_gpu_leave(&scope);
    return failed;
}
