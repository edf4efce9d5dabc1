/* Tiles of tensor cores: 16 x 16 values in 16 bits, and float32 sums. The vectors of `turned` tiles run along the
 * products' sums, as those of `left` do; those of `right` run along the products' columns. */
#pragma once

#include "cuda/device.cuh"

#include <mma.h>

using namespace nvcuda;

enum { SIDE = 16 };

typedef wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sums;
template <class E> using left = wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, E, wmma::row_major>;
template <class E> using turned = wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::col_major>;
template <class E> using right = wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::row_major>;

template <class E> struct Rounding {
    enum { IS_BF16 = 1 };
    DEV_METHOD static uint16_t bits(float x) { return ac_f32_to_bf16(x); }
    DEV_METHOD static float value(uint16_t bits) { return ac_bf16_to_f32(bits); }
};
template <> struct Rounding<__half> {
    enum { IS_BF16 = 0 };
    DEV_METHOD static uint16_t bits(float x) { return float_to_half(x); }
    DEV_METHOD static float value(uint16_t bits) { return half_to_float(bits); }
};
