/* The thread pool: workers that take chunks of one job at a time, and the questions whether somebody wants to stop. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "base/pool.h"

#include "base/machine.h"
#include "base/wait.h"
#include "base/ways.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* How often workers spin for the next job, and the caller for workers that have not finished theirs. Then a worker
 * lingers: it spins until LINGER_US have passed, and sleeps. Waking a worker takes longer than an operator of a small
 * training step, and one thread works alone on some of its operators, so a worker waits for several. It leaves the core
 * to other processes soon after. Workers that are more than the other cores would linger in each other's way. */
enum { SPINS = 2000, SPINS_AT_END = 4000, LINGER_US = 100 };
enum { STACK_BYTES = 2 << 20 }; /* of a worker, whatever `ulimit -s` says */

/* Chunks of one thread. It takes its own in order, and then helps the others. So a core gets the same
 * part of the data in consecutive operators, and no thread waits for a core that another process
 * uses. */
typedef struct {
    _Alignas(64) _Atomic int64_t next; /* first chunk nobody has taken */
    int64_t end;
} share;

typedef struct {
    ac_chunk_fn fn;
    void *context;
    int workers; /* that may join the caller */
    share shares[AC_MOST_THREADS];
    _Atomic int joined;      /* workers that have been in this job */
    _Atomic uint32_t active; /* futex: workers inside it now */
    _Atomic bool awaited;    /* the caller sleeps until they have left */
} job;

static struct {
    pthread_mutex_t owner; /* held by the one caller whose job is posted */
    pthread_mutex_t start;
    job current;
    _Atomic uint32_t posted; /* futex: bumped for every job */
    _Atomic uint32_t sleepers;
    _Atomic bool open;   /* the job may still be entered */
    _Atomic int threads; /* wanted, the caller included; 0 = not yet asked */
    _Atomic int running; /* workers started */
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .start = PTHREAD_MUTEX_INITIALIZER};

/* -- interruption ------------------------------------------------------------------------------ */

enum { POLL_US = 50000 };

int (*ac_stop_hook)(void);
static _Thread_local int64_t asked_at; /* when this thread last asked, by ac_microseconds */
static _Thread_local bool stopped;
static _Thread_local int holds;

void ac_poll_hold(void) { holds++; }
void ac_poll_release(void) { holds--; }

int ac_poll(void) {
    if (stopped) return 1;
    if (!ac_stop_hook || holds) return 0;
    int64_t now = ac_microseconds();
    if (now - asked_at < POLL_US) return 0;
    asked_at = now;
    stopped = ac_stop_hook() != 0;
    return stopped;
}

int ac_interrupted(void) {
    bool was = stopped;
    stopped = false;
    return was;
}

/* -- work ---------------------------------------------------------------------------------------- */

static void deal(job *j, int64_t chunks, int threads) {
    for (int h = 0; h < threads; h++) {
        atomic_store_explicit(&j->shares[h].next, chunks * h / threads, memory_order_relaxed);
        j->shares[h].end = chunks * (h + 1) / threads;
    }
}

static void call_off(job *j) { /* nobody takes another */
    for (int h = 0; h <= j->workers; h++) atomic_store(&j->shares[h].next, j->shares[h].end);
}

static void run_chunks(job *j, int thread) {
    for (int turn = 0; turn <= j->workers; turn++) {
        share *from = &j->shares[(thread + turn) % (j->workers + 1)];
        for (;;) {
            int64_t chunk = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (chunk >= from->end) break;
            j->fn(j->context, chunk, thread);
            if (thread == 0 && ac_poll()) call_off(j);
        }
    }
}

static uint32_t newest_job(void) { return atomic_load_explicit(&pool.posted, memory_order_acquire); }

static void linger(uint32_t seen) {
    if (atomic_load(&pool.running) >= ac_this_machine()->cores) return;
    int64_t until = ac_microseconds() + LINGER_US;
    while (newest_job() == seen && ac_microseconds() < until)
        for (int i = 0; i < SPINS / 32 && newest_job() == seen; i++) AC_PAUSE();
}

static uint32_t wait_for_job(uint32_t seen) {
    for (int i = 0; i < SPINS && newest_job() == seen; i++) AC_PAUSE();
    if (newest_job() == seen) linger(seen);
    if (newest_job() != seen) return newest_job();
    atomic_fetch_add(&pool.sleepers, 1);
    while (atomic_load(&pool.posted) == seen) ac_sleep_on(&pool.posted, seen, 0, false);
    atomic_fetch_sub(&pool.sleepers, 1);
    return atomic_load(&pool.posted);
}

static void *worker(void *unused) {
    (void)unused;
    uint32_t seen = 0;
    ac_poll_hold(); /* only callers are asked to stop */
    for (;;) {
        seen = wait_for_job(seen);
        /* Enter first, then look: the caller closes the job before it waits for `active`. */
        job *j = &pool.current;
        atomic_fetch_add(&j->active, 1);
        if (atomic_load(&pool.open)) {
            int thread = 1 + atomic_fetch_add(&j->joined, 1);
            if (thread <= j->workers) run_chunks(j, thread);
        }
        if (atomic_fetch_sub(&j->active, 1) == 1 && atomic_load(&j->awaited)) ac_wake(&j->active, 1, false);
    }
    return NULL;
}

/* In a child no worker exists any more, and a lock may belong to a thread that is not there. */
void ac_pool_around_fork(ac_fork_moment moment) {
    if (moment != AC_FORK_CHILD) return;
    atomic_store(&pool.running, 0);
    atomic_store(&pool.open, false);
    atomic_store(&pool.current.active, 0);
    atomic_store(&pool.current.awaited, false);
    atomic_store(&pool.sleepers, 0);
    pool.owner = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool.start = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

bool ac_workers_awake(void) {
    return atomic_load(&pool.running) > 0 && atomic_load_explicit(&pool.sleepers, memory_order_relaxed) == 0;
}

int ac_num_threads(void) {
    int n = atomic_load(&pool.threads);
    if (n > 0) return n;
    ac_set_num_threads(ac_this_machine()->threads);
    return atomic_load(&pool.threads);
}

void ac_set_num_threads(int n) { atomic_store(&pool.threads, n < 1 ? 1 : n > AC_MOST_THREADS ? AC_MOST_THREADS : n); }

static bool start_worker(void) {
    pthread_attr_t attributes;
    pthread_t id;
    if (pthread_attr_init(&attributes) != 0) return false;
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool started = pthread_create(&id, &attributes, worker, NULL) == 0;
    (void)pthread_attr_destroy(&attributes);
    return started;
}

static void start_workers(int wanted) {
    (void)pthread_mutex_lock(&pool.start);
    while (atomic_load(&pool.running) < wanted && start_worker()) /* else fewer threads, same result */
        (void)atomic_fetch_add(&pool.running, 1);
    (void)pthread_mutex_unlock(&pool.start);
}

static void run_alone(int64_t chunks, ac_chunk_fn fn, void *context) {
    for (int64_t i = 0; i < chunks && !stopped; i++) {
        fn(context, i, 0);
        if (chunks > 1) (void)ac_poll();
    }
}

/* Spins a little, then sleeps: a worker that lost its core to somebody else may be away for long,
 * and needs this one. */
static void await_workers(job *j) {
    for (int i = 0; i < SPINS_AT_END; i++) {
        if (atomic_load(&j->active) == 0) return;
        AC_PAUSE();
    }
    atomic_store(&j->awaited, true);
    for (uint32_t left; (left = atomic_load(&j->active)) > 0;) ac_sleep_on(&j->active, left, 0, false);
    atomic_store(&j->awaited, false);
}

void ac_parallel(int64_t chunks, int most, ac_chunk_fn fn, void *context) {
    int threads = most < AC_MOST_THREADS ? most : AC_MOST_THREADS;
    if (chunks < threads) threads = (int)chunks;
    if (threads <= 1 || stopped || pthread_mutex_trylock(&pool.owner) != 0) {
        AC_WAY(threads_one);
        run_alone(chunks, fn, context);
        return;
    }
    AC_WAY(threads_several);
    if (atomic_load(&pool.running) < threads - 1) start_workers(threads - 1);
    job *j = &pool.current;
    j->fn = fn, j->context = context, j->workers = threads - 1;
    deal(j, chunks, threads);
    atomic_store(&j->joined, 0);
    atomic_store(&pool.open, true);
    atomic_fetch_add(&pool.posted, 1);
    if (atomic_load(&pool.sleepers) > 0) ac_wake(&pool.posted, j->workers, false);
    run_chunks(j, 0);
    atomic_store(&pool.open, false);
    await_workers(j);
    (void)pthread_mutex_unlock(&pool.owner);
}
