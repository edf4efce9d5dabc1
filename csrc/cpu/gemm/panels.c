/* Packing of operands into panels, in plain C, and how an operand is cut into them. */
#include "cpu/gemm/panels.h"

#include "base/alloc.h"
#include "base/half.h"
#include "base/machine.h"
#include "base/ways.h"

#include <string.h>

enum { SPAN = 6144 }; /* values along k whose blocks are added one after the other */

/* Values along k in a block, at most; a span is a multiple. A panel of A and one of B then fit a first-level cache of
 * 32 KiB, and four panels of 16 bits. Those of the split, twice as large, fit 48 KiB, which CPUs with tiles have.
 * Vector kernels sum up a block by itself. So it is the same on every CPU. */
static int64_t block_depth(ac_panel_kind kind) { return kind == AC_PANEL_SPLIT ? 192 : 256; }

ac_cut ac_cut_of(ac_panel_kind kind, int64_t k) {
    ac_cut c = {.kind = kind, .depth = kind == AC_PANEL_F32 ? AC_CELLS : 2 * AC_CELLS};
    int64_t most = block_depth(kind);
    c.bytes = kind == AC_PANEL_SPLIT ? 2 * AC_TILE_BYTES : AC_TILE_BYTES;
    c.all_k_steps = kind == AC_PANEL_F32 ? ac_ceil_div(k, AC_CELLS) : ac_ceil_div(k, 2 * AC_CELLS);
    if (k > 0 && k <= most) { /* small products are cut without the divisions below, which take as long as their sums */
        c.k_steps = c.all_k_steps, c.blocks = c.span = 1;
        return c;
    }
    c.blocks = ac_ceil_div(k, most);
    c.k_steps = c.blocks ? (c.all_k_steps + c.blocks - 1) / c.blocks : 0;
    if (k > SPAN) c.k_steps = most / c.depth;
    c.blocks = c.k_steps ? (c.all_k_steps + c.k_steps - 1) / c.k_steps : 0; /* as many as that leaves */
    c.span = k > SPAN ? SPAN / most : c.blocks;
    return c;
}

typedef union {
    float f32[AC_CELLS];
    uint16_t half[2 * AC_CELLS];
    uint32_t cell[AC_CELLS];
} lane_cells;

/* The top 8 bits of a float16's significand and the 3 below them, both exact in bfloat16. */
static bool split(const float *x, int64_t n, lane_cells *high, lane_cells *low) {
    uint32_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t top = ac_bits(x[i]) & 0xFFFF0000u, exponent = top & 0x7F800000u;
        high->half[i] = (uint16_t)(top >> 16);
        low->half[i] = (uint16_t)(ac_bits(x[i] - ac_from_bits(top)) >> 16);
        worst = exponent > worst ? exponent : worst;
    }
    return worst < 0x7F800000u;
}

/* n values along k of one lane, as cells; the rest is zero. */
static bool read_lane(const ac_operand *o, ac_panel_kind kind, int64_t lane, int64_t k, int64_t n, lane_cells out[2]) {
    const ac_loops *loops = ac_cpu_loops();
    const char *from = (const char *)o->data + (lane * o->lane_stride + k * o->k_stride) * ac_itemsize(o->dtype);
    float wide[2 * AC_CELLS];
    uint16_t half[2 * AC_CELLS];
    memset(out, 0, 2 * sizeof *out);
    loops->load[o->dtype][AC_OPMATH_F32](n, from, o->k_stride, wide);
    if (o->round != AC_float32) loops->store[AC_OPMATH_F32][o->round](n, wide, half, 1);
    if (kind == AC_PANEL_BF16 || kind == AC_PANEL_F16) {
        memcpy(out->half, half, (size_t)n * sizeof *half);
        return true;
    }
    if (o->round != AC_float32) loops->load[o->round][AC_OPMATH_F32](n, half, 1, wide);
    if (kind == AC_PANEL_SPLIT) return split(wide, n, &out[0], &out[1]);
    memcpy(out->f32, wide, (size_t)n * sizeof *wide);
    return true;
}

static void store_cells(const lane_cells *cells, bool columns, int64_t lane, uint32_t *tile) {
    if (!columns) memcpy(tile + lane * AC_CELLS, cells->cell, sizeof cells->cell);
    else
        for (int64_t q = 0; q < AC_CELLS; q++) tile[q * AC_LANES + lane] = cells->cell[q];
}

bool ac_pack_k_step_portable(const ac_operand *o, ac_panel_kind kind, bool columns, int64_t lane, int64_t k, char *to) {
    int64_t depth = kind == AC_PANEL_F32 ? AC_CELLS : 2 * AC_CELLS, n = o->k - k < depth ? o->k - k : depth;
    int64_t lanes = o->lanes - lane < AC_LANES ? o->lanes - lane : AC_LANES;
    bool fits = true;
    uint32_t *tile = (uint32_t *)(void *)to;
    if (lanes < AC_LANES) memset(to, 0, kind == AC_PANEL_SPLIT ? 2 * AC_TILE_BYTES : AC_TILE_BYTES);
    for (int64_t i = 0; i < lanes; i++) {
        lane_cells cells[2];
        fits &= read_lane(o, kind, lane + i, k, n, cells);
        store_cells(&cells[0], columns, i, tile);
        if (kind == AC_PANEL_SPLIT) store_cells(&cells[1], columns, i, tile + AC_TILE_FLOATS);
    }
    return fits;
}

static ac_pack_k_step pack_k_step_for(const ac_operand *o, ac_panel_kind kind) {
#ifdef AC_HAVE_X86
    bool unit = o->lane_stride == 1 || o->k_stride == 1;
    if (unit && ac_cpu_isa() >= AC_ISA_AVX512) {
        AC_WAY(pack_avx512);
        return ac_pack_k_step_avx512;
    }
    if (unit && kind == AC_PANEL_F32 && ac_cpu_isa() >= AC_ISA_AVX2) {
        AC_WAY(pack_avx2);
        return ac_pack_k_step_avx2;
    }
#endif
    (void)o, (void)kind;
    AC_WAY(pack_portable);
    return ac_pack_k_step_portable;
}

bool ac_pack(const ac_operand *o, const ac_cut *cut, bool columns, int64_t block, int64_t panel, int64_t count,
             char *to) {
    bool fits = true;
    ac_pack_k_step k_step = pack_k_step_for(o, cut->kind);
    int64_t k_steps = ac_cut_k_steps(cut, block), k = block * cut->k_steps * cut->depth;
    bool by_panel = o->k_stride == 1; /* the direction that memory runs in is walked first */
    int64_t outer = by_panel ? count : k_steps, inner = by_panel ? k_steps : count;
    AC_ASSERT((uintptr_t)to % AC_ALIGNMENT == 0); /* vectors are stored whole */
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            int64_t p = by_panel ? i : j, s = by_panel ? j : i;
            fits &= k_step(o, cut->kind, columns, (panel + p) * AC_LANES, k + s * cut->depth,
                           to + (p * k_steps + s) * cut->bytes);
        }
    return fits;
}

bool ac_pack_part(const ac_operand *o, const ac_cut *cut, bool columns, int64_t panel, int64_t panels, int64_t k_step,
                  int64_t k_steps, char *all) {
    bool fits = true, by_panel = o->k_stride == 1;
    ac_pack_k_step pack = pack_k_step_for(o, cut->kind);
    int64_t all_panels = ac_panels_of(o->lanes);
    for (int64_t i = 0; i < panels * k_steps; i++) {
        int64_t p = panel + (by_panel ? i / k_steps : i % panels), s = k_step + (by_panel ? i % k_steps : i / panels);
        char *to = all + ac_panel_offset(cut, all_panels, s / cut->k_steps, p) + s % cut->k_steps * cut->bytes;
        fits &= pack(o, cut->kind, columns, p * AC_LANES, s * cut->depth, to);
    }
    return fits;
}
