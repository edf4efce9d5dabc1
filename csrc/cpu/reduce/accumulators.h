/* How many accumulators a sum has. A run is summed in 64 independent accumulators (its last few values in 16), which
 * a compiler turns into vector registers. That is enough to hide the latency of an addition, and keeps rounding
 * errors near those of pairwise summation. Runs have at most AC_TILE values (4096 in rows); their totals are added in
 * float64. */
#ifndef AC_CPU_REDUCE_ACCUMULATORS_H
#define AC_CPU_REDUCE_ACCUMULATORS_H

enum { ACCUMULATORS = 64, FEW_ACCUMULATORS = 16 };
/* Before a loop over sixteen accumulators: unrolled, as compilers would, its vectors become single values. */
#define SIXTEEN _Pragma("GCC unroll 1")
#define ADD(a, b) ((a) + (b))

#endif
