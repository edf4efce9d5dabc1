/* Composite losses. */
#include "dispatch/compose_read.h"

#include <math.h>

/* Losses times their weights; their mean is over the weights. */
static T weighted(ac_scratch *s, T each, T weight, int64_t reduction) {
    if (!weight || !each) return ac_c_reduced(s, each, reduction);
    T loss = MUL(each, weight);
    if (reduction != AC_REDUCE_MEAN || !loss) return ac_c_reduced(s, loss, reduction);
    ac_dims shape = ac_shape_of(loss);
    return DIV(ac_c_sum_all(s, loss), ac_c_sum_all(s, ac_c_expand(s, weight, &shape)));
}

COMPOSE(l1_loss) {
    ATTRS(reduction);
    return weighted(s, UN(abs, SUB(in[0], in[1])), in[2], a->reduction);
}

COMPOSE(mse_loss_weighted) {
    ATTRS(reduction);
    ac_attrs_reduction none = {AC_REDUCE_NONE};
    return weighted(s, ac_c_call(s, AC_OP_mse_loss, &none, 2, in[0], in[1]), in[2], a->reduction);
}

/* -- cross entropy ------------------------------------------------------------------------------------ */

/* A target with a dimension of classes that is not what probabilities are. */
static int refuse_classes(const ac_tensor *x, const ac_tensor *target) {
    char left[AC_SHAPE_TEXT], right[AC_SHAPE_TEXT];
    return ac_fail(
        AC_RUNTIME,
        "cross_entropy: `target` is %s %s beside `input` %s: class indices have no dimension of classes (of [N, 1] "
        "squeeze(1), of one-hot integers argmax(1)); probabilities are floating point and have the shape of `input`",
        ac_dtypes[target->dtype].name, ac_shape_text(target, right), ac_shape_text(x, left));
}

COMPOSE(cross_entropy) {
    ATTRS(cross_entropy);
    T x = in[0], target = in[1];
    if (x->ndim == 0) REFUSE(AC_RUNTIME, "cross_entropy: `input` must have a dimension of classes");
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        REFUSE(AC_RUNTIME, "cross_entropy: `label_smoothing` must be between 0 and 1, got %g", a->label_smoothing);
    bool soft = ac_same_shape(x, target) && ac_is_floating(target->dtype);
    T weight = in[2] ? in[2] : ABSENT;
    if (soft && a->ignore_index >= 0)
        REFUSE(AC_RUNTIME, "cross_entropy: `ignore_index` goes with class indices, not with probabilities");
    if (!soft && target->ndim == x->ndim && target->shape[0] == x->shape[0] && x->numel > 1)
        NEED(refuse_classes(x, target));
    ac_attrs_soft_entropy how = {a->reduction, a->label_smoothing};
    return soft ? ac_c_call(s, AC_OP_soft_entropy, &how, 3, x, target, weight)
                : ac_c_call(s, AC_OP_class_entropy, a, 3, x, target, weight);
}

/* -- binary cross entropy ----------------------------------------------------------------------------- */

static int same_shapes(const char *what, const ac_tensor *x, const ac_tensor *target) {
    if (ac_same_shape(x, target)) return 0;
    char left[AC_SHAPE_TEXT], right[AC_SHAPE_TEXT];
    return ac_fail(AC_VALUE, "%s: `target` %s must have the shape of `input` %s", what, ac_shape_text(target, right),
                   ac_shape_text(x, left));
}

/* log(1 + exp(x)) without overflow */
static T log1pexp(ac_scratch *s, T x) {
    ac_attrs_softplus exact = {1, INFINITY};
    return ac_c_call(s, AC_OP_softplus, &exact, 1, x);
}

/* (1 - t) x + l (log(1 + exp(-|x|)) + max(-x, 0)), l = 1 + (pos_weight - 1) t */
COMPOSE(bce_with_logits) {
    ATTRS(reduction_only);
    T x = in[0], target = in[1], weight = in[2], positive = in[3];
    NEED(same_shapes("binary_cross_entropy_with_logits", x, target));
    T rest = MUL(SUB(NUM(1), target), x), tail = log1pexp(s, UN(neg, x));
    if (positive) tail = MUL(tail, PLUS(MUL(SUB(positive, NUM(1)), target), 1));
    T loss = ADD(rest, tail);
    return ac_c_reduced(s, weight ? MUL(loss, weight) : loss, a->reduction);
}

/* log x, cut at -100. Below 1e-12 its slope is `slope`, as torch's is: that of log goes to infinity, and a sigmoid's
 * gradient, which goes to 0, would make it a nan. */
static T cut_log(ac_scratch *s, T x, double slope) {
    T small = BIN(lt, x, NUM(1e-12)), still = ac_c_detach(s, x);
    T straight = ADD(ac_c_clamp_min(s, UN(log, still), -100), TIMES(SUB(x, still), slope));
    return WHERE(small, straight, ac_c_clamp_min(s, UN(log, WHERE(small, NUM(1), x)), -100));
}

static int need_one_dtype(const ac_tensor *p, const ac_tensor *target, const ac_tensor *weight) {
    if (ac_is_floating(p->dtype) && target->dtype == p->dtype && (!weight || weight->dtype == p->dtype)) return 0;
    return ac_fail(AC_RUNTIME,
                   "binary_cross_entropy: input, target and weight must have one floating point dtype, got %s and %s",
                   ac_dtypes[p->dtype].name, ac_dtypes[target->dtype].name);
}

/* Numbers from 0 to 1. A GPU's are not looked at, which would be waiting for them. */
static int need_shares(ac_scratch *s, const char *name, T t) {
    ac_attrs_reduce_dim all = {{.n = -1}, 0};
    if (t->numel == 0 || ac_device_of(t) != AC_CPU) return 0;
    double low = ac_c_read(s, ac_c_call(s, AC_OP_amin, &all, 1, t)),
           high = ac_c_read(s, ac_c_call(s, AC_OP_amax, &all, 1, t));
    if (s->failed || (low >= 0 && high <= 1)) return s->failed ? -1 : 0;
    return ac_fail(AC_RUNTIME,
                   "binary_cross_entropy: %s must lie between 0 and 1, got %g to %g; logits go into "
                   "binary_cross_entropy_with_logits",
                   name, low, high);
}

/* -(t log p + (1 - t) log(1 - p)) */
COMPOSE(bce) {
    ATTRS(reduction_only);
    T p = ac_c_wide(s, in[0]), target = in[1], weight = in[2];
    NEED(same_shapes("binary_cross_entropy", in[0], target));
    NEED(need_one_dtype(in[0], target, weight));
    NEED(need_shares(s, "input", in[0]));
    NEED(need_shares(s, "target", target));
    double slope = in[0]->dtype == AC_float16 ? 1e4 : 1e12; /* float16 ends at 65504 */
    T log_p = cut_log(s, p, slope), log_q = cut_log(s, SUB(NUM(1), p), slope);
    T loss = ADD(MUL(target, log_p), MUL(SUB(NUM(1), target), log_q));
    loss = UN(neg, weight ? MUL(loss, weight) : loss);
    return ac_c_cast(s, ac_c_reduced(s, loss, a->reduction), in[0]->dtype);
}

/* -- regression ----------------------------------------------------------------------------------------- */

/* x - target; truth values beside numbers are 0 and 1. */
static T difference(ac_scratch *s, T x, T target) {
    if (x->dtype == AC_bool) x = ac_c_cast(s, x, target->dtype);
    else if (target->dtype == AC_bool) target = ac_c_cast(s, target, x->dtype);
    return SUB(x, target);
}

/* |d| and d^2 joined smoothly: d^2 / (2 width) within the width. The slope of the square of an infinite d must not meet
 * the 0 of the other side. */
static T smooth(ac_scratch *s, T d, double width) {
    T size = UN(abs, d);
    if (width == 0) return size;
    T near = BIN(lt, size, NUM(width)), square = UN(square, WHERE(near, d, NUM(0)));
    return WHERE(near, TIMES(square, 0.5 / width), PLUS(size, -0.5 * width));
}

/* The same times the width, which may be infinite. */
static T huber(ac_scratch *s, T d, double width) {
    if (d && ac_is_floating(d->dtype) && !(width <= ac_dtype_largest(d->dtype))) return TIMES(UN(square, d), 0.5);
    T size = UN(abs, d), near = BIN(lt, size, NUM(width)), square = UN(square, WHERE(near, d, NUM(0)));
    return WHERE(near, TIMES(square, 0.5), TIMES(PLUS(size, -0.5 * width), width));
}

COMPOSE(smooth_l1_loss) {
    ATTRS(smooth);
    if (!(a->beta >= 0)) REFUSE(AC_RUNTIME, "smooth_l1_loss: `beta` must be 0 or more, got %g", a->beta);
    return ac_c_reduced(s, smooth(s, difference(s, in[0], in[1]), a->beta), a->reduction);
}

COMPOSE(huber_loss) {
    ATTRS(smooth);
    if (!(a->beta > 0)) REFUSE(AC_RUNTIME, "huber_loss: `delta` must be above 0, got %g", a->beta);
    return weighted(s, huber(s, difference(s, in[0], in[1]), a->beta), in[2], a->reduction);
}

COMPOSE(kl_div) {
    ATTRS(kl_div);
    T x = in[0], target = in[1];
    if (!ac_is_floating(x->dtype) || !ac_is_floating(target->dtype))
        REFUSE(AC_RUNTIME, "kl_div: needs floating point, got %s and %s", ac_dtypes[x->dtype].name,
               ac_dtypes[target->dtype].name);
    T loss = a->log_target ? MUL(UN(exp, target), SUB(target, x)) : SUB(BIN(xlogy, target, target), MUL(target, x));
    enum { BATCHMEAN = AC_REDUCE_SUM + 1 };
    if (a->reduction != BATCHMEAN) return ac_c_reduced(s, loss, a->reduction);
    return DIV(ac_c_sum_all(s, loss), NUM(x->ndim ? (double)x->shape[0] : 1));
}

COMPOSE(poisson_nll_loss) {
    ATTRS(poisson);
    T x = in[0], target = in[1];
    T loss = a->log_input ? SUB(UN(exp, x), MUL(target, x)) : SUB(x, MUL(target, UN(log, PLUS(x, a->eps))));
    if (a->full) { /* Stirling: t log t - t + log(2 pi t) / 2, where t > 1 */
        T large = BIN(gt, target, NUM(1)), safe = WHERE(large, target, NUM(2));
        T stirling = ADD(SUB(MUL(safe, UN(log, safe)), safe), TIMES(UN(log, TIMES(safe, 6.28318530717958647693)), 0.5));
        loss = ADD(loss, WHERE(large, stirling, NUM(0)));
    }
    return ac_c_reduced(s, loss, a->reduction);
}

/* Variances of x: as many, one for each row, or one for all along one dimension. */
static int check_variances(const ac_tensor *x, const ac_tensor *var) {
    char xt[AC_SHAPE_TEXT], vt[AC_SHAPE_TEXT];
    int apart = 0;
    bool rows = var->ndim + 1 == x->ndim, fits = rows || var->ndim == x->ndim;
    for (int d = 0; d < var->ndim && fits; d++)
        if (x->shape[d] != var->shape[d]) fits = !rows && var->shape[d] == 1 && apart++ == 0;
    if (!fits)
        return ac_fail(AC_VALUE, "gaussian_nll_loss: `var` %s does not fit input %s", ac_shape_text(var, vt),
                       ac_shape_text(x, xt));
    return 0;
}

COMPOSE(gaussian_nll_loss) {
    ATTRS(gaussian);
    T var = in[2]->is_scalar ? ac_c_cast(s, in[2], in[0]->dtype) : in[2];
    if (!in[2]->is_scalar) NEED(check_variances(in[0], var));
    if (ac_c_any(s, BIN(lt, var, NUM(0)))) REFUSE(AC_VALUE, "gaussian_nll_loss: `var` has negative entries");
    if (!in[2]->is_scalar && var->ndim + 1 == in[0]->ndim) var = ac_c_unsqueeze(s, var, -1); /* one for each row */
    T raised = PLUS(SUB(var, ac_c_detach(s, var)), a->eps); /* a gradient as if it were var itself */
    T floor = WHERE(BIN(lt, var, NUM(a->eps)), raised, var);
    T loss = TIMES(ADD(UN(log, floor), DIV(UN(square, SUB(in[0], in[1])), floor)), 0.5);
    if (a->full) loss = PLUS(loss, 0.91893853320467274178); /* log(2 pi) / 2 */
    return ac_c_reduced(s, loss, a->reduction);
}

/* -- margins ---------------------------------------------------------------------------------------------- */

static T positive_part(ac_scratch *s, T x) { return ac_c_clamp_min(s, x, 0); }

static int need_as_many(const char *what, T const *in) {
    if (in[0]->ndim == in[1]->ndim && in[0]->ndim == in[2]->ndim) return 0;
    return ac_fail(AC_RUNTIME, "%s: needs equally many dimensions, got %d, %d and %d", what, in[0]->ndim, in[1]->ndim,
                   in[2]->ndim);
}

COMPOSE(soft_margin_loss) {
    ATTRS(reduction);
    char x[AC_SHAPE_TEXT], y[AC_SHAPE_TEXT];
    ac_dims both = ac_shape_of(in[0]), target = ac_shape_of(in[1]), input = both;
    NEED(ac_dims_broadcast(&both, &target, "soft_margin_loss"));
    if (!ac_dims_equal(&both, &input))
        REFUSE(AC_RUNTIME, "soft_margin_loss: `target` must have the shape of `input`, %s, or broadcast to it, got %s",
               ac_dims_text(&input, x), ac_dims_text(&target, y));
    return ac_c_reduced(s, log1pexp(s, UN(neg, MUL(in[1], in[0]))), a->reduction);
}

COMPOSE(hinge_embedding_loss) {
    ATTRS(margin);
    T x = in[0], target = in[1];
    T far = WHERE(BIN(ne, target, NUM(1)), positive_part(s, SUB(NUM(a->margin), x)), NUM(0));
    return ac_c_reduced(s, ADD(far, WHERE(BIN(ne, target, NUM(-1)), x, NUM(0))), a->reduction);
}

COMPOSE(margin_ranking_loss) {
    ATTRS(margin);
    NEED(need_as_many("margin_ranking_loss", in));
    T apart = MUL(UN(neg, in[2]), SUB(in[0], in[1]));
    return ac_c_reduced(s, positive_part(s, ADD(apart, ac_c_real(s, a->margin))), a->reduction);
}

COMPOSE(cosine_embedding_loss) {
    ATTRS(margin);
    T x = in[0], y = in[1], target = in[2];
    if (target->ndim > 1 || x->ndim != y->ndim || x->ndim != target->ndim + 1)
        REFUSE(
            AC_RUNTIME,
            "cosine_embedding_loss: needs inputs [n, k] and a target [n], or [k] and 0-d; got %d, %d and %d dimensions",
            x->ndim, y->ndim, target->ndim);
    T both = ac_c_sum(s, MUL(x, y), -1);
    T left = PLUS(ac_c_sum(s, UN(square, x), -1), 1e-12), right = PLUS(ac_c_sum(s, UN(square, y), -1), 1e-12);
    T cosine = DIV(both, UN(sqrt, MUL(left, right)));
    T near = WHERE(BIN(eq, target, NUM(1)), SUB(NUM(1), cosine), NUM(0));
    T far = WHERE(BIN(eq, target, NUM(-1)), positive_part(s, SUB(cosine, ac_c_real(s, a->margin))), NUM(0));
    return ac_c_reduced(s, ADD(near, far), a->reduction);
}

COMPOSE(triplet_margin_loss) {
    ATTRS(triplet);
    ac_attrs_pairwise how = {a->p, a->eps, 0};
    if (!(a->margin > 0)) REFUSE(AC_VALUE, "triplet_margin_loss: `margin` must be above 0, got %g", a->margin);
    NEED(need_as_many("triplet_margin_loss", in));
#define DISTANCE(x, y) ac_c_call(s, AC_OP_pairwise_distance, &how, 2, x, y)
    T near = DISTANCE(in[0], in[1]), far = DISTANCE(in[0], in[2]);
    if (a->swap) far = BIN(minimum, far, DISTANCE(in[1], in[2]));
#undef DISTANCE
    return ac_c_reduced(s, positive_part(s, ADD(SUB(near, far), ac_c_real(s, a->margin))), a->reduction);
}

/* Scores [C] or [N, C] and their targets, as [N, C] and [N, ...]. */
static T as_rows(ac_scratch *s, T x) { return x->ndim == 1 ? ac_c_unsqueeze(s, x, 0) : x; }

static int need_scores(const char *what, const ac_tensor *x, const ac_tensor *target, int target_dims) {
    char xt[AC_SHAPE_TEXT], tt[AC_SHAPE_TEXT];
    bool good =
        (x->ndim == 1 || x->ndim == 2) && target->dtype == AC_int64 && target->ndim == x->ndim - 1 + target_dims;
    if (x->ndim == 1 && !target_dims && target->ndim == 1 && target->numel == 1) good = target->dtype == AC_int64;
    for (int d = 0; good && d < target->ndim && d < x->ndim && x->ndim == 2; d++)
        good = x->shape[d] == target->shape[d];
    if (good && target_dims && x->ndim == 1) good = x->shape[0] == target->shape[0];
    if (good && x->shape[x->ndim - 1] > 0) return 0;
    return ac_fail(AC_RUNTIME, "%s: scores %s and int64 classes %s (%s) do not fit", what, ac_shape_text(x, xt),
                   ac_shape_text(target, tt), ac_dtypes[target->dtype].name);
}

/* Whether a class lies outside of [low, classes); a GPU says so where it is read. */
static bool leaves_classes(ac_scratch *s, T target, int low, int64_t classes) {
    return ac_device_of(target) == AC_CPU &&
           ac_c_any(s, BIN(logical_or, BIN(lt, target, NUM(low)), BIN(ge, target, NUM((double)classes))));
}

/* One score is a vector of them. */
static T as_scores(ac_scratch *s, T x, T target) {
    return x->ndim == 0 && target->ndim == 0 ? ac_c_unsqueeze(s, x, 0) : x;
}

static int need_class_weights(const ac_tensor *x, const ac_tensor *weight) {
    char text[AC_SHAPE_TEXT];
    int64_t classes = x->ndim ? x->shape[x->ndim - 1] : 1;
    if (weight->ndim != 1 || weight->shape[0] != classes)
        return ac_fail(weight->ndim != 1 ? AC_VALUE : AC_RUNTIME,
                       "multi_margin_loss: `weight` must be a vector of %" PRId64 " classes, got %s", classes,
                       ac_shape_text(weight, text));
    if (weight->dtype == x->dtype) return 0;
    return ac_fail(AC_RUNTIME, "multi_margin_loss: input and weight must have the same dtype, got %s and %s",
                   ac_dtypes[x->dtype].name, ac_dtypes[weight->dtype].name);
}

COMPOSE(multi_margin_loss) {
    ATTRS(multi_margin);
    double p = ac_scalar_double(a->p);
    if (p != 1 && p != 2) REFUSE(AC_VALUE, "multi_margin_loss: `p` must be 1 or 2, got %g", p);
    if (in[2]) NEED(need_class_weights(in[0], in[2]));
    T given = as_scores(s, in[0], in[1]);
    if (!given) return NULL;
    NEED(need_scores("multi_margin_loss", given, in[1], 0));
    T x = as_rows(s, given);
    if (!x) return NULL;
    int64_t rows = x->shape[0], classes = x->shape[1];
    ac_dims column = {2, {rows, 1}}, vector = {1, {rows}};
    T target = ac_c_reshape(s, in[1], &column);
    if (target && leaves_classes(s, target, 0, classes))
        REFUSE(AC_RUNTIME, "multi_margin_loss: classes must lie between 0 and %" PRId64, classes - 1);
    ac_attrs_index_dim along = {1}, first = {0};
    T own = ac_c_call(s, AC_OP_gather, &along, 2, x, target);
    T each = UN(relu, ADD(SUB(x, own), NUM(ac_scalar_double(a->margin)))); /* its slope at 0 is 0 */
    if (p == 2) each = UN(square, each);
    if (in[2])
        each = MUL(each,
                   ac_c_reshape(s, ac_c_call(s, AC_OP_index_select, &first, 2, in[2], ac_c_reshape(s, target, &vector)),
                                &column));
    T others = BIN(ne, ac_c_arange(s, classes, ac_device_of(x)), target);
    T loss = TIMES(ac_c_sum(s, WHERE(others, each, NUM(0)), 1), 1 / (double)(classes ? classes : 1));
    if (in[1]->ndim == 0 && loss) loss = ac_c_squeeze(s, loss, 0);
    return ac_c_reduced(s, loss, a->reduction);
}

COMPOSE(multilabel_margin_loss) {
    ATTRS(reduction);
    T scores = as_scores(s, in[0], in[1]), classes_of = as_scores(s, in[1], in[0]);
    if (!scores || !classes_of) return NULL;
    NEED(need_scores("multilabel_margin_loss", scores, classes_of, 1));
    T x = as_rows(s, scores), target = as_rows(s, classes_of);
    if (!x || !target) return NULL;
    int64_t classes = x->shape[1];
    if (leaves_classes(s, target, -1, classes))
        REFUSE(AC_RUNTIME, "multilabel_margin_loss: classes must lie between -1 and %" PRId64, classes - 1);
    ac_attrs_cumulative along = {1, AC_NO_DTYPE};
    ac_attrs_index_dim gathered = {1};
    T ended = ac_c_call(s, AC_OP_cumsum, &along, 1, BIN(lt, target, NUM(0)));
    T named = BIN(eq, ended, NUM(0)), safe = WHERE(named, target, NUM(0));
    T own = ac_c_unsqueeze(s, ac_c_call(s, AC_OP_gather, &gathered, 2, x, safe), 2); /* [N, named, 1] */
    T here = BIN(eq, ac_c_unsqueeze(s, target, 2), ac_c_arange(s, classes, ac_device_of(x)));
    T column = ac_c_unsqueeze(s, named, 2);
    ac_attrs_reduce_dim over = {{1, {1}}, 1};
    T is_target = ac_c_call(s, AC_OP_any, &over, 1, BIN(logical_and, here, column)); /* [N, 1, C] */
    T each = UN(relu, SUB(ADD(ac_c_unsqueeze(s, x, 1), NUM(1)), own));
    T counted = BIN(logical_and, column, UN(logical_not, is_target));
    T loss = TIMES(ac_c_sum(s, ac_c_sum(s, WHERE(counted, each, NUM(0)), 2), 1), 1 / (double)(classes ? classes : 1));
    if (scores->ndim == 1 && loss) loss = ac_c_squeeze(s, loss, 0);
    return ac_c_reduced(s, loss, a->reduction);
}

COMPOSE(multilabel_soft_margin_loss) {
    ATTRS(reduction_only);
    T x = in[0], target = in[1];
    T yes = MUL(target, UN(logsigmoid, x)), no = MUL(SUB(NUM(1), target), UN(logsigmoid, UN(neg, x)));
    T each = UN(neg, ADD(yes, no));
    if (in[2]) each = MUL(each, in[2]);
    if (x->ndim == 0)
        REFUSE(AC_INDEX, "multilabel_soft_margin_loss: `input` must have a dimension of classes, got shape []");
    int64_t classes = x->ndim - 1; /* as in torch, also where the target has another shape */
    T mean = DIV(ac_c_sum(s, each, classes), NUM((double)x->shape[classes]));
    return ac_c_reduced(s, mean, a->reduction);
}
