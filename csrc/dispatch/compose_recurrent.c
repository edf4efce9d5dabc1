/* Composite recurrent networks: cells for one time step, and layers over whole sequences. */
#include "dispatch/compose.h"

#include "autograd/split.h"
#include "base/alloc.h"
#include "ops/infer.h"

#define LINEAR(x, w, b) ac_c_call(s, AC_OP_linear, NULL, 3, x, w, b ? b : ABSENT)

static T gate(ac_scratch *s, T all, int64_t i, int64_t width) {
    return ac_c_slice(s, all, -1, i * width, (i + 1) * width);
}

static int need_state(ac_scratch *s, const char *what, T x, T h, T w_ih, T w_hh, int gates) {
    (void)s;
    char xt[AC_SHAPE_TEXT], ht[AC_SHAPE_TEXT], it[AC_SHAPE_TEXT], st[AC_SHAPE_TEXT];
    bool good = x->ndim >= 1 && x->ndim == h->ndim && w_ih->ndim == 2 && w_hh->ndim == 2;
    int64_t width = good ? h->shape[h->ndim - 1] : 0;
    for (int d = 0; good && d < x->ndim - 1; d++) good = x->shape[d] == h->shape[d];
    good = good && w_ih->shape[0] == gates * width && w_hh->shape[0] == gates * width && w_hh->shape[1] == width;
    if (good) return 0;
    return ac_fail(
        AC_RUNTIME,
        "%s: input %s, state %s and weights %s, %s do not fit: expected a state for each row of the input, and "
        "weights [%d * hidden, in] and [%d * hidden, hidden]",
        what, ac_shape_text(x, xt), ac_shape_text(h, ht), ac_shape_text(w_ih, it), ac_shape_text(w_hh, st), gates,
        gates);
}

/* One step of `cell` for rows that brought `x` from the input: h, and c of an LSTM, in place. */
static int advance(ac_scratch *s, ac_cell cell, T x, T w, T b, T *h, T *c) {
    int64_t width = *h ? (*h)->shape[(*h)->ndim - 1] : 0;
    T u = LINEAR(*h, w, b);
    if (cell == AC_CELL_gru) {
        T reset = UN(sigmoid, ADD(gate(s, x, 0, width), gate(s, u, 0, width)));
        T update = UN(sigmoid, ADD(gate(s, x, 1, width), gate(s, u, 1, width)));
        T fresh = UN(tanh, ADD(gate(s, x, 2, width), MUL(reset, gate(s, u, 2, width))));
        *h = ADD(fresh, MUL(update, SUB(*h, fresh)));
    } else if (cell == AC_CELL_lstm) {
        T sum = ADD(x, u), fresh = MUL(UN(sigmoid, gate(s, sum, 0, width)), UN(tanh, gate(s, sum, 2, width)));
        *c = ADD(MUL(UN(sigmoid, gate(s, sum, 1, width)), *c), fresh);
        *h = MUL(UN(sigmoid, gate(s, sum, 3, width)), UN(tanh, *c));
    } else if (cell == AC_CELL_tanh) {
        *h = UN(tanh, ADD(x, u));
    } else {
        *h = UN(relu, ADD(x, u));
    }
    return *h ? 0 : -1;
}

COMPOSE(lstm_cell) {
    T h = in[1], c = ac_c_low(s, in, n_in, in[2]);
    NEED(need_state(s, "lstm_cell", in[0], h, in[3], in[4], 4));
    if (!ac_same_shape(h, in[2])) REFUSE(AC_RUNTIME, "lstm_cell: `hx` and `cx` must have one shape");
    NEED(advance(s, AC_CELL_lstm, LINEAR(in[0], in[3], in[5]), in[4], in[6], &h, &c));
    s->also[1] = c;
    return h;
}

static T other_cell(ac_scratch *s, const char *what, ac_cell cell, T const *in, T h) {
    NEED(need_state(s, what, in[0], in[1], in[2], in[3], cell == AC_CELL_gru ? 3 : 1));
    NEED(advance(s, cell, LINEAR(in[0], in[2], in[4]), in[3], in[5], &h, NULL));
    return h;
}
COMPOSE(gru_cell) { return other_cell(s, "gru_cell", AC_CELL_gru, in, ac_c_low(s, in, n_in, in[1])); }
COMPOSE(rnn_tanh_cell) { return other_cell(s, "rnn_cell", AC_CELL_tanh, in, in[1]); }
COMPOSE(rnn_relu_cell) { return other_cell(s, "rnn_cell", AC_CELL_relu, in, in[1]); }

/* -- whole sequences ------------------------------------------------------------------------------------- */

/* The first n rows of a state replaced. */
static T with_head(ac_scratch *s, T head, T state, int64_t n) {
    if (!head || !state || n == state->shape[0]) return head;
    return ac_c_cat(s, (T[]){head, ac_c_slice(s, state, 0, n, state->shape[0])}, 2, 0);
}

/* What each step takes of x: its rows of a packed batch, else one index of the first dimension. */
static int parts_of_steps(T x, T sizes, ac_list *parts) {
    size_t bytes = (size_t)parts->n * sizeof(ac_section);
    ac_section *spans = ac_alloc(bytes);
    if (!spans) return -1;
    int64_t start = 0;
    for (int i = 0; i < parts->n; i++) {
        int64_t size = sizes ? ((const int64_t *)ac_data(sizes))[i] : 1;
        spans[i] = (ac_section){start, size};
        start += size;
    }
    int failed = ac_split(x, 0, spans, parts->n, !sizes, parts->at);
    ac_free(spans, bytes);
    return failed;
}

/* Goes through the steps, whose parts of x become their results; the state at the end. */
static T step_by_step(ac_scratch *s, T const *in, T state, const ac_attrs_rnn_layer *a, ac_list *steps) {
    T h = ac_c_select(s, state, 0, 0), c = NULL;
    bool lstm = a->cell == AC_CELL_lstm;
    if (lstm) c = ac_c_select(s, state, 0, 1);
    for (int k = 0; k < steps->n && !s->failed; k++) {
        int step = a->reverse ? steps->n - 1 - k : k;
        T now = ac_c_keep(s, steps->at[step]);
        steps->at[step] = NULL;
        int64_t n = now ? now->shape[0] : 0;
        T head = ac_c_slice(s, h, 0, 0, n), cell = lstm ? ac_c_slice(s, c, 0, 0, n) : NULL;
        if (advance(s, (ac_cell)a->cell, now, in[2], in[3], &head, &cell) < 0) return NULL;
        steps->at[step] = ac_tensor_retain(head);
        h = with_head(s, head, h, n);
        if (lstm) c = with_head(s, cell, c, n);
    }
    T both[2] = {h, c}, out[AC_MAX_OUT];
    ac_attrs_one_dim front = {0};
    return ac_c_call_many(s, AC_OP_stack, &front, both, lstm ? 2 : 1, out) < 0 ? NULL : out[0];
}

/* What says which steps there are is read before any of them runs. */
static T on_cpu(ac_scratch *s, T sizes) {
    ac_attrs_to_device to = {AC_CPU, 0};
    return !sizes || ac_device_of(sizes) == AC_CPU ? sizes : ac_c_call(s, AC_OP_to_device, &to, 1, sizes);
}

static int check(T const *in, int n_in, const ac_attrs_rnn_layer *a) { /* as _recurrence does */
    ac_attrs_recurrence fused = {a->cell, a->reverse, 0};
    ac_dtype dtype;
    ac_infer meta = {.info = &ac_ops[AC_OP_recurrence_parts], .in = in, .n_in = n_in, .attrs = &fused};
    meta.low = ac_autocast_casts(in, n_in, &dtype) ? (int64_t)dtype : AC_NO_DTYPE;
    return ac_infer_recurrence(&meta);
}

COMPOSE(recurrence_parts) {
    ATTRS(rnn_layer);
    T given[5] = {in[0], in[1], in[2], in[3], on_cpu(s, in[4])};
    if (s->failed) return NULL;
    NEED(check(given, n_in, a));
    T x = ac_c_low(s, in, n_in, in[0]), state = ac_c_low(s, in, n_in, in[1]);
    int64_t n = given[4] ? given[4]->numel : in[0]->shape[0];
    if (!x || !state) return NULL;
    ac_list steps;
    T out[AC_MAX_OUT];
    ac_attrs_one_dim along = {0};
    int failed = ac_list_start(&steps, (int)n);
    if (!failed) failed = parts_of_steps(x, given[4], &steps);
    s->also[1] = failed ? NULL : step_by_step(s, given, state, a, &steps);
    if (s->also[1]) failed = ac_c_call_many(s, given[4] ? AC_OP_cat : AC_OP_stack, &along, steps.at, steps.n, out);
    ac_list_release(&steps);
    return s->also[1] && !failed ? out[0] : NULL;
}

/* x w_ih^T + b, whose sequences may lie one behind the other rather than step by step: nothing is copied for it. */
static T sums_of_input(ac_scratch *s, T x, T w, T b) {
    bool turned = x->ndim == 3 && x->strides[1] > x->strides[0];
    T sums = LINEAR(turned ? ac_c_transpose(s, x, 0, 1) : x, w, b);
    return turned ? ac_c_transpose(s, sums, 0, 1) : sums;
}

COMPOSE(rnn_layer) {
    ATTRS(rnn_layer);
    T state = in[1], w = in[3], b_ih = in[4], b_hh = in[5], out[AC_MAX_OUT];
    if (!b_ih != !b_hh) REFUSE(AC_RUNTIME, "_rnn_layer: give both biases or none");
    if (a->cell != AC_CELL_gru && b_ih) b_ih = ADD(b_ih, b_hh), b_hh = NULL;
    T x = sums_of_input(s, in[0], in[2], b_ih ? b_ih : ABSENT);
    if (!x) return NULL;
    T sizes = on_cpu(s, in[6]);
    T parts[5] = {x, UN(contiguous, state), UN(contiguous, w), b_hh ? UN(contiguous, b_hh) : ABSENT,
                  sizes ? sizes : ABSENT};
    bool keep = ac_grad_enabled() && (ac_requires_grad(x) || ac_requires_grad(state) || ac_requires_grad(w) ||
                                      (b_hh && ac_requires_grad(b_hh)));
    ac_attrs_recurrence fused = {a->cell, a->reverse, keep};
    if (ac_c_call_many(s, AC_OP_recurrence, &fused, parts, 5, out) < 0) return NULL;
    s->also[1] = out[1];
    return out[0];
}
