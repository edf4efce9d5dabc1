/* Autocast: the state of the calling thread, and the plan that an operator's category makes for a call. */
#ifndef AC_AMP_AUTOCAST_H
#define AC_AMP_AUTOCAST_H

#include "ops/op.h"

/* The names a region can be opened for. Without a usable GPU, cuda's regions act on the CPU. */
typedef enum { AC_AMP_CPU, AC_AMP_CUDA, AC_AMP_N } ac_amp_device;

typedef struct {
    bool active; /* the innermost region casts, in `dtype`; with a GPU: that of either device does */
    bool forced; /* in `dtype`, whatever the regions say */
    ac_dtype dtype;
    bool enabled[AC_AMP_N];
    bool dtype_set[AC_AMP_N]; /* else the device's default: bfloat16 on cpu, float16 on cuda */
    ac_dtype dtypes[AC_AMP_N];
    bool no_cache;
    int nesting;
    const uint8_t *policy; /* borrowed: a category for each operator, in place of the table's; or NULL */
} ac_autocast_state;

extern _Thread_local ac_autocast_state ac_autocast;

/* What autocast makes of an operator on this thread. */
static inline ac_cast ac_cast_of(ac_op op) {
    return ac_autocast.policy ? (ac_cast)ac_autocast.policy[op] : ac_ops[op].cast;
}

/* There is a usable GPU: cuda's regions act on its tensors, cpu's on the others. Set by Python, once known. */
extern bool ac_amp_has_gpu;

ac_dtype ac_autocast_dtype(ac_amp_device d);
/* Whether a call on these inputs is to be cast, and to what. */
bool ac_autocast_casts(ac_tensor *const *in, int n, ac_dtype *dtype);
void ac_autocast_set_dtype(ac_amp_device d, ac_dtype dtype);
void ac_autocast_set_enabled(ac_amp_device d, bool on);
/* Opens a region: later calls on this thread cast. The caller keeps the old state to restore. */
void ac_autocast_enter(ac_amp_device d, bool enabled, ac_dtype dtype, bool cache, const uint8_t *policy);

/* What autocast makes of a call. Nothing is cast here: csrc/dispatch does that. */
typedef struct {
    bool low;    /* a product: it rounds its operands to `to` as it packs them, and is recorded with its own inputs */
    bool casts;  /* other inputs are cast to `to`, by operators on the tape: */
    bool halves; /* those in 16 bits alone */
    ac_dtype to;
} ac_autocast_plan;

/* Told of a call, by its name, that a region of cuda would refuse if it did not act on the CPU here; or NULL. A failure
 * is the call's. */
extern int (*ac_autocast_unsafe_here)(const char *name);

/* The plan for an operator and these inputs, by its category. RuntimeError for an operator that autocast
 * refuses. */
int ac_autocast_make_plan(ac_op op, ac_tensor *const *in, int n_in, const void *attrs,
                          ac_autocast_plan *plan) AC_CHECKED;
/* The dtype that an input has by the plan: its own, where it stays as it is. */
ac_dtype ac_autocast_input_dtype(const ac_autocast_plan *plan, const ac_tensor *t);

/* From here on calls of this thread cast as a region of `dtype` would; the old state, to put back. */
ac_autocast_state ac_autocast_compute_in(ac_dtype dtype);
/* From here on nothing is cast; the old state, to put back. */
static inline ac_autocast_state ac_autocast_suspend(void) {
    ac_autocast_state outer = ac_autocast;
    ac_autocast.active = ac_autocast.forced = false;
    return outer;
}
static inline void ac_autocast_resume(const ac_autocast_state *outer) { ac_autocast = *outer; }

#endif
