/* Device instructions that C++ cannot express, each with an equivalent in C for the simulator. */
#pragma once

#if defined(__CUDACC__)
#define DEV_METHOD __device__ __forceinline__

DEV float half_to_float(uint16_t h) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}
DEV uint16_t float_to_half(float x) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
#else
#define DEV_METHOD inline
DEV float half_to_float(uint16_t h) { return ac_f16_to_f32(h); }
DEV uint16_t float_to_half(float x) { return ac_f32_to_f16(x); }
#endif
