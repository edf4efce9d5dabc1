/* How small functions are declared, here and where CUDA kernels share them with the C core. */
#ifndef AC_BASE_INLINE_H
#define AC_BASE_INLINE_H

#if defined(__CUDACC__)
#define AC_INLINE static __host__ __device__ __forceinline__
#else
#define AC_INLINE static inline
#endif

#include <stdint.h>

/* What must hold inside the core; checked in the builds of the C tests and of `make debug`, nothing elsewhere. */
#ifdef AC_DEBUG
#define AC_ASSERT(fact) ((fact) ? (void)0 : __builtin_trap())
#else
#define AC_ASSERT(fact) ((void)0)
#endif

AC_INLINE int64_t ac_least(int64_t x, int64_t y) { return x < y ? x : y; }
AC_INLINE int64_t ac_most(int64_t x, int64_t y) { return x > y ? x : y; }
AC_INLINE int64_t ac_ceil_div(int64_t x, int64_t by) { return (x + by - 1) / by; }

#endif
