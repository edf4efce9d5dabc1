/* What this CPU can do, asked once. */
#ifndef AC_KERNELS_ISA_H
#define AC_KERNELS_ISA_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define AC_HAVE_X86 1 /* files for single instruction sets are compiled */
#endif

/* Each level includes those before it. */
typedef enum {
    AC_ISA_BASELINE,
    AC_ISA_AVX2,        /* with FMA and F16C */
    AC_ISA_AVX512,      /* F, BW, DQ, VL */
    AC_ISA_AVX512_BF16, /* vdpbf16ps */
    AC_ISA_AMX_BF16,    /* tiles, with the kernel's permission to use them */
    AC_ISA_AMX_FP16
} ac_isa;

/* The level to use: the CPU's, or less where AMPC_CPU says so (baseline, avx2, avx512, avx512bf16,
 * amx_bf16 or amx_fp16), for tests and comparisons. */
ac_isa ac_cpu_isa(void);
const char *ac_isa_name(ac_isa level);
/* Whether vdpbf16ps does more a cycle than two float32 FMAs: on AMD's cores; Intel's run it at half the rate. */
int ac_dot_is_fast(void);
/* Bytes of one core's second-level cache. */
long ac_l2_bytes(void);

#endif
