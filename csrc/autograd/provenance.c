/* Gradients' provenance: set on scaled losses, carried by backward, merged where gradients are added. */
#include "autograd/provenance.h"

#include "autograd/node.h"

#include <math.h>
#include <string.h>

void ac_pass_meets(ac_pass *pass, const ac_node *node) {
    if (node->scaled.scaler) pass->by = node->scaled;
    ac_dtype in = node->n_in ? node->inputs[0].dtype : AC_float32;
    pass->float16 |= in == AC_float16 || (node->is_low && node->compute == AC_float16);
}

bool ac_any_scaled = false;

bool ac_is_marked_scaled(const ac_tensor *t) { return t->storage->scaled_at == t->storage->content + 1; }

/* By hand, back to what a loss without a scale gives. */
static bool is_divided(const ac_storage *s) { return fabs(s->scaled_by - 1) < 1e-3; }

bool ac_provenance_holds(const ac_provenance *s, const ac_tensor *grad, bool exact) {
    return s->state != AC_PROVENANCE_NONE && grad && s->of == grad->storage &&
           (!exact || s->content == grad->storage->content ||
            (s->state == AC_PROVENANCE_SCALED && ac_is_marked_scaled(grad)));
}

ac_provenance_state ac_provenance_state_of(const ac_provenance *s, const ac_tensor *grad) {
    if (s->state != AC_PROVENANCE_SCALED || !ac_is_marked_scaled(grad)) return s->state;
    if (grad->storage->scaled_by == 0) return AC_PROVENANCE_NONE;
    return s->by.scale != 1 && is_divided(grad->storage) ? AC_PROVENANCE_UNSCALED : AC_PROVENANCE_SCALED;
}

void ac_provenance_renew(ac_provenance *s, const ac_tensor *grad) {
    s->of = grad->storage, s->content = grad->storage->content;
}

bool ac_is_still_scaled(const ac_tensor *t) {
    return ac_is_marked_scaled(t) && t->storage->scaled_by != 0 && !is_divided(t->storage);
}

void ac_mark_scaled(const ac_tensor *t, double by) {
    t->storage->scaled_at = t->storage->content + 1, t->storage->scaled_by = by;
    ac_any_scaled = true;
}

/* A marked tensor times a factor: what is known of a part, or of a GPU's scale, is not known any more. */
static double times(const ac_tensor *t, double factor) {
    double by = t->storage->scaled_by;
    if (fabs(factor) == 1) return by;
    bool whole = t->numel * ac_itemsize(t->dtype) == t->storage->bytes;
    return whole && isfinite(by) && isfinite(factor) ? by * factor : 0;
}

static double times_number(const ac_tensor *t, const ac_tensor *number, bool divided) {
    if (ac_is_still_scaled(number)) return NAN;           /* a square */
    if (number->numel != 1) return t->storage->scaled_by; /* a mask, or weights: it is linear */
    if (ac_device_of(number) != AC_CPU) return 0;
    double value = ac_read_double(ac_data(number), number->dtype, 0);
    return times(t, divided ? 1 / value : value);
}

double ac_scaled_after(ac_op op, ac_tensor *const *in, int n_in, const ac_tensor *target) {
    if (!ac_is_marked_scaled(target)) { /* what is computed from scaled gradients */
        for (int i = 0; i < n_in; i++)
            if (in[i] && ac_is_marked_scaled(in[i])) return 0;
        return NAN;
    }
    switch (op) {
    case AC_OP_neg: return target->storage->scaled_by;
    case AC_OP_mul:
    case AC_OP_div: return times_number(target, in[in[0]->storage == target->storage], op == AC_OP_div);
    case AC_OP_add:
    case AC_OP_sub:
    case AC_OP_lerp: return ac_is_marked_scaled(in[1]) ? target->storage->scaled_by : NAN;
    case AC_OP_cast:
    case AC_OP_clone:
    case AC_OP_in_rows:
    case AC_OP_where: return 0; /* other values */
    default: return NAN;
    }
}

/* Stops at the first value that is not: only what was zeroed is read to its end. The signs of zeros do not count. */
static bool is_zero(const ac_tensor *t) {
    if (ac_device_of(t) != AC_CPU || !ac_is_contiguous(t) || t->storage->deferred) return false;
    const char *at = ac_data(t), *end = at + t->numel * ac_itemsize(t->dtype);
    int64_t size = ac_itemsize(t->dtype);
    uint64_t word = 0, magnitude = size == 8 ? ~0ull >> 1 : size == 4 ? 0x7fffffff7fffffffull : 0x7fff7fff7fff7fffull;
    for (; end - at >= 8 && !word; at += 8) memcpy(&word, at, 8), word &= magnitude;
    if (at < end && !word) memcpy(&word, at, (size_t)(end - at));
    return !(word & magnitude);
}

void ac_provenance_before(ac_provenance *s, const ac_tensor *old) {
    bool ours = old && ac_provenance_holds(s, old, false);
    if (ours && s->content == old->storage->content) return;
    bool empty = !old || (ours && is_zero(old));
    if (ours && !empty && s->state == AC_PROVENANCE_SCALED) {
        s->state = ac_provenance_state_of(s, old);
        if (!ac_is_marked_scaled(old)) s->faults |= AC_EDITED;
    } else if (!ours || empty || s->state == AC_PROVENANCE_PLAIN)
        *s = (ac_provenance){.state = AC_PROVENANCE_NONE, .empty = empty};
}

static bool same(const ac_scaling *a, const ac_scaling *b) { return a->scaler == b->scaler && a->scale == b->scale; }

/* What is wrong with adding a pass's gradient to one that is known. */
static int faults_of(const ac_provenance *s, const ac_pass *pass) {
    bool scaled = pass->by.scaler != 0;
    switch (s->state) {
    case AC_PROVENANCE_NONE: return 0;
    case AC_PROVENANCE_PLAIN: return scaled ? AC_MIXED_PLAIN : 0;
    case AC_PROVENANCE_SCALED: return !scaled ? AC_MIXED_PLAIN : !same(&s->by, &pass->by) ? AC_MIXED_SCALES : 0;
    case AC_PROVENANCE_USED: return scaled ? AC_MIXED_LEFTOVER : 0;
    case AC_PROVENANCE_UNSCALED:
        if (!scaled) return 0; /* a step of one's own */
        return s->by.scaler == pass->by.scaler && s->by.round == pass->by.round ? AC_MIXED_UNSCALED : AC_MIXED_LEFTOVER;
    }
    return 0;
}

void ac_provenance_after(ac_provenance *s, const ac_tensor *grad, const ac_pass *pass) {
    s->faults |= faults_of(s, pass);
    if (pass->by.scaler) s->by = pass->by, s->state = AC_PROVENANCE_SCALED;
    else if (s->empty) s->state = AC_PROVENANCE_PLAIN;
    else if (s->state == AC_PROVENANCE_USED) s->state = AC_PROVENANCE_UNSCALED; /* and more: it was not used */
    s->empty = false;
    s->float16 |= pass->float16;
    ac_provenance_renew(s, grad);
    if (s->state == AC_PROVENANCE_SCALED) ac_mark_scaled(grad, s->by.scale ? (double)s->by.scale : INFINITY);
    else grad->storage->scaled_at = 0;
}
