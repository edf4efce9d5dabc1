/* The names of the optimizers' update rules, and the options that Python passes by name. For both backends. */
#ifndef AC_SHARED_OPTIM_OPTIONS_H
#define AC_SHARED_OPTIM_OPTIONS_H

#include <stdint.h>

/* Name, and in which order its states lie: see optim_update.inc. A new update rule is an entry here and a function
 * there. */
#define AC_UPDATE_RULES(ROW)                                                                                           \
    ROW(sgd) ROW(adam) ROW(adagrad) ROW(rmsprop) ROW(adadelta) ROW(nadam) ROW(adamax) ROW(radam) ROW(rprop)
#define AC_OPTIM_NUMBERS(ROW)                                                                                          \
    ROW(lr)                                                                                                            \
    ROW(momentum)                                                                                                      \
    ROW(dampening) ROW(weight_decay) ROW(beta1) ROW(beta2) ROW(eps) ROW(later) ROW(fall) ROW(rise) ROW(least) ROW(most)
#define AC_OPTIM_FLAGS(ROW) ROW(nesterov) ROW(maximize) ROW(decoupled) ROW(centered)

typedef enum {
#define AC_ROW(name) AC_UPDATE_RULE_##name,
    AC_UPDATE_RULES(AC_ROW)
#undef AC_ROW
        AC_N_UPDATE_RULES
} ac_update_rule;

/* `later`: what changes over the steps, Adagrad's lr_decay and NAdam's momentum_decay. `fall`, `rise`, `least` and
 * `most` are of Rprop's step sizes. */
typedef struct {
#define AC_ROW(name) double name;
    AC_OPTIM_NUMBERS(AC_ROW)
#undef AC_ROW
#define AC_ROW(name) int32_t name;
    AC_OPTIM_FLAGS(AC_ROW)
#undef AC_ROW
} ac_optim_options;

/* What differs from parameter to parameter: how many updates it has had, this one included; what its gradient in memory
 * is multiplied by; and NAdam's product of momenta, this step's included. */
typedef struct {
    double step, factor, product;
} ac_optim_scalars;

#endif
