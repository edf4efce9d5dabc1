/* Runs of the optimizers, once for float and double: one read of each operand, one write, by the rules of rules.h. */

#define RULE static inline __attribute__((always_inline))
#include "rules.h"
#undef RULE

#define STEP_LOOP(name, states)                                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        R s[3] = {states > 0 ? a[i] : 0, states > 1 ? b[i] : 0, states > 2 ? c[i] : 0};                                \
        p[i] = S(rule_##name)(&k, g[i], p[i], s, states);                                                              \
        if (states > 0) a[i] = s[0];                                                                                   \
        if (states > 1) b[i] = s[1];                                                                                   \
        if (states > 2) c[i] = s[2];                                                                                   \
    }                                                                                                                  \
    break
#define STEP_RUN(name)                                                                                                 \
    static void S(name##_step)(int64_t n, const ac_rule_options *o, const ac_rule_place *at, const void *grad,         \
                               void *param, void *const *state) {                                                      \
        S(rule_constants) k = S(rule_constants_of)(o, at);                                                             \
        const R *g = grad;                                                                                             \
        R *p = param, *a = state[0], *b = state[1], *c = state[2];                                                     \
        switch ((a != NULL) + (b != NULL) + (c != NULL)) {                                                             \
        case 0: STEP_LOOP(name, 0);                                                                                    \
        case 1: STEP_LOOP(name, 1);                                                                                    \
        case 2: STEP_LOOP(name, 2);                                                                                    \
        default: STEP_LOOP(name, 3);                                                                                   \
        }                                                                                                              \
    }
AC_RULES(STEP_RUN)
#undef STEP_RUN
#undef STEP_LOOP
