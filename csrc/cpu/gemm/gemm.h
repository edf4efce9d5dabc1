/* The blocked matrix product: one driver for every dtype, micro-kernel, batch and packing. */
#ifndef AC_CPU_GEMM_GEMM_H
#define AC_CPU_GEMM_GEMM_H

#include "cpu/gemm/micro.h"

typedef enum { AC_ACT_NONE, AC_ACT_RELU, AC_ACT_GELU, AC_ACT_SILU } ac_activation;

/* c = act(alpha a b + bias) + beta c, accumulated in float32 and rounded once. */
typedef struct {
    ac_operand a, b;    /* lanes of a are rows of c, lanes of b its columns */
    const void *panels; /* b packed by ac_gemm_pack, or NULL */
    char *c;            /* element (i, j) at c[i * c_row + j] */
    ac_dtype c_dtype;   /* float32, float16 or bfloat16 */
    int64_t c_row;      /* in elements */
    float alpha, beta;  /* beta 0: c is not read */
    const float *bias;  /* one a column, or NULL */
    ac_activation act;
    bool alone;                                             /* on the calling thread */
    int64_t batch;                                          /* how often, */
    int64_t a_batch_stride, b_batch_stride, c_batch_stride; /* with these elements from one to the next */
} ac_gemm_call;

/* Safe from any thread; goes to the pool when the work is worth it. */
int ac_gemm_run(const ac_gemm_call *call) AC_CHECKED;

enum { AC_THIN_LANES = 16 }; /* of the operand that is small, at most */
/* Whether a product of float32 has so few rows, or columns, that the other operand is read where it lies, and that
 * (thin.c). */
bool ac_gemm_is_thin(const ac_gemm_call *call);
int ac_gemm_run_thin(const ac_gemm_call *call, int threads) AC_CHECKED;

/* Whether threads share the depth k, because the result is small beside it, and that (deep.c). */
bool ac_gemm_is_deep(const ac_gemm_call *call);
int ac_gemm_run_deep(const ac_gemm_call *call) AC_CHECKED;

/* The same, of float64 too: one product on the calling thread then, c float64, alpha 1, beta 0 or 1, nothing added. */
int ac_gemm_run_any(const ac_gemm_call *call) AC_CHECKED;

/* One product on a kernel of the caller's choice, for tests; *finite false: the kernel cannot hold a value, and
 * c is to be made again by another; it is as it was where beta is not 0. */
int ac_gemm_run_on(const ac_gemm_call *call, const ac_micro *micro, bool *finite) AC_CHECKED;

/* Bytes of `b` (lanes, k and round are read) in the layout that products use it in again and again. */
int64_t ac_gemm_panels_bytes(const ac_operand *b);
/* Packs it. False when a value stands against it (inf or nan in float16, where it is split). */
bool ac_gemm_pack(const ac_operand *b, void *panels);
/* Packs lanes [lane, lane + lanes) of k [k, k + depth) again, on the calling thread. Borders inside the
 * operand are multiples of AC_PART. */
enum { AC_PART = 32 };
bool ac_gemm_pack_part(const ac_operand *b, int64_t lane, int64_t lanes, int64_t k, int64_t depth, void *panels);

#endif
