/* The provenance of a leaf's gradient: what its values come from. A loss that a GradScaler scaled is marked, and
 * backward carries the mark to the leaves. So code that clips, steps or adds can learn whether a gradient is scaled, by
 * what, and what it was added to. */
#ifndef AC_AUTOGRAD_PROVENANCE_H
#define AC_AUTOGRAD_PROVENANCE_H

#include "ops/op.h"

typedef enum {
    AC_PROVENANCE_NONE,     /* nothing is known: no gradient, or one that somebody else put there */
    AC_PROVENANCE_PLAIN,    /* of a loss that was not scaled */
    AC_PROVENANCE_SCALED,   /* times a scale */
    AC_PROVENANCE_UNSCALED, /* and divided by it again */
    AC_PROVENANCE_USED,     /* and used by a scaler's step */
} ac_provenance_state;

/* What must not be added up; a gradient's faults stay until it is made anew. */
enum {
    AC_MIXED_PLAIN = 1,    /* scaled and never scaled */
    AC_MIXED_SCALES = 2,   /* two scales */
    AC_MIXED_UNSCALED = 4, /* scaled, onto what this iteration's unscale_ had divided already */
    AC_MIXED_LEFTOVER = 8, /* scaled, onto an earlier iteration's */
    AC_EDITED = 16,        /* written by somebody else while scaled */
};

/* Who scaled, and in which of its iterations. */
typedef struct {
    uint32_t scaler, round; /* scaler 0: nobody */
    float scale;            /* 0 where it is a GPU's, and not known here */
} ac_scaling;

typedef struct {
    ac_provenance_state state;
    ac_scaling by;
    int faults;
    bool float16;         /* products in it lie on its way */
    bool empty;           /* nothing has been added yet */
    const ac_storage *of; /* what it speaks of, and the content that had */
    uint64_t content;
} ac_provenance;

/* What one backward has met so far. */
typedef struct {
    ac_scaling by;
    bool float16;
} ac_pass;

struct ac_node;
void ac_pass_meets(ac_pass *pass, const struct ac_node *node);

/* Marks on memory: that of scaled gradients, and of what is computed from them. A write that multiplies, or adds what
 * is scaled, too, keeps the mark; ac_scaled_after is asked before the write. */
extern bool ac_any_scaled; /* whether a mark was ever made */
bool ac_is_marked_scaled(const ac_tensor *t);
bool ac_is_still_scaled(const ac_tensor *t); /* and nobody has divided it by the scale */
double ac_scaled_after(ac_op op, ac_tensor *const *in, int n_in, const ac_tensor *target);
void ac_mark_scaled(const ac_tensor *t, double by);

/* Before a gradient is added to what a leaf has (`old`, NULL: nothing), and after: `grad` is what it has now. */
void ac_provenance_before(ac_provenance *s, const ac_tensor *old);
void ac_provenance_after(ac_provenance *s, const ac_tensor *grad, const ac_pass *pass);

/* Whether the provenance speaks of this gradient, as it is now where `exact`. Linear changes of a scaled one are none.
 */
bool ac_provenance_holds(const ac_provenance *s, const ac_tensor *grad, bool exact);
/* The state, where a script has divided the gradient by the scale by hand, or written what nobody knows. */
ac_provenance_state ac_provenance_state_of(const ac_provenance *s, const ac_tensor *grad);
/* The gradient was written by ampc itself, with what it says. */
void ac_provenance_renew(ac_provenance *s, const ac_tensor *grad);

#endif
