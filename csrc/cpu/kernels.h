/* Declares the CPU's kernels, one for each operator of the table that has one. */
#ifndef AC_CPU_KERNELS_H
#define AC_CPU_KERNELS_H

#include "backend/backend.h"
#include "cpu/loops.h"
#include "shared/tensor_iter.h"

#define ATTRS(name) const ac_attrs_##name *a = r->attrs

#define KERNEL(name, py, home, infer, kernel, ...) int ac_cpu_##kernel(const ac_run *r) AC_CHECKED;
#include "ops/ops.def"
int ac_cpu_pointwise(const ac_run *r) AC_CHECKED;

/* Copies `from`, broadcast, into `to` with conversion. */
void ac_cpu_copy_into(ac_tensor *to, const ac_tensor *from);

/* Reads or writes a run in opmath type, whatever its dtype. A read of neighbours of opmath type needs
 * no copy: the pointer returned is the data itself, else `buffer`. */
const void *ac_read_run(const ac_loops *loops, ac_opmath opmath, ac_dtype dtype, int64_t n, const void *from,
                        int64_t stride, void *buffer);

/* Reads a source as ac_read_run reads memory: rounded to its dtype, in its opmath type; at most AC_SOURCE_RUN values.
 */
const void *ac_cpu_read_source(const ac_loops *loops, const ac_source *s, int64_t at, int64_t n, void *to);
/* The source of operand k, or NULL where that is in memory. */
static inline const ac_source *ac_source_of(const ac_run *r, int k) {
    return r->waiting && r->waits == k && !r->waiting->computed ? r->waiting : NULL;
}
/* Whether an elementwise operator's operands have the result's shape, and all are row-major. */
bool ac_cpu_in_rows(const ac_run *r);
/* The loop over 16-bit values as they are, where the call has one, or NULL. */
typedef void (*ac_bits_fn)(int64_t n, const void *const *in, void *out);
ac_bits_fn ac_cpu_bits_of(const ac_run *r);
/* Leaves the result of an elementwise operator that is in rows. */
int ac_cpu_leave_point(const ac_run *r) AC_CHECKED;

/* See backend.h. */
void ac_cpu_compute(ac_source *s, const ac_tensor *result);
int64_t ac_cpu_panels_bytes(const ac_tensor *w, ac_dtype round, bool out_first);
bool ac_cpu_pack(const ac_tensor *w, ac_dtype round, bool out_first, ac_tensor *panels);
int ac_cpu_grad_stats(ac_tensor *const *tensors, int n, const double *factors, ac_found *found) AC_CHECKED;
/* The largest magnitude of a contiguous tensor of floating point: nan where it has one, else infinity where it has one.
 */
double ac_cpu_largest(const ac_tensor *t);
int ac_cpu_scale(ac_tensor *const *tensors, int n, double factor, const double *there) AC_CHECKED;
int ac_cpu_step(ac_update_rule rule, ac_update *updates, int n, const ac_step_args *constants) AC_CHECKED;

/* Packs a part of a weight, cut at multiples of AC_PART, into the whole's panels. */
typedef struct {
    int64_t row, rows, col, cols;
} ac_part;
bool ac_cpu_pack_part(const ac_tensor *w, ac_dtype round, bool out_first, const ac_part *part, void *panels);

/* Lists of tensors go to the pool in pieces of about this many elements. */
enum { AC_PIECE = 32768 };
/* How many pieces a thread takes at a time: all, where there is little in them. */
static inline int64_t ac_pieces_grain(int64_t pieces, int64_t elements) { return elements <= AC_GRAIN ? pieces : 1; }
/* The tensor that a piece belongs to, where tensor i has the pieces from first[i] on. */
int ac_owner_of(const int64_t *first, int n, int64_t piece);

#endif
