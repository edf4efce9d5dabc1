/* What the .cu files need of CUDA, for a C++ compiler: a kernel becomes a function over one thread, run on a fiber
 * of its own by block.cpp. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DEV static inline
#define DEV_CALL static inline
#define __forceinline__
#define __volatile__ volatile

struct sim_index {
    unsigned x, y, z;
};
extern sim_index sim_thread, sim_block, sim_block_size, sim_grid_size;
#define threadIdx sim_thread
#define blockIdx sim_block
#define blockDim sim_block_size
#define gridDim sim_grid_size

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

/* What the launch asked for, filled with garbage before every block. */
extern char *ac_shared_memory;

void sim_sync_block(void);
void sim_sync_warp(void);
void *sim_warp_slot(int lane); /* 32 bytes for each lane of this thread's warp */
int sim_lane(void);

/* The entry that the stand-in driver finds by name: it reads the arguments as the real one does. */
#define AC_KERNEL(name, Args)                                                                                          \
    static_assert(sizeof(Args) <= AC_GPU_MOST_ARGS, #name " has more arguments than a launch carries");                \
    static void body_##name(const Args &a);                                                                            \
    extern "C" __attribute__((visibility("default"))) void sim_kernel_##name(void **params) {                          \
        body_##name(*(const Args *)params[0]);                                                                         \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const size_t sim_bytes_##name = sizeof(Args);                    \
    static void body_##name(const Args &a)

#define AC_KERNEL_OF_TWO AC_KERNEL
#define AC_KERNEL_OF_FOUR AC_KERNEL
#define AC_KERNEL_OF(threads, blocks, name, Args) AC_KERNEL(name, Args)

#define __syncthreads sim_sync_block
#define __syncwarp sim_sync_warp
static inline void __threadfence_system(void) {}

template <class V> static inline V sim_exchange(V v, int from) {
    static_assert(sizeof(V) <= 16, "a shuffled value has at most 16 bytes");
    memcpy(sim_warp_slot(sim_lane()), &v, sizeof v);
    sim_sync_warp();
    V other;
    memcpy(&other, sim_warp_slot(from), sizeof other);
    sim_sync_warp();
    return other;
}
template <class V> static inline V __shfl_xor_sync(unsigned, V v, int with) {
    return sim_exchange(v, sim_lane() ^ with);
}

static inline unsigned __ballot_sync(unsigned, int yes) {
    memcpy(sim_warp_slot(sim_lane()), &yes, sizeof yes);
    sim_sync_warp();
    unsigned lanes = 0;
    for (int lane = 0; lane < 32; lane++) {
        int said;
        memcpy(&said, sim_warp_slot(lane), sizeof said);
        lanes |= (unsigned)(said != 0) << lane;
    }
    sim_sync_warp();
    return lanes;
}
#define __popc __builtin_popcount
/* Of the 16-bit values that four neighbouring lanes from 4 * row on left in a register of theirs, two each. */
static inline uint16_t sim_half_of(int row, int a_register, int column) {
    uint16_t half;
    memcpy(&half, (char *)sim_warp_slot(4 * row + column / 2) + 4 * a_register + column % 2 * 2, 2);
    return half;
}
/* Of each of four matrices of 8 x 8 such values, whose rows lie in the lanes' slots, what this lane gets. */
static inline void sim_gather_matrices(uint32_t (&to)[4], bool turned) {
    for (int i = 0; i < 4; i++)
        for (int e = 0; e < 2; e++) {
            int row = sim_lane() / 4, column = sim_lane() % 4 * 2 + e;
            uint16_t half;
            memcpy(&half, (char *)sim_warp_slot(8 * i + (turned ? column : row)) + 2 * (turned ? row : column), 2);
            to[i] = e ? to[i] | (uint32_t)half << 16 : half;
        }
}

/* Threads of the simulator never run side by side. */
template <class V> static inline V atomicAdd(V *at, V v) {
    V old = *at;
    *at = old + v;
    return old;
}
template <class V> static inline V atomicCAS(V *at, V expected, V v) {
    V old = *at;
    if (old == expected) *at = v;
    return old;
}
