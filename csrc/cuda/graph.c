/* CUDA graphs. A capture is one thread's; what it meets (tables, options of optimizers, tensors that are written) hangs
 * on its graph, which lives as long as somebody may replay it. */
#include "cuda/graph.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <string.h>

/* A storage that replays write, and whether a factor waits for it when they have. */
typedef struct written {
    struct written *next;
    ac_storage *storage; /* retained */
    bool deferred;
    ac_dtype deferred_dtype;
    double factor;
    ac_storage *factor_at; /* retained, or NULL */
} written;

/* The options of one optimizer step, in memory that the step reads. */
typedef struct step {
    struct step *next;
    ac_optim_options options;
    ac_gpu_block *there;
} step;

typedef struct kept {
    struct kept *next;
    void (*release)(void *owner);
    void *owner;
} kept;

struct ac_gpu_graph {
    ac_gpu_graph *next; /* of all, or of those that wait to be freed */
    uint64_t number, pool;
    ac_device device;
    CUstream stream;  /* that was captured */
    CUgraph graph;    /* what was captured, where it is kept, */
    CUgraphExec exec; /* and what runs it */
    CUevent done;     /* behind the last replay; before the first, behind the capture's own random numbers */
    bool keeps, refused, replayed;
    _Atomic bool captured_now, given_up; /* given up: freed while another thread captured it, which ends that */
    ac_generator generator;              /* as it was before the capture */
    uint64_t numbers;                    /* counters of random numbers that a replay takes */
    ac_gpu_block *random;                /* {seed, offset} of the replay */
    written *written;
    step *steps, **last_step;
    int n_steps;
    kept *kept;
};

static _Thread_local ac_gpu_graph *capturing;
static _Atomic int captures;
static ac_gpu_graph *all, *dead; /* under ac_gpu_locks.graphs */
static CUstream sending[AC_MAX_GPUS];

/* An offset in the random stream that replays of graph `number` decide. */
enum { NUMBER_AT = 40 };
static uint64_t symbolic(const ac_gpu_graph *g) { return (uint64_t)1 << 63 | g->number << NUMBER_AT; }
static bool is_symbolic(uint64_t offset) { return offset >> 63; }

bool ac_gpu_is_capturing(void) {
    ac_gpu_end_given_up();
    return capturing != NULL;
}
bool ac_gpu_any_capture(void) { return captures > 0; }

/* What this thread captures of a device's work, or NULL. */
static ac_gpu_graph *captured_on(ac_device d) { return capturing && capturing->device == d ? capturing : NULL; }

int ac_gpu_refuse_capture(const char *what) {
    if (!ac_gpu_is_capturing()) return 0;
    capturing->refused = true;
    return ac_fail(
        AC_CAPTURE,
        "%s cannot be captured in a CUDA graph, because a replay does not come back to the CPU; do it before the "
        "capture, or after a replay",
        what);
}

CUstreamCaptureMode ac_gpu_relax(void) {
    CUstreamCaptureMode mode = AC_CU_CAPTURE_RELAXED;
    if (captures) (void)ac_cu.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}
void ac_gpu_relax_end(CUstreamCaptureMode before) {
    if (before != AC_CU_CAPTURE_RELAXED) (void)ac_cu.cuThreadExchangeStreamCaptureMode(&before);
}

/* -- what hangs on a graph -------------------------------------------------------------------------- */

int ac_gpu_capture_keep(void (*release)(void *owner), void *owner) {
    kept *k = ac_calloc(sizeof *k);
    if (!k) return -1;
    *k = (kept){capturing->kept, release, owner};
    capturing->kept = k;
    return 0;
}

static bool is_made_here(const ac_gpu_graph *g, const ac_storage *s) {
    const ac_gpu_block *b = ac_gpu_block_of(s);
    return b && ac_gpu_is_of_pool(b, g->pool);
}

/* Memory that the capture itself made is written anew by each replay before it is read. Gradients are of that kind, but
 * a factor may wait for them. */
static void note_write(ac_storage *s) {
    ac_gpu_graph *g = captured_on(s->device);
    if (!g || (!s->deferred && is_made_here(g, s))) return;
    for (written *w = g->written; w; w = w->next)
        if (w->storage == s) return;
    written *w = ac_calloc(sizeof *w);
    if (!w) {
        ac_error_clear();
        g->refused = true;
        return;
    }
    *w = (written){.next = g->written, .storage = ac_storage_retain(s)};
    g->written = w;
}

int ac_gpu_capture_options(ac_device d, const ac_optim_options *options, const ac_optim_options **there) {
    ac_gpu_graph *g = captured_on(d);
    *there = NULL;
    if (!g) return 0;
    step *s = ac_calloc(sizeof *s);
    if (!s) return -1;
    *s = (step){.options = *options, .there = ac_gpu_alloc_lasting(d, sizeof *options)};
    if (!s->there || ac_gpu_send(d, ac_gpu_address(s->there), options, sizeof *options) < 0) {
        ac_gpu_free(s->there);
        ac_free(s, sizeof *s);
        return -1;
    }
    *g->last_step = s, g->last_step = &s->next, g->n_steps++;
    *there = ac_gpu_address(s->there);
    return 0;
}

int ac_gpu_graph_steps(const ac_gpu_graph *g) { return g->n_steps; }

int ac_gpu_graph_set_options(ac_gpu_graph *g, int i, const ac_optim_options *options) {
    step *s = g->steps;
    while (s && i-- > 0) s = s->next;
    if (!s) return ac_fail(AC_INDEX, "the graph has %d optimizer steps", g->n_steps);
    if (memcmp(&s->options, options, sizeof *options) == 0) return 0;
    AC_TRY(ac_gpu_send(g->device, ac_gpu_address(s->there), options, sizeof *options));
    s->options = *options;
    return 0;
}

/* -- random numbers --------------------------------------------------------------------------------- */

int ac_gpu_random_of(ac_device d, uint64_t seed, uint64_t offset, ac_gpu_random *r) {
    *r = (ac_gpu_random){.seed = seed, .offset = offset};
    if (!is_symbolic(offset)) return 0;
    ac_device there = AC_CPU; /* until the graph is found */
    uint64_t number = (offset & ~((uint64_t)1 << 63)) >> NUMBER_AT;
    (void)pthread_mutex_lock(&ac_gpu_locks.graphs);
    ac_gpu_graph *g = all;
    while (g && g->number != number) g = g->next;
    if (g) r->from = ac_gpu_address(g->random), there = g->device;
    (void)pthread_mutex_unlock(&ac_gpu_locks.graphs);
    r->offset = offset & (((uint64_t)1 << NUMBER_AT) - 1), r->seed = 0;
    if (there == d) return 0;
    if (there == AC_CPU)
        return ac_fail(AC_RUNTIME, "the CUDA graph that drew these random numbers does not exist any more");
    return ac_fail(AC_RUNTIME,
                   "random numbers of cuda:%d are drawn while a CUDA graph of cuda:%d is captured, whose replays could "
                   "not tell them to another GPU: draw them before the capture, or on cuda:%d",
                   ac_gpu_index(d), ac_gpu_index(there), ac_gpu_index(there));
}

int ac_gpu_refuse_fixed_draws(uint64_t offset) {
    if (!ac_gpu_is_capturing() || is_symbolic(offset)) return 0;
    capturing->refused = true;
    return ac_fail(
        AC_CAPTURE,
        "random numbers that were seeded during the capture of a CUDA graph, or come from a Generator of the "
        "script's, would be the same at each replay: draw without `generator`, and seed before the capture "
        "or between two replays");
}

/* Seed and offset, by a launch whose arguments hold them: there is no host memory to keep. */
static int set_random(const ac_gpu_graph *g, const ac_generator *from) {
    static ac_gpu_kernel k = {.image = AC_IMAGE_CREATION, .name = "ac_arange"};
    ac_gpu_fill f = {.out = {.data = ac_gpu_address(g->random), .dtype = AC_int64},
                     .n = 2,
                     .ia = (int64_t)from->seed,
                     .ib = (int64_t)(from->offset - from->seed)};
    return ac_gpu_launch(g->device, &k, 1, 0, &f);
}

/* -- capture ---------------------------------------------------------------------------------------- */

ac_gpu_graph *ac_gpu_graph_new(ac_device d, bool keeps) {
    static uint64_t numbers;
    ac_gpu_graph *g = ac_calloc(sizeof *g);
    if (!g) return NULL;
    *g = (ac_gpu_graph){.device = d, .keeps = keeps, .last_step = &g->steps};
    g->random = ac_gpu_alloc(d, 2 * sizeof(uint64_t));
    if (!g->random || ac_gpu_event_new(d, false, false, &g->done) < 0) {
        ac_gpu_free(g->random);
        ac_free(g, sizeof *g);
        return NULL;
    }
    (void)pthread_mutex_lock(&ac_gpu_locks.graphs);
    g->number = ++numbers;
    g->next = all, all = g;
    (void)pthread_mutex_unlock(&ac_gpu_locks.graphs);
    return g;
}

static int start(ac_gpu_graph *g, CUstreamCaptureMode mode) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(g->device, &scope));
    CUresult result = ac_cu.cuStreamBeginCapture_v2(g->stream, mode);
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "beginning a capture");
}

int ac_gpu_capture_begin(ac_gpu_graph *g, uint64_t pool, CUstreamCaptureMode mode) {
    if (ac_gpu_is_capturing())
        return ac_fail(AC_RUNTIME, "this thread is capturing another CUDA graph; end that first");
    if (g->exec || g->graph || g->refused)
        return ac_fail(AC_RUNTIME, "this CUDA graph has been captured already; reset() it first, or make another");
    g->stream = ac_gpu_stream(g->device), g->pool = pool;
    if (!g->stream)
        return ac_fail(AC_RUNTIME,
                       "the default stream cannot be captured: capture within `with cuda.stream(s):`, or use "
                       "`with cuda.graph(g):`, which does");
    ac_generator *generator = ac_default_generator();
    if (is_symbolic(generator->offset))
        return ac_fail(AC_RUNTIME,
                       "another thread is capturing a CUDA graph, which the random numbers count for; capture "
                       "one after the other");
    AC_TRY(set_random(g, generator));
    AC_TRY(ac_gpu_event_record(g->device, g->done, g->stream));
    AC_TRY(ac_gpu_pool_begin(g->device, pool));
    if (start(g, mode) < 0) {
        ac_gpu_pool_end(g->device);
        return -1;
    }
    g->captured_now = true;
    capturing = g, captures++;
    ac_note_write = note_write;
    g->generator = *generator, generator->offset = symbolic(g);
    return 0;
}

static int instantiate(ac_gpu_graph *g, CUgraph captured) {
    CUgraphExec exec = NULL;
    CUresult result = ac_cu.cuGraphInstantiateWithFlags(&exec, captured, 0);
    if (result == AC_CU_OUT_OF_MEMORY && ac_gpu_make_room(g->device))
        result = ac_cu.cuGraphInstantiateWithFlags(&exec, captured, 0);
    AC_TRY(ac_cu_check(result, "making a CUDA graph of what was captured"));
    if (g->exec) (void)ac_cu.cuGraphExecDestroy(g->exec); /* after the replays that are queued */
    g->exec = exec;
    return 0;
}

/* Of a graph that is kept nothing can run yet: somebody may change it. */
static int take_captured(ac_gpu_graph *g, CUgraph captured) {
    if (!captured) return ac_fail(AC_CAPTURE, "the driver gave no graph of what was captured");
    int failed = g->keeps ? 0 : instantiate(g, captured);
    if (g->keeps) g->graph = captured;
    else (void)ac_cu.cuGraphDestroy(captured);
    return failed;
}

int ac_gpu_graph_instantiate(ac_gpu_graph *g) {
    ac_gpu_scope scope;
    if (!g->graph) return 0;
    AC_TRY(ac_gpu_refuse_capture("making another CUDA graph ready"));
    AC_TRY(ac_gpu_enter(g->device, &scope));
    int failed = instantiate(g, g->graph);
    ac_gpu_leave(&scope);
    return failed;
}

void *ac_gpu_graph_captured(const ac_gpu_graph *g) { return g->graph; }
void *ac_gpu_graph_executable(const ac_gpu_graph *g) { return g->exec; }

static int finish(ac_gpu_graph *g) {
    ac_gpu_scope scope;
    CUgraph captured = NULL;
    AC_TRY(ac_gpu_enter(g->device, &scope));
    int failed = ac_cu_check(ac_cu.cuStreamEndCapture(g->stream, &captured), "ending a capture");
    captures--;
    if (!failed && g->refused) {
        (void)ac_cu.cuGraphDestroy(captured);
        failed = ac_fail(AC_CAPTURE, "the capture met something that cannot be captured, so there is no CUDA graph");
    } else if (!failed) failed = take_captured(g, captured);
    if (failed) g->refused = true;
    CUstream sent = sending[ac_gpu_index(g->device)]; /* tables, which others use even where there is no graph */
    CUresult waited = sent ? ac_cu.cuStreamSynchronize(sent) : AC_CU_SUCCESS;
    if (!failed) failed = ac_cu_check(waited, "waiting for the graph's tables");
    ac_gpu_leave(&scope);
    return failed;
}

/* Factors that wait for gradients when the work is done, so that they wait again after each replay. */
static void note_factors(ac_gpu_graph *g) {
    for (written *w = g->written; w; w = w->next) {
        const ac_storage *s = w->storage;
        w->deferred = s->deferred, w->factor = s->factor, w->deferred_dtype = s->deferred_dtype;
        w->factor_at = s->deferred && s->factor_at ? ac_storage_retain(s->factor_at) : NULL;
    }
}

static void free_now(ac_gpu_graph *g);
static void free_dead(void) {
    (void)pthread_mutex_lock(&ac_gpu_locks.graphs);
    ac_gpu_graph *g = dead;
    dead = NULL;
    (void)pthread_mutex_unlock(&ac_gpu_locks.graphs);
    for (ac_gpu_graph *next; g; g = next) {
        next = g->next;
        free_now(g);
    }
}

int ac_gpu_capture_end(ac_gpu_graph *g) {
    if (capturing != g) return ac_fail(AC_RUNTIME, "this thread is not capturing this CUDA graph");
    ac_generator *generator = ac_default_generator();
    bool seeded = generator->offset >> NUMBER_AT != symbolic(g) >> NUMBER_AT;
    g->numbers = generator->offset - symbolic(g);
    *generator = g->generator;
    g->captured_now = false;
    capturing = NULL;
    ac_note_write = NULL;
    ac_gpu_pool_end(g->device);
    int failed = finish(g);
    if (!failed) note_factors(g);
    if (!captures) free_dead();
    if (failed || !seeded) return failed;
    g->refused = true;
    return ac_fail(AC_CAPTURE,
                   "the random numbers were seeded during the capture of a CUDA graph: seed them before it, or "
                   "between two replays");
}

/* Ends this thread's capture; there is no graph of it. */
static void give_up(ac_gpu_graph *g) {
    g->refused = true;
    if (ac_gpu_capture_end(g) < 0) ac_error_clear();
}

void ac_gpu_end_given_up(void) {
    if (capturing && capturing->given_up) give_up(capturing);
}

/* To the device. What a capture sends is there for all its replays: it goes by a stream that is not captured. */
int ac_gpu_send(ac_device d, void *to, const void *from, size_t bytes) {
    CUstream own = ac_gpu_stream(d), *stream = &sending[ac_gpu_index(d)];
    ac_gpu_scope scope;
    if (!captured_on(d)) return ac_gpu_send_on(d, own, to, from, bytes);
    ac_storage *staged = ac_gpu_pinned((int64_t)bytes);
    if (!staged) return -1;
    memcpy(staged->data, from, bytes);
    int failed = ac_gpu_capture_keep((void (*)(void *))ac_storage_release, staged);
    if (failed) ac_storage_release(staged);
    if (!failed) failed = ac_gpu_enter(d, &scope);
    if (failed) return -1;
    CUresult result = *stream ? AC_CU_SUCCESS : ac_cu.cuStreamCreateWithPriority(stream, AC_CU_NON_BLOCKING, 0);
    if (result == AC_CU_SUCCESS)
        result = ac_cu.cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)to, staged->data, bytes, *stream);
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "what a CUDA graph is sent");
}

/* -- replay ----------------------------------------------------------------------------------------- */

static void mark_written(const written *w) {
    ac_storage *s = w->storage;
    s->content++, s->version++;
    ac_storage_settled(s);
    if (!w->deferred) return;
    s->deferred = true, s->deferred_dtype = w->deferred_dtype, s->factor = w->factor, ac_deferred_scales++;
    s->factor_at = w->factor_at ? ac_storage_retain(w->factor_at) : NULL;
}

static int launch(ac_gpu_graph *g) {
    ac_gpu_scope scope;
    AC_TRY(ac_gpu_enter(g->device, &scope));
    CUstream stream = ac_gpu_stream(g->device);
    int failed = ac_cu_check(ac_cu.cuGraphLaunch(g->exec, stream), "replaying a CUDA graph");
    if (!failed) g->replayed = true;
    if (!failed) failed = ac_cu_check(ac_cu.cuEventRecord(g->done, stream), "replaying a CUDA graph");
    ac_gpu_leave(&scope);
    return failed;
}

int ac_gpu_graph_replay(ac_gpu_graph *g) {
    if (!g->exec && !g->graph) return ac_fail(AC_RUNTIME, "replay: nothing was captured in this CUDA graph");
    if (!g->exec) AC_TRY(ac_gpu_graph_instantiate(g));
    AC_TRY(ac_gpu_refuse_capture("the replay of another CUDA graph"));
    AC_TRY(ac_gpu_check_trouble());
    ac_generator *generator = ac_default_generator();
    if (g->numbers) { /* the launch before may be on another stream, and its numbers in use, or not even written */
        AC_TRY(ac_gpu_event_await(g->device, g->done, ac_gpu_stream(g->device)));
        AC_TRY(set_random(g, generator));
    }
    AC_TRY(launch(g));
    generator->offset += g->numbers;
    for (written *w = g->written; w; w = w->next) mark_written(w);
    return 0;
}

/* -- end -------------------------------------------------------------------------------------------- */

static void let_go(ac_gpu_graph *g) {
    for (written *w = g->written, *next; w; w = next) {
        next = w->next;
        if (w->factor_at) ac_storage_release(w->factor_at);
        ac_storage_release(w->storage);
        ac_free(w, sizeof *w);
    }
    for (step *s = g->steps, *next; s; s = next) {
        next = s->next;
        ac_gpu_free(s->there);
        ac_free(s, sizeof *s);
    }
    for (kept *k = g->kept, *next; k; k = next) {
        next = k->next;
        k->release(k->owner);
        ac_free(k, sizeof *k);
    }
    ac_gpu_free(g->random);
}

/* The stream that was captured waits for the last replay: the graph's memory belongs to it. */
static void free_now(ac_gpu_graph *g) {
    ac_gpu_scope scope;
    if (ac_gpu_usable() && ac_gpu_enter(g->device, &scope) == 0) {
        if (g->replayed) (void)ac_cu.cuStreamWaitEvent(g->stream, g->done, 0);
        if (g->exec) (void)ac_cu.cuGraphExecDestroy(g->exec);
        if (g->graph) (void)ac_cu.cuGraphDestroy(g->graph);
        (void)ac_cu.cuEventDestroy_v2(g->done);
        ac_gpu_leave(&scope);
    }
    let_go(g);
    ac_free(g, sizeof *g);
}

void ac_gpu_graph_free(ac_gpu_graph *g) {
    if (capturing == g) give_up(g);
    g->given_up = g->captured_now;
    (void)pthread_mutex_lock(&ac_gpu_locks.graphs);
    ac_gpu_graph **at = &all;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    bool wait = captures > 0; /* a capture would not stand it */
    if (wait) g->next = dead, dead = g;
    (void)pthread_mutex_unlock(&ac_gpu_locks.graphs);
    if (!wait) free_now(g);
}
