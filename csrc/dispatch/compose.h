// clang-format off
/* Compositions: operators written in terms of other operators, in the language of autograd/expression.h. A composition
 * returns its result, borrowed from the scratch or an input, or NULL.
 *
 * In a composition `s` is the scratch, `in` its tensors (NULL where an optional one is absent). */
#ifndef AC_DISPATCH_COMPOSE_H
#define AC_DISPATCH_COMPOSE_H

#include "amp/autocast.h"
#include "autograd/expression.h"
#include "ops/views.h"

/* Of the composite operators. */
typedef int (*ac_compose_fn)(ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out);
extern const ac_compose_fn ac_compositions[AC_N_OPS];

typedef T (*ac_composition)(ac_scratch *s, T const *in, int n_in, const void *attrs);
/* Runs a composition and lets go of its temporaries. */
int ac_compose_run(ac_composition f, T const *in, int n_in, const void *attrs, T *out) AC_CHECKED;

/* Takes numbers of the random stream for dropout with probability p of so many elements. */
int ac_c_draw_mask(double p, int64_t numel, ac_attrs_dropout_mask *mask) AC_CHECKED;

#define COMPOSITE(name, ...) int ac_compose_##name(T const *in, int n_in, const void *attrs, T *out);
#include "ops/ops.def"

#define COMPOSE(name)                                                                              \
    static T name##_of(ac_scratch *s, T const *in, int n_in, const void *attrs);                   \
    int ac_compose_##name(T const *in, int n_in, const void *attrs, T *out) {                      \
        return ac_compose_run(name##_of, in, n_in, attrs, out);                                    \
    }                                                                                              \
    static T name##_of(ac_scratch *s AC_UNUSED, T const *in AC_UNUSED, int n_in AC_UNUSED, const void *attrs AC_UNUSED)
#define ATTRS(name) const ac_attrs_##name *a = attrs

#endif
