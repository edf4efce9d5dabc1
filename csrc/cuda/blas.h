/* One product by cuBLASLt (blas.c), for products.c, which makes it of tensors. The library's matrices are stored by
 * columns, so a row-major C = A B is requested as C' = B' A'. */
#ifndef AC_CUDA_BLAS_H
#define AC_CUDA_BLAS_H

#include "cuda/gpu.h"

/* Everything that decides how a product is computed; compared byte by byte, so set to 0 first. */
typedef struct {
    int64_t m, n, k, batch; /* of the row-major product */
    int64_t a_ld, b_ld, c_ld, a_batch, b_batch, c_batch;
    int32_t type, out_type, compute, alignment[3];
    int8_t a_k_first, b_k_first, bias, add, device, unused[3];
} ac_product_key;

typedef struct {
    ac_device device;
    ac_product_key key;
    const void *a, *b;
    void *c;
    const void *bias; /* of the result's dtype, at an address for vectors; or NULL */
} ac_multiplication;

/* 1: queued. 0: the library has no algorithm for it, and nothing has been written. */
int ac_gpu_multiply(const ac_multiplication *x) AC_CHECKED;

#endif
