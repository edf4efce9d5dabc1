/* Cells of recurrent networks over one contiguous row of n units, written once for float and double (see scalar.h).
 * Forward: `x` are the sums that come from the input, `u` those from the state, gate by gate; h and c become the new
 * states; `kept` is what backward wants to know. Backward: `before` is the state that the row multiplies by itself,
 * dh and dc become the gradients of the old states as far as they pass by the product; dx and du are those of x and u.
 */

#define AT(name, part) name[(part) * n + j]

/* kept: gates input, forget, cell, output, then the new cell state; `before` is the old one */
static void S(lstm_row)(int64_t n, const void *from_x, const void *from_h, void *hidden, void *cell, void *keep) {
    const R *x = from_x, *u = from_h;
    R *h = hidden, *c = cell, *kept = keep;
    INDEPENDENT
    for (int64_t j = 0; j < n; j++) {
        R i = S(sigmoid_of)(AT(x, 0) + AT(u, 0)), f = S(sigmoid_of)(AT(x, 1) + AT(u, 1));
        R g = M_TANH(AT(x, 2) + AT(u, 2)), o = S(sigmoid_of)(AT(x, 3) + AT(u, 3)), now = f * c[j] + i * g;
        AT(kept, 0) = i, AT(kept, 1) = f, AT(kept, 2) = g, AT(kept, 3) = o, AT(kept, 4) = now;
        c[j] = now, h[j] = o * M_TANH(now);
    }
}
static void S(lstm_row_back)(int64_t n, const void *keep, const void *old, const void *hidden, void *grad_h,
                             void *grad_c, void *grad_x, void *grad_u) {
    const R *kept = keep, *before = old;
    R *dh = grad_h, *dc = grad_c, *dx = grad_x;
    (void)hidden, (void)grad_u;
    INDEPENDENT
    for (int64_t j = 0; j < n; j++) {
        R i = AT(kept, 0), f = AT(kept, 1), g = AT(kept, 2), o = AT(kept, 3), t = M_TANH(AT(kept, 4));
        R d = dc[j] + dh[j] * o * (1 - t * t);
        AT(dx, 0) = d * g * i * (1 - i), AT(dx, 1) = d * before[j] * f * (1 - f);
        AT(dx, 2) = d * i * (1 - g * g), AT(dx, 3) = dh[j] * t * o * (1 - o);
        dc[j] = d * f, dh[j] = 0;
    }
}

/* kept: gates reset, update, new, then what the reset gate multiplied; `before` is the old hidden state */
static void S(gru_row)(int64_t n, const void *from_x, const void *from_h, void *hidden, void *cell, void *keep) {
    const R *x = from_x, *u = from_h;
    R *h = hidden, *kept = keep;
    (void)cell;
    INDEPENDENT
    for (int64_t j = 0; j < n; j++) {
        R r = S(sigmoid_of)(AT(x, 0) + AT(u, 0)), z = S(sigmoid_of)(AT(x, 1) + AT(u, 1));
        R fresh = M_TANH(AT(x, 2) + r * AT(u, 2));
        AT(kept, 0) = r, AT(kept, 1) = z, AT(kept, 2) = fresh, AT(kept, 3) = AT(u, 2);
        h[j] = fresh + z * (h[j] - fresh);
    }
}
static void S(gru_row_back)(int64_t n, const void *keep, const void *old, const void *hidden, void *grad_h,
                            void *grad_c, void *grad_x, void *grad_u) {
    const R *kept = keep, *before = old;
    R *dh = grad_h, *dx = grad_x, *du = grad_u;
    (void)hidden, (void)grad_c;
    INDEPENDENT
    for (int64_t j = 0; j < n; j++) {
        R r = AT(kept, 0), z = AT(kept, 1), fresh = AT(kept, 2), d = dh[j] * (1 - z) * (1 - fresh * fresh);
        AT(dx, 0) = AT(du, 0) = d * AT(kept, 3) * r * (1 - r);
        AT(dx, 1) = AT(du, 1) = dh[j] * (before[j] - fresh) * z * (1 - z);
        AT(dx, 2) = d, AT(du, 2) = d * r;
        dh[j] *= z;
    }
}

/* nothing is kept: the new state says it all */
#define PLAIN_CELL(name, FORWARD, SLOPE)                                                                               \
    static void S(name##_row)(int64_t n, const void *from_x, const void *from_h, void *hidden, void *cell,             \
                              void *keep) {                                                                            \
        const R *x = from_x, *u = from_h;                                                                              \
        R *h = hidden;                                                                                                 \
        (void)cell, (void)keep;                                                                                        \
        INDEPENDENT                                                                                                    \
        for (int64_t j = 0; j < n; j++) {                                                                              \
            R sum = x[j] + u[j];                                                                                       \
            h[j] = FORWARD;                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static void S(name##_row_back)(int64_t n, const void *keep, const void *old, const void *hidden, void *grad_h,     \
                                   void *grad_c, void *grad_x, void *grad_u) {                                         \
        const R *h = hidden;                                                                                           \
        R *dh = grad_h, *dx = grad_x;                                                                                  \
        (void)keep, (void)old, (void)grad_c, (void)grad_u;                                                             \
        INDEPENDENT                                                                                                    \
        for (int64_t j = 0; j < n; j++) dx[j] = dh[j] * (SLOPE), dh[j] = 0;                                            \
    }
PLAIN_CELL(tanh, M_TANH(sum), 1 - h[j] * h[j])
PLAIN_CELL(relu, sum < 0 ? 0 : sum, h[j] > 0 ? 1 : 0)

#undef PLAIN_CELL
#undef AT
