/* Runs compositions, and the table from operators to them. */
#include "dispatch/compose.h"

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

const ac_compose_fn ac_compositions[AC_N_OPS] = {
#define COMPOSITE(name, ...) [AC_OP_##name] = ac_compose_##name,
#include "ops/ops.def"
};
