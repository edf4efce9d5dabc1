/* Copies into existing tensors: of a number, of another tensor, from another device; and tensors brought to the CPU. */
#include "dispatch/in_place.h"

#include "dispatch/deferred_scale.h"
#include "dispatch/placement.h"
#include "dispatch/write.h"

#include "autograd/provenance.h"

#include <math.h>
#include <string.h>

static bool is_recorded(const ac_tensor *target, const ac_tensor *source) {
    return ac_grad_enabled() && ((source && ac_requires_grad(source)) || ac_requires_grad(target));
}

enum { SMALL_BYTES = 1 << 14 }; /* written at once: no call of a kernel, no thread to wake */

/* Zeros in a small tensor of the CPU, whose values lie side by side; of every dtype they are bytes of 0. */
static bool has_few_zeros(const ac_tensor *target, ac_scalar value) {
    bool zero = value.kind == AC_FLOAT ? value.f == 0 && !signbit(value.f) : value.i == 0;
    return zero && ac_device_of(target) == AC_CPU && ac_is_contiguous(target) && !is_recorded(target, NULL) &&
           target->numel * ac_itemsize(target->dtype) <= SMALL_BYTES;
}

/* The dimension along which a tensor repeats the same elements, as expanded ones do; -1 for none. */
static int repeated_dim(const ac_tensor *t) {
    for (int d = 0; d < t->ndim; d++)
        if (t->strides[d] == 0 && t->shape[d] > 1) return d;
    return -1;
}

/* Elements that stand at several places are written once. */
static int fill_once(ac_tensor *target, int dim, ac_scalar value) {
    ac_attrs_narrow first = {dim, 0, 1};
    ac_tensor *part = NULL;
    AC_TRY(ac_call(AC_OP_narrow, &target, 1, &first, &part));
    int failed = ac_fill(part, value);
    ac_tensor_release(part);
    return failed;
}

int ac_fill(ac_tensor *target, ac_scalar value) {
    int repeated = repeated_dim(target);
    if (repeated >= 0) return fill_once(target, repeated, value);
    AC_TRY(ac_check_target("fill_", target));
    AC_TRY(ac_scalar_held(value, target->dtype, "fill_"));
    if (has_few_zeros(target, value)) {
        AC_TRY(ac_settle(target));
        bool scaled = ac_is_marked_scaled(target);
        memset(ac_data(target), 0, (size_t)(target->numel * ac_itemsize(target->dtype)));
        ac_wrote(target);
        if (scaled) ac_mark_scaled(target, 0);
        return 0;
    }
    ac_tensor *number = value.kind == AC_FLOAT ? ac_tensor_scalar(target->dtype, value.f)
                                               : ac_tensor_scalar_int(target->dtype, value.i);
    if (!number) return -1;
    int failed = ac_copy_into(target, number);
    ac_tensor_release(number);
    return failed;
}

/* From another device: brought over as it is, then copied; a number of the CPU's travels with the call. */
static int copy_across(ac_tensor *target, ac_tensor *source, bool non_blocking) {
    bool recorded = is_recorded(target, source);
    ac_attrs_dtype dtype = {target->dtype};
    ac_attrs_to_device to = {ac_device_of(target), non_blocking};
    if (source->ndim == 0 && ac_device_of(source) == AC_CPU && !recorded)
        return ac_run_into(AC_OP_cast, source, &dtype, target);
    if (!recorded && source->dtype == target->dtype && ac_same_shape(source, target) && ac_is_contiguous(target))
        return ac_run_into(AC_OP_to_device, source, &to, target);
    ac_tensor *here = NULL;
    AC_TRY(ac_call(AC_OP_to_device, &source, 1, &to, &here));
    int failed = ac_copy_into(target, here);
    ac_tensor_release(here);
    return failed;
}

/* Recorded: what the target was before has a gradient of zeros, as torch has it. A view's base keeps its history
 * anyway. */
static int overwrite(ac_tensor *target, ac_tensor *source) {
    ac_attrs_dtype dtype = {target->dtype};
    if (target->base || !ac_requires_grad(target)) return ac_call_into(AC_OP_cast, &source, 1, &dtype, target);
    ac_tensor *everywhere = ac_tensor_scalar(AC_bool, 1), *in[3] = {everywhere, source, target};
    if (everywhere) everywhere->is_constant = true;
    int failed = everywhere ? ac_call_into(AC_OP_where, in, 3, NULL, target) : -1;
    ac_tensor_clear(&everywhere);
    return failed;
}

/* `wide` has the target's shape. */
static int copy_wide(ac_tensor *target, ac_tensor *wide) {
    ac_attrs_dtype dtype = {target->dtype};
    ac_tensor *apart = NULL;
    if (ac_overlaps_partly(target, wide)) {
        AC_TRY(ac_call(AC_OP_cast, &wide, 1, &dtype, &apart));
        int failed = overwrite(target, apart);
        ac_tensor_release(apart);
        return failed;
    }
    if (is_recorded(target, wide)) return overwrite(target, wide);
    return ac_run_into(AC_OP_cast, wide, &dtype, target);
}

static int check_broadcasts(const ac_tensor *source, const ac_tensor *target) {
    bool fits = source->ndim <= target->ndim;
    for (int d = 1; fits && d <= source->ndim; d++) {
        int64_t size = source->shape[source->ndim - d];
        fits = size == 1 || size == target->shape[target->ndim - d];
    }
    if (fits) return 0;
    char from[AC_SHAPE_TEXT], to[AC_SHAPE_TEXT];
    return ac_fail(AC_RUNTIME, "copy_: values of shape %s neither have the target's shape %s nor broadcast to it",
                   ac_shape_text(source, from), ac_shape_text(target, to));
}

/* Written as 0-d or smaller tensors broadcast into the target: expand, then clone into it. */
int ac_copy_into(ac_tensor *target, ac_tensor *source) { return ac_copy_into_async(target, source, false); }

int ac_copy_into_async(ac_tensor *target, ac_tensor *source, bool non_blocking) {
    ac_tensor *wide = NULL;
    ac_attrs_size size = {ac_shape_of(target)};
    AC_TRY(ac_check_target("copy_", target));
    AC_TRY(check_broadcasts(source, target));
    AC_TRY(ac_settle(source));
    AC_TRY(ac_settle(target));
    if (ac_device_of(source) != ac_device_of(target)) return copy_across(target, source, non_blocking);
    AC_TRY(ac_call(AC_OP_expand, &source, 1, &size, &wide));
    int failed = copy_wide(target, wide);
    ac_tensor_release(wide);
    return failed;
}

ac_tensor *ac_on_cpu(ac_tensor *t) {
    if (ac_settle(t) < 0) return NULL;
    if (ac_device_of(t) == AC_CPU) return ac_tensor_retain(t);
    ac_attrs_to_device to = {AC_CPU, 0};
    ac_tensor *out = NULL;
    ac_op_call move = ac_op_call_of(AC_OP_to_device, &t, 1, &to, &out);
    return ac_call_compute(&move) < 0 ? NULL : out;
}
