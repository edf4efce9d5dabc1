/* How large kernels release the interpreter's lock (the GIL) while they run. */
#ifndef AC_DISPATCH_LOCK_H
#define AC_DISPATCH_LOCK_H

#include "base/inline.h"

/* How the core's lock (the GIL) is let go around large kernels; set once by csrc/python. */
typedef struct {
    void *(*release)(void);
    void (*acquire)(void *state);
} ac_lock_hooks;
extern ac_lock_hooks ac_lock;

/* Below this many elements a kernel is over before another thread could use the lock. */
enum { AC_LOCK_ELEMENTS = 16384 };

#endif
