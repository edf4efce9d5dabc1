/* The functions that give something back: two devices, addresses that nobody follows, handles. */
#include "null.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {
const int ANSWER_VERSION = 13000, DEVICES = 2;
const size_t MEMORY = (size_t)80 << 30;
char contexts[DEVICES];
thread_local CUcontext current;

/* What nobody calls here has no number of its own. */
const struct {
    CUdevice_attribute which;
    int value;
} attributes[] = {{AC_CU_MULTIPROCESSORS, 132},
                  {AC_CU_L2_BYTES, 50 << 20},
                  {AC_CU_THREADS_PER_MULTIPROCESSOR, 2048},
                  {AC_CU_MAJOR, 9}};

/* Kernels by name, each with how often it was launched. */
struct Kernel {
    char name[64];
    long long launches;
};
Kernel kernels[1024];
int n_kernels;
} // namespace

#define API EXPORTED CUresult

API cuDriverGetVersion(int *v) { return CALLED(cuDriverGetVersion), *v = ANSWER_VERSION, AC_CU_SUCCESS; }
API cuGetErrorName(CUresult, const char **text) { return *text = "an error", AC_CU_SUCCESS; }
API cuGetErrorString(CUresult, const char **text) { return *text = "of a driver that does nothing", AC_CU_SUCCESS; }

API cuDeviceGetCount(int *n) { return CALLED(cuDeviceGetCount), *n = DEVICES, AC_CU_SUCCESS; }
API cuDeviceGet(CUdevice *d, int i) { return CALLED(cuDeviceGet), *d = i, AC_CU_SUCCESS; }
API cuDeviceGetName(char *text, int n, CUdevice) {
    CALLED(cuDeviceGetName);
    snprintf(text, (size_t)n, "no GPU");
    return AC_CU_SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *n, CUdevice) { return CALLED(cuDeviceTotalMem_v2), *n = MEMORY, AC_CU_SUCCESS; }
API cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
    CALLED(cuDeviceGetAttribute);
    *value = 0;
    for (auto &a : attributes)
        if (a.which == which) *value = a.value;
    return AC_CU_SUCCESS;
}
API cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
    CALLED(cuDevicePrimaryCtxRetain);
    *c = (CUcontext)&contexts[d];
    return AC_CU_SUCCESS;
}
API cuCtxGetCurrent(CUcontext *c) { return CALLED(cuCtxGetCurrent), *c = current, AC_CU_SUCCESS; }
API cuCtxSetCurrent(CUcontext c) { return CALLED(cuCtxSetCurrent), current = c, AC_CU_SUCCESS; }

/* -- kernels ---------------------------------------------------------------------------------------- */

API cuModuleGetFunction(CUfunction *f, CUmodule, const char *name) {
    CALLED(cuModuleGetFunction);
    if (n_kernels == (int)(sizeof kernels / sizeof *kernels)) return AC_CU_NOT_FOUND;
    Kernel *k = &kernels[n_kernels++];
    snprintf(k->name, sizeof k->name, "%s", name);
    return *f = (CUfunction)k, AC_CU_SUCCESS;
}
API cuLaunchKernel(CUfunction f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                   void **, void **) {
    CALLED(cuLaunchKernel);
    ((Kernel *)f)->launches++;
    return AC_CU_SUCCESS;
}
/* As null_name and null_calls, of kernels. */
EXPORTED const char *null_kernel(int i) { return i < n_kernels ? kernels[i].name : nullptr; }
EXPORTED long long null_launches(int i) { return kernels[i].launches; }

/* -- memory ----------------------------------------------------------------------------------------- */

API cuMemGetInfo_v2(size_t *left, size_t *all) { return CALLED(cuMemGetInfo_v2), *left = *all = MEMORY, AC_CU_SUCCESS; }
API cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    static CUdeviceptr next = (CUdeviceptr)1 << 40; /* where no memory of the process lies */
    CALLED(cuMemAlloc_v2);
    *p = next, next += (n + 4095) / 4096 * 4096;
    return AC_CU_SUCCESS;
}
API cuMemHostAlloc(void **p, size_t n, unsigned) {
    CALLED(cuMemHostAlloc);
    *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    return *p ? AC_CU_SUCCESS : AC_CU_OUT_OF_MEMORY;
}
API cuMemFreeHost(void *p) { return CALLED(cuMemFreeHost), free(p), AC_CU_SUCCESS; }
API cuMemHostGetDevicePointer_v2(CUdeviceptr *d, void *p, unsigned) {
    CALLED(cuMemHostGetDevicePointer_v2);
    return *d = (CUdeviceptr)p, AC_CU_SUCCESS;
}
/* No address is page-locked: what that changes is waited for, and nothing waits here. */
API cuPointerGetAttribute(void *, CUpointer_attribute, CUdeviceptr) {
    return CALLED(cuPointerGetAttribute), AC_CU_NOT_FOUND;
}
API cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr, size_t n, CUstream) {
    return CALLED(cuMemcpyDtoHAsync_v2), memset(to, 0, n), AC_CU_SUCCESS;
}

/* -- streams, events and graphs: any address will do -------------------------------------------------------- */

API cuStreamCreateWithPriority(CUstream *s, unsigned, int) {
    return CALLED(cuStreamCreateWithPriority), *s = (CUstream)malloc(1), AC_CU_SUCCESS;
}
API cuEventCreate(CUevent *e, unsigned) { return CALLED(cuEventCreate), *e = (CUevent)malloc(1), AC_CU_SUCCESS; }
API cuEventDestroy_v2(CUevent e) { return CALLED(cuEventDestroy_v2), free((void *)e), AC_CU_SUCCESS; }
API cuEventElapsedTime(float *ms, CUevent, CUevent) { return CALLED(cuEventElapsedTime), *ms = 0, AC_CU_SUCCESS; }
API cuStreamEndCapture(CUstream, CUgraph *g) { return CALLED(cuStreamEndCapture), *g = (CUgraph)1, AC_CU_SUCCESS; }
API cuGraphInstantiateWithFlags(CUgraphExec *g, CUgraph, unsigned long long) {
    return CALLED(cuGraphInstantiateWithFlags), *g = (CUgraphExec)1, AC_CU_SUCCESS;
}
