/* Writing into existing tensors, recorded for backward. */
#ifndef AC_DISPATCH_WRITE_H
#define AC_DISPATCH_WRITE_H

#include "autograd/node.h"
#include "ops/op.h"

/* Writes a number, or another tensor (broadcast and cast), into `target`, on the tape. */
int ac_fill(ac_tensor *target, ac_scalar value) AC_CHECKED;
int ac_copy_into(ac_tensor *target, ac_tensor *source) AC_CHECKED;
/* The same; `non_blocking`: page-locked memory and a GPU need not wait for each other. */
int ac_copy_into_async(ac_tensor *target, ac_tensor *source, bool non_blocking) AC_CHECKED;

/* RuntimeError where a write to `target` cannot be recorded: a leaf that requires gradients, or a view of one; a view
 * whose history would not follow the write. `recorded`: it is for what is written; else only if `target` has a history.
 */
int ac_check_recordable(const char *what, ac_tensor *target, bool recorded) AC_CHECKED;
/* RuntimeError where the memory or the geometry of `target` may not be changed in place. */
int ac_check_changed(const char *what, ac_tensor *target) AC_CHECKED;
/* Result `index` of `node` was written into `target`. If that is a view, the history of its base becomes a scatter of
 * the new values into the old base. The view's own history is derived from it on demand. */
int ac_set_history_written(ac_tensor *target, ac_node *node, int index) AC_CHECKED;

#endif
