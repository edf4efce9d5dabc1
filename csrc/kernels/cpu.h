/* The CPU's kernels, one for each row of the table that has one. */
#ifndef AC_KERNELS_CPU_H
#define AC_KERNELS_CPU_H

#include "../backend/backend.h"
#include "iterate.h"

#define ATTRS(name) const ac_attrs_##name *a = r->attrs

#define KERNEL(name, py, home, infer, kernel, ...) int ac_cpu_##kernel(const ac_run *r) AC_CHECKED;
#include "../ops/ops.def"
int ac_cpu_pointwise(const ac_run *r) AC_CHECKED;

/* Copies `from`, broadcast, into `to` with conversion. */
void ac_cpu_copy_into(ac_tensor *to, const ac_tensor *from);

/* Reads or writes a run in lane type, whatever its dtype. A read of lane-typed neighbours needs
 * no copy: the pointer returned is the data itself, else `buffer`. */
const void *ac_read_run(const ac_loops *loops, ac_lane lane, ac_dtype dtype, int64_t n, const void *from,
                        int64_t stride, void *buffer);

/* See backend.h. */
int64_t ac_cpu_panels_bytes(const ac_tensor *w, ac_dtype round, bool out_first);
bool ac_cpu_pack(const ac_tensor *w, ac_dtype round, bool out_first, void *panels);
int ac_cpu_unscale(ac_tensor *const *grads, int n, double factor, int64_t *bad) AC_CHECKED;
int ac_cpu_squares(ac_tensor *const *tensors, int n, double *sums) AC_CHECKED;
int ac_cpu_step(ac_rule rule, const ac_update *updates, int n, const ac_step *constants) AC_CHECKED;

#endif
