/* Gradients' provenance: set on scaled losses, carried by backward, merged where gradients are added. */
#include "autograd/provenance.h"

#include "autograd/node.h"

#include <string.h>

void ac_pass_meets(ac_pass *pass, const ac_node *node) {
    if (node->scaled.scaler) pass->by = node->scaled;
    ac_dtype in = node->n_in ? node->inputs[0].dtype : AC_float32;
    pass->float16 |= in == AC_float16 || (node->is_low && node->compute == AC_float16);
}

bool ac_provenance_holds(const ac_provenance *s, const ac_tensor *grad, bool exact) {
    return s->state != AC_PROVENANCE_NONE && grad && s->of == grad->storage &&
           (!exact || s->content == grad->storage->content);
}

void ac_provenance_renew(ac_provenance *s, const ac_tensor *grad) {
    s->of = grad->storage, s->content = grad->storage->content;
}

/* Stops at the first value that is not: only what was zeroed is read to its end. */
static bool is_zero(const ac_tensor *t) {
    if (ac_device_of(t) != AC_CPU || !ac_is_contiguous(t) || t->storage->deferred) return false;
    const char *at = ac_data(t), *end = at + t->numel * ac_itemsize(t->dtype);
    uint64_t word = 0;
    for (; end - at >= 8 && !word; at += 8) memcpy(&word, at, 8);
    for (; at < end && !word; at++) word |= (uint64_t)*at;
    return !word;
}

void ac_provenance_before(ac_provenance *s, const ac_tensor *old) {
    if (old && ac_provenance_holds(s, old, true)) return;
    bool ours = old && ac_provenance_holds(s, old, false), empty = !old || (ours && is_zero(old));
    if (ours && !empty && s->state == AC_PROVENANCE_SCALED) s->faults |= AC_EDITED;
    else if (!ours || empty || s->state == AC_PROVENANCE_PLAIN)
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
    s->empty = false;
    s->float16 |= pass->float16;
    ac_provenance_renew(s, grad);
    grad->storage->scaled_at = s->state == AC_PROVENANCE_SCALED ? s->content + 1 : 0;
}
