/* The one thread pool of the process. A job is a number of chunks that threads take dynamically. The caller chooses
 * the chunks' borders by sizes alone, so results do not depend on the number of threads. The caller works too. A
 * second caller at the same time runs its chunks itself. The pool is rebuilt after a fork.
 *
 * Long work can be interrupted. The calling thread asks now and then whether somebody wants it to stop (Ctrl-C). From
 * then on it takes no further chunks, here and in any later call, until ac_interrupted has been read. The results of
 * interrupted work must not be used. */
#ifndef AC_BASE_POOL_H
#define AC_BASE_POOL_H

#include "base/fork.h"

#include <stdbool.h>
#include <stdint.h>

/* `thread` tells the threads of one job apart: 0 is the caller, others are below the job's `threads`. */
typedef void (*ac_chunk_fn)(void *context, int64_t chunk, int thread);

/* Calls fn(context, 0..chunks-1), each once, on at most `threads` threads, and returns when all are done. */
void ac_parallel(int64_t chunks, int threads, ac_chunk_fn fn, void *context);

/* Whether the other threads spin for work (see LINGER_US), so that giving them some takes less than 1 us, not 5. */
bool ac_workers_awake(void);

/* How many threads work, the caller included. At first OMP_NUM_THREADS, else the cores that the
 * affinity mask and the control group's CPU quota leave. */
int ac_num_threads(void);
void ac_set_num_threads(int n);

/* Set once: nonzero when the calling thread is to stop. Asked at most every 50 ms. */
extern int (*ac_stop_hook)(void);
/* Asks, if it is time to. Nonzero: stop. */
int ac_poll(void);
/* Between these two nothing of this thread is interrupted: work that must be done whole. */
void ac_poll_hold(void);
void ac_poll_release(void);
/* Whether work of this thread was cut short since the last call of this. */
int ac_interrupted(void);

/* Around fork (base/fork.h): a child starts workers of its own. */
void ac_pool_around_fork(ac_fork_moment moment);

#endif
