/* The observer: a function that is called with every operator that has run on a thread. */
#ifndef AC_DISPATCH_OBSERVER_H
#define AC_DISPATCH_OBSERVER_H

#include "dispatch/call.h"

/* Sees every operator that has run on this thread, forward and in formulas, where it is set; an error is the call's.
 * `low`: the dtype that autocast chose for a product, or AC_NO_DTYPE. `onto`: the result was written over, or added to,
 * what was there. Set by csrc/python. */
typedef struct {
    ac_op op;
    ac_tensor *const *in, *const *out;
    int n_in, n_out;
    const void *attrs;
    int64_t low;
    bool onto;
    int64_t nanoseconds; /* that it took, with the recording; of a GPU, to queue it */
} ac_seen;
extern int (*ac_watch)(const ac_seen *seen);
extern _Thread_local bool ac_watching;

/* Takes a call through `stages`, and shows it. */
int ac_observed(const ac_op_call *c, int (*stages)(const ac_op_call *c)) AC_CHECKED;
/* Shows a call whose result was written into a tensor, where somebody watches; `begin` is what was asked before it ran.
 */
int64_t ac_observation_begins(void);
int ac_observe_target(const ac_op_call *c, int64_t begin) AC_CHECKED;

/* A whole is a composite operator or a formula: what its own operators make may be masked before it reaches a result.
 * Called with the outermost composite operator that has run, where somebody watches. Set by csrc/python. */
extern int (*ac_watch_whole)(const ac_op_call *c);
/* How many composite operators run around what is running on this thread, while somebody watches. */
extern _Thread_local int ac_composing;

#endif
