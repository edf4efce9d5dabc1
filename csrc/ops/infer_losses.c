/* Shape functions of losses. */
#include "ops/infer.h"

#include <inttypes.h>

#define ATTRS(name) const ac_attrs_##name *a = i->attrs

int ac_infer_loss_pair(ac_infer *i) {
    ATTRS(reduction);
    ac_dims shape = ac_shape_of(i->in[0]), target = ac_shape_of(i->in[1]);
    AC_TRY(ac_dims_broadcast(&shape, &target, i->info->shown));
    i->compute = ac_result_type(i->in, 2);
    if (i->low != AC_NO_DTYPE) i->compute = ac_promote(i->compute, (ac_dtype)i->low);
    if (!ac_is_floating(i->compute)) AC_TRY(ac_need_floating(i, 0));
    i->out[0] = (ac_spec){i->compute, a->reduction == AC_REDUCE_NONE ? shape : (ac_dims){0}, AC_CPU};
    return 0;
}

static int need_class_weight(const ac_infer *i, const ac_tensor *weight, int64_t classes) {
    if (!weight) return 0;
    if (weight->ndim == 1 && weight->shape[0] == classes && ac_is_floating(weight->dtype)) return 0;
    char text[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME,
                   "%s: `weight` must hold one floating point number for each of the %" PRId64 " classes, got %s %s",
                   i->info->shown, classes, ac_dtypes[weight->dtype].name, ac_shape_text(weight, text));
}

/* The shape of class indices for scores [C], [N, C] or [N, C, ...], and their checks. */
static int check_classes(ac_infer *i, const ac_dims *scores, ac_dims *target) {
    if (scores->n == 0)
        return ac_fail(AC_RUNTIME, "%s: `%s` must have a dimension of classes", i->info->shown, ac_input_name(i, 0));
    if (scores->n > 1 && i->in[1]->ndim > 0 && i->in[1]->shape[0] != scores->v[0])
        return ac_fail(AC_VALUE, "%s: `target` names classes of %" PRId64 " samples, and there are scores of %" PRId64,
                       i->info->shown, i->in[1]->shape[0], scores->v[0]);
    if (i->in[1]->dtype != AC_int64 && i->in[1]->dtype != AC_uint8)
        return ac_fail(AC_RUNTIME,
                       "%s: `target` holds class indices and must be int64 or uint8, got %s; convert it with .long()",
                       i->info->shown, ac_dtypes[i->in[1]->dtype].name);
    if (scores->n == 1 && i->in[1]->ndim == 1 && i->in[1]->shape[0] != 1)
        return ac_fail(AC_VALUE, "%s: `target` names classes of %" PRId64 " samples, and there are scores of one",
                       i->info->shown, i->in[1]->shape[0]);
    *target = *scores;
    int64_t channel = scores->n > 1;
    for (int64_t d = channel; d + 1 < target->n; d++) target->v[d] = target->v[d + 1];
    target->n--;
    bool one_sample = scores->n == 1 && i->in[1]->ndim == 1; /* whose target may have a dimension of one element */
    if (!one_sample) AC_TRY(ac_need_shape(i, 1, target));
    return need_class_weight(i, i->in[2], scores->v[channel]);
}

int ac_infer_nll_loss(ac_infer *i) {
    ATTRS(nll);
    ac_dims scores = ac_shape_of(i->in[0]), target;
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(check_classes(i, &scores, &target));
    i->out[0] = (ac_spec){i->in[0]->dtype, a->reduction == AC_REDUCE_NONE ? target : (ac_dims){0}, AC_CPU};
    return 0;
}

int ac_infer_nll_loss_backward(ac_infer *i) {
    ATTRS(nll_backward);
    ac_dims target, none = {0};
    AC_TRY(ac_need_floating(i, 0));
    if (ac_dims_numel(&a->size) < 0) return -1;
    AC_TRY(check_classes(i, &a->size, &target));
    AC_TRY(ac_need_shape(i, 0, a->reduction == AC_REDUCE_NONE ? &target : &none));
    i->out[0] = (ac_spec){i->in[0]->dtype, a->size, AC_CPU};
    return 0;
}

/* So many numbers for each sample. */
static ac_dims numbers_of(ac_dims samples, int64_t n) {
    samples.v[samples.n++] = n;
    return samples;
}

/* What a kernel kept of its forward pass. */
static int need_kept(const ac_infer *i, int k, const ac_dims *shape) {
    AC_TRY(ac_need_shape(i, k, shape));
    if (i->in[k]->dtype == AC_float64 && ac_is_contiguous(i->in[k])) return 0;
    return ac_fail(AC_RUNTIME, "%s: `%s` must be contiguous float64", i->info->shown, ac_input_name(i, k));
}

int ac_infer_class_entropy(ac_infer *i) {
    ATTRS(cross_entropy);
    ac_dims scores = ac_shape_of(i->in[0]), target, pair = {1, {2}};
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(check_classes(i, &scores, &target));
    ac_dtype dtype = i->low == AC_NO_DTYPE ? i->in[0]->dtype : (ac_dtype)i->low;
    i->out[0] = (ac_spec){dtype, a->reduction == AC_REDUCE_NONE ? target : (ac_dims){0}, AC_CPU};
    i->out[1] = (ac_spec){AC_float64, numbers_of(target, 2), AC_CPU};
    i->out[2] = (ac_spec){AC_float64, pair, AC_CPU};
    return 0;
}

int ac_infer_class_entropy_backward(ac_infer *i) {
    ATTRS(cross_entropy);
    enum { G, X = 3, LSE, TOTALS };
    ac_dims scores = ac_shape_of(i->in[X]), target, pair = {1, {2}}, none = {0};
    AC_TRY(ac_need_floating(i, G));
    AC_TRY(ac_need_floating(i, X));
    AC_TRY(check_classes(i, &scores, &target));
    AC_TRY(ac_need_shape(i, G, a->reduction == AC_REDUCE_NONE ? &target : &none));
    target = numbers_of(target, 2);
    AC_TRY(need_kept(i, LSE, &target));
    AC_TRY(need_kept(i, TOTALS, &pair));
    i->out[0] = (ac_spec){i->in[X]->dtype, scores, AC_CPU};
    return 0;
}

/* The shape of the samples of logits x, whose target holds probabilities, and their checks. */
static int check_probabilities(ac_infer *i, const ac_tensor *x, ac_dims *samples) {
    *samples = ac_shape_of(x);
    if (x->ndim == 0) return ac_fail(AC_RUNTIME, "%s: `input` must have a dimension of classes", i->info->shown);
    AC_TRY(ac_need_floating(i, 1));
    AC_TRY(ac_need_shape(i, 1, samples));
    int64_t channel = x->ndim > 1;
    for (int64_t d = channel; d + 1 < samples->n; d++) samples->v[d] = samples->v[d + 1];
    samples->n--;
    return need_class_weight(i, i->in[2], x->shape[channel]);
}

int ac_infer_soft_entropy(ac_infer *i) {
    ATTRS(soft_entropy);
    ac_dims samples;
    AC_TRY(ac_need_floating(i, 0));
    AC_TRY(check_probabilities(i, i->in[0], &samples));
    ac_dtype dtype = i->low == AC_NO_DTYPE ? i->in[0]->dtype : (ac_dtype)i->low;
    for (int k = 1; k < 3; k++)
        if (i->in[k]) dtype = ac_promote(dtype, i->in[k]->dtype);
    i->out[0] = (ac_spec){dtype, a->reduction == AC_REDUCE_NONE ? samples : (ac_dims){0}, AC_CPU};
    i->out[1] = (ac_spec){AC_float64, numbers_of(samples, 3), AC_CPU};
    return 0;
}

int ac_infer_soft_entropy_backward(ac_infer *i) {
    ATTRS(soft_entropy);
    enum { G, X = 3, LSE };
    ac_dims samples, none = {0};
    AC_TRY(ac_need_floating(i, G));
    AC_TRY(ac_need_floating(i, X));
    AC_TRY(check_probabilities(i, i->in[X], &samples));
    AC_TRY(ac_need_shape(i, G, a->reduction == AC_REDUCE_NONE ? &samples : &none));
    samples = numbers_of(samples, 3);
    AC_TRY(need_kept(i, LSE, &samples));
    i->out[0] = (ac_spec){i->in[X]->dtype, ac_shape_of(i->in[X]), AC_CPU};
    return 0;
}
