/* Collectives by NCCL, which is opened by name at first use. No call waits for another process: connecting and queueing
 * may go on after a call has returned, which the caller asks for (ac_nccl_state), so that a rank that never comes is an
 * error after a time and no hang. */
#include "cuda/nccl.h"

#include "base/wait.h"

#include <signal.h>
#include <time.h>

enum { PRIORITY = -1, CONFIG_VERSION = 21400 };

static int check(const ac_nccl_group *g, ncclResult_t result, const char *what) {
    if (result == AC_NCCL_SUCCESS || result == AC_NCCL_IN_PROGRESS) return 0;
    const char *more = ac_nccl.ncclGetLastError(g ? g->comm : NULL);
    return ac_fail(AC_RUNTIME, "%s: NCCL: %s (%d)%s%s", what, ac_nccl.ncclGetErrorString(result), (int)result,
                   more && *more ? ": " : "", more ? more : "");
}

/* One call of NCCL within the context of the group's GPU. */
#define WITHIN(g, what, call)                                                                                          \
    do {                                                                                                               \
        ac_gpu_scope scope_;                                                                                           \
        AC_TRY(ac_gpu_enter((g)->device, &scope_));                                                                    \
        ncclResult_t result_ = (call);                                                                                 \
        ac_gpu_leave(&scope_);                                                                                         \
        AC_TRY(check(g, result_, what));                                                                               \
    } while (0)

int ac_nccl_version(int *version) {
    AC_TRY(ac_nccl_open());
    return check(NULL, ac_nccl.ncclGetVersion(version), "its version");
}

int ac_nccl_unique_id(ncclUniqueId *id) {
    AC_TRY(ac_nccl_open());
    return check(NULL, ac_nccl.ncclGetUniqueId(id), "an id for a group of processes");
}

int ac_nccl_begin(ac_nccl_group *g, ac_device d, const ncclUniqueId *id, int rank, int size) {
    ncclConfig_t config = {sizeof config, (unsigned)AC_NCCL_MAGIC, CONFIG_VERSION, 0};
    AC_TRY(ac_nccl_open());
    *g = (ac_nccl_group){.device = d};
    AC_TRY(ac_gpu_stream_of(d, PRIORITY, &g->stream));
    WITHIN(g, "connecting the GPUs of several processes",
           ac_nccl.ncclCommInitRankConfig(&g->comm, size, *id, rank, &config));
    return 0;
}

int ac_nccl_check(const ac_nccl_group *g) {
    if (!g->late) return 0;
    return ac_fail(AC_RUNTIME,
                   "NCCL: an operation had not ended in time, and Python's lock was held meanwhile; the group "
                   "was broken off");
}

int ac_nccl_state(const ac_nccl_group *g, bool *in_progress) {
    ncclResult_t state = AC_NCCL_SUCCESS;
    *in_progress = false;
    AC_TRY(ac_nccl_check(g));
    if (!g->comm) return ac_fail(AC_RUNTIME, "NCCL: the group has ended");
    AC_TRY(check(g, ac_nccl.ncclCommGetAsyncError(g->comm, &state), "asking for errors"));
    *in_progress = state == AC_NCCL_IN_PROGRESS;
    return check(g, state, "an operation between GPUs");
}

/* -1: NCCL has no such numbers. They travel as bytes. */
static int type_of(ac_dtype t) {
    switch (t) {
    case AC_int8: return AC_NCCL_I8;
    case AC_uint8: return AC_NCCL_U8;
    case AC_bool: return AC_NCCL_U8; /* MAX is or, MIN is and */
    case AC_int32: return AC_NCCL_I32;
    case AC_int64: return AC_NCCL_I64;
    case AC_float16: return AC_NCCL_F16;
    case AC_float32: return AC_NCCL_F32;
    case AC_float64: return AC_NCCL_F64;
    case AC_bfloat16: return AC_NCCL_BF16;
    default: return -1;
    }
}

static bool is_reduction(ac_nccl_kind k) {
    return k == AC_NCCL_ALL_REDUCE || k == AC_NCCL_REDUCE || k == AC_NCCL_REDUCE_SCATTER;
}

static ncclResult_t call(const ac_nccl_group *g, const ac_nccl_call *c) {
    const ac_tensor *each = c->kind == AC_NCCL_REDUCE_SCATTER || c->kind == AC_NCCL_RECV ? c->to : c->from;
    const void *from = c->from ? ac_data(c->from) : NULL;
    void *to = c->to ? ac_data(c->to) : NULL;
    bool bytes = type_of(each->dtype) < 0;
    ncclDataType_t type = bytes ? AC_NCCL_U8 : type_of(each->dtype);
    size_t n = (size_t)(each->numel * (bytes ? ac_itemsize(each->dtype) : 1));
    switch (c->kind) {
    case AC_NCCL_ALL_REDUCE: return ac_nccl.ncclAllReduce(from, to, n, type, c->op, g->comm, g->stream);
    case AC_NCCL_REDUCE: return ac_nccl.ncclReduce(from, to, n, type, c->op, c->root, g->comm, g->stream);
    case AC_NCCL_BROADCAST: return ac_nccl.ncclBroadcast(from, to, n, type, c->root, g->comm, g->stream);
    case AC_NCCL_ALL_GATHER: return ac_nccl.ncclAllGather(from, to, n, type, g->comm, g->stream);
    case AC_NCCL_REDUCE_SCATTER: return ac_nccl.ncclReduceScatter(from, to, n, type, c->op, g->comm, g->stream);
    case AC_NCCL_SEND: return ac_nccl.ncclSend(from, n, type, c->root, g->comm, g->stream);
    default: return ac_nccl.ncclRecv(to, n, type, c->root, g->comm, g->stream);
    }
}

static ncclResult_t call_all(const ac_nccl_group *g, const ac_nccl_call *calls, int n) {
    ncclResult_t result = ac_nccl.ncclGroupStart(), ended;
    for (int i = 0; i < n && result == AC_NCCL_SUCCESS; i++) {
        result = call(g, &calls[i]);
        if (result == AC_NCCL_IN_PROGRESS) result = AC_NCCL_SUCCESS; /* the group's end tells */
    }
    ended = ac_nccl.ncclGroupEnd();
    return result == AC_NCCL_SUCCESS ? ended : result;
}

/* A tensor's memory is not used again before the stream is done with it, where it is ours. */
static int keep(const ac_nccl_group *g, const ac_tensor *t, bool *kept) {
    if (!t || t->numel == 0) return 0;
    ac_gpu_block *b = ac_gpu_block_of(t->storage);
    *kept = *kept && b;
    return b ? ac_gpu_record_stream(b, g->device, g->stream) : 0;
}

int ac_nccl_queue(const ac_nccl_group *g, const ac_nccl_call *calls, int n, bool *kept) {
    *kept = true;
    if (!g->comm) return ac_fail(AC_RUNTIME, "NCCL: the group has ended");
    for (int i = 0; i < n; i++) {
        const ac_nccl_call *c = &calls[i];
        if (is_reduction(c->kind) && type_of(c->from->dtype) < 0)
            return ac_fail(AC_RUNTIME, "NCCL does not reduce %s", ac_dtypes[c->from->dtype].name);
        AC_TRY(keep(g, c->from, kept));
        AC_TRY(keep(g, c->to, kept));
    }
    WITHIN(g, "an operation between GPUs", n == 1 ? call(g, calls) : call_all(g, calls, n));
    return 0;
}

/* -- the watch ---------------------------------------------------------------------------------------- */

/* A forked child has no groups that it may use, and does not take this lock. */
static struct {
    pthread_mutex_t lock;
    ac_nccl_group *first;
    bool runs; /* its thread */
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void) { (void)pthread_mutex_lock(&watch.lock); }
static void unlock(void) { (void)pthread_mutex_unlock(&watch.lock); }

static void unwatch(ac_nccl_group *g) {
    ac_nccl_group **at = &watch.first;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    g->end_by = 0;
}

/* Nobody else uses the communicator from here on. NULL where it has ended. */
static ncclComm_t take(ac_nccl_group *g) {
    ncclComm_t comm = g->comm;
    g->comm = NULL;
    unwatch(g);
    return comm;
}

/* A GPU that does not answer at all is left to others. */
static void look_at(ac_nccl_group *g) {
    ac_gpu_scope scope;
    bool done = false;
    int failed = ac_gpu_event_done(g->device, g->done, &done);
    if (!failed && done) unwatch(g);
    if (!failed && !done && ac_microseconds() >= g->end_by) {
        failed = ac_gpu_enter(g->device, &scope);
        if (!failed) {
            g->late = true;
            (void)ac_nccl.ncclCommAbort(take(g));
            ac_gpu_leave(&scope);
        }
    }
    if (failed) ac_error_clear();
}

static void *run_watch(void *none) {
    const struct timespec pause = {.tv_nsec = 100000000};
    (void)none;
    for (bool goes_on = true; goes_on;) {
        (void)nanosleep(&pause, NULL);
        lock();
        for (ac_nccl_group *g = watch.first, *next; g; g = next) {
            next = g->next;
            look_at(g);
        }
        goes_on = watch.runs = watch.first != NULL;
        unlock();
    }
    return NULL;
}

/* Signals are for the program's own threads. Windows sends none to threads. */
static int start_thread(pthread_t *thread) {
#if defined(_WIN32)
    return pthread_create(thread, NULL, run_watch, NULL);
#else
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, run_watch, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
#endif
}

static int start_watch(void) {
    pthread_t thread;
    if (start_thread(&thread)) return ac_fail(AC_MEMORY, "no thread to watch operations between GPUs");
    (void)pthread_detach(thread);
    watch.runs = true;
    return 0;
}

int ac_nccl_watch(ac_nccl_group *g, double seconds) {
    int failed = 0;
    if (!g->done) AC_TRY(ac_gpu_event_new(g->device, false, false, &g->done));
    AC_TRY(ac_gpu_event_record(g->device, g->done, g->stream));
    lock();
    if (g->comm && g->end_by == 0) g->next = watch.first, watch.first = g;
    if (g->comm) g->end_by = ac_microseconds() + (int64_t)(1e6 * seconds);
    if (!watch.runs) failed = start_watch();
    unlock();
    return failed;
}

void ac_nccl_forget(ac_nccl_group *g) {
    if (!ac_gpu_usable()) return;
    lock();
    (void)take(g);
    unlock();
    if (g->done && ac_gpu_event_free(g->device, g->done) < 0) ac_error_clear();
}

/* -- the end ------------------------------------------------------------------------------------------ */

static int finish(ac_nccl_group *g, ncclResult_t (*how)(ncclComm_t), const char *what) {
    AC_TRY(ac_gpu_init()); /* an error in a forked child */
    lock();
    ncclComm_t comm = take(g);
    unlock();
    if (!comm) return 0;
    WITHIN(g, what, how(comm));
    return 0;
}

int ac_nccl_end(ac_nccl_group *g) { return finish(g, ac_nccl.ncclCommDestroy, "ending a group of GPUs"); }
int ac_nccl_abort(ac_nccl_group *g) { return finish(g, ac_nccl.ncclCommAbort, "breaking off a group of GPUs"); }
