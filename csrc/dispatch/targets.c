/* Around a write into a given tensor: inputs kept apart from it, and a result written into it. And the record of views
 * by arbitrary strides. */
#include "dispatch/targets.h"

#include "autograd/node.h"
#include "dispatch/write.h"
#include "ops/op.h"

int ac_inputs_apart(ac_tensor *const *in, int n_in, const ac_tensor *target, ac_list *apart) {
    bool recorded = false;
    AC_TRY(ac_list_start(apart, n_in));
    for (int i = 0; i < n_in && ac_grad_enabled(); i++) recorded = recorded || (in[i] && ac_requires_grad(in[i]));
    for (int i = 0; i < n_in; i++) {
        if (recorded && in[i] && in[i]->storage == target->storage)
            AC_TRY(ac_call(AC_OP_clone, &in[i], 1, NULL, &apart->at[i]));
        else if (in[i]) apart->at[i] = ac_tensor_retain(in[i]);
    }
    return 0;
}

int ac_write_out(ac_tensor *target, ac_tensor *result) {
    if (!ac_same_shape(target, result)) {
        ac_dims shape = ac_shape_of(result);
        ac_tensor *room = ac_tensor_new_on(ac_device_of(target), target->dtype, &shape);
        if (!room) return -1;
        ac_tensor_take(target, room);
        ac_tensor_release(room);
    }
    return ac_copy_into(target, result);
}

int ac_overwrite(ac_tensor *target, ac_tensor *source) {
    ac_attrs_dtype dtype = {target->dtype};
    if (target->base || !ac_requires_grad(target)) return ac_call_into(AC_OP_cast, &source, 1, &dtype, target);
    ac_tensor *everywhere = ac_tensor_scalar(AC_bool, 1), *in[3] = {everywhere, source, target};
    int failed = everywhere ? ac_call_into(AC_OP_where, in, 3, NULL, target) : -1;
    ac_tensor_clear(&everywhere);
    return failed;
}

static ac_node *node_of(ac_op op, const char *name, int n_in, size_t attrs_size) {
    ac_node *node = ac_node_new(name, n_in, 1, attrs_size);
    if (!node) return NULL;
    node->op = op, node->backward = ac_formulas[op];
    return node;
}

/* x placed in memory of its storage's size */
static ac_node *placed_in_memory(ac_tensor *x) {
    ac_node *node = node_of(AC_OP_as_strided_scatter, "as_strided_scatter", 2, sizeof(ac_attrs_as_strided_scatter));
    if (!node) return NULL;
    ac_dims all = {1, {x->storage->bytes / ac_itemsize(x->dtype)}};
    *(ac_attrs_as_strided_scatter *)node->attrs =
        (ac_attrs_as_strided_scatter){ac_shape_of(x), ac_strides_of(x), x->offset, 0};
    node->inputs[1] = ac_spec_of(x);
    node->inputs[0] = node->outputs[0] = (ac_spec){x->dtype, all, ac_device_of(x)};
    if (ac_edge_of(x, &node->edges[1]) == 0) {
        ac_node_number(node);
        return node;
    }
    ac_node_release(node);
    return NULL;
}

int ac_record_strided(ac_tensor *x, ac_tensor *v, const ac_attrs_as_strided *attrs) {
    if (ac_overlaps_itself(x))
        return ac_fail(AC_RUNTIME, "as_strided: gradients need a tensor whose elements have memory of their own; call "
                                   ".contiguous() first");
    ac_node *memory = placed_in_memory(x);
    if (!memory) return -1;
    ac_node *node = node_of(AC_OP_as_strided, "as_strided", 1, sizeof(ac_attrs_as_strided));
    if (!node) return ac_node_release(memory), -1;
    ac_attrs_as_strided *a = node->attrs;
    *a = *attrs;
    if (a->offset == AC_ABSENT) a->offset = x->offset;
    node->inputs[0] = memory->outputs[0], node->outputs[0] = ac_spec_of(v);
    node->edges[0] = (ac_edge){memory, 0}; /* which takes over the reference */
    ac_node_number(node);
    int failed = ac_set_history(v, node, 0);
    ac_node_release(node);
    return failed;
}
