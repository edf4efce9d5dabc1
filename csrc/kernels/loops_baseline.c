/* The loops for any machine. */
#define ISA baseline
#include "loops.inc"
