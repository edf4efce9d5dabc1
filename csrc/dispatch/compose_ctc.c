/* Connectionist temporal classification (Graves et al. 2006): how probable a sequence of labels is, over all the ways
 * in which it can be spread over the steps. A way passes through states: a blank, label 1, a blank, label 2 and so on.
 */
#include "dispatch/compose.h"

#include <math.h>

#define NEVER (-1e30) /* the logarithm of what cannot be; finite, so that differences of two are no nan */

static T joined(ac_scratch *s, T left, T right) {
    ac_attrs_one_dim along = {1};
    T both[2] = {left, right}, out[AC_MAX_OUT];
    if (!left || !right) return NULL;
    return ac_c_call_many(s, AC_OP_cat, &along, both, 2, out) < 0 ? NULL : out[0];
}

/* alpha [N, S] moved by n states. */
static T moved(ac_scratch *s, T alpha, T never, int64_t n) {
    return joined(s, ac_c_slice(s, never, 1, 0, n), ac_c_slice(s, alpha, 1, 0, alpha->shape[1] - n));
}

static T gathered(ac_scratch *s, T x, int64_t dim, T index) {
    ac_attrs_index_dim along = {dim};
    return ac_c_call(s, AC_OP_gather, &along, 2, x, index);
}

/* The logarithms of the probabilities of all beginnings of ways, at each sequence's last step: [N, S]. */
static T beginnings(ac_scratch *s, T own, T states, T lengths) {
    if (!own) return NULL;
    int64_t steps = own->shape[0], n = own->shape[1], width = own->shape[2];
    ac_dims shape = {2, {n, width}}, column = {2, {n, 1}}, two = {2, {n, 2}};
    T never = ac_c_full(s, &shape, NEVER, own->dtype, ac_device_of(own)), skips = NULL;
    if (!never) return NULL;
    if (width > 2) { /* from label to label without a blank, unless they are the same */
        T differ = BIN(ne, ac_c_slice(s, states, 1, 2, width), ac_c_slice(s, states, 1, 0, width - 2));
        skips = joined(s, ac_c_full(s, &two, 0, AC_bool, ac_device_of(own)), differ);
    }
    T begins = BIN(lt, ac_c_arange(s, width, ac_device_of(own)), NUM(2)), until = ac_c_reshape(s, lengths, &column);
    T alpha = WHERE(begins, ac_c_select(s, own, 0, 0), never);
    for (int64_t t = 1; t < steps && alpha; t++) {
        T next = width > 1 ? BIN(logaddexp, alpha, moved(s, alpha, never, 1)) : alpha;
        if (skips) next = BIN(logaddexp, next, WHERE(skips, moved(s, alpha, never, 2), never));
        alpha = WHERE(BIN(gt, until, NUM((double)t)), ADD(next, ac_c_select(s, own, 0, t)), alpha);
    }
    return alpha;
}

static int refuse_shapes(T log_p, T states, T lengths, T labels) {
    char p[AC_SHAPE_TEXT], q[AC_SHAPE_TEXT];
    if (log_p->ndim == 3 && states->ndim == 2 && lengths->ndim == 1 && labels->ndim == 1 &&
        states->shape[0] == log_p->shape[1] && lengths->shape[0] == log_p->shape[1] &&
        labels->shape[0] == log_p->shape[1] && states->shape[1] % 2 == 1 && ac_is_floating(log_p->dtype))
        return 0;
    return ac_fail(AC_RUNTIME, "_ctc_loss: `log_probs` %s must be [steps, N, classes], `states` %s [N, 2 labels + 1]",
                   ac_shape_text(log_p, p), ac_shape_text(states, q));
}

COMPOSE(ctc_loss) {
    T states = in[1], lengths = in[2], labels = in[3];
    NEED(refuse_shapes(in[0], states, lengths, labels));
    T log_p = ac_c_wide(s, in[0]);
    if (!log_p) return NULL;
    int64_t steps = log_p->shape[0], n = log_p->shape[1], width = states->shape[1];
    ac_dims each = {3, {steps, n, width}}, column = {2, {n, 1}};
    T none = BIN(eq, lengths, NUM(0)), empty = BIN(eq, labels, NUM(0));
    T unseen = WHERE(empty, NUM(0), NUM(INFINITY)); /* of no steps: certain where there are no labels */
    if (!unseen) return NULL;
    if (steps == 0) return ac_c_cast(s, unseen, in[0]->dtype);
    T alpha = beginnings(s, gathered(s, log_p, 2, ac_c_expand(s, states, &each)), states, lengths);
    T last = ac_c_reshape(s, TIMES(labels, 2), &column);
    T blank = ac_c_squeeze(s, gathered(s, alpha, 1, last), 1);
    T label = ac_c_squeeze(s, gathered(s, alpha, 1, BIN(maximum, PLUS(last, -1), NUM(0))), 1);
    T loss = UN(neg, BIN(logaddexp, blank, WHERE(empty, NUM(NEVER), label)));
    loss = WHERE(BIN(gt, loss, NUM(-NEVER / 2)), NUM(INFINITY), loss);
    return ac_c_cast(s, WHERE(none, unseen, loss), in[0]->dtype);
}
