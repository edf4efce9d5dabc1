/* GPUs, the contexts they are used through, streams and events. */
#include "cuda/gpu.h"

#include "base/inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct {
    _Atomic int count;
    _Atomic(CUcontext) contexts[AC_MAX_GPUS]; /* the primary ones, kept for the life of the process */
    int multiprocessors[AC_MAX_GPUS], architecture[AC_MAX_GPUS], reads_pageable[AC_MAX_GPUS];
    struct {
        CUstream streams[AC_GPU_STREAMS];
        unsigned next;
    } pools[AC_MAX_GPUS][AC_GPU_PRIORITIES];
    _Atomic(ac_gpu_trouble *) trouble; /* host address of the note, page-locked; one for all devices */
} gpus = {.count = -1};

static _Thread_local CUstream current_stream[AC_MAX_GPUS];

/* The thread's current context, as it was found or set within this visit to the core. */
static _Thread_local struct {
    CUcontext context;
    uint64_t visit;
} current;

int ac_gpu_count(int *count) {
    *count = 0;
    if (ac_gpu_init() < 0) {
        ac_error_clear();
        return 0;
    }
    if (gpus.count < 0) {
        int n = 0;
        AC_TRY(ac_cu_check(ac_cu.cuDeviceGetCount(&n), "counting GPUs"));
        gpus.count = n < AC_MAX_GPUS ? n : AC_MAX_GPUS; /* the same whoever asks first */
    }
    *count = gpus.count;
    return 0;
}

int ac_gpu_check_device(ac_device d) {
    int count, index = ac_gpu_index(d);
    AC_TRY(ac_gpu_init());
    AC_TRY(ac_gpu_count(&count));
    if (index >= 0 && index < count) return 0;
    return ac_fail(AC_RUNTIME, "device 'cuda:%d' is not there: %d GPU%s found", index, count,
                   count == 1 ? " was" : "s were");
}

typedef struct {
    int *to;
    CUdevice_attribute which;
} attribute;

static int read_attributes(CUdevice device, const attribute *all, size_t n) {
    for (size_t i = 0; i < n; i++)
        AC_TRY(ac_cu_check(ac_cu.cuDeviceGetAttribute(all[i].to, all[i].which, device), "the GPU's attributes"));
    return 0;
}
#define READ_ATTRIBUTES(device, all) read_attributes(device, all, sizeof(all) / sizeof *(all))

static int retain_context(int i) {
    int major = 0, minor = 0;
    CUdevice device;
    CUcontext context = NULL;
    const attribute all[] = {{&major, AC_CU_MAJOR},
                             {&minor, AC_CU_MINOR},
                             {&gpus.multiprocessors[i], AC_CU_MULTIPROCESSORS},
                             {&gpus.reads_pageable[i], AC_CU_READS_PAGEABLE}};
    AC_TRY(ac_cu_check(ac_cu.cuDeviceGet(&device, i), "opening the GPU"));
    AC_TRY(READ_ATTRIBUTES(device, all));
    gpus.architecture[i] = 10 * major + minor;
    AC_TRY(ac_cu_check(ac_cu.cuDevicePrimaryCtxRetain(&context, device), "opening the GPU"));
    gpus.contexts[i] = context; /* last: who sees it sees the rest */
    return 0;
}

static int open_context(ac_device d) {
    AC_TRY(ac_gpu_check_device(d));
    (void)pthread_mutex_lock(&ac_gpu_locks.devices);
    int failed = ac_gpu_context(d) ? 0 : retain_context(ac_gpu_index(d));
    (void)pthread_mutex_unlock(&ac_gpu_locks.devices);
    return failed;
}

CUcontext ac_gpu_context(ac_device d) { return gpus.contexts[ac_gpu_index(d)]; }
int ac_gpu_multiprocessors(ac_device d) { return gpus.multiprocessors[ac_gpu_index(d)]; }
int ac_gpu_architecture(ac_device d) { return gpus.architecture[ac_gpu_index(d)]; }
int ac_gpu_generation(ac_device d) { return ac_gpu_architecture(d) / 10; }
bool ac_gpu_reads_pageable(ac_device d) { return gpus.reads_pageable[ac_gpu_index(d)]; }

static int find_current(void) {
    if (current.visit == ac_inside.visit) return 0;
    AC_TRY(ac_cu_check(ac_cu.cuCtxGetCurrent(&current.context), "reading the thread's context"));
    current.visit = ac_inside.visit;
    return 0;
}

static int set_current(CUcontext context) {
    AC_TRY(ac_cu_check(ac_cu.cuCtxSetCurrent(context), "entering the GPU's context"));
    current.context = context;
    return 0;
}

static int make_current(ac_device d, ac_gpu_scope *scope) {
    AC_TRY(ac_gpu_init());
    if (d < AC_CUDA(0) || d >= AC_CUDA(AC_MAX_GPUS) || !ac_gpu_context(d)) AC_TRY(open_context(d));
    AC_TRY(find_current());
    CUcontext own = ac_gpu_context(d), found = current.context;
    if (found == own) return 0;
    AC_TRY(set_current(own));
    scope->found = found, scope->restore = found || d != AC_CUDA(0);
    return 0;
}

int ac_gpu_enter(ac_device d, ac_gpu_scope *scope) {
    scope->restore = false;
    ac_inside_enter();
    if (make_current(d, scope) == 0) return 0;
    ac_inside_leave();
    return -1;
}

void ac_gpu_leave(const ac_gpu_scope *scope) {
    if (scope->restore) { /* an error that is on its way is not replaced by another */
        current.context = scope->found;
        if (ac_cu.cuCtxSetCurrent(scope->found) != AC_CU_SUCCESS) current.visit = 0;
    }
    ac_inside_leave();
}

int ac_gpu_use(ac_device d) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(d, &scope));
    scope.restore = false;
    ac_gpu_leave(&scope);
    return 0;
}

/* One call of the driver within the device's context. */
#define WITHIN(d, what, call)                                                                                          \
    do {                                                                                                               \
        ac_gpu_scope scope_;                                                                                           \
        AC_TRY(ac_gpu_enter(d, &scope_));                                                                              \
        CUresult result_ = (call);                                                                                     \
        ac_gpu_leave(&scope_);                                                                                         \
        AC_TRY(ac_cu_check(result_, what));                                                                            \
    } while (0)

int ac_gpu_facts_of(ac_device d, ac_gpu_facts *f) {
    CUdevice device;
    size_t memory = 0;
    CUuuid uuid;
    memset(f, 0, sizeof *f);
    AC_TRY(ac_gpu_check_device(d));
    AC_TRY(ac_cu_check(ac_cu.cuDeviceGet(&device, ac_gpu_index(d)), "opening the GPU"));
    AC_TRY(ac_cu_check(ac_cu.cuDeviceGetName(f->name, (int)sizeof f->name, device), "the GPU's name"));
    AC_TRY(ac_cu_check(ac_cu.cuDeviceTotalMem_v2(&memory, device), "the GPU's memory"));
    AC_TRY(ac_cu_check(ac_cu.cuDeviceGetUuid_v2(&uuid, device), "the GPU's UUID"));
    memcpy(f->uuid, &uuid, sizeof f->uuid);
    f->memory = (int64_t)memory;
    const attribute all[] = {{&f->major, AC_CU_MAJOR},
                             {&f->minor, AC_CU_MINOR},
                             {&f->multiprocessors, AC_CU_MULTIPROCESSORS},
                             {&f->threads_per_multiprocessor, AC_CU_THREADS_PER_MULTIPROCESSOR},
                             {&f->l2_bytes, AC_CU_L2_BYTES}};
    return READ_ATTRIBUTES(device, all);
}

/* -- streams and events ----------------------------------------------------------------------------- */

CUstream ac_gpu_stream(ac_device d) {
    ac_gpu_end_given_up();
    return current_stream[ac_gpu_index(d)];
}
void ac_gpu_set_stream(ac_device d, CUstream s) { current_stream[ac_gpu_index(d)] = s; }

int ac_gpu_stream_of(ac_device d, int priority, CUstream *s) {
    ac_gpu_scope scope;
    int level = priority > 0 ? 0 : priority <= -AC_GPU_PRIORITIES ? AC_GPU_PRIORITIES - 1 : -priority;
    CUresult result = AC_CU_SUCCESS;
    AC_TRY(ac_gpu_enter(d, &scope));
    (void)pthread_mutex_lock(&ac_gpu_locks.devices);
    unsigned next = gpus.pools[ac_gpu_index(d)][level].next;
    CUstream *at = &gpus.pools[ac_gpu_index(d)][level].streams[next];
    if (!*at) result = ac_cu.cuStreamCreateWithPriority(at, AC_CU_NON_BLOCKING, -level);
    if (result == AC_CU_SUCCESS) gpus.pools[ac_gpu_index(d)][level].next = (next + 1) % AC_GPU_STREAMS;
    *s = *at;
    (void)pthread_mutex_unlock(&ac_gpu_locks.devices);
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "making a stream");
}
int ac_gpu_stream_wait(ac_device d, CUstream s) {
    AC_TRY(ac_gpu_refuse_capture("waiting for a stream"));
    WITHIN(d, "waiting for a stream", ac_cu.cuStreamSynchronize(s));
    return ac_gpu_check_trouble();
}
int ac_gpu_stream_idle(ac_device d, CUstream s, bool *idle) {
    CUresult result = AC_CU_SUCCESS;
    AC_TRY(ac_gpu_refuse_capture("asking whether a stream is done"));
    WITHIN(d, "asking a stream", (result = ac_cu.cuStreamQuery(s)) == AC_CU_NOT_READY ? AC_CU_SUCCESS : result);
    *idle = result == AC_CU_SUCCESS;
    return 0;
}
int ac_gpu_stream_captured(ac_device d, CUstream s, bool *yes) {
    CUstreamCaptureStatus status = AC_CU_CAPTURE_NONE;
    WITHIN(d, "asking whether a stream is captured", ac_cu.cuStreamIsCapturing(s, &status));
    *yes = status != AC_CU_CAPTURE_NONE;
    return 0;
}
int ac_gpu_synchronize(ac_device d) {
    AC_TRY(ac_gpu_refuse_capture("waiting for the GPU"));
    WITHIN(d, "waiting for the GPU", ac_cu.cuCtxSynchronize());
    return ac_gpu_check_trouble();
}

int ac_gpu_event_new(ac_device d, bool timing, bool blocking, CUevent *e) {
    unsigned flags = (timing ? 0u : (unsigned)AC_CU_NO_TIMING) | (blocking ? (unsigned)AC_CU_BLOCKING_SYNC : 0u);
    WITHIN(d, "making an event", ac_cu.cuEventCreate(e, flags));
    return 0;
}
int ac_gpu_event_free(ac_device d, CUevent e) {
    WITHIN(d, "ending an event", ac_cu.cuEventDestroy_v2(e));
    return 0;
}
int ac_gpu_event_record(ac_device d, CUevent e, CUstream s) {
    WITHIN(d, "recording an event", ac_cu.cuEventRecord(e, s));
    return 0;
}
int ac_gpu_event_await(ac_device d, CUevent e, CUstream s) {
    WITHIN(d, "making a stream wait", ac_cu.cuStreamWaitEvent(s, e, 0));
    return 0;
}
int ac_gpu_event_wait(ac_device d, CUevent e) {
    AC_TRY(ac_gpu_refuse_capture("waiting for an event"));
    WITHIN(d, "waiting for an event", ac_cu.cuEventSynchronize(e));
    return ac_gpu_check_trouble();
}
/* Another thread's capture stands it. */
static CUresult query_relaxed(CUevent e) {
    CUstreamCaptureMode before = ac_gpu_relax();
    CUresult result = ac_cu.cuEventQuery(e);
    ac_gpu_relax_end(before);
    return result;
}
int ac_gpu_event_done(ac_device d, CUevent e, bool *done) {
    CUresult result = AC_CU_SUCCESS;
    AC_TRY(ac_gpu_refuse_capture("asking whether an event is done"));
    WITHIN(d, "asking an event", (result = query_relaxed(e)) == AC_CU_NOT_READY ? AC_CU_SUCCESS : result);
    *done = result == AC_CU_SUCCESS;
    return 0;
}
int ac_gpu_event_elapsed(ac_device d, CUevent from, CUevent to, float *ms) {
    CUresult result = AC_CU_SUCCESS;
    WITHIN(d, "the time between two events",
           (result = ac_cu.cuEventElapsedTime(ms, from, to)) == AC_CU_NOT_READY ? AC_CU_SUCCESS : result);
    if (result != AC_CU_NOT_READY) return 0;
    return ac_fail(AC_RUNTIME,
                   "elapsed_time: the GPU has not come to both events yet; call synchronize() of the later one first");
}
int ac_gpu_stream_follow(ac_device d, CUstream s, CUstream before) {
    CUevent reached = NULL;
    bool captured[2] = {false, false};
    if (ac_gpu_any_capture()) {
        AC_TRY(ac_gpu_stream_captured(d, s, &captured[0]));
        AC_TRY(ac_gpu_stream_captured(d, before, &captured[1]));
    }
    if (captured[0] != captured[1]) return 0;
    AC_TRY(ac_gpu_event_new(d, false, false, &reached));
    int failed = ac_gpu_event_record(d, reached, before) < 0 || ac_gpu_event_await(d, reached, s) < 0;
    return ac_gpu_event_free(d, reached) < 0 || failed ? -1 : 0;
}

/* -- bad indices ------------------------------------------------------------------------------------ */

ac_gpu_trouble *ac_gpu_trouble_at(ac_device d) {
    ac_gpu_scope scope;
    CUdeviceptr at = 0;
    void *page = NULL;
    if (ac_gpu_enter(d, &scope) < 0) return NULL;
    (void)pthread_mutex_lock(&ac_gpu_locks.devices);
    int failed = 0;
    CUstreamCaptureMode before = ac_gpu_relax();
    if (!gpus.trouble) {
        failed = ac_cu_check(ac_cu.cuMemHostAlloc(&page, sizeof *gpus.trouble, AC_CU_PORTABLE | AC_CU_DEVICEMAP),
                             "memory for the kernels' notes");
        if (!failed) memset(page, 0, sizeof *gpus.trouble);
        gpus.trouble = page;
    }
    (void)pthread_mutex_unlock(&ac_gpu_locks.devices);
    if (!failed)
        failed = ac_cu_check(ac_cu.cuMemHostGetDevicePointer_v2(&at, gpus.trouble, 0), "memory for the kernels' notes");
    ac_gpu_relax_end(before);
    ac_gpu_leave(&scope);
    return failed ? NULL : (ac_gpu_trouble *)(uintptr_t)at;
}

int ac_gpu_check_trouble(void) {
    AC_TRY(ac_gpu_init()); /* a forked child does not have the memory of the note */
    int (*told)(void) = ac_gpu_told;
    if (told) AC_TRY(told());
    ac_gpu_trouble *t = gpus.trouble;
    if (!t || *(volatile int32_t *)&t->flag != 1) return 0;
    atomic_thread_fence(memory_order_acquire);
    ac_gpu_trouble found = *t;
    *(volatile int32_t *)&t->flag = 0;
    const ac_op_info *info = &ac_ops[found.op];
    bool whole = info->kind == AC_KIND_COMPOSITE; /* whose parts have inputs of their own */
    const char *in = whole ? "" : " in `", *input = whole ? "" : ac_input_param(info, found.input);
    return ac_fail(
        AC_INDEX,
        "%s on the GPU: index %lld%s%s%s is out of range for a size of %lld%s (noticed after the operator was "
        "queued: `with ampc.doctor():` shows its line; what it reads there is 0, and nothing is written there)",
        info->shown, (long long)found.value, in, input, whole ? "" : "`", (long long)found.size,
        ac_index_hint(found.value, found.size));
}
