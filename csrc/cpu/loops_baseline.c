/* The innermost loops compiled for any machine of the architecture. */
#define ISA baseline
#include "cpu/loops.inc"
