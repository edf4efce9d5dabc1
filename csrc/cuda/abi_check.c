/* Compares abi.h with the real headers, where they are present. A difference does not compile. */
#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#endif
#ifdef CUDA_VERSION
#define AC_CUDA_HEADERS
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define AC_CUBLASLT_HEADERS
#if __has_include(<cudnn.h>)
#include <cudnn.h>
#define AC_CUDNN_HEADERS
#endif
#if __has_include(<nccl.h>)
#include <nccl.h>
#define AC_NCCL_HEADERS
#endif
#endif
#endif
#endif
#include "cuda/abi.h"

#ifdef AC_CUDA_HEADERS
#define SAME(real, own, value) _Static_assert((int)(real) == (int)(own), #real);
AC_CU_CONSTANTS(SAME)
/* cuEventElapsedTime may have been renamed by a macro to a successor of the same form */
#define FITS(name, ...)                                                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult (*)(__VA_ARGS__)), #name);
AC_CU_FUNCTIONS(FITS)
#undef FITS
#ifdef AC_CUBLASLT_HEADERS
AC_LT_CONSTANTS(SAME)
#define FITS(result, name, ...)                                                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result (*)(__VA_ARGS__)), #name);
AC_LT_FUNCTIONS(FITS)
#undef FITS
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96 && sizeof(cublasLtMatmulAlgo_t) == 64,
               "cublasLtMatmulHeuristicResult_t");
#endif
#ifdef AC_CUDNN_HEADERS
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
AC_DNN_CONSTANTS(SAME)
#define FITS(name, ...)                                                                                                \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), cudnnStatus_t (*)(__VA_ARGS__)), #name);
AC_DNN_FUNCTIONS(FITS)
#undef FITS
#endif
#ifdef AC_NCCL_HEADERS
AC_NCCL_CONSTANTS(SAME)
#define FITS(result, name, ...)                                                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result (*)(__VA_ARGS__)), #name);
AC_NCCL_FUNCTIONS(FITS)
#undef FITS
_Static_assert(sizeof(ncclUniqueId) == 128, "ncclUniqueId");
_Static_assert(offsetof(ncclConfig_t, size) == 0 && offsetof(ncclConfig_t, magic) == 8 &&
                   offsetof(ncclConfig_t, version) == 12 && offsetof(ncclConfig_t, blocking) == 16 &&
                   NCCL_VERSION(2, 14, 0) == 21400,
               "ncclConfig_t");
#endif
#endif

int ac_cuda_abi_checked; /* a file must define something */
