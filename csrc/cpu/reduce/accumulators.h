/* How sums are made: a run in 64 independent lanes (its last few in 16), which a compiler turns into vector
 * registers, enough of them to hide the latency of an addition, and which keeps rounding errors near those
 * of pairwise summation; runs are at most AC_TILE (in rows 4096) long and their totals are added in float64. */
#ifndef AC_CPU_REDUCE_ACCUMULATORS_H
#define AC_CPU_REDUCE_ACCUMULATORS_H

enum { LANES = 64, FEW_LANES = 16 };
#define ADD(a, b) ((a) + (b))

#endif
