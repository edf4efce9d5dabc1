/* Small functions that the CUDA kernels share with the C core. */
#ifndef AC_BASE_INLINE_H
#define AC_BASE_INLINE_H

#if defined(__CUDACC__)
#define AC_INLINE static __host__ __device__ __forceinline__
#else
#define AC_INLINE static inline
#endif

#endif
