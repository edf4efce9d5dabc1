/* Selects the loops for this machine's instruction set. */
#include "cpu/loops.h"

#include "base/machine.h"
#include "base/ways.h"

const ac_loops *ac_cpu_loops(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    static const ac_loops *const by_level[] = {&ac_loops_baseline, &ac_loops_avx2, &ac_loops_avx512};
    ac_isa level = ac_cpu_isa();
    return by_level[level < AC_ISA_AVX512 ? level : AC_ISA_AVX512];
#else
    return &ac_loops_baseline;
#endif
}

void ac_cpu_note_loops(const ac_loops *loops) {
#ifdef AC_HAVE_X86
    if (loops == &ac_loops_avx512) AC_WAY(loops_avx512);
    if (loops == &ac_loops_avx2) AC_WAY(loops_avx2);
#endif
    if (loops == &ac_loops_baseline) AC_WAY(loops_baseline);
}
