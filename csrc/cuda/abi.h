/* What the core uses of the CUDA driver, cuBLASLt, cuDNN and NCCL: types, constants, functions. They are declared here
 * so that the host code compiles without a toolkit; all functions are opened by name at run time. Where the real
 * headers are present, abi_check.c includes them first and compares; the types below are then theirs. */
#ifndef AC_CUDA_ABI_H
#define AC_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifndef AC_CUDA_HEADERS
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUstreamCaptureMode;
typedef int CUstreamCaptureStatus;
typedef int CUdevice_attribute;
typedef int CUfunction_attribute;
typedef int CUpointer_attribute;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
#endif

#ifndef AC_CUBLASLT_HEADERS
typedef int cublasStatus_t;
typedef int cublasComputeType_t;
typedef int cudaDataType_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t, cublasLtMatmulPreferenceOpaque_t;
typedef struct {
    uint64_t data[32];
} cublasLtMatmulDescOpaque_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef int cublasLtMatmulDescAttributes_t;
typedef int cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulPreferenceAttributes_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
typedef struct CUstream_st *cudaStream_t;
#endif

#ifndef AC_CUDNN_HEADERS
typedef int cudnnStatus_t;
typedef int cudnnDataType_t;
typedef int cudnnTensorFormat_t;
typedef int cudnnConvolutionMode_t;
typedef int cudnnMathType_t;
typedef int cudnnConvolutionFwdAlgo_t;
typedef int cudnnConvolutionBwdDataAlgo_t;
typedef int cudnnActivationMode_t;
typedef int cudnnNanPropagation_t;
typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
#endif

#ifndef AC_NCCL_HEADERS
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct { /* as of version 2.14; newer ones append members, which they leave at their defaults for this version
                  */
    size_t size;
    unsigned int magic, version;
    int blocking;
} ncclConfig_t;
#endif

/* Name in the real header, our name, value. */
#define AC_CU_CONSTANTS(ENTRY)                                                                                         \
    ENTRY(CUDA_SUCCESS, AC_CU_SUCCESS, 0)                                                                              \
    ENTRY(CUDA_ERROR_OUT_OF_MEMORY, AC_CU_OUT_OF_MEMORY, 2)                                                            \
    ENTRY(CUDA_ERROR_NO_DEVICE, AC_CU_NO_DEVICE, 100)                                                                  \
    ENTRY(CUDA_ERROR_INVALID_IMAGE, AC_CU_INVALID_IMAGE, 200)                                                          \
    ENTRY(CUDA_ERROR_NO_BINARY_FOR_GPU, AC_CU_NO_BINARY, 209)                                                          \
    ENTRY(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, AC_CU_NEWER_PTX, 222)                                                    \
    ENTRY(CUDA_ERROR_NOT_FOUND, AC_CU_NOT_FOUND, 500)                                                                  \
    ENTRY(CUDA_ERROR_NOT_READY, AC_CU_NOT_READY, 600)                                                                  \
    ENTRY(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, AC_CU_CAPTURE_UNSUPPORTED, 900)                                       \
    ENTRY(CUDA_ERROR_CAPTURED_EVENT, AC_CU_CAPTURED_EVENT, 907)                                                        \
    ENTRY(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, AC_CU_CAPTURE_WRONG_THREAD, 908)                                     \
    ENTRY(CU_STREAM_CAPTURE_MODE_GLOBAL, AC_CU_CAPTURE_GLOBAL, 0)                                                      \
    ENTRY(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, AC_CU_CAPTURE_THREAD_LOCAL, 1)                                          \
    ENTRY(CU_STREAM_CAPTURE_MODE_RELAXED, AC_CU_CAPTURE_RELAXED, 2)                                                    \
    ENTRY(CU_STREAM_CAPTURE_STATUS_NONE, AC_CU_CAPTURE_NONE, 0)                                                        \
    ENTRY(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, AC_CU_MULTIPROCESSORS, 16)                                         \
    ENTRY(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, AC_CU_L2_BYTES, 38)                                                       \
    ENTRY(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, AC_CU_THREADS_PER_MULTIPROCESSOR, 39)                    \
    ENTRY(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, AC_CU_MAJOR, 75)                                               \
    ENTRY(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, AC_CU_MINOR, 76)                                               \
    ENTRY(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, AC_CU_READS_PAGEABLE, 88)                                        \
    ENTRY(CU_STREAM_NON_BLOCKING, AC_CU_NON_BLOCKING, 1)                                                               \
    ENTRY(CU_EVENT_DISABLE_TIMING, AC_CU_NO_TIMING, 2)                                                                 \
    ENTRY(CU_EVENT_BLOCKING_SYNC, AC_CU_BLOCKING_SYNC, 1)                                                              \
    ENTRY(CU_MEMHOSTALLOC_PORTABLE, AC_CU_PORTABLE, 1)                                                                 \
    ENTRY(CU_MEMHOSTALLOC_DEVICEMAP, AC_CU_DEVICEMAP, 2)                                                               \
    ENTRY(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, AC_CU_MEMORY_TYPE, 2)                                                      \
    ENTRY(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, AC_CU_DEVICE_ORDINAL, 9)                                                \
    ENTRY(CU_MEMORYTYPE_HOST, AC_CU_HOST_MEMORY, 1)

#define AC_LT_CONSTANTS(ENTRY)                                                                                         \
    ENTRY(CUBLAS_STATUS_SUCCESS, AC_LT_SUCCESS, 0)                                                                     \
    ENTRY(CUBLAS_STATUS_INVALID_VALUE, AC_LT_INVALID_VALUE, 7)                                                         \
    ENTRY(CUBLAS_STATUS_ARCH_MISMATCH, AC_LT_ARCH_MISMATCH, 8)                                                         \
    ENTRY(CUBLAS_STATUS_NOT_SUPPORTED, AC_LT_NOT_SUPPORTED, 15)                                                        \
    ENTRY(CUBLAS_OP_N, AC_LT_PLAIN, 0)                                                                                 \
    ENTRY(CUBLAS_OP_T, AC_LT_TRANSPOSED, 1)                                                                            \
    ENTRY(CUBLAS_COMPUTE_32F, AC_LT_COMPUTE_F32, 68)                                                                   \
    ENTRY(CUBLAS_COMPUTE_32F_FAST_TF32, AC_LT_COMPUTE_TF32, 77)                                                        \
    ENTRY(CUBLAS_COMPUTE_64F, AC_LT_COMPUTE_F64, 70)                                                                   \
    ENTRY(CUDA_R_32F, AC_LT_F32, 0)                                                                                    \
    ENTRY(CUDA_R_64F, AC_LT_F64, 1)                                                                                    \
    ENTRY(CUDA_R_16F, AC_LT_F16, 2)                                                                                    \
    ENTRY(CUDA_R_16BF, AC_LT_BF16, 14)                                                                                 \
    ENTRY(CUBLASLT_MATMUL_DESC_TRANSA, AC_LT_TRANSA, 3)                                                                \
    ENTRY(CUBLASLT_MATMUL_DESC_TRANSB, AC_LT_TRANSB, 4)                                                                \
    ENTRY(CUBLASLT_MATMUL_DESC_EPILOGUE, AC_LT_EPILOGUE, 7)                                                            \
    ENTRY(CUBLASLT_MATMUL_DESC_BIAS_POINTER, AC_LT_BIAS_POINTER, 8)                                                    \
    ENTRY(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, AC_LT_BIAS_TYPE, 26)                                                    \
    ENTRY(CUBLASLT_EPILOGUE_BIAS, AC_LT_EPILOGUE_BIAS, 4)                                                              \
    ENTRY(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, AC_LT_BATCH_COUNT, 5)                                                    \
    ENTRY(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, AC_LT_BATCH_OFFSET, 6)                                          \
    ENTRY(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, AC_LT_MAX_WORKSPACE, 1)                                            \
    ENTRY(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, AC_LT_REDUCTIONS, 3)                                             \
    ENTRY(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, AC_LT_REDUCTION_COMPUTE_TYPE, 2)                                     \
    ENTRY(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, AC_LT_ALIGNMENT_A, 5)                                            \
    ENTRY(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, AC_LT_ALIGNMENT_B, 6)                                            \
    ENTRY(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AC_LT_ALIGNMENT_C, 7)                                            \
    ENTRY(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AC_LT_ALIGNMENT_D, 8)

#define AC_DNN_CONSTANTS(ENTRY)                                                                                        \
    ENTRY(CUDNN_STATUS_SUCCESS, AC_DNN_SUCCESS, 0)                                                                     \
    ENTRY(CUDNN_DATA_FLOAT, AC_DNN_F32, 0)                                                                             \
    ENTRY(CUDNN_DATA_HALF, AC_DNN_F16, 2)                                                                              \
    ENTRY(CUDNN_DATA_BFLOAT16, AC_DNN_BF16, 9)                                                                         \
    ENTRY(CUDNN_TENSOR_NCHW, AC_DNN_ROW_MAJOR, 0)                                                                      \
    ENTRY(CUDNN_CROSS_CORRELATION, AC_DNN_CORRELATION, 1)                                                              \
    ENTRY(CUDNN_DEFAULT_MATH, AC_DNN_DEFAULT_MATH, 0)                                                                  \
    ENTRY(CUDNN_TENSOR_OP_MATH, AC_DNN_TENSOR_CORES, 1)                                                                \
    ENTRY(CUDNN_FMA_MATH, AC_DNN_PLAIN_MATH, 3)                                                                        \
    ENTRY(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, AC_DNN_FORWARD, 1)                                         \
    ENTRY(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, AC_DNN_BACKWARD, 1)                                                       \
    ENTRY(CUDNN_ACTIVATION_IDENTITY, AC_DNN_IDENTITY, 5)                                                               \
    ENTRY(CUDNN_PROPAGATE_NAN, AC_DNN_PROPAGATE_NAN, 1)

#define AC_NCCL_CONSTANTS(ENTRY)                                                                                       \
    ENTRY(ncclSuccess, AC_NCCL_SUCCESS, 0)                                                                             \
    ENTRY(ncclInProgress, AC_NCCL_IN_PROGRESS, 7)                                                                      \
    ENTRY(ncclInt8, AC_NCCL_I8, 0)                                                                                     \
    ENTRY(ncclUint8, AC_NCCL_U8, 1)                                                                                    \
    ENTRY(ncclInt32, AC_NCCL_I32, 2)                                                                                   \
    ENTRY(ncclUint32, AC_NCCL_U32, 3)                                                                                  \
    ENTRY(ncclInt64, AC_NCCL_I64, 4)                                                                                   \
    ENTRY(ncclUint64, AC_NCCL_U64, 5)                                                                                  \
    ENTRY(ncclFloat16, AC_NCCL_F16, 6)                                                                                 \
    ENTRY(ncclFloat32, AC_NCCL_F32, 7)                                                                                 \
    ENTRY(ncclFloat64, AC_NCCL_F64, 8)                                                                                 \
    ENTRY(ncclBfloat16, AC_NCCL_BF16, 9)                                                                               \
    ENTRY(ncclSum, AC_NCCL_SUM, 0)                                                                                     \
    ENTRY(ncclProd, AC_NCCL_PROD, 1)                                                                                   \
    ENTRY(ncclMax, AC_NCCL_MAX, 2)                                                                                     \
    ENTRY(ncclMin, AC_NCCL_MIN, 3)                                                                                     \
    ENTRY(ncclAvg, AC_NCCL_AVG, 4)                                                                                     \
    ENTRY((int)NCCL_API_MAGIC, AC_NCCL_MAGIC, (int)0xcafebeefu)

#define AC_CONSTANT(real, own, value) own = value,
enum { AC_CU_CONSTANTS(AC_CONSTANT) AC_CU_END_ };
enum { AC_LT_CONSTANTS(AC_CONSTANT) AC_LT_END_ };
enum { AC_DNN_CONSTANTS(AC_CONSTANT) AC_DNN_END_ };
enum { AC_NCCL_CONSTANTS(AC_CONSTANT) AC_NCCL_END_ };
#undef AC_CONSTANT

/* The driver's functions: exported name, parameters. All return CUresult. */
#define AC_CU_FUNCTIONS(ENTRY)                                                                                         \
    ENTRY(cuInit, unsigned)                                                                                            \
    ENTRY(cuDriverGetVersion, int *)                                                                                   \
    ENTRY(cuGetErrorName, CUresult, const char **)                                                                     \
    ENTRY(cuGetErrorString, CUresult, const char **)                                                                   \
    ENTRY(cuDeviceGetCount, int *)                                                                                     \
    ENTRY(cuDeviceGet, CUdevice *, int)                                                                                \
    ENTRY(cuDeviceGetName, char *, int, CUdevice)                                                                      \
    ENTRY(cuDeviceGetUuid_v2, CUuuid *, CUdevice)                                                                      \
    ENTRY(cuDeviceTotalMem_v2, size_t *, CUdevice)                                                                     \
    ENTRY(cuDeviceGetAttribute, int *, CUdevice_attribute, CUdevice)                                                   \
    ENTRY(cuDeviceCanAccessPeer, int *, CUdevice, CUdevice)                                                            \
    ENTRY(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)                                                             \
    ENTRY(cuCtxGetCurrent, CUcontext *)                                                                                \
    ENTRY(cuCtxSetCurrent, CUcontext)                                                                                  \
    ENTRY(cuCtxSynchronize, void)                                                                                      \
    ENTRY(cuModuleLoadData, CUmodule *, const void *)                                                                  \
    ENTRY(cuModuleGetFunction, CUfunction *, CUmodule, const char *)                                                   \
    ENTRY(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,  \
          void **, void **)                                                                                            \
    ENTRY(cuMemGetInfo_v2, size_t *, size_t *)                                                                         \
    ENTRY(cuMemAlloc_v2, CUdeviceptr *, size_t)                                                                        \
    ENTRY(cuMemFree_v2, CUdeviceptr)                                                                                   \
    ENTRY(cuMemHostAlloc, void **, size_t, unsigned)                                                                   \
    ENTRY(cuMemFreeHost, void *)                                                                                       \
    ENTRY(cuMemHostGetDevicePointer_v2, CUdeviceptr *, void *, unsigned)                                               \
    ENTRY(cuPointerGetAttribute, void *, CUpointer_attribute, CUdeviceptr)                                             \
    ENTRY(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)                                           \
    ENTRY(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)                                                 \
    ENTRY(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)                                            \
    ENTRY(cuMemcpyPeerAsync, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)                         \
    ENTRY(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)                                               \
    ENTRY(cuStreamCreateWithPriority, CUstream *, unsigned, int)                                                       \
    ENTRY(cuStreamSynchronize, CUstream)                                                                               \
    ENTRY(cuStreamQuery, CUstream)                                                                                     \
    ENTRY(cuStreamWaitEvent, CUstream, CUevent, unsigned)                                                              \
    ENTRY(cuEventCreate, CUevent *, unsigned)                                                                          \
    ENTRY(cuEventDestroy_v2, CUevent)                                                                                  \
    ENTRY(cuEventRecord, CUevent, CUstream)                                                                            \
    ENTRY(cuEventQuery, CUevent)                                                                                       \
    ENTRY(cuEventSynchronize, CUevent)                                                                                 \
    ENTRY(cuEventElapsedTime, float *, CUevent, CUevent)                                                               \
    ENTRY(cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)                                                      \
    ENTRY(cuStreamEndCapture, CUstream, CUgraph *)                                                                     \
    ENTRY(cuStreamIsCapturing, CUstream, CUstreamCaptureStatus *)                                                      \
    ENTRY(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *)                                                    \
    ENTRY(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)                                     \
    ENTRY(cuGraphDestroy, CUgraph)                                                                                     \
    ENTRY(cuGraphLaunch, CUgraphExec, CUstream)                                                                        \
    ENTRY(cuGraphExecDestroy, CUgraphExec)

/* cuBLASLt's functions: result, name, parameters. */
#define AC_LT_FUNCTIONS(ENTRY)                                                                                         \
    ENTRY(size_t, cublasLtGetVersion, void)                                                                            \
    ENTRY(const char *, cublasLtGetStatusName, cublasStatus_t)                                                         \
    ENTRY(cublasStatus_t, cublasLtCreate, cublasLtHandle_t *)                                                          \
    ENTRY(cublasStatus_t, cublasLtMatmulDescCreate, cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t)       \
    ENTRY(cublasStatus_t, cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t)                                             \
    ENTRY(cublasStatus_t, cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,        \
          const void *, size_t)                                                                                        \
    ENTRY(cublasStatus_t, cublasLtMatrixLayoutCreate, cublasLtMatrixLayout_t *, cudaDataType_t, uint64_t, uint64_t,    \
          int64_t)                                                                                                     \
    ENTRY(cublasStatus_t, cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t)                                         \
    ENTRY(cublasStatus_t, cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,   \
          const void *, size_t)                                                                                        \
    ENTRY(cublasStatus_t, cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference_t *)                                \
    ENTRY(cublasStatus_t, cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t)                                 \
    ENTRY(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreference_t,                            \
          cublasLtMatmulPreferenceAttributes_t, const void *, size_t)                                                  \
    ENTRY(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic, cublasLtHandle_t, cublasLtMatmulDesc_t,                      \
          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,              \
          cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *, int *)                                   \
    ENTRY(cublasStatus_t, cublasLtMatmul, cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,          \
          cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *, const void *,                    \
          cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,        \
          cudaStream_t)

/* cuDNN's functions, of the API of convolutions that versions 7 to 9 share; all return cudnnStatus_t. */
#define AC_DNN_FUNCTIONS(ENTRY)                                                                                        \
    ENTRY(cudnnCreate, cudnnHandle_t *)                                                                                \
    ENTRY(cudnnSetStream, cudnnHandle_t, cudaStream_t)                                                                 \
    ENTRY(cudnnCreateTensorDescriptor, cudnnTensorDescriptor_t *)                                                      \
    ENTRY(cudnnDestroyTensorDescriptor, cudnnTensorDescriptor_t)                                                       \
    ENTRY(cudnnSetTensorNdDescriptor, cudnnTensorDescriptor_t, cudnnDataType_t, int, const int *, const int *)         \
    ENTRY(cudnnCreateFilterDescriptor, cudnnFilterDescriptor_t *)                                                      \
    ENTRY(cudnnDestroyFilterDescriptor, cudnnFilterDescriptor_t)                                                       \
    ENTRY(cudnnSetFilterNdDescriptor, cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int, const int *) \
    ENTRY(cudnnCreateConvolutionDescriptor, cudnnConvolutionDescriptor_t *)                                            \
    ENTRY(cudnnDestroyConvolutionDescriptor, cudnnConvolutionDescriptor_t)                                             \
    ENTRY(cudnnSetConvolutionNdDescriptor, cudnnConvolutionDescriptor_t, int, const int *, const int *, const int *,   \
          cudnnConvolutionMode_t, cudnnDataType_t)                                                                     \
    ENTRY(cudnnSetConvolutionGroupCount, cudnnConvolutionDescriptor_t, int)                                            \
    ENTRY(cudnnSetConvolutionMathType, cudnnConvolutionDescriptor_t, cudnnMathType_t)                                  \
    ENTRY(cudnnCreateActivationDescriptor, cudnnActivationDescriptor_t *)                                              \
    ENTRY(cudnnDestroyActivationDescriptor, cudnnActivationDescriptor_t)                                               \
    ENTRY(cudnnSetActivationDescriptor, cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnNanPropagation_t,     \
          double)                                                                                                      \
    ENTRY(cudnnGetConvolutionForwardWorkspaceSize, cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,    \
          cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t, size_t *)                  \
    ENTRY(cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnHandle_t, cudnnFilterDescriptor_t,                        \
          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,                              \
          cudnnConvolutionBwdDataAlgo_t, size_t *)                                                                     \
    ENTRY(cudnnConvolutionForward, cudnnHandle_t, const void *, cudnnTensorDescriptor_t, const void *,                 \
          cudnnFilterDescriptor_t, const void *, cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t, void *,      \
          size_t, const void *, cudnnTensorDescriptor_t, void *)                                                       \
    ENTRY(cudnnConvolutionBiasActivationForward, cudnnHandle_t, const void *, cudnnTensorDescriptor_t, const void *,   \
          cudnnFilterDescriptor_t, const void *, cudnnConvolutionDescriptor_t, cudnnConvolutionFwdAlgo_t, void *,      \
          size_t, const void *, cudnnTensorDescriptor_t, const void *, cudnnTensorDescriptor_t, const void *,          \
          cudnnActivationDescriptor_t, cudnnTensorDescriptor_t, void *)                                                \
    ENTRY(cudnnConvolutionBackwardData, cudnnHandle_t, const void *, cudnnFilterDescriptor_t, const void *,            \
          cudnnTensorDescriptor_t, const void *, cudnnConvolutionDescriptor_t, cudnnConvolutionBwdDataAlgo_t, void *,  \
          size_t, const void *, cudnnTensorDescriptor_t, void *)

/* NCCL's functions: result, name, parameters. */
#define AC_NCCL_FUNCTIONS(ENTRY)                                                                                       \
    ENTRY(ncclResult_t, ncclGetVersion, int *)                                                                         \
    ENTRY(const char *, ncclGetErrorString, ncclResult_t)                                                              \
    ENTRY(const char *, ncclGetLastError, ncclComm_t)                                                                  \
    ENTRY(ncclResult_t, ncclGetUniqueId, ncclUniqueId *)                                                               \
    ENTRY(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *)                  \
    ENTRY(ncclResult_t, ncclCommGetAsyncError, ncclComm_t, ncclResult_t *)                                             \
    ENTRY(ncclResult_t, ncclCommDestroy, ncclComm_t)                                                                   \
    ENTRY(ncclResult_t, ncclCommAbort, ncclComm_t)                                                                     \
    ENTRY(ncclResult_t, ncclGroupStart, void)                                                                          \
    ENTRY(ncclResult_t, ncclGroupEnd, void)                                                                            \
    ENTRY(ncclResult_t, ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,          \
          cudaStream_t)                                                                                                \
    ENTRY(ncclResult_t, ncclReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,        \
          cudaStream_t)                                                                                                \
    ENTRY(ncclResult_t, ncclBroadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)    \
    ENTRY(ncclResult_t, ncclAllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)         \
    ENTRY(ncclResult_t, ncclReduceScatter, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,      \
          cudaStream_t)                                                                                                \
    ENTRY(ncclResult_t, ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)                 \
    ENTRY(ncclResult_t, ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)

typedef struct {
#define AC_MEMBER(name, ...) CUresult (*name)(__VA_ARGS__);
    AC_CU_FUNCTIONS(AC_MEMBER)
#undef AC_MEMBER
} ac_cu_table;

typedef struct {
#define AC_MEMBER(result, name, ...) result (*name)(__VA_ARGS__);
    AC_LT_FUNCTIONS(AC_MEMBER)
#undef AC_MEMBER
} ac_lt_table;

typedef struct {
#define AC_MEMBER(name, ...) cudnnStatus_t (*name)(__VA_ARGS__);
    AC_DNN_FUNCTIONS(AC_MEMBER)
#undef AC_MEMBER
} ac_dnn_table;

typedef struct {
#define AC_MEMBER(result, name, ...) result (*name)(__VA_ARGS__);
    AC_NCCL_FUNCTIONS(AC_MEMBER)
#undef AC_MEMBER
} ac_nccl_table;

#endif
