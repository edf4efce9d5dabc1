/* A result that waits: its last pass over memory is left to the call that reads it, which makes one pass of both.
 *
 * Batch norm and ReLU stay two operators, each with its node, its dtype and its own rounding. Only the memory of batch
 * norm's result is not written before somebody looks at it. One result waits at a time, and no longer than until the
 * next call: that reads it, or what waits is computed before anything else happens. So nothing that it depends on has
 * changed. While somebody watches operators (observer.h), none waits. */
#ifndef AC_DISPATCH_WAITING_H
#define AC_DISPATCH_WAITING_H

#include "dispatch/call.h"

/* Computes what waits, once the threads that read it are done. For whoever reads or writes memory other than by
 * ac_call: what waits may depend on it. */
void ac_compute_waiting_now(void);
static inline void ac_compute_waiting(void) {
    if (ac_waiting_result) ac_compute_waiting_now();
}

/* Whether the result of a call, out[0], may wait. */
bool ac_may_wait(const ac_op_call *c);
/* It does: `source`, which is taken over, gives its values. */
void ac_let_wait(const ac_op_call *c, ac_source *source);

/* Gives a kernel the source of its operand that waits. Before a kernel that has none, what waits is computed. */
void ac_begin_reading(ac_run *run);
void ac_end_reading(ac_run *run, bool failed);

/* In the child of a fork the threads that were reading do not exist. */
void ac_waiting_forked(void);

#endif
