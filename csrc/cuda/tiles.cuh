/* Tiles of tensor cores: 16 x 16 values in 16 bits, whose vectors run along the products' sums, and float32 sums. */
#pragma once

#include "cuda/device.cuh"

#include <mma.h>

using namespace nvcuda;

enum { SIDE = 16 };

typedef wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float> sums;
template <class E> using left = wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, E, wmma::row_major>;
template <class E> using right = wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::col_major>;

template <class E> struct Rounding {
    DEV_METHOD static uint16_t bits(float x) { return ac_f32_to_bf16(x); }
};
template <> struct Rounding<__half> {
    DEV_METHOD static uint16_t bits(float x) { return float_to_half(x); }
};
