/* More words of compositions: what a tensor holds, and all of it in one dimension. */
#ifndef AC_DISPATCH_COMPOSE_READ_H
#define AC_DISPATCH_COMPOSE_READ_H

#include "dispatch/compose.h"

/* The number that x, of one element, holds; a GPU is waited for. NULL as x, and failures, give 0. */
double ac_c_read(ac_scratch *s, T x);
/* Whether any element is not 0. */
bool ac_c_any(ac_scratch *s, T x);
T ac_c_flat(ac_scratch *s, T x);

#endif
