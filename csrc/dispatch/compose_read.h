/* More words of compositions: what a tensor holds, all of it in one dimension, and without its history. */
#ifndef AC_DISPATCH_COMPOSE_READ_H
#define AC_DISPATCH_COMPOSE_READ_H

#include "dispatch/compose.h"

#include "autograd/node.h"

/* The number that x, of one element, holds; a GPU is waited for. NULL as x, and failures, give 0. */
double ac_c_read(ac_scratch *s, T x);
/* Whether any element is not 0. */
bool ac_c_any(ac_scratch *s, T x);
/* What a tensor made of a Python number (is_scalar) holds. */
ac_scalar ac_c_scalar(const ac_tensor *number);
T ac_c_flat(ac_scratch *s, T x);
T ac_c_at(ac_scratch *s, T x, T index); /* x[index] */
/* A new tensor filled with a number, which must stand in the dtype. */
T ac_c_filled(ac_scratch *s, const ac_dims *shape, ac_scalar value, ac_dtype dtype, ac_device device);
/* x in that dtype; of a Python number a 0-d tensor on the device. */
T ac_c_as_tensor(ac_scratch *s, T x, ac_dtype dtype, ac_device device);
/* x without history, and whether it has one that is recorded. */
T ac_c_detach(ac_scratch *s, T x);
bool ac_c_records(const ac_tensor *x);
/* x for a result that is linear in it by pieces: as of one such operator, the gradient has a second derivative. */
T ac_c_piecewise(ac_scratch *s, T x);
/* x of an inner scratch, which is about to be released, for the outer one: the steps of a loop let go of their
 * temporaries. */
T ac_c_hand_up(ac_scratch *s, ac_scratch *inner, T x);

#endif
