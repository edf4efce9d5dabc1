/* Determines the device that a call runs on, and refuses operands on different devices. */
#include "dispatch/placement.h"

#include <stdio.h>
#include <string.h>

#include "cuda/gpu.h"

enum { NAME_BYTES = 64 };

/* Numbers, and 0-d tensors of the CPU beside a GPU's in elementwise operators, travel with the call; so does what the
 * table keeps on the CPU. */
static bool travels(const ac_op_info *info, const ac_tensor *t, int input) {
    return t->is_scalar || input == info->cpu_at ||
           (info->kind == AC_KIND_POINTWISE && t->ndim == 0 && ac_device_of(t) == AC_CPU);
}

/* An operand's parameter: `weight`, or `tensors[1]` of a list. */
static const char *name_of(const ac_op_info *info, int i, char text[NAME_BYTES]) {
    const char *name = ac_input_param(info, i);
    int first = i;
    while (first > 0 && ac_input_param(info, first - 1) == name) first--;
    if (first == i && ac_input_param(info, i + 1) != name) return name;
    snprintf(text, NAME_BYTES, "%s[%d]", name, i - first);
    return text;
}

/* Some operand lies on a GPU: all must lie there. */
static int common_device(const ac_op_call *c, ac_device *device) {
    ac_tensor *const *in = c->operands;
    char name[NAME_BYTES], other_name[NAME_BYTES];
    int first = -1;
    for (int i = 0; i < c->n_in; i++) {
        if (!in[i] || travels(c->info, in[i], i)) continue;
        if (first < 0) first = i;
        ac_device one = ac_device_of(in[first]), other = ac_device_of(in[i]);
        if (one != other)
            return ac_fail(AC_DEVICES, "%s: `%s` is on %s and `%s` on %s; bring them together with .to(device)",
                           c->info->shown, name_of(c->info, first, name), ac_device_name(one),
                           name_of(c->info, i, other_name), ac_device_name(other));
    }
    if (first < 0) /* 0-d tensors only */
        for (int i = 0; i < c->n_in; i++)
            if (in[i] && ac_device_of(in[i]) != AC_CPU) first = i;
    *device = ac_device_of(in[first]);
    return 0;
}

void ac_name_devices(const ac_op_call *c) {
    ac_device device;
    int some = AC_CPU;
    for (int i = 0; i < c->n_in; i++) some |= c->operands[i] ? ac_device_of(c->operands[i]) : AC_CPU;
    if (some != AC_CPU && common_device(c, &device)) return; /* its words are the error's now */
}

int ac_device_sought(const ac_op_call *c, ac_device *device) {
    int64_t given;
    if (c->info->device_at < 0) return common_device(c, device);
    memcpy(&given, (const char *)c->attrs + c->info->device_at, sizeof given);
    *device = (ac_device)given;
    return 0;
}

int ac_check_target_device(const ac_op_call *c, const ac_tensor *target) {
    ac_device device;
    AC_TRY(ac_device_for(c, &device));
    bool numbers_only = c->info->device_at < 0;
    for (int i = 0; i < c->n_in && numbers_only; i++) numbers_only = !c->in[i] || travels(c->info, c->in[i], i);
    if (device == ac_device_of(target) || numbers_only) return 0;
    return ac_fail(AC_RUNTIME, "%s: the target is on %s and the operands on %s; bring them together with .to(device)",
                   c->info->shown, ac_device_name(ac_device_of(target)), ac_device_name(device));
}

int ac_wait_for_kept(ac_device device) {
    return ac_is_gpu(device) ? ac_gpu_stream_wait(device, ac_gpu_stream(device)) : 0;
}

static void release_kept(void *t) { ac_tensor_release(t); }

int ac_lend_kept(ac_tensor *t) {
    ac_device d = ac_device_of(t);
    ac_gpu_block *b = ac_is_gpu(d) ? ac_gpu_block_of(t->storage) : NULL;
    if (!b) return 0;
    AC_TRY(ac_gpu_record_stream(b, d, ac_gpu_stream(d)));
    if (!ac_gpu_is_capturing()) return 0;
    AC_TRY(ac_gpu_capture_keep(release_kept, t));
    (void)ac_tensor_retain(t);
    return 0;
}
