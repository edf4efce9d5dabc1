/* The operator table in memory, built from ops.def, and the reader of its signatures. */
#include "ops/op.h"

#include "ops/infer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { F = AC_HOME_F, M = AC_HOME_M, I = AC_HOME_I, N = AC_HOME_N, P = AC_HOME_P };
enum {
    X = AC_SAVE_X,
    Y = AC_SAVE_Y,
    Z = AC_SAVE_Z,
    W = AC_SAVE_W,
    V = AC_SAVE_V,
    LIST = AC_SAVE_LIST,
    R = AC_SAVE_R,
    S = AC_SAVE_S,
    T = AC_SAVE_T
};

#define POINT(name_, python_, home_, result_, cast_, save_, attrs_, signature_, doc_)                                  \
    [AC_OP_##name_] = {.name = #name_,                                                                                 \
                       .python = python_,                                                                              \
                       .home = home_,                                                                                  \
                       .kind = AC_KIND_POINTWISE,                                                                      \
                       .cast = AC_CAST_##cast_,                                                                        \
                       .result = AC_RESULT_##result_,                                                                  \
                       .save = save_,                                                                                  \
                       .infer = ac_infer_pointwise,                                                                    \
                       .attrs_size = sizeof(ac_attrs_##attrs_),                                                        \
                       .signature = signature_,                                                                        \
                       .doc = doc_},

ac_op_info ac_ops[AC_N_OPS] = {
#define POINT1(name_, py, home_, res, cast_, save_, grad, at, sig, doc_)                                               \
    POINT(name_, py, home_, res, cast_, save_, at, sig, doc_)
#define POINT2 POINT1
#define POINT3 POINT1
#define KERNEL(name_, py, home_, infer_, kernel_, cast_, save_, grad, at, sig, doc_)                                   \
    [AC_OP_##name_] = {.name = #name_,                                                                                 \
                       .python = py,                                                                                   \
                       .home = home_,                                                                                  \
                       .kind = AC_KIND_KERNEL,                                                                         \
                       .cast = AC_CAST_##cast_,                                                                        \
                       .save = save_,                                                                                  \
                       .infer = ac_infer_##infer_,                                                                     \
                       .attrs_size = sizeof(ac_attrs_##at),                                                            \
                       .signature = sig,                                                                               \
                       .doc = doc_},
#define VIEW(name_, py, home_, grad, at, sig, doc_)                                                                    \
    [AC_OP_##name_] = {.name = #name_,                                                                                 \
                       .python = py,                                                                                   \
                       .home = home_,                                                                                  \
                       .kind = AC_KIND_VIEW,                                                                           \
                       .memory = AC_MEMORY_VIEW,                                                                       \
                       .attrs_size = sizeof(ac_attrs_##at),                                                            \
                       .signature = sig,                                                                               \
                       .doc = doc_},
#define COMPOSITE(name_, py, home_, memory_, cast_, at, sig, doc_)                                                     \
    [AC_OP_##name_] = {.name = #name_,                                                                                 \
                       .python = py,                                                                                   \
                       .home = home_,                                                                                  \
                       .kind = AC_KIND_COMPOSITE,                                                                      \
                       .memory = AC_MEMORY_##memory_,                                                                  \
                       .cast = AC_CAST_##cast_,                                                                        \
                       .attrs_size = sizeof(ac_attrs_##at),                                                            \
                       .signature = sig,                                                                               \
                       .doc = doc_},
#include "ops/ops.def"
};

/* -- signatures ------------------------------------------------------------------------------- */

static const char *skip(const char *s) {
    while (*s == ' ' || *s == ',') s++;
    return s;
}

static bool take(const char **s, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0) return false;
    *s += n;
    return true;
}

static void read_choices(const char **s, ac_param *p) {
    p->choices = *s + 1;
    *s = strchr(*s, '}') + 1;
}

/* The kinds of the grammar; a longer word stands before its own beginning. */
static int read_kind(const char **s, ac_param *p) {
    if (take(s, "Tensor?[]") || take(s, "Tensor[]")) p->kind = AC_P_TENSOR_LIST;
    else if (take(s, "Tensor|Scalar")) p->kind = AC_P_TENSOR, p->number = true;
    else if (take(s, "Tensor")) p->kind = AC_P_TENSOR;
    else if (take(s, "Scalar")) p->kind = AC_P_SCALAR;
    else if (take(s, "int?[]")) p->kind = AC_P_DIMS, p->holes = true;
    else if (take(s, "int[]|")) p->kind = AC_P_DIMS, read_choices(s, p);
    else if (take(s, "int[]")) p->kind = AC_P_DIMS;
    else if (take(s, "inplace")) p->kind = AC_P_IN_PLACE;
    else if (take(s, "hint")) p->kind = AC_P_HINT;
    else if (take(s, "old")) p->kind = AC_P_OLD, p->optional = true;
    else if (take(s, "int")) p->kind = AC_P_INT;
    else if (take(s, "bool")) p->kind = AC_P_BOOL;
    else if (take(s, "float")) p->kind = AC_P_FLOAT;
    else if (take(s, "dtype")) p->kind = AC_P_DTYPE;
    else if (take(s, "str")) p->kind = AC_P_TEXT;
    else if (**s == '{') p->kind = AC_P_CHOICE, read_choices(s, p);
    else return ac_fail(AC_RUNTIME, "unknown kind of parameter at `%s`", *s);
    if (take(s, "?")) p->optional = true;
    if (take(s, "(mut)")) p->mutated = true;
    if (take(s, "(cpu)")) p->on_cpu = true;
    return 0;
}

/* The position of `word` (ended by any of ",} ") in "none,mean,sum}", or -1. */
static int64_t choice_of(const char *choices, const char *word, size_t length) {
    int64_t at = 0;
    for (const char *c = choices;; at++) {
        size_t n = strcspn(c, ",}");
        if (n == length && strncmp(c, word, n) == 0) return at;
        if (c[n] == '}') return -1;
        c += n + 1;
    }
}

int64_t ac_choice(const ac_param *p, const char *word) { return choice_of(p->choices, word, strlen(word)); }

/* A number as the table writes it: 0.5, 20.0, 1e-05. strtod would look for the decimal sign of the user's locale.
   Rounded once: the digits and the power of ten are exact. */
static double read_number(const char *s) {
    double sign = *s == '-' ? -1 : 1, digits = 0, power = 1;
    long exponent = 0;
    s += *s == '-';
    for (bool fraction = false; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
        if (*s == '.') fraction = true;
        else digits = digits * 10 + (*s - '0'), exponent -= fraction;
    }
    if (*s == 'e') exponent += strtol(s + 1, NULL, 10);
    for (long i = labs(exponent); i > 0; i--) power *= 10;
    return sign * (exponent < 0 ? digits / power : digits * power);
}

static int read_default(const char **s, ac_param *p) {
    size_t n = strcspn(*s, ",) ");
    const char *word = *s;
    *s += n;
    p->has_default = true;
    if (strncmp(word, "None", 4) == 0) {
        if (p->kind == AC_P_INT || p->kind == AC_P_DIMS) p->fallback.i = AC_ABSENT;
        if (p->kind == AC_P_DTYPE) p->fallback.i = AC_NO_DTYPE;
        return 0; /* ac_scalar's zero is AC_NONE */
    }
    switch (p->kind) {
    case AC_P_IN_PLACE:
    case AC_P_HINT: return 0;
    case AC_P_DIMS:
    case AC_P_INT: p->fallback.i = strtoll(word, NULL, 10); return 0;
    case AC_P_BOOL: p->fallback.i = word[0] == 'T'; return 0;
    case AC_P_FLOAT: p->fallback.f = read_number(word); return 0;
    case AC_P_SCALAR: p->fallback.scalar = (ac_scalar){AC_INT, {strtoll(word, NULL, 10)}}; return 0;
    case AC_P_CHOICE: p->fallback.i = choice_of(p->choices, word, n); return 0;
    default: return ac_fail(AC_RUNTIME, "parameter %s cannot have a default", p->name);
    }
}

static size_t attr_bytes(ac_param_kind kind) {
    switch (kind) {
    case AC_P_TENSOR:
    case AC_P_TENSOR_LIST:
    case AC_P_IN_PLACE:
    case AC_P_HINT:
    case AC_P_OLD: return 0;
    case AC_P_SCALAR: return sizeof(ac_scalar);
    case AC_P_DIMS: return sizeof(ac_dims);
    default: return sizeof(int64_t);
    }
}

static int read_param(const char **s, ac_param *p) {
    size_t n = strcspn(*s, ":");
    if (n >= sizeof p->name) return ac_fail(AC_RUNTIME, "the name at `%s` is too long", *s);
    memcpy(p->name, *s, n);
    *s = skip(*s + n + 1);
    AC_TRY(read_kind(s, p));
    *s = skip(*s);
    if (!take(s, "= ")) return 0;
    return read_default(s, p);
}

static void read_results(const char *s, ac_op_info *op) {
    op->n_out = op->n_shown = 1;
    if (!take(&s, " -> (")) return;
    op->n_out = op->n_shown = 0;
    while (*s && *s != ')') {
        op->out_names[op->n_out++] = s;
        if (*s != '_') op->n_shown = op->n_out;
        s += strcspn(s, ",)");
        s = skip(s);
    }
}

static int read_signature(ac_op_info *op) {
    const char *s = op->signature + 1;
    bool keyword_only = false;
    size_t used = 0;
    op->list_at = op->dtype_at = op->casts_at = op->device_at = op->pairs_at = op->reduction_at = op->cpu_at = -1;
    for (s = skip(s); *s != ')'; s = skip(s)) {
        bool star = take(&s, "*");
        if (star && *s == ',') {
            keyword_only = true;
            continue;
        }
        if (op->n_params == AC_MAX_PARAMS) return ac_fail(AC_RUNTIME, "%s: too many parameters", op->name);
        ac_param *p = &op->params[op->n_params++];
        AC_TRY(read_param(&s, p));
        p->keyword_only = keyword_only;
        p->variadic = star;
        op->mutates |= p->mutated;
        p->offset = (int)used;
        used += attr_bytes(p->kind);
        if (p->kind == AC_P_TENSOR_LIST) op->list_at = op->n_tensors;
        if (p->on_cpu) op->cpu_at = op->n_tensors;
        if (p->kind <= AC_P_TENSOR_LIST) op->n_tensors++;
        if (p->kind == AC_P_DTYPE && p->optional) op->dtype_at = p->offset;
        if (p->kind == AC_P_DTYPE && p->optional && op->n_tensors == 1 && strcmp(p->name, "dtype") == 0)
            op->casts_at = p->offset;
        if (p->kind == AC_P_INT && strcmp(p->name, "device") == 0) op->device_at = p->offset;
        if (p->kind == AC_P_BOOL && strcmp(p->name, "return_indices") == 0) op->pairs_at = p->offset;
        op->old |= p->kind == AC_P_OLD;
        if (strcmp(p->name, "reduction") == 0) op->reduction_at = op->n_params - 1;
    }
    read_results(s + 1, op);
    if (used != op->attrs_size || used > AC_MAX_ATTRS)
        return ac_fail(AC_RUNTIME, "%s: its signature needs %zu bytes of attributes, its struct has %zu", op->name,
                       used, op->attrs_size);
    return 0;
}

_Thread_local const ac_op_info *ac_whole;

const char *ac_input_param(const ac_op_info *op, int i) {
    int seen = 0;
    for (int p = 0; p < op->n_params; p++) {
        bool list = op->params[p].kind == AC_P_TENSOR_LIST;
        if (op->params[p].kind <= AC_P_TENSOR_LIST && (seen++ == i || list)) return op->params[p].name;
    }
    return "input";
}

static const char *const public_names[AC_N_OPS] = {
#define SHOWN(name, python) [AC_OP_##name] = #python,
#include "ops/ops.def"
};

/* `linalg_qr` is linalg.qr, and what special alone has is special.zeta; of a private row, without its underscore. */
static int read_name(ac_op_info *op) {
    static const char linalg[] = "linalg_";
    const char *known = public_names[op - ac_ops], *name = known ? known : op->python + (op->python[0] == '_');
    bool inside = strncmp(name, linalg, sizeof linalg - 1) == 0;
    const char *module = inside ? "linalg." : op->home == AC_HOME_P ? "special." : "";
    if (inside) name += sizeof linalg - 1;
    size_t n = strlen(module), length = strlen(name);
    if (n + length >= sizeof op->shown) return ac_fail(AC_RUNTIME, "the name %s is too long", op->python);
    memcpy(op->shown, module, n);
    memcpy(op->shown + n, name, length + 1);
    return 0;
}

static void read_flags(void) {
    enum {
        WEIGHT = AC_FLAG_WEIGHT,
        OUT_FIRST = AC_FLAG_OUT_FIRST,
        INTEGERS = AC_FLAG_INTEGERS,
        OF_STORAGE = AC_FLAG_OF_STORAGE,
        WAITS = AC_FLAG_WAITS,
        NO_HALF = AC_FLAG_NO_HALF,
        COUNTS = AC_FLAG_COUNTS,
        WIDENS = AC_FLAG_WIDENS,
        DEFERS = AC_FLAG_DEFERS,
        READS = AC_FLAG_READS,
        IN_PLACE = AC_FLAG_IN_PLACE,
        BY_PARTS = AC_FLAG_BY_PARTS,
        KEEPS_ORDER = AC_FLAG_KEEPS_ORDER,
        PIECEWISE = AC_FLAG_PIECEWISE
    };
    for (int op = 0; op < AC_N_OPS; op++) ac_ops[op].of_bool = (ac_op)op;
#define FLAGS(name, flags_) ac_ops[AC_OP_##name].flags = flags_;
#define SAVED_FOR(name, x, y, z) memcpy(ac_ops[AC_OP_##name].saved_for, (uint8_t[]){x, y, z}, 3);
#define OF_BOOL(name, other) ac_ops[AC_OP_##name].of_bool = AC_OP_##other;
#include "ops/ops.def"
#define EXACT_OUT(name) ac_ops[AC_OP_##name].flags |= AC_FLAG_EXACT_OUT;
#include "ops/exact_out.def"
#undef EXACT_OUT
}

int ac_ops_init(void) {
    static bool done;
    if (!done) read_flags();
    for (int op = 0; op < AC_N_OPS && !done; op++) {
        AC_TRY(read_name(&ac_ops[op]));
        AC_TRY(read_signature(&ac_ops[op]));
    }
    done = true;
    return 0;
}
