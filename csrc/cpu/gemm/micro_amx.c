/* Micro-kernels on the tile unit (AMX): 2 x 2 tiles of C, one k step at a time. */
#include "cpu/gemm/micro.h"

#ifdef AC_HAVE_X86
#include <immintrin.h>

#pragma GCC target("amx-tile,amx-bf16,avx512f")

/* LDTILECFG's memory: eight tiles of 16 rows by 64 bytes. Tiles 0..3 are C, 4 and 5 A, 6 and 7 B. */
static const struct __attribute__((packed)) {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void) { _tile_loadconfig(&config); }
static void end(void) { _tile_release(); }

/* Tile numbers are part of the instruction, so what varies is macros. GCC 12 has no word for tdpfp16ps. */
#define DOT_BF16(c, a, b) _tile_dpbf16ps(c, a, b)
#define DOT_FP16(c, a, b)                                                                                              \
    __asm__ volatile(".byte 0xC4, 0xE2, %c0, 0x5C, %c1" ::"i"(((~(b) & 15) << 3) | 3), "i"(0xC0 | (c) << 3 | (a)))

#define LOAD(t, p) _tile_loadd(t, p, 64)
#define LOAD_A(t, p) _tile_loadd(t, p, j->a_lane_stride)
#define LOAD_B(t, p) _tile_loadd(t, p, j->b_cell_stride)
#define LOAD_C(na, nb)                                                                                                 \
    do {                                                                                                               \
        if (!j->add) {                                                                                                 \
            _tile_zero(0);                                                                                             \
            _tile_zero(1);                                                                                             \
            _tile_zero(2);                                                                                             \
            _tile_zero(3);                                                                                             \
            break;                                                                                                     \
        }                                                                                                              \
        LOAD(0, c);                                                                                                    \
        if (nb > 1) LOAD(1, c + j->c_b);                                                                               \
        if (na > 1) LOAD(2, c + j->c_a);                                                                               \
        if (na > 1 && nb > 1) LOAD(3, c + j->c_a + j->c_b);                                                            \
    } while (0)
#define STORE_C(na, nb)                                                                                                \
    do {                                                                                                               \
        _tile_stored(0, c, 64);                                                                                        \
        if (nb > 1) _tile_stored(1, c + j->c_b, 64);                                                                   \
        if (na > 1) _tile_stored(2, c + j->c_a, 64);                                                                   \
        if (na > 1 && nb > 1) _tile_stored(3, c + j->c_a + j->c_b, 64);                                                \
    } while (0)
#define DOTS(DOT, na, nb)                                                                                              \
    do {                                                                                                               \
        DOT(0, 4, 6);                                                                                                  \
        if (nb > 1) DOT(1, 4, 7);                                                                                      \
        if (na > 1) DOT(2, 5, 6);                                                                                      \
        if (na > 1 && nb > 1) DOT(3, 5, 7);                                                                            \
    } while (0)
#define FETCH()                                                                                                        \
    do {                                                                                                               \
        for (int l = 0; l < AC_FETCH_A / 64; l++) _mm_prefetch(soon_a + 64 * l, _MM_HINT_T1);                          \
        for (int l = 0; l < AC_FETCH_B / 64; l++) _mm_prefetch(soon_b + 64 * l, _MM_HINT_T1);                          \
        soon_a += AC_FETCH_A, soon_b += AC_FETCH_B;                                                                    \
    } while (0)

/* One product a k step. */
#define PLAIN_STEPS(DOT, na, nb)                                                                                       \
    for (int64_t s = 0; s < j->k_steps; s++) {                                                                         \
        const char *a = j->a + s * j->a_k_stride, *b = ac_micro_b(j, s, AC_TILE_BYTES);                                \
        LOAD_B(6, b);                                                                                                  \
        LOAD_A(4, a);                                                                                                  \
        if (nb > 1) LOAD_B(7, b + j->b_next);                                                                          \
        if (na > 1) LOAD_A(5, a + j->a_next);                                                                          \
        FETCH();                                                                                                       \
        DOTS(DOT, na, nb);                                                                                             \
    }

/* (high + low)(high + low) in four exact products; ends with what the next k step does not need. */
#define SPLIT_STEPS(DOT, na, nb)                                                                                       \
    for (int64_t s = 0; s < j->k_steps; s++) {                                                                         \
        const char *a = j->a + s * j->a_k_stride, *b = ac_micro_b(j, s, 2 * AC_TILE_BYTES);                            \
        LOAD_B(6, b);                                                                                                  \
        LOAD_A(4, a);                                                                                                  \
        if (nb > 1) LOAD_B(7, b + j->b_next);                                                                          \
        if (na > 1) LOAD_A(5, a + j->a_next);                                                                          \
        FETCH();                                                                                                       \
        DOTS(DOT, na, nb); /* high high */                                                                             \
        LOAD_B(6, b + AC_TILE_BYTES);                                                                                  \
        if (nb > 1) LOAD_B(7, b + j->b_next + AC_TILE_BYTES);                                                          \
        DOTS(DOT, na, nb); /* high low */                                                                              \
        LOAD_A(4, a + AC_TILE_BYTES);                                                                                  \
        if (na > 1) LOAD_A(5, a + j->a_next + AC_TILE_BYTES);                                                          \
        FETCH();                                                                                                       \
        DOTS(DOT, na, nb); /* low low */                                                                               \
        LOAD_B(6, b);                                                                                                  \
        if (nb > 1) LOAD_B(7, b + j->b_next);                                                                          \
        DOTS(DOT, na, nb); /* low high */                                                                              \
    }

#define TILES(STEPS, DOT, na, nb)                                                                                      \
    do {                                                                                                               \
        LOAD_C(na, nb);                                                                                                \
        STEPS(DOT, na, nb)                                                                                             \
        STORE_C(na, nb);                                                                                               \
    } while (0)

#define KERNEL(name, STEPS, DOT)                                                                                       \
    static void name(const ac_micro_job *j) {                                                                          \
        float *c = j->c;                                                                                               \
        const char *soon_a = j->soon_a, *soon_b = j->soon_b;                                                           \
        if (j->na > 1 && j->nb > 1) TILES(STEPS, DOT, 2, 2);                                                           \
        else if (j->nb > 1) TILES(STEPS, DOT, 1, 2);                                                                   \
        else if (j->na > 1) TILES(STEPS, DOT, 2, 1);                                                                   \
        else TILES(STEPS, DOT, 1, 1);                                                                                  \
    }

KERNEL(run_bf16, PLAIN_STEPS, DOT_BF16)
KERNEL(run_fp16, PLAIN_STEPS, DOT_FP16)
KERNEL(run_split, SPLIT_STEPS, DOT_BF16)

const ac_micro ac_micro_amx_bf16 = {.name = "amx_bf16",
                                    .way = AC_WAY_micro_amx_bf16,
                                    .kind = AC_PANEL_BF16,
                                    .isa = AC_ISA_AMX_BF16,
                                    .a = 2,
                                    .b = 2,
                                    .begin = begin,
                                    .end = end,
                                    .run = run_bf16};
const ac_micro ac_micro_amx_fp16 = {.name = "amx_fp16",
                                    .way = AC_WAY_micro_amx_fp16,
                                    .kind = AC_PANEL_F16,
                                    .isa = AC_ISA_AMX_FP16,
                                    .a = 2,
                                    .b = 2,
                                    .begin = begin,
                                    .end = end,
                                    .run = run_fp16};
const ac_micro ac_micro_amx_split = {.name = "amx_split",
                                     .way = AC_WAY_micro_amx_split,
                                     .kind = AC_PANEL_SPLIT,
                                     .isa = AC_ISA_AMX_BF16,
                                     .a = 2,
                                     .b = 2,
                                     .begin = begin,
                                     .end = end,
                                     .run = run_split};
#endif
