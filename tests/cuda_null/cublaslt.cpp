/* A stand-in for libcublasLt that does nothing and counts calls, as driver.cpp. */
#include "null.h"

#include <stdlib.h>
#include <string.h>

#define API EXPORTED cublasStatus_t

/* Each kind of handle is made, and ended, in the same way. */
template <class Handle> static cublasStatus_t make(Handle *h, int which) {
    null_count(which);
    *h = (Handle)malloc(1);
    return AC_LT_SUCCESS;
}
template <class Handle> static cublasStatus_t end(Handle h, int which) {
    null_count(which);
    free((void *)h);
    return AC_LT_SUCCESS;
}

EXPORTED size_t cublasLtGetVersion(void) { return 130000; }
EXPORTED const char *cublasLtGetStatusName(cublasStatus_t) { return "an error"; }
API cublasLtCreate(cublasLtHandle_t *h) { return make(h, COUNT_cublasLtCreate); }
API cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t, cudaDataType_t) {
    return make(d, COUNT_cublasLtMatmulDescCreate);
}
API cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) { return end(d, COUNT_cublasLtMatmulDescDestroy); }
API cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t) {
    return CALLED(cublasLtMatmulDescSetAttribute), AC_LT_SUCCESS;
}
API cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType_t, uint64_t, uint64_t, int64_t) {
    return make(l, COUNT_cublasLtMatrixLayoutCreate);
}
API cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) { return end(l, COUNT_cublasLtMatrixLayoutDestroy); }
API cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t) {
    return CALLED(cublasLtMatrixLayoutSetAttribute), AC_LT_SUCCESS;
}
API cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *w) {
    return make(w, COUNT_cublasLtMatmulPreferenceCreate);
}
API cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t w) {
    return end(w, COUNT_cublasLtMatmulPreferenceDestroy);
}
API cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *,
                                         size_t) {
    return CALLED(cublasLtMatmulPreferenceSetAttribute), AC_LT_SUCCESS;
}
API cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                   cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t *found, int *n) {
    CALLED(cublasLtMatmulAlgoGetHeuristic);
    memset(found, 0, sizeof *found);
    found->workspaceSize = (size_t)4 << 20; /* as on large GPUs */
    return *n = 1, AC_LT_SUCCESS;
}
API cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t,
                   const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t, void *,
                   cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t) {
    return CALLED(cublasLtMatmul), AC_LT_SUCCESS;
}
