/* What an optimizer does to one value: g the gradient, p the parameter, s its `states` states, updated in place; the
 * new parameter is returned. Included for float and double, by the CPU's loops and by the GPU's kernels; RULE is how a
 * function is declared there. Sources: the papers named, in the form that torch.optim gives them. */

typedef struct {
    R sign, lr, decay, shrink, eps;   /* sign: of the gradient, with its factor */
    R b1, b2, rate, root, by_g, by_m; /* the moments' */
    R rest1, rest2;                   /* what the betas leave of 1, which a rounded beta near 1 does not tell */
    R late;                           /* the rate that Adagrad's decay leaves */
    R trusted;                        /* RAdam's rate where the second moment is trusted, else 0 */
    R fall, rise, least, most;        /* Rprop's */
    R momentum, keep, take, ahead, now;
    int centered;
} S(rule_constants);

/* NAdam's momentum at a step. */
RULE double S(momentum_at)(const ac_rule_options *o, double step) {
    return o->beta1 * (1 - 0.5 * pow(0.96, step * o->later));
}

RULE S(rule_constants) S(rule_constants_of)(const ac_rule_options *o, const ac_rule_place *at) {
    S(rule_constants) k;
    double bias1 = 1 - pow(o->beta1, at->step), bias2 = 1 - pow(o->beta2, at->step);
    double now = S(momentum_at)(o, at->step), next = S(momentum_at)(o, at->step + 1), product = at->product;
    int first = at->step <= 1;
    k.sign = (R)(o->maximize ? -at->factor : at->factor), k.lr = (R)o->lr, k.eps = (R)o->eps;
    k.shrink = o->decoupled ? (R)(1 - o->lr * o->weight_decay) : 1, k.decay = o->decoupled ? 0 : (R)o->weight_decay;
    k.b1 = (R)o->beta1, k.b2 = (R)o->beta2, k.rest1 = (R)(1 - o->beta1), k.rest2 = (R)(1 - o->beta2);
    k.late = (R)(o->lr / (1 + (at->step - 1) * o->later));
    k.rate = (R)(o->lr / bias1), k.root = (R)(1 / sqrt(bias2));
    k.by_g = (R)(o->lr * (1 - now) / (1 - product)), k.by_m = (R)(o->lr * next / (1 - product * next));
    k.momentum = (R)o->momentum, k.keep = first ? 0 : (R)o->momentum, k.take = first ? 1 : (R)(1 - o->dampening);
    k.ahead = o->nesterov ? (R)o->momentum : 1, k.now = o->nesterov ? 1 : 0;
    k.centered = o->centered;
    double longest = 2 / (1 - o->beta2) - 1, length = longest - 2 * at->step * (1 - bias2) / bias2;
    double trust = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length);
    k.trusted = length > 5 ? (R)(o->lr / bias1 * sqrt(trust * bias2)) : 0;
    k.fall = (R)o->fall, k.rise = (R)o->rise, k.least = (R)o->least, k.most = (R)o->most;
    return k;
}

#define DOING(name) RULE R S(rule_##name)(const S(rule_constants) * k, R g, R p, R * s, int states)
#define LARGER_OF(a, b) ((a) > (b) ? (a) : (b))

/* Sutskever et al. 2013: momentum */
DOING(sgd) {
    R d = k->sign * g + k->decay * p;
    if (states == 0) return p - k->lr * d;
    s[0] = k->keep * s[0] + k->take * d;
    return p - k->lr * (k->now * d + k->ahead * s[0]);
}

/* Kingma and Ba 2015; decoupled decay Loshchilov and Hutter 2019; amsgrad Reddi et al. 2018: exp_avg, exp_avg_sq,
 * max_exp_avg_sq */
DOING(adam) {
    R w = p * k->shrink, d = k->sign * g + k->decay * w, largest;
    s[0] = s[0] + k->rest1 * (d - s[0]);
    largest = s[1] = k->b2 * s[1] + k->rest2 * d * d;
    if (states > 2) s[2] = largest = LARGER_OF(s[1], s[2]);
    return w - k->rate * s[0] / ((R)M_SQRT(largest) * k->root + k->eps);
}

/* Duchi et al. 2011: sum */
DOING(adagrad) {
    R d = k->sign * g + k->decay * p;
    (void)states;
    s[0] = s[0] + d * d;
    return p - k->late * d / ((R)M_SQRT(s[0]) + k->eps);
}

/* Tieleman and Hinton 2012; centered Graves 2013: square_avg; momentum_buffer where there is momentum; grad_avg, last,
 * where centered */
DOING(rmsprop) {
    R d = k->sign * g + k->decay * p, square;
    square = s[0] = k->b2 * s[0] + k->rest2 * d * d;
    int last = states > 1 ? states - 1 : 0, heavy = states > 2 || (states == 2 && !k->centered);
    if (k->centered) {
        s[last] = s[last] + k->rest2 * (d - s[last]);
        square = square - s[last] * s[last];
        square = LARGER_OF(square, 0);
    }
    d = d / ((R)M_SQRT(square) + k->eps);
    if (!heavy) return p - k->lr * d;
    s[1] = k->momentum * s[1] + d;
    return p - k->lr * s[1];
}

/* Zeiler 2012: square_avg, acc_delta */
DOING(adadelta) {
    R d = k->sign * g + k->decay * p;
    (void)states;
    s[0] = k->b2 * s[0] + k->rest2 * d * d;
    d = (R)M_SQRT(s[1] + k->eps) / (R)M_SQRT(s[0] + k->eps) * d;
    s[1] = k->b2 * s[1] + k->rest2 * d * d;
    return p - k->lr * d;
}

/* Dozat 2016: exp_avg, exp_avg_sq */
DOING(nadam) {
    R w = p * k->shrink, d = k->sign * g + k->decay * w, size;
    (void)states;
    s[0] = s[0] + k->rest1 * (d - s[0]);
    s[1] = k->b2 * s[1] + k->rest2 * d * d;
    size = (R)M_SQRT(s[1]) * k->root + k->eps;
    return w - (k->by_g * d + k->by_m * s[0]) / size;
}

/* Kingma and Ba 2015, by the largest magnitude: exp_avg, exp_inf */
DOING(adamax) {
    R d = k->sign * g + k->decay * p, size = (d < 0 ? -d : d) + k->eps;
    (void)states;
    s[0] = s[0] + k->rest1 * (d - s[0]);
    s[1] = k->b2 * s[1];
    s[1] = s[1] > size ? s[1] : size; /* a nan gradient shows */
    return p - k->rate * s[0] / s[1];
}

/* Liu et al. 2020: exp_avg, exp_avg_sq */
DOING(radam) {
    R w = p * k->shrink, d = k->sign * g + k->decay * w;
    (void)states;
    s[0] = s[0] + k->rest1 * (d - s[0]);
    s[1] = k->b2 * s[1] + k->rest2 * d * d;
    if (k->trusted == 0) return w - k->rate * s[0];
    return w - k->trusted * s[0] / ((R)M_SQRT(s[1]) + k->eps);
}

/* Riedmiller and Braun 1993: prev, step_size. A gradient that turned is left out once. */
DOING(rprop) {
    R d = k->sign * g, turn = d * s[0], size = s[1] * (turn > 0 ? k->rise : turn < 0 ? k->fall : 1);
    (void)states;
    size = size < k->least ? k->least : size > k->most ? k->most : size;
    d = turn < 0 ? 0 : d;
    s[0] = d, s[1] = size;
    return p - (d > 0 ? size : d < 0 ? -size : d * size);
}

#undef DOING
#undef LARGER_OF
