/* Runs of the optimizers: one read of each operand, one write; once for float and double. */

/* Sutskever et al. 2013, as torch.optim.SGD has it. */
static void S(sgd_run)(int64_t n, const ac_step *s, const void *grad, void *param, void *const *state) {
    const R *g = grad;
    R *p = param, *momentum = state[0];
    R sign = (R)(s->maximize ? -s->grad_factor : s->grad_factor), lr = (R)s->lr, decay = (R)s->weight_decay;
    if (!momentum) {
        for (int64_t i = 0; i < n; i++) p[i] -= lr * (sign * g[i] + decay * p[i]);
        return;
    }
    R keep = s->first ? 0 : (R)s->momentum, take = s->first ? 1 : (R)(1 - s->dampening);
    R ahead = s->nesterov ? (R)s->momentum : 1, now = s->nesterov ? 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        R d = sign * g[i] + decay * p[i];
        R b = keep * momentum[i] + take * d;
        momentum[i] = b;
        p[i] -= lr * (now * d + ahead * b);
    }
}

/* Kingma and Ba 2015; decoupled decay Loshchilov and Hutter 2019; amsgrad Reddi et al. 2018. */
static void S(adam_run)(int64_t n, const ac_step *s, const void *grad, void *param, void *const *state) {
    const R *g = grad;
    R *p = param, *m = state[0], *v = state[1], *vmax = state[2];
    R sign = (R)(s->maximize ? -s->grad_factor : s->grad_factor), b1 = (R)s->beta1, b2 = (R)s->beta2, eps = (R)s->eps;
    R shrink = s->decoupled ? (R)(1 - s->lr * s->weight_decay) : 1, decay = s->decoupled ? 0 : (R)s->weight_decay;
    R rate = (R)(s->lr / s->bias1), root = (R)(1 / s->bias2_sqrt);
    for (int64_t i = 0; i < n; i++) {
        R w = p[i] * shrink, d = sign * g[i] + decay * w;
        R mean = m[i] + (1 - b1) * (d - m[i]);
        R square = b2 * v[i] + (1 - b2) * d * d, largest = square;
        m[i] = mean;
        v[i] = square;
        if (vmax) vmax[i] = largest = square > vmax[i] ? square : vmax[i];
        p[i] = w - rate * mean / (M_SQRT(largest) * root + eps);
    }
}
