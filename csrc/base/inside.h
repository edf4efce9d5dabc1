/* Whether a thread is inside the core, where nobody else's code runs on it. What a driver keeps for each thread, such
 * as its current context, is then as the core left it; only the first look within a visit asks the driver. */
#ifndef AC_BASE_INSIDE_H
#define AC_BASE_INSIDE_H

#include <stdint.h>

typedef struct {
    int depth;      /* of ac_inside_enter; 0 is outside */
    uint64_t visit; /* another number after anybody else's code has run */
} ac_inside_state;
extern _Thread_local ac_inside_state ac_inside;

static inline void ac_inside_enter(void) {
    if (ac_inside.depth++ == 0) ac_inside.visit++;
}
static inline void ac_inside_leave(void) { ac_inside.depth--; }

/* Around a call of somebody else's code, such as a hook: that may do anything, the core's calls included. */
static inline int ac_inside_interrupt(void) {
    int depth = ac_inside.depth;
    ac_inside.depth = 0;
    return depth;
}
static inline void ac_inside_resume(int depth) { ac_inside.depth = depth, ac_inside.visit++; }

#endif
