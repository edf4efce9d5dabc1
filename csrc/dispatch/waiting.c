/* Keeps the result that waits, gives it to the kernel that reads it, and computes it before any other call. */
#include "dispatch/waiting.h"

#include "dispatch/lock.h"
#include "dispatch/observer.h"

#include "base/pool.h"
#include "base/ways.h"

#include <string.h>
#include <time.h>

enum { MAX_INPUTS = 8 };

static struct {
    ac_source *source;
    ac_storage *inputs[MAX_INPUTS]; /* retained, as the result's is */
    int n_inputs;
    int64_t numel;
    bool was_read; /* so it need not be computed for nobody */
    int readers;   /* kernels that read the source, most of them outside the lock: all of other threads */
} waiting;

/* -- waiting ------------------------------------------------------------------------------------------------- */

/* Nobody can write the memory but by a call. */
static bool is_private(const ac_storage *s) { return !s->exported && !s->addressed && !s->shared && !s->deferred; }

bool ac_may_wait(const ac_op_call *c) {
    const ac_tensor *out = c->out[0];
    if (!(c->info->flags & AC_FLAG_DEFERS) || ac_watching || ac_waiting_result || c->n_in > MAX_INPUTS) return false;
    bool may = ac_device_of(out) == AC_CPU && out->numel >= AC_LOCK_ELEMENTS && ac_is_floating(out->dtype);
    for (int i = 0; i < c->n_in && may; i++) may = !c->operands[i] || is_private(c->operands[i]->storage);
    return may;
}

void ac_let_wait(const ac_op_call *c, ac_source *source) {
    ac_compute_waiting(); /* what another thread, or a signal handler, made while the kernel ran */
    waiting.source = source;
    ac_waiting_result = ac_storage_retain(c->out[0]->storage);
    waiting.numel = c->out[0]->numel;
    waiting.n_inputs = 0;
    for (int i = 0; i < c->n_in; i++)
        if (c->operands[i]) waiting.inputs[waiting.n_inputs++] = ac_storage_retain(c->operands[i]->storage);
    waiting.was_read = false;
}

/* -- computing ----------------------------------------------------------------------------------------------- */

static void wait_for_readers(void) {
    while (waiting.readers) {
        void *state = ac_lock.release();
        (void)nanosleep(&(struct timespec){0, 50000}, NULL);
        ac_lock.acquire(state);
    }
}

/* Meanwhile no signal handler runs on this thread: it could change what the source reads, or ask for the result. */
static void begin(void) {
    waiting.readers++;
    ac_poll_hold();
}
static void end(void) {
    ac_poll_release();
    waiting.readers--;
}

static void compute(void) {
    ac_tensor result = {.refs = 1,
                        .storage = ac_waiting_result,
                        .numel = waiting.numel,
                        .dtype = waiting.source->dtype,
                        .ndim = 1,
                        .shape = {waiting.numel},
                        .strides = {1}};
    AC_WAY(waiting_computed);
    begin();
    void *state = ac_lock.release();
    ac_cpu.compute(waiting.source, &result);
    ac_lock.acquire(state);
    end();
    waiting.source->computed = true;
}

static void forget(void) {
    ac_storage *kept[MAX_INPUTS + 1] = {ac_waiting_result}; /* what is freed may call Python, and let a result wait */
    int n = 1 + waiting.n_inputs;
    memcpy(kept + 1, waiting.inputs, sizeof waiting.inputs);
    ac_waiting_result = NULL;
    waiting.source->release(waiting.source);
    for (int i = 0; i < n; i++) ac_storage_release(kept[i]);
}

void ac_compute_waiting_now(void) {
    while (ac_waiting_result) { /* while the lock is let go, another thread may have let a result wait */
        wait_for_readers();
        if (!ac_waiting_result) return; /* another thread was faster */
        bool unseen = waiting.was_read && ac_storage_users(ac_waiting_result) == 0;
        if (!waiting.source->computed && !unseen) compute();
        forget();
    }
}

/* -- reading ------------------------------------------------------------------------------------------------- */

/* A gradient that goes to several nodes is computed, and read by each. */
static bool is_what_waits(const ac_tensor *t, const ac_tensor *out) {
    return t && t->storage == ac_waiting_result && t->numel == waiting.numel && t->offset == 0 &&
           t->dtype == waiting.source->dtype && ac_is_contiguous(t) && ac_same_shape(t, out) && (t->py || t->refs == 1);
}

/* What is written over while the source reads it would be lost. */
static bool writes_input(const ac_run *run) {
    for (int i = 0; i < waiting.n_inputs; i++)
        if (run->out[0]->storage == waiting.inputs[i]) return true;
    return false;
}

static bool reads(const ac_run *run, int *which) {
    int n = 0;
    if (!(ac_ops[run->op].flags & AC_FLAG_READS) || ac_watching || waiting.readers || waiting.source->computed)
        return false;
    for (int i = 0; i < run->n_in; i++)
        if (run->in[i] && run->in[i]->storage == ac_waiting_result) *which = i, n++;
    return n == 1 && ac_is_contiguous(run->out[0]) && !writes_input(run) && is_what_waits(run->in[*which], run->out[0]);
}

void ac_begin_reading(ac_run *run) {
    int which = 0;
    if (!ac_waiting_result) return;
    if (!reads(run, &which)) {
        ac_compute_waiting_now();
        return;
    }
    AC_WAY(waiting_read);
    run->waiting = waiting.source, run->waits = which;
    begin();
}

void ac_end_reading(ac_run *run, bool failed) {
    if (!run->waiting) return;
    run->waiting = NULL;
    end();
    waiting.was_read = waiting.was_read || !failed;
    if (run->out[0]->storage == ac_waiting_result) waiting.source->computed = true; /* and written over, in place */
}

void ac_waiting_forked(void) { waiting.readers = 0; }
