/* Fills, ranges and random numbers: number i of a random tensor comes from the same counter as on the CPU. */
#include "cuda/device.cuh"

#define EACH_INDEX for (int64_t i = thread_index(); i < a.n; i += thread_count())

AC_KERNEL(ac_fill, ac_gpu_fill) {
    EACH_INDEX {
        if (a.real) store<double>(a.out, i, a.a);
        else store<int64_t>(a.out, i, a.ia);
    }
}

AC_KERNEL(ac_arange, ac_gpu_fill) {
    EACH_INDEX {
        if (a.real) store<double>(a.out, i, a.a + (double)i * a.b);
        else store<int64_t>(a.out, i, (int64_t)((uint64_t)a.ia + (uint64_t)i * (uint64_t)a.ib));
    }
}

/* Two 32-bit words for number i. */
DEV void words(const ac_gpu_random &random, int64_t i, uint32_t *hi, uint32_t *lo) {
    ac_philox_block b = ac_philox(random.seed, random.offset + (uint64_t)i / 2);
    *hi = i % 2 ? b.v[2] : b.v[0], *lo = i % 2 ? b.v[3] : b.v[1];
}

AC_KERNEL(ac_uniform, ac_gpu_fill) {
    ac_gpu_random random = random_now(a.random);
    EACH_INDEX {
        uint32_t hi, lo;
        words(random, i, &hi, &lo);
        double u = a.out.dtype == AC_float64 ? ac_uniform53(hi, lo) : (double)ac_uniform24(hi);
        store<double>(a.out, i, a.a + u * (a.b - a.a));
        /* a half type may round up to the bound, which is excluded */
        bool half = a.out.dtype == AC_float16 || a.out.dtype == AC_bfloat16;
        if (half && load<double>(a.out, i) >= a.b) store<double>(a.out, i, a.a);
    }
}

/* Box and Muller 1958. */
AC_KERNEL(ac_normal, ac_gpu_fill) {
    ac_gpu_random random = random_now(a.random);
    EACH_INDEX {
        uint32_t hi, lo;
        double z;
        if (a.out.dtype == AC_float64) {
            ac_philox_block b = ac_philox(random.seed ^ 0x9E3779B97F4A7C15u, random.offset + (uint64_t)i);
            double radius = sqrt(-2 * log(1 - ac_uniform53(b.v[0], b.v[1])));
            z = radius * cos(6.283185307179586 * ac_uniform53(b.v[2], b.v[3]));
        } else {
            words(random, i, &hi, &lo);
            z = (double)sqrtf(-2 * logf(1 - ac_uniform24(hi))) * (double)cosf(6.2831853f * ac_uniform24(lo));
        }
        store<double>(a.out, i, a.a + a.b * z);
    }
}

AC_KERNEL(ac_randint, ac_gpu_fill) {
    ac_gpu_random random = random_now(a.random);
    uint64_t range = (uint64_t)a.ib - (uint64_t)a.ia;
    EACH_INDEX {
        uint32_t hi, lo;
        words(random, i, &hi, &lo);
        store<int64_t>(a.out, i, (int64_t)((uint64_t)a.ia + (((uint64_t)hi << 32) | lo) % range));
    }
}
