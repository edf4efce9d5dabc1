/* The kernels' compiled images: embedded packed, one chosen for a GPU, unpacked and loaded when it is first used. */
#include "cuda/gpu.h"

#include <stdlib.h>

/* The build lists what it compiled in a file: CUBIN(image, architecture, path) is machine code, PTX(...) what a driver
 * compiles; each packed by xz. Where nvcc was absent there is no such file. */
#ifdef AC_CUDA_IMAGES
#define HIDDEN __attribute__((visibility("hidden")))
#define EMBED(name, path)                                                                                              \
    __asm__(".pushsection .rodata\n" #name ":\n.incbin \"" path "\"\n" #name "_end:\n.popsection\n");                  \
    extern const char name[] HIDDEN, name##_end[] HIDDEN;
#define CUBIN(image, architecture, path) EMBED(ac_cubin_##image##_##architecture, path)
#define PTX(image, architecture, path) EMBED(ac_ptx_##image##_##architecture, path)
#include AC_CUDA_IMAGES
#undef CUBIN
#undef PTX
#define CODE(image, architecture, ptx, name) {AC_IMAGE_##image, architecture, ptx, name, name##_end},
#define CUBIN(image, architecture, path) CODE(image, architecture, false, ac_cubin_##image##_##architecture)
#define PTX(image, architecture, path) CODE(image, architecture, true, ac_ptx_##image##_##architecture)
#endif

static const ac_gpu_code embedded[] = {
#ifdef AC_CUDA_IMAGES
#include AC_CUDA_IMAGES
#endif
    {.image = AC_N_IMAGES}};

char *(*ac_gpu_unpack)(const char *packed, size_t n);

static _Atomic(CUmodule) modules[AC_N_IMAGES][AC_MAX_GPUS];

bool ac_gpu_has_images(void) { return embedded[0].image != AC_N_IMAGES; }
const ac_gpu_code *ac_gpu_images(void) { return embedded; }

static bool runs_on(const ac_gpu_code *c, int architecture) {
    return c->architecture <= architecture && (c->is_ptx || c->architecture / 10 == architecture / 10);
}

const ac_gpu_code *ac_gpu_choose(const ac_gpu_code *all, ac_gpu_image image, bool is_ptx, int architecture) {
    const ac_gpu_code *best = NULL;
    for (const ac_gpu_code *c = all; c->image != AC_N_IMAGES; c++) {
        bool fits = c->image == image && c->is_ptx == is_ptx && runs_on(c, architecture);
        if (fits && (!best || c->architecture > best->architecture)) best = c;
    }
    return best;
}

/* Unless another thread has loaded it meanwhile. */
static CUresult load_once(const char *bytes, _Atomic(CUmodule) *module) {
    CUmodule made = NULL;
    CUresult result = AC_CU_SUCCESS;
    (void)pthread_mutex_lock(&ac_gpu_locks.images);
    CUstreamCaptureMode before = ac_gpu_relax();
    if (!*module) result = ac_cu.cuModuleLoadData(&made, bytes);
    if (made) *module = made;
    ac_gpu_relax_end(before);
    (void)pthread_mutex_unlock(&ac_gpu_locks.images);
    return result;
}

static CUresult load_bytes(ac_device d, const char *bytes, _Atomic(CUmodule) *module) {
    CUresult result = load_once(bytes, module);
    return result == AC_CU_OUT_OF_MEMORY && ac_gpu_make_room(d) ? load_once(bytes, module) : result;
}

/* Unpacked outside of the lock: that takes the interpreter's, and whoever runs meanwhile may leave the thread another
 * context. */
static int load_code(ac_device d, const ac_gpu_code *c, _Atomic(CUmodule) *module, CUresult *result) {
    char *bytes = ac_gpu_unpack(c->packed, (size_t)(c->end - c->packed));
    int failed = !bytes || ac_gpu_use(d) < 0;
    if (!failed) *result = load_bytes(d, bytes, module);
    free(bytes);
    return failed ? -1 : 0;
}

/* What a driver says of machine code that is not for its GPU, or in a format that it does not know. */
static bool is_refusal(CUresult result) { return result == AC_CU_NO_BINARY || result == AC_CU_INVALID_IMAGE; }

/* Machine code; where there is none for this GPU, or the driver refuses it, PTX. */
static int load_image(ac_device d, ac_gpu_image image, _Atomic(CUmodule) *module) {
    int architecture = ac_gpu_architecture(d);
    const ac_gpu_code *machine = ac_gpu_choose(embedded, image, false, architecture);
    const ac_gpu_code *ptx = ac_gpu_choose(embedded, image, true, architecture);
    CUresult result = AC_CU_NO_BINARY;
    if (!machine && !ptx)
        return ac_fail(AC_RUNTIME,
                       "cuda:%d is an sm_%d, and this build has no GPU code for it; `ampc info` says which it has, and "
                       "CUDA_VISIBLE_DEVICES hides a GPU",
                       ac_gpu_index(d), architecture);
    if (machine) AC_TRY(load_code(d, machine, module, &result));
    if (is_refusal(result) && ptx) AC_TRY(load_code(d, ptx, module, &result));
    if (result == AC_CU_NEWER_PTX)
        return ac_fail(AC_RUNTIME,
                       "the NVIDIA driver (%s) does not compile the PTX that this build has for cuda:%d, an sm_%d, "
                       "because a newer CUDA toolkit made it; update the driver, or build ampc by a toolkit that is no "
                       "newer than the driver",
                       ac_gpu_library_note("driver"), ac_gpu_index(d), architecture);
    return ac_cu_check(result, "loading the GPU code");
}

int ac_gpu_module(ac_device d, ac_gpu_image image, CUmodule *module) {
    _Atomic(CUmodule) *found = &modules[image][ac_gpu_index(d)];
    if (!*found) {
        if (ac_gpu_has_images()) AC_TRY(load_image(d, image, found));
        else AC_TRY(ac_cu_check(load_bytes(d, "", found), "loading the GPU code")); /* the simulator has its own */
    }
    *module = *found;
    return 0;
}
