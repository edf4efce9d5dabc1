/* The tile unit's micro-kernels (cpu/gemm/micro_amx.c) on any x86 CPU: their instructions are functions here. Float16
 * products, which that file writes as bytes of code, are not among them. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include "base/half.h"

#include <immintrin.h>
#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };
static _Thread_local struct {
    char row[ROWS][ROW_BYTES];
} tiles[TILES];

static void load(int t, const void *from, int64_t stride) {
    for (int i = 0; i < ROWS; i++) memcpy(tiles[t].row[i], (const char *)from + i * stride, ROW_BYTES);
}
static void store(int t, void *to, int64_t stride) {
    for (int i = 0; i < ROWS; i++) memcpy((char *)to + i * stride, tiles[t].row[i], ROW_BYTES);
}

/* c[m][n] += a[m][2k] b[k][2n] + a[m][2k + 1] b[k][2n + 1] */
static void dot_bf16(int c, int a, int b) {
    for (int m = 0; m < ROWS; m++) {
        float sum[ROWS];
        uint16_t left[2 * ROWS], right[2 * ROWS];
        memcpy(sum, tiles[c].row[m], sizeof sum);
        memcpy(left, tiles[a].row[m], sizeof left);
        for (int k = 0; k < ROWS; k++) {
            memcpy(right, tiles[b].row[k], sizeof right);
            for (int i = 0; i < 2 * ROWS; i++)
                sum[i / 2] += ac_bf16_to_f32(left[2 * k + i % 2]) * ac_bf16_to_f32(right[i]);
        }
        memcpy(tiles[c].row[m], sum, sizeof sum);
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) ((void)(config))
#define _tile_release() ((void)0)
#define _tile_loadd(t, from, stride) load(t, from, stride)
#define _tile_stored(t, to, stride) store(t, to, stride)
#define _tile_zero(t) memset(&tiles[t], 0, sizeof tiles[t])
#define _tile_dpbf16ps(c, a, b) dot_bf16(c, a, b)
#define ac_micro_amx_bf16 tests_tiles_bf16
#define ac_micro_amx_fp16 tests_tiles_fp16
#define ac_micro_amx_split tests_tiles_split
extern const ac_micro tests_tiles_bf16, tests_tiles_fp16, tests_tiles_split;
#include "cpu/gemm/micro_amx.c"
#endif
