/* What dispatch offers besides ac_call (ops/op.h). */
#ifndef AC_DISPATCH_DISPATCH_H
#define AC_DISPATCH_DISPATCH_H

#include "../ops/op.h"

/* How the core's lock (the GIL) is let go around large kernels; set once by csrc/python. */
typedef struct {
    void *(*release)(void);
    void (*acquire)(void *state);
} ac_lock_hooks;
extern ac_lock_hooks ac_lock;

/* A composition: an operator written in other operators. */
typedef int (*ac_compose_fn)(ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out);
extern const ac_compose_fn ac_compositions[AC_N_OPS];

/* Writes a number, or another tensor (broadcast and cast), into `target`, on the tape. */
int ac_fill(ac_tensor *target, ac_scalar value) AC_CHECKED;
int ac_copy_into(ac_tensor *target, ac_tensor *source) AC_CHECKED;

#endif
