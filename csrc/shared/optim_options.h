/* The names of the optimizers' update rules, and the options that Python passes by name. For both backends. */
#ifndef AC_SHARED_OPTIM_OPTIONS_H
#define AC_SHARED_OPTIM_OPTIONS_H

#include <stdint.h>

/* Name, and in which order its states lie: see optim_update.inc. A new update rule is an entry here and a function
 * there. */
#define AC_UPDATE_RULES(ENTRY)                                                                                         \
    ENTRY(sgd)                                                                                                         \
    ENTRY(adam) ENTRY(adagrad) ENTRY(rmsprop) ENTRY(adadelta) ENTRY(nadam) ENTRY(adamax) ENTRY(radam) ENTRY(rprop)
#define AC_OPTIM_NUMBERS(ENTRY)                                                                                        \
    ENTRY(lr)                                                                                                          \
    ENTRY(momentum)                                                                                                    \
    ENTRY(dampening)                                                                                                   \
    ENTRY(weight_decay)                                                                                                \
    ENTRY(beta1) ENTRY(beta2) ENTRY(eps) ENTRY(later) ENTRY(fall) ENTRY(rise) ENTRY(least) ENTRY(most)
#define AC_OPTIM_FLAGS(ENTRY) ENTRY(nesterov) ENTRY(maximize) ENTRY(decoupled) ENTRY(centered)

typedef enum {
#define AC_ENTRY(name) AC_UPDATE_RULE_##name,
    AC_UPDATE_RULES(AC_ENTRY)
#undef AC_ENTRY
        AC_N_UPDATE_RULES
} ac_update_rule;

/* `later`: what changes over the steps, Adagrad's lr_decay and NAdam's momentum_decay. `fall`, `rise`, `least` and
 * `most` are of Rprop's step sizes. */
typedef struct {
#define AC_ENTRY(name) double name;
    AC_OPTIM_NUMBERS(AC_ENTRY)
#undef AC_ENTRY
#define AC_ENTRY(name) int32_t name;
    AC_OPTIM_FLAGS(AC_ENTRY)
#undef AC_ENTRY
} ac_optim_options;

/* What differs from parameter to parameter: how many updates it has had, this one included; what its gradient in memory
 * is multiplied by; and NAdam's product of momenta, this step's included. */
typedef struct {
    double step, factor, product;
} ac_optim_scalars;

#endif
