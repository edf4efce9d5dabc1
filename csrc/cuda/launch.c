/* Launches kernels by name: loads the compiled images that the build embedded, once per device. */
#include "cuda/gpu.h"

#include <stdio.h>

/* Compressed fat binaries, one a .cu file; empty where nvcc was absent. The build names the folder. */
#ifdef AC_CUDA_IMAGES
#define IMAGE(name)                                                                                                    \
    __asm__(".pushsection .rodata\n.balign 64\n"                                                                       \
            "ac_image_" #name ":\n.incbin \"" AC_CUDA_IMAGES "/" #name ".fatbin\"\n.byte 0\n.popsection\n");           \
    extern const char ac_image_##name[] __attribute__((visibility("hidden")));
#else
#define IMAGE(name) static const char ac_image_##name[1];
#endif
IMAGE(elementwise)
IMAGE(creation)
IMAGE(reduce)
IMAGE(rows)
IMAGE(channels)
IMAGE(index)
IMAGE(sort)
IMAGE(foreach)
IMAGE(scan)
IMAGE(windows)
IMAGE(conv)
IMAGE(attention)
IMAGE(attention_backward)
IMAGE(rnn)

static const char *const images[AC_N_IMAGES] = {ac_image_elementwise,
                                                ac_image_creation,
                                                ac_image_reduce,
                                                ac_image_rows,
                                                ac_image_channels,
                                                ac_image_index,
                                                ac_image_sort,
                                                ac_image_foreach,
                                                ac_image_scan,
                                                ac_image_windows,
                                                ac_image_conv,
                                                ac_image_attention,
                                                ac_image_attention_backward,
                                                ac_image_rnn};

static struct {
    CUmodule modules[AC_N_IMAGES][AC_MAX_GPUS];
} loaded;

bool ac_gpu_has_images(void) {
#ifdef AC_CUDA_IMAGES
    return true;
#else
    return false;
#endif
}

static CUresult load_kernel(ac_device d, const ac_gpu_kernel *k, CUfunction *function, const char **step) {
    CUmodule *module = &loaded.modules[k->image][ac_gpu_index(d)];
    CUresult result = AC_CU_SUCCESS;
    (void)pthread_mutex_lock(&ac_gpu_locks.images);
    CUstreamCaptureMode before = ac_gpu_relax();
    *step = "loading the GPU code";
    if (!*module) result = ac_cu.cuModuleLoadData(module, images[k->image]);
    if (result == AC_CU_SUCCESS) {
        *step = k->name;
        result = ac_cu.cuModuleGetFunction(function, *module, k->name);
    }
    ac_gpu_relax_end(before);
    (void)pthread_mutex_unlock(&ac_gpu_locks.images);
    return result;
}

static int find_kernel(ac_device d, ac_gpu_kernel *k) {
    CUfunction function = NULL;
    const char *step;
    CUresult result = load_kernel(d, k, &function, &step);
    if (result == AC_CU_OUT_OF_MEMORY && ac_gpu_make_room(d)) result = load_kernel(d, k, &function, &step);
    k->found[ac_gpu_index(d)] = function;
    return ac_cu_check(result, step);
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
