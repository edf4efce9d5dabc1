/* Runs composite operators, and the table from them to their compositions. */
#include "dispatch/compose.h"

#include "dispatch/call.h"
#include "dispatch/observer.h"
#include "dispatch/placement.h"
#include "dispatch/upcast.h"

#include "autograd/node.h"

#include <string.h>

int ac_compose_run(ac_composition f, T const *in, int n_in, const void *attrs, T *out) {
    ac_scratch s;
    ac_scratch_start(&s);
    memset(s.also, 0, sizeof s.also);
    T result = f(&s, in, n_in, attrs);
    if (!result) s.failed = true;
    if (!s.failed) out[0] = ac_tensor_retain(result);
    for (int i = 1; i < AC_MAX_OUT && !s.failed; i++)
        if (s.also[i]) out[i] = ac_tensor_retain(s.also[i]);
    ac_scratch_release(&s);
    return s.failed ? -1 : 0;
}

static bool shares_memory(const ac_op_call *c, const ac_tensor *result) {
    for (int j = 0; j < c->n_in; j++)
        if (c->operands[j] && c->operands[j]->storage == result->storage) return true;
    return false;
}

/* A view of a tensor that the composition made belongs to nobody else. Of trivial sizes a composition may end with an
 * operand itself: where the table says that the result is a copy, it becomes one. */
static int settle_memory(const ac_op_call *c) {
    for (int i = 0; i < c->info->n_out; i++) {
        T copy[AC_MAX_OUT] = {NULL};
        if (!c->out[i]) continue;
        if (!shares_memory(c, c->out[i])) {
            ac_leave_lone_base(c->out[i]);
        } else if (c->info->memory == AC_MEMORY_COPY) {
            AC_TRY(ac_call(AC_OP_in_rows, &c->out[i], 1, NULL, copy));
            ac_tensor_release(c->out[i]);
            c->out[i] = copy[0];
        }
    }
    return 0;
}

static int compose(const ac_op_call *c) {
    const ac_op_info *outer = ac_whole;
    bool private = c->info->python[0] == '_'; /* users know none of the operators inside */
    if (!outer && !private) ac_whole = c->info;
    for (int i = 0; i < c->info->n_out; i++) c->out[i] = NULL;
    int failed =
        ac_wants_float32(c) ? ac_call_in_float32(c) : ac_compositions[c->op](c->operands, c->n_in, c->attrs, c->out);
    if (!failed && c->info->memory != AC_MEMORY_VIEW) failed = settle_memory(c);
    ac_whole = outer;
    if (!failed) return 0;
    ac_release_results(c);
    if (ac_error_code() == AC_DEVICES && !private) ac_name_devices(c);
    return private ? -1 : ac_fail_as(c->info->shown);
}

int ac_call_composition(const ac_op_call *c) {
    if (!ac_watching) return compose(c);
    ac_composing++;
    int failed = compose(c);
    ac_composing--;
    if (failed) return failed;
    failed = ac_watch_whole(c);
    if (failed) ac_release_results(c);
    return failed;
}

const ac_compose_fn ac_compositions[AC_N_OPS] = {
#define COMPOSITE(name, ...) [AC_OP_##name] = ac_compose_##name,
#include "ops/ops.def"
};
