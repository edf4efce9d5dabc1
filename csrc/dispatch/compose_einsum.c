/* einsum: sums of products by Einstein's convention, one product of matrices for each operand after the first. */
#include "dispatch/compose.h"

#include <ctype.h>
#include <string.h>

/* A label is a letter; those of "..." are beyond them, the last dimension's first. */
enum { DOTS = 128, LABELS = DOTS + AC_MAX_DIMS };
typedef struct {
    int n;
    int v[AC_MAX_DIMS];
} labels;
typedef struct {
    bool has[LABELS];
} label_set;

static int place_of(const labels *l, int label) {
    for (int i = 0; i < l->n; i++)
        if (l->v[i] == label) return i;
    return -1;
}
static void add_all(label_set *set, const labels *l) {
    for (int i = 0; i < l->n; i++) set->has[l->v[i]] = true;
}
static void drop(labels *l, int at) {
    l->n--;
    for (int i = at; i < l->n; i++) l->v[i] = l->v[i + 1];
}

static int sizes_differ(int label, int64_t one, int64_t other) {
    char text[2] = {(char)(label < DOTS ? label : '.'), 0};
    return ac_fail(AC_RUNTIME, "einsum: label '%s' has sizes %" PRId64 " and %" PRId64, text, one, other);
}

/* -- the equation ------------------------------------------------------------------------------------- */

/* A term of the equation: from `at` to a comma, an arrow or the end. */
typedef struct {
    const char *at;
    int length, named;
    bool dots;
} term;

static int find_term(const char *at, term *t) {
    const char *c = at;
    *t = (term){at, 0, 0, false};
    for (; *c && *c != ',' && strncmp(c, "->", 2) != 0; c++) {
        bool dots = strncmp(c, "...", 3) == 0 && !t->dots;
        if (dots) t->dots = true, c += 2;
        else if (*c > 0 && isalpha(*c)) t->named++;
        else if (*c != ' ') return ac_fail(AC_RUNTIME, "einsum: labels must be letters, got '%s'", at);
    }
    t->length = (int)(c - at);
    return 0;
}

/* The labels of a term whose "..." stands for `rest` dimensions. */
static int read_term(const term *t, int rest, labels *l) {
    l->n = 0;
    if (t->named + (t->dots ? rest : 0) > AC_MAX_DIMS)
        return ac_fail(AC_RUNTIME, "einsum: more than %d dimensions in '%.*s'", AC_MAX_DIMS, t->length, t->at);
    for (const char *c = t->at; c < t->at + t->length; c++) {
        if (isalpha(*c)) l->v[l->n++] = *c;
        if (*c != '.') continue;
        for (int i = rest; i > 0; i--) l->v[l->n++] = DOTS + i - 1;
        c += 2;
    }
    return 0;
}

static int read_operand(const term *t, const ac_tensor *x, labels *l) {
    int rest = x->ndim - t->named;
    if (rest < 0 || (rest && !t->dots))
        return ac_fail(AC_RUNTIME, "einsum: '%.*s' names %d dimensions of an operand with %d", t->length, t->at,
                       t->named, x->ndim);
    return read_term(t, rest, l);
}

/* What a walk over the terms of all operands finds of each label: how often it is there, and in which operand last. */
typedef struct {
    int count[LABELS], last[LABELS], widest;
    const char *end;
} survey;

static int look_over(const char *equation, T const *in, int n_in, survey *found) {
    int terms = 1;
    labels l;
    term t;
    const char *at = equation, *arrow = strstr(equation, "->");
    memset(found, 0, sizeof *found);
    for (const char *c = equation; *c && c != arrow; c++) terms += *c == ',';
    if (terms != n_in) return ac_fail(AC_RUNTIME, "einsum: '%s' names %d operands, got %d", equation, terms, n_in);
    for (int i = 0; i < n_in; i++) {
        AC_TRY(find_term(at, &t));
        AC_TRY(read_operand(&t, in[i], &l));
        for (int k = 0; k < l.n; k++) found->count[l.v[k]]++, found->last[l.v[k]] = i;
        if (l.n - t.named > found->widest) found->widest = l.n - t.named;
        at = t.at + t.length + (i + 1 < n_in);
    }
    found->end = at;
    return 0;
}

/* The labels of the result: those behind the arrow, or those that occur once, in order. */
static int read_result(const survey *found, labels *result) {
    term t;
    result->n = 0;
    if (!*found->end) {
        for (int i = found->widest; i > 0; i--) result->v[result->n++] = DOTS + i - 1;
        for (int c = 0; c < DOTS; c++) {
            if (found->count[c] != 1) continue;
            if (result->n == AC_MAX_DIMS) return ac_fail(AC_RUNTIME, "einsum: more than %d dimensions", AC_MAX_DIMS);
            result->v[result->n++] = c;
        }
        return 0;
    }
    AC_TRY(find_term(found->end + 2, &t));
    AC_TRY(read_term(&t, found->widest, result));
    bool fits = !t.at[t.length];
    for (int i = 0; i < result->n && fits; i++)
        fits = found->count[result->v[i]] && place_of(result, result->v[i]) == i;
    if (fits) return 0;
    return ac_fail(AC_RUNTIME, "einsum: the result '%s' must name labels of the operands, each once", t.at);
}

/* -- the operands ------------------------------------------------------------------------------------- */

/* Repeated labels become diagonals. */
static T distinct(ac_scratch *s, T x, labels *l) {
    for (int j = 1; j < l->n && x; j++) {
        int i = place_of(l, l->v[j]), label = l->v[j];
        if (i == j) continue;
        if (x->shape[i] != x->shape[j]) NEED(sizes_differ(label, x->shape[i], x->shape[j]));
        ac_attrs_diagonal both = {0, i, j};
        x = ac_c_call(s, AC_OP_diagonal, &both, 1, x);
        drop(l, j), drop(l, i);
        l->v[l->n++] = label;
        j = 0;
    }
    return x;
}

static T summed_out(ac_scratch *s, T x, labels *l, const label_set *kept) {
    ac_dims gone = {.n = 0};
    labels left = {0};
    for (int i = 0; i < l->n; i++) {
        if (kept->has[l->v[i]]) left.v[left.n++] = l->v[i];
        else gone.v[gone.n++] = i;
    }
    *l = left;
    return gone.n && x ? ac_c_sum_over(s, x, &gone, false) : x;
}

/* x without its dimensions of size 1 that y has in another size, or that the result does not keep. */
static T without_ones(ac_scratch *s, T x, labels *l, T y, const labels *other, const label_set *kept) {
    ac_attrs_maybe_dims ones = {.dim = {.n = 0}};
    labels left = {0};
    for (int i = 0; i < l->n; i++) {
        int at = place_of(other, l->v[i]);
        bool gone = at >= 0 && (y->shape[at] != 1 || !kept->has[l->v[i]]);
        if (x->shape[i] == 1 && gone) ones.dim.v[ones.dim.n++] = i;
        else left.v[left.n++] = l->v[i];
    }
    *l = left;
    return ones.dim.n ? ac_c_call(s, AC_OP_squeeze, &ones, 1, x) : x;
}

/* x as [batch, rows, columns], each of several labels. */
static T as_matrices(ac_scratch *s, T x, const labels *l, const labels *const *parts) {
    ac_dims order = {.n = 0}, shape = {3, {1, 1, 1}};
    for (int p = 0; p < 3; p++) {
        for (int i = 0; i < parts[p]->n; i++) {
            int at = place_of(l, parts[p]->v[i]);
            order.v[order.n++] = at;
            shape.v[p] *= x->shape[at];
        }
    }
    return ac_c_reshape(s, ac_c_permute(s, x, &order), &shape);
}

/* The labels of two operands, by what becomes of them. */
typedef struct {
    labels batch, inner, left, right;
} roles;

static int sort_labels(T x, const labels *xl, T y, const labels *yl, const label_set *kept, roles *r) {
    *r = (roles){{0}, {0}, {0}, {0}};
    for (int i = 0; i < xl->n; i++) {
        int c = xl->v[i], at = place_of(yl, c);
        labels *role = at < 0 ? &r->left : kept->has[c] ? &r->batch : &r->inner;
        role->v[role->n++] = c;
        if (at >= 0 && x->shape[i] != y->shape[at]) return sizes_differ(c, x->shape[i], y->shape[at]);
    }
    for (int i = 0; i < yl->n; i++)
        if (place_of(xl, yl->v[i]) < 0) r->right.v[r->right.n++] = yl->v[i];
    return 0;
}

/* One product of matrices: labels of both that are kept are the batch, those that are not are summed. */
static T contracted(ac_scratch *s, T x, labels *xl, T y, labels yl, const label_set *kept) {
    static const ac_attrs_product plain = {AC_NO_DTYPE};
    roles r;
    labels joint = {0};
    ac_dims shape = {.n = 0};
    labels before = *xl;
    T thin = without_ones(s, x, xl, y, &yl, kept);
    y = without_ones(s, y, &yl, x, &before, kept), x = thin;
    label_set left = *kept, right = *kept;
    add_all(&left, &yl), add_all(&right, xl);
    x = summed_out(s, x, xl, &left), y = summed_out(s, y, &yl, &right);
    if (!x || !y) return NULL;
    NEED(sort_labels(x, xl, y, &yl, kept, &r));
    if (r.batch.n + r.left.n + r.right.n > AC_MAX_DIMS)
        REFUSE(AC_RUNTIME, "einsum: more than %d dimensions", AC_MAX_DIMS);
    for (int i = 0; i < r.batch.n + r.left.n + r.right.n; i++) {
        int from_x = r.batch.n + r.left.n, c = i < r.batch.n ? r.batch.v[i]
                                               : i < from_x  ? r.left.v[i - r.batch.n]
                                                             : r.right.v[i - from_x];
        joint.v[joint.n++] = c;
        shape.v[shape.n++] = i < from_x ? x->shape[place_of(xl, c)] : y->shape[place_of(&yl, c)];
    }
    const labels *of_x[] = {&r.batch, &r.left, &r.inner}, *of_y[] = {&r.batch, &r.inner, &r.right};
    T a = as_matrices(s, x, xl, of_x), b = as_matrices(s, y, &yl, of_y);
    *xl = joint; /* where nothing is summed it is no product of matrices, and autocast leaves it as it is */
    return ac_c_reshape(s, r.inner.n ? ac_c_call(s, AC_OP_bmm, &plain, 2, a, b) : MUL(a, b), &shape);
}

COMPOSE(einsum) {
    ATTRS(einsum);
    survey found;
    labels result, xl, yl;
    term t;
    NEED(look_over(a->equation, in, n_in, &found));
    NEED(read_result(&found, &result));
    NEED(find_term(a->equation, &t));
    NEED(read_operand(&t, in[0], &xl));
    T x = distinct(s, in[0], &xl);
    for (int i = 1; i < n_in && x; i++) {
        label_set kept = {{false}};
        NEED(find_term(t.at + t.length + 1, &t));
        NEED(read_operand(&t, in[i], &yl));
        T y = distinct(s, in[i], &yl);
        add_all(&kept, &result);
        for (int c = 0; c < LABELS; c++) kept.has[c] |= found.last[c] > i;
        x = y ? contracted(s, x, &xl, y, yl, &kept) : NULL;
    }
    if (!x) return NULL;
    label_set kept = {{false}};
    ac_dims order = {.n = result.n};
    ac_dtype dtype = x->dtype;
    add_all(&kept, &result);
    x = summed_out(s, x, &xl, &kept);
    if (x && ac_is_floating(dtype)) x = ac_c_cast(s, x, dtype);
    for (int i = 0; i < result.n; i++) order.v[i] = place_of(&xl, result.v[i]);
    return x && x->ndim ? ac_c_permute(s, x, &order) : x;
}
