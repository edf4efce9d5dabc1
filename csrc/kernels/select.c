/* Which loops this machine runs. */
#include "loops.h"

#include "../base/machine.h"
#include "../base/ways.h"

const ac_loops *ac_cpu_loops(void) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
    ac_isa level = ac_cpu_isa();
    if (level >= AC_ISA_AVX512) {
        AC_WAY(loops_avx512);
        return &ac_loops_avx512;
    }
    if (level >= AC_ISA_AVX2) {
        AC_WAY(loops_avx2);
        return &ac_loops_avx2;
    }
#endif
    AC_WAY(loops_baseline);
    return &ac_loops_baseline;
}
