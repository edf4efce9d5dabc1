/* Selects the micro-kernel of a product, and holds the portable one. */
#include "cpu/gemm/micro.h"

static void run_portable(const ac_micro_job *j) {
    for (int i = 0; i < AC_LANES; i++) {
        float sum[AC_LANES] = {0}, *c = j->c + i * AC_LANES;
        for (int64_t s = 0; s < j->k_steps; s++) {
            const float *a = (const float *)(const void *)(j->a + s * j->a_k_stride + i * j->a_lane_stride);
            const char *b = ac_micro_b(j, s, AC_TILE_BYTES);
            for (int q = 0; q < AC_CELLS; q++, b += j->b_cell_stride)
                for (int l = 0; l < AC_LANES; l++) sum[l] += a[q] * ((const float *)(const void *)b)[l];
        }
        for (int l = 0; l < AC_LANES; l++) c[l] = j->add ? c[l] + sum[l] : sum[l];
    }
}

const ac_micro ac_micro_portable = {.name = "portable",
                                    .way = AC_WAY_micro_portable,
                                    .kind = AC_PANEL_F32,
                                    .isa = AC_ISA_BASELINE,
                                    .a = 1,
                                    .b = 1,
                                    .run = run_portable};

static const ac_micro *const all[] = {
#ifdef AC_HAVE_X86
    &ac_micro_amx_fp16,    &ac_micro_amx_bf16, &ac_micro_amx_split,
    &ac_micro_avx512_bf16, &ac_micro_avx512,   &ac_micro_avx2,
#endif
    &ac_micro_portable,
};
enum { N_ALL = sizeof all / sizeof *all };

const ac_micro *ac_micro_at(int i) {
    for (int k = 0; k < N_ALL; k++)
        if (all[k]->isa <= ac_cpu_isa() && i-- == 0) return all[k];
    return NULL;
}

static bool suits(const ac_micro *m, ac_dtype round, bool finite) {
    switch (m->kind) {
    case AC_PANEL_F32: return true; /* holds the 16-bit types exactly */
    case AC_PANEL_BF16: return round == AC_bfloat16 && (m->isa != AC_ISA_AVX512_BF16 || ac_this_machine()->fast_dot);
    case AC_PANEL_F16: return round == AC_float16;
    case AC_PANEL_SPLIT: return round == AC_float16 && finite;
    }
    return false;
}

const ac_micro *ac_micro_for(ac_dtype round, bool finite) {
    for (int k = 0; k < N_ALL; k++)
        if (all[k]->isa <= ac_cpu_isa() && suits(all[k], round, finite)) return all[k];
    return &ac_micro_portable;
}
