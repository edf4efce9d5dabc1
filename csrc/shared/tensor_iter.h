/* Iteration over several strided tensors of one broadcast shape together, in parallel. */
#ifndef AC_SHARED_TENSOR_ITER_H
#define AC_SHARED_TENSOR_ITER_H

#include "base/pool.h"
#include "shared/dim_iter.h"
#include "tensor/tensor.h"

enum { AC_MAX_OPERANDS = 4 };

typedef struct {
    int operands, ndim;
    int64_t numel;
    int64_t shape[AC_MAX_DIMS];                    /* dimensions that step alike are merged */
    int64_t strides[AC_MAX_OPERANDS][AC_MAX_DIMS]; /* in elements of that operand */
    char *data[AC_MAX_OPERANDS];
    int64_t itemsize[AC_MAX_OPERANDS];
} ac_iter;

/* A run of n elements: data[k] with strides[k] elements between neighbours; `first` is the index
 * of the run in row-major order. */
typedef void (*ac_run_fn)(void *context, int64_t n, char *const *data, const int64_t *strides, int64_t first);

/* Operands broadcast to `shape`. */
void ac_iter_init(ac_iter *it, const ac_dims *shape, ac_tensor *const *operands, int n);
/* Operands broadcast to the shape of the first, along whose memory the runs lie; for functions that do not look at
 * `first`. */
void ac_iter_init_along(ac_iter *it, ac_tensor *const *operands, int n);
/* The same, with runs so short that other operands' lines of the cache serve several. */
void ac_iter_init_by_memory(ac_iter *it, ac_tensor *const *operands, int n);
/* Calls fn for runs that cover every element once; chunks of `grain` elements go to the pool. */
void ac_iter_run(const ac_iter *it, int64_t grain, ac_run_fn fn, void *context);

/* The least number of elements for a thread. Giving work to another thread costs about 5 us. In that time one thread
 * computes this many additions, or exponentials. */
enum { AC_GRAIN = 65536, AC_GRAIN_SLOW = 32768 };

/* What is worth sharing instead of `grain` elements while other threads are awake, for loops that compute the same bits
 * in chunks of any whole number of AC_LEAST_GRAIN elements. */
enum { AC_LEAST_GRAIN = 8192 };
static inline int64_t ac_grain_now(int64_t grain) {
    return ac_workers_awake() ? ac_most(grain / 4, AC_LEAST_GRAIN) : grain;
}
/* The same for runs over an iterator's elements, whose borders are those of rows where it has several dimensions. */
static inline int64_t ac_iter_grain_now(const ac_iter *it, int64_t grain) {
    return it->ndim == 1 ? ac_grain_now(grain) : grain;
}

/* For long loops on one thread: whether to give up at their i-th turn, asked now and then. */
static inline bool ac_stop_at(int64_t i) { return (i & 0x3FFF) == 0x3FFF && ac_poll(); }

/* The dimensions of t whose bit in `mask` is set, merged where they step alike. */
ac_space ac_space_of(const ac_tensor *t, uint32_t mask);
/* t seen with these dimensions (negative ones count from the end) in reverse order: a borrowed view for kernels, whose
 * strides are negative. */
ac_tensor ac_flipped(const ac_tensor *t, const ac_dims *dims);
/* Element offset of element `index` (row-major). */
int64_t ac_space_offset(const ac_space *s, int64_t index);

/* Calls fn(context, begin, end) over [0, n) in chunks of `grain`, in parallel. */
typedef void (*ac_range_fn)(void *context, int64_t begin, int64_t end);
void ac_for_range(int64_t n, int64_t grain, ac_range_fn fn, void *context);
/* The same with `bytes` of scratch memory for each thread, 64-byte aligned; -1 when there is none to be had. */
typedef void (*ac_scratch_fn)(void *context, int64_t begin, int64_t end, char *scratch);
int ac_for_range_with(int64_t n, int64_t grain, size_t bytes, ac_scratch_fn fn, void *context) AC_CHECKED;

#endif
