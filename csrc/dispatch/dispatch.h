/* What dispatch offers besides ac_call (ops/op.h). */
#ifndef AC_DISPATCH_DISPATCH_H
#define AC_DISPATCH_DISPATCH_H

#include "../backend/backend.h"
#include "../ops/op.h"
#include "../tensor/list.h"

/* How the core's lock (the GIL) is let go around large kernels; set once by csrc/python. */
typedef struct {
    void *(*release)(void);
    void (*acquire)(void *state);
} ac_lock_hooks;
extern ac_lock_hooks ac_lock;

/* From here on the process may fork while other threads are inside the core. */
int ac_fork_init(void) AC_CHECKED;

/* Below this many elements a kernel is over before another thread could use the lock. */
enum { AC_LOCK_ELEMENTS = 16384 };

/* new: the weight of a 16-bit product as it is kept packed; NULL where the product packs for itself. */
int ac_panels_for(const ac_run *run, ac_tensor **panels) AC_CHECKED;

/* A composition: an operator written in other operators. */
typedef int (*ac_compose_fn)(ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out);
extern const ac_compose_fn ac_compositions[AC_N_OPS];

/* Calls that are computed in another dtype than their inputs' (widen.c). */
bool ac_wants_float32(ac_op op, ac_tensor *const *in, int n);
int ac_run_in_float32(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) AC_CHECKED;

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

bool ac_casts_first(ac_op op, ac_tensor *const *in, const void *attrs);
int ac_run_cast_first(ac_op op, ac_tensor *x, const void *attrs, ac_tensor **out) AC_CHECKED;

/* Writes a number, or another tensor (broadcast and cast), into `target`, on the tape. */
int ac_fill(ac_tensor *target, ac_scalar value) AC_CHECKED;
int ac_copy_into(ac_tensor *target, ac_tensor *source) AC_CHECKED;
/* The same; `non_blocking`: page-locked memory and a GPU need not wait for each other. */
int ac_copy_into_async(ac_tensor *target, ac_tensor *source, bool non_blocking) AC_CHECKED;

/* RuntimeError where a write to `target` cannot be recorded: a leaf that requires gradients, or a view of one; a view
 * whose history would not follow the write. `recorded`: it is for what is written; else only if `target` has a history.
 */
int ac_check_recordable(const char *what, ac_tensor *target, bool recorded) AC_CHECKED;
/* Result `index` of `node` was written into `target`. When that is a view, its base becomes the old base with the new
 * values scattered in, and the view's history follows from that when somebody asks. */
int ac_set_history_written(ac_tensor *target, ac_node *node, int index) AC_CHECKED;

/* A tensor's memory may wait to be multiplied by a factor (optim/optim.h). Whoever reads or writes the memory itself,
 * rather than by ac_call, settles that first. */
int ac_settle_now(ac_storage *s) AC_CHECKED;
int ac_settle_all(ac_tensor *const *tensors, int n) AC_CHECKED; /* NULL among them is passed over */
static inline int ac_settle(const ac_tensor *t) {
    return ac_pending && t->storage->pending ? ac_settle_now(t->storage) : 0;
}
/* For those who multiply it in themselves: a factor is of the storage's own dtype, so bytes seen as another are
 * settled. */
static inline int ac_settle_unless_own(const ac_tensor *t) {
    return t->storage->pending_dtype != t->dtype ? ac_settle(t) : 0;
}

/* The device where a call's results lie; RuntimeError when its inputs are on several. */
int ac_device_sought(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_device *device) AC_CHECKED;
static inline int ac_device_for(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_device *device) {
    int some = AC_CPU;
    for (int i = 0; i < n_in; i++) some |= in[i] ? ac_device_of(in[i]) : AC_CPU;
    *device = AC_CPU;
    return some == AC_CPU && ac_ops[op].device_at < 0 ? 0 : ac_device_sought(op, in, n_in, attrs, device);
}
int ac_check_target_device(ac_op op, ac_tensor *const *in, int n_in, const void *attrs,
                           const ac_tensor *target) AC_CHECKED;
/* new: t itself when it is on the CPU, else a copy there, off the tape. */
ac_tensor *ac_on_cpu(ac_tensor *t) AC_CHECKED;

#endif
