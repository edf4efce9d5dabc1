/* The loops for any machine. */
#define ISA baseline
#include "cpu/loops.inc"
