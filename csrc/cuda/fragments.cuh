/* Products of tensor cores on registers. Of a fragment of sums, 16 x 8, lane l has row l / 4, columns 2 (l % 4) and the
 * next, in the first two places, and the same of row l / 4 + 8 in the other two. A fragment of the left operand is two
 * of these side by side, in 16 bits. So sums, rounded, are the left operand of another product. */
#pragma once

#include "cuda/tiles.cuh"

#if defined(__CUDACC__)

/* Four matrices of 8 x 8 values in 16 bits from shared memory, a register each: lanes 8 i to 8 i + 7 say where the rows
 * of matrix i begin. Lane l gets of each matrix row l / 4, columns 2 (l % 4) and the next. */
DEV void load_matrices(uint32_t (&to)[4], const uint16_t *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}
/* The same of the matrices turned. */
DEV void load_turned(uint32_t (&to)[4], const uint16_t *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
}

#define AC_PRODUCT(shape, types, a_registers, ...)                                                                     \
    asm volatile("mma.sync.aligned." shape ".row.col.f32." types ".f32 {%0, %1, %2, %3}, " a_registers                 \
                 ", {%0, %1, %2, %3};"                                                                                 \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                          \
                 : __VA_ARGS__)

/* sums += a b: 16 x 16 by 16 x 8, of which lane l has column l / 4, rows 2 (l % 4) and the next, and those 8 below. */
template <class E> struct Product {
    DEV_METHOD static void add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b, uint32_t b_below) {
        AC_PRODUCT("m16n8k16", "bf16.bf16", "{%4, %5, %6, %7}, {%8, %9}", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                   "r"(b), "r"(b_below));
    }
};
template <> struct Product<__half> {
    DEV_METHOD static void add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b, uint32_t b_below) {
#if __CUDA_ARCH__ >= 800
        AC_PRODUCT("m16n8k16", "f16.f16", "{%4, %5, %6, %7}, {%8, %9}", "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                   "r"(b), "r"(b_below));
#else
        AC_PRODUCT("m16n8k8", "f16.f16", "{%4, %5}, {%6}", "r"(a[0]), "r"(a[1]), "r"(b));
        AC_PRODUCT("m16n8k8", "f16.f16", "{%4, %5}, {%6}", "r"(a[2]), "r"(a[3]), "r"(b_below));
#endif
    }
};
#undef AC_PRODUCT

/* Two values, rounded, in a register. */
template <class E> DEV uint32_t pair_of(float first, float second) {
#if __CUDA_ARCH__ >= 800
    uint32_t both;
    if (Rounding<E>::IS_BF16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#else
    return (uint32_t)Rounding<E>::bits(second) << 16 | Rounding<E>::bits(first);
#endif
}

#else

DEV void load_matrices(uint32_t (&to)[4], const uint16_t *row) { sim_load_matrices(to, row, false); }
DEV void load_turned(uint32_t (&to)[4], const uint16_t *row) { sim_load_matrices(to, row, true); }
template <class E> struct Product {
    static void add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b, uint32_t b_below) {
        sim_product<E>(sums, a, b, b_below);
    }
};
template <class E> DEV uint32_t pair_of(float first, float second) {
    return (uint32_t)Rounding<E>::bits(second) << 16 | Rounding<E>::bits(first);
}

#endif
