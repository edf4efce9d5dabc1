/* One call of an operator, and the stages that it passes through: settle, plan, infer, run, record. */
#ifndef AC_DISPATCH_CALL_H
#define AC_DISPATCH_CALL_H

#include "autograd/node.h"
#include "backend/backend.h"
#include "tensor/list.h"

/* What the stages hand on. All tensors are borrowed. */
typedef struct {
    ac_op op;
    const ac_op_info *info;
    ac_tensor *const *in;       /* as the caller gave them: what the tape sees */
    ac_tensor *const *operands; /* what is computed with: those, or what autocast made of them */
    int n_in;
    const void *attrs;
    ac_tensor **out; /* receives the results, new; of a call that writes into a tensor: that */
    int64_t low;     /* the dtype that autocast chose for a product; else AC_NO_DTYPE */
} ac_op_call;

static inline ac_op_call ac_op_call_of(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) {
    return (ac_op_call){op, &ac_ops[op], in, in, n_in, attrs, out, AC_NO_DTYPE};
}
static inline void ac_release_results(const ac_op_call *c) {
    for (int i = 0; i < c->info->n_out; i++) ac_tensor_clear(&c->out[i]);
}

/* settle: of all inputs but one that waits for a call like this. */
int ac_call_settle(const ac_op_call *c) AC_CHECKED;

/* infer: the shape function. */
int ac_call_infer(const ac_op_call *c, ac_infer *meta) AC_CHECKED;

/* run: shape function, results, kernel, on the device where the operands are. */
int ac_call_compute(const ac_op_call *c) AC_CHECKED;
/* A kernel alone; run->op becomes that of bool where it has one. */
int ac_run_kernel(ac_run *run) AC_CHECKED;
/* The same; a product takes its weight from its packed copy. */
int ac_run_product(ac_run *run) AC_CHECKED;
/* What a kernel of one input makes of t, written into `target`, off the tape. */
int ac_run_into(ac_op op, ac_tensor *t, const void *attrs, ac_tensor *target) AC_CHECKED;

static inline bool ac_call_wants_record(const ac_op_call *c) {
    if (!ac_grad_enabled() || !ac_formulas[c->op]) return false;
    for (int i = 0; i < c->n_in; i++) {
        const ac_tensor *t = c->in[i];
        bool noted = t && (t->meta || t->base); /* others need no gradient */
        if (noted && ac_is_floating(t->dtype) && ac_requires_grad(t)) return true;
    }
    return false;
}
/* record: makes a node the history of the results. After a failure there are no results. */
int ac_call_record(const ac_op_call *c) AC_CHECKED;
/* A view, made and recorded. */
int ac_call_view(const ac_op_call *c) AC_CHECKED;

/* A composite operator; in compose.c. */
int ac_call_composition(const ac_op_call *c) AC_CHECKED;

#endif
