/* Page-locked memory of the host, which GPUs copy from and to without the host waiting. The driver is slow to
 * allocate it and waits for the device to free it, so blocks are kept. A block that a queued copy still uses is not
 * given out again before that copy is done. */
#include "cuda/gpu.h"

#include "base/alloc.h"

typedef struct pending { /* a copy that uses a block */
    struct pending *next;
    ac_device device;
    CUevent done;
} pending;

typedef struct block {
    struct block *next;
    void *data;
    int64_t bytes; /* a power of two */
    pending *copies;
} block;

static struct {
    block *free; /* some of them perhaps still in use by copies */
} pinned;

enum { LEAST = 4096 };

static int64_t rounded(int64_t bytes) {
    int64_t size = LEAST;
    while (size < bytes) size *= 2;
    return size;
}

/* Whether every copy is done; those that are, are forgotten. */
static bool is_idle(block *b) {
    if (ac_gpu_any_capture()) return !b->copies; /* a capture does not stand the question */
    while (b->copies) {
        pending *p = b->copies;
        bool done = false;
        if (ac_gpu_event_done(p->device, p->done, &done) < 0 || !done) return false;
        b->copies = p->next;
        if (ac_gpu_event_free(p->device, p->done) < 0) ac_error_clear();
        ac_free(p, sizeof *p);
    }
    return true;
}

static block *take_free(int64_t bytes) {
    (void)pthread_mutex_lock(&ac_gpu_locks.pinned);
    block **at = &pinned.free, *found = NULL;
    for (; *at && !found; at = found ? at : &(*at)->next)
        if ((*at)->bytes == bytes && is_idle(*at)) {
            found = *at;
            *at = found->next;
        }
    (void)pthread_mutex_unlock(&ac_gpu_locks.pinned);
    return found;
}

static void wait_for_copies(void) {
    (void)pthread_mutex_lock(&ac_gpu_locks.pinned);
    for (block *b = pinned.free; b; b = b->next)
        for (pending *p = b->copies; p; p = p->next) (void)ac_cu.cuEventSynchronize(p->done);
    (void)pthread_mutex_unlock(&ac_gpu_locks.pinned);
}

/* What is kept is given back when there is no more. */
static int ask_driver(void **data, int64_t bytes) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(AC_CUDA(0), &scope));
    CUstreamCaptureMode before = ac_gpu_relax();
    CUresult result = ac_cu.cuMemHostAlloc(data, (size_t)bytes, AC_CU_PORTABLE);
    if (result == AC_CU_OUT_OF_MEMORY && !ac_gpu_any_capture()) {
        wait_for_copies();
        ac_gpu_pinned_trim();
        result = ac_cu.cuMemHostAlloc(data, (size_t)bytes, AC_CU_PORTABLE);
    }
    ac_gpu_relax_end(before);
    ac_gpu_leave(&scope);
    if (result != AC_CU_OUT_OF_MEMORY) return ac_cu_check(result, "page-locked memory");
    return ac_fail(AC_MEMORY, "cannot allocate %lld bytes of page-locked memory", (long long)bytes);
}

static block *new_block(int64_t bytes) {
    block *b = ac_calloc(sizeof *b);
    if (!b) return NULL;
    b->bytes = bytes;
    if (ask_driver(&b->data, bytes) == 0) return b;
    ac_free(b, sizeof *b);
    return NULL;
}

static void give_back(void *owner) {
    block *b = owner;
    if (!ac_gpu_usable()) return; /* a forked child owns nothing */
    (void)pthread_mutex_lock(&ac_gpu_locks.pinned);
    b->next = pinned.free;
    pinned.free = b;
    (void)pthread_mutex_unlock(&ac_gpu_locks.pinned);
}

ac_storage *ac_gpu_pinned(int64_t bytes) {
    int64_t size = rounded(bytes);
    block *b = take_free(size);
    if (!b) b = new_block(size);
    if (!b) return NULL;
    ac_storage *s = ac_storage_wrap(b->data, bytes, give_back, b);
    if (!s) give_back(b);
    return s;
}

bool ac_gpu_pinned_is_ours(const ac_storage *s) { return s->release == give_back; }

int ac_gpu_pinned_used(const ac_storage *s, ac_device d) {
    block *b = s->owner;
    pending *p = ac_calloc(sizeof *p);
    if (!p) return -1;
    p->device = d;
    int failed = ac_gpu_event_new(d, false, false, &p->done);
    if (!failed) failed = ac_gpu_event_record(d, p->done, ac_gpu_stream(d));
    if (failed) {
        if (p->done) (void)ac_cu.cuEventDestroy_v2(p->done);
        ac_free(p, sizeof *p);
        return -1;
    }
    (void)pthread_mutex_lock(&ac_gpu_locks.pinned);
    p->next = b->copies;
    b->copies = p;
    (void)pthread_mutex_unlock(&ac_gpu_locks.pinned);
    return 0;
}

void ac_gpu_pinned_trim(void) {
    ac_gpu_scope scope;
    if (!ac_gpu_usable() || ac_gpu_enter(AC_CUDA(0), &scope) < 0) return;
    (void)pthread_mutex_lock(&ac_gpu_locks.pinned);
    for (block **at = &pinned.free; *at;) {
        block *b = *at;
        if (!is_idle(b)) {
            at = &b->next;
            continue;
        }
        *at = b->next;
        (void)ac_cu.cuMemFreeHost(b->data);
        ac_free(b, sizeof *b);
    }
    (void)pthread_mutex_unlock(&ac_gpu_locks.pinned);
    ac_gpu_leave(&scope);
}

bool ac_gpu_is_pinned(const void *p) {
    ac_gpu_scope scope;
    unsigned type = 0;
    if (!ac_gpu_usable() || !p || ac_gpu_enter(AC_CUDA(0), &scope) < 0) return false;
    CUresult result = ac_cu.cuPointerGetAttribute(&type, AC_CU_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)p);
    ac_gpu_leave(&scope);
    return result == AC_CU_SUCCESS && type == AC_CU_HOST_MEMORY;
}
