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

/* 2^x within 2 of its last bits; 0 where that is below the smallest normal number. */
DEV float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Copies 16 bytes to shared memory, or zeros where they are not there. From generation 8 on that goes on while the
 * thread does, until copies_done(); others see it after a barrier behind that. */
#if __CUDA_ARCH__ >= 800
DEV void copy_begins(void *to, const void *from, bool there) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to), bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
DEV void copies_done(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}
#define AC_COPIES_GO_ON 1
#endif
#else
#define DEV_METHOD inline
DEV float half_to_float(uint16_t h) { return ac_f16_to_f32(h); }
DEV uint16_t float_to_half(float x) { return ac_f32_to_f16(x); }
DEV float power_of_2(float x) { return exp2f(x); }
#endif

#if !defined(AC_COPIES_GO_ON)
DEV void copy_begins(void *to, const void *from, bool there) {
    uint4 none = {0, 0, 0, 0};
    *(uint4 *)to = there ? *(const uint4 *)from : none;
}
DEV void copies_done(void) {}
#endif
