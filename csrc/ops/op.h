/* Operators: their numbers, their properties as read from ops.def, and ac_call, the only way to call them. */
#ifndef AC_OPS_OP_H
#define AC_OPS_OP_H

#include "tensor/tensor.h"
#include "ops/attrs.h"

typedef enum {
#define POINT1(name, ...) AC_OP_##name,
#define POINT2(name, ...) AC_OP_##name,
#define POINT3(name, ...) AC_OP_##name,
#define KERNEL(name, ...) AC_OP_##name,
#define VIEW(name, ...) AC_OP_##name,
#define COMPOSITE(name, ...) AC_OP_##name,
#include "ops/ops.def"
    AC_N_OPS
} ac_op;

typedef enum { AC_KIND_POINTWISE, AC_KIND_KERNEL, AC_KIND_VIEW, AC_KIND_COMPOSITE } ac_op_kind;
typedef enum {
    AC_MEMORY_COPY,
    AC_MEMORY_VIEW,
    AC_MEMORY_EITHER
} ac_result_memory; /* of results: their own, or an operand's */
typedef enum { AC_CAST_KEEP, AC_CAST_LOW, AC_CAST_F32, AC_CAST_PROMOTE, AC_CAST_BANNED, AC_CAST_UNSAFE } ac_cast;
typedef enum { AC_RESULT_KEEP, AC_RESULT_FLOAT, AC_RESULT_BOOL, AC_RESULT_INT } ac_result;

enum { AC_HOME_F = 1, AC_HOME_M = 2, AC_HOME_I = 4, AC_HOME_N = 8, AC_HOME_P = 16 };
/* Bits of a save mask: the inputs X.., those of a list, the results R S T. */
enum {
    AC_SAVE_X = 1,
    AC_SAVE_Y = 2,
    AC_SAVE_Z = 4,
    AC_SAVE_W = 8,
    AC_SAVE_V = 16,
    AC_SAVE_INPUTS = 15, /* bits of single inputs */
    AC_SAVE_LIST = 1 << 15,
    AC_SAVE_R = 1 << 16,
    AC_SAVE_S = 2 << 16,
    AC_SAVE_T = 4 << 16,
};
/* What the stages of a call do differently for a few operators (FLAGS in ops.def). */
enum {
    AC_FLAG_WEIGHT = 1,      /* a product whose second input may be a weight, which is kept packed */
    AC_FLAG_OUT_FIRST = 2,   /* and which is [out, in] */
    AC_FLAG_INTEGERS = 4,    /* computes integers as integers where it is asked for them */
    AC_FLAG_OF_STORAGE = 8,  /* a view of the storage, wherever x lies in it: attributes are ac_attrs_as_strided */
    AC_FLAG_WAITS = 16,      /* waits for the GPU, and other threads run meanwhile */
    AC_FLAG_NO_HALF = 32,    /* a composite operator in float32 under autocast, which refuses 16 bits outside it */
    AC_FLAG_COUNTS = 64,     /* the shape of its result depends on values, and is known after it ran */
    AC_FLAG_WIDENS = 128,    /* a dtype that it is asked for must hold all values of the input's */
    AC_FLAG_DEFERS = 256,    /* its result may wait for the call that reads it (dispatch/waiting.h) */
    AC_FLAG_READS = 512,     /* reads an operand that waits, or is made of an operator that does */
    AC_FLAG_IN_PLACE = 1024, /* an F32 operator that reads 16-bit operands as they are, and computes in float32 */
    AC_FLAG_BY_PARTS = 2048, /* an F32 composite operator whose parts cast, each by itself */
    AC_FLAG_KEEPS_ORDER =
        4096, /* its result's dimensions lie in memory in its operand's order, as elementwise ones' do */
    AC_FLAG_EXACT_OUT = 16384, /* `out` must have the result's own dtype (exact_out.def) */
    AC_FLAG_PIECEWISE = 8192,  /* linear by pieces: its gradient, recorded, depends on x with a slope of zeros */
};
enum { AC_MAX_PARAMS = 13, AC_MAX_OUT = 4 };
enum { AC_WORD = -2 }; /* the size of an int[] for which the first of its words was given; AC_WORD - 1 the second */

typedef enum {
    AC_P_TENSOR,
    AC_P_TENSOR_LIST, /* inputs */
    AC_P_INT,
    AC_P_BOOL,
    AC_P_FLOAT,
    AC_P_SCALAR,
    AC_P_DIMS,
    AC_P_DTYPE,
    AC_P_TEXT,
    AC_P_CHOICE,   /* attributes */
    AC_P_IN_PLACE, /* writes the result into the first tensor */
    AC_P_HINT,     /* a bool of torch's that changes no value */
    AC_P_OLD       /* torch's former words for `reduction` */
} ac_param_kind;

/* One parameter of a signature. */
typedef struct {
    char name[20];
    ac_param_kind kind;
    bool optional; /* None is allowed */
    bool number;   /* Tensor|Scalar */
    bool mutated;  /* Tensor(mut) */
    bool on_cpu;   /* Tensor(cpu) */
    bool holes;    /* int?[]: None stands in a list, as AC_ABSENT */
    bool keyword_only;
    bool variadic; /* *tensors: the arguments that are given by position, as a list */
    bool has_default;
    int offset;          /* of the attribute in its struct */
    const char *choices; /* "none,mean,sum}..." of a choice, or of the words that may stand for an int[] */
    union {
        int64_t i; /* int, bool, dtype, choice; an int[] of one number; AC_ABSENT: None */
        double f;
        ac_scalar scalar;
    } fallback;
} ac_param;

typedef struct {
    ac_dtype dtype;
    ac_dims shape;
    ac_device device; /* not a shape function's: results lie where the inputs do */
} ac_spec;

static inline ac_spec ac_spec_of(const ac_tensor *t) { return (ac_spec){t->dtype, ac_shape_of(t), ac_device_of(t)}; }

struct ac_infer;

typedef struct {
    const char *name, *python;
    int home;
    ac_op_kind kind;
    ac_result_memory memory;
    ac_cast cast;
    ac_result result;
    int save;
    int flags;
    uint8_t saved_for[3]; /* of the first inputs: those whose gradients need it, as bits of a save mask; 0: any */
    bool mutates;         /* some parameter is marked (mut) */
    ac_op of_bool;        /* the operator whose kernel computes it for bool: itself, of most */
    int (*infer)(struct ac_infer *);
    size_t attrs_size;
    const char *signature, *doc;
    char shown[40]; /* the name as users write it, for messages: linalg.qr, special.zeta */
    /* read from the signature by ac_ops_init */
    int n_params;
    ac_param params[AC_MAX_PARAMS];
    int n_tensors;      /* tensor parameters, a list counting as one */
    int list_at;        /* which of them is the list, or -1 */
    int dtype_at;       /* offset of an explicit `dtype?` attribute, or -1 */
    int casts_at;       /* offset of the attribute `dtype` that the input is cast to first where it holds less, or -1 */
    int pairs_at;       /* offset of the attribute `return_indices`, without which one result is shown, or -1 */
    int reduction_at;   /* which parameter is `reduction`, or -1 */
    bool old;           /* and it has former words */
    int cpu_at;         /* which input lies on the CPU, whatever the others do, or -1 */
    int device_at;      /* offset of the attribute `device`, where the result goes, or -1 */
    int n_out, n_shown; /* those whose names begin with _ serve backward alone, and come last */
    const char *out_names[AC_MAX_OUT]; /* into the signature, ended by ':' */
} ac_op_info;

extern ac_op_info ac_ops[AC_N_OPS];
int ac_ops_init(void) AC_CHECKED;
/* The name of the parameter that input `i` of a call is, or belongs to (a list). */
/* The same as ac_scalar_held of a tensor's one value. On a GPU nobody waits to see it: there it is converted. */
int ac_number_held(const ac_tensor *t, ac_dtype dtype, const char *what) AC_CHECKED;
/* The composite operator that a script has called and that runs on this thread, or NULL: what its parts notice later is
 * told in its name. */
extern _Thread_local const ac_op_info *ac_whole;
const char *ac_input_param(const ac_op_info *op, int i);
/* The number of a choice's word, or -1. */
int64_t ac_choice(const ac_param *p, const char *word);

/* What a shape function reads and fills. */
typedef struct ac_infer {
    const ac_op_info *info;
    ac_tensor *const *in; /* NULL for an absent optional tensor */
    int n_in;
    const void *attrs;
    int64_t low; /* products under autocast: the dtype to compute in; else AC_NO_DTYPE */
    ac_spec out[AC_MAX_OUT];
    int n_out;
    ac_dtype compute;         /* elementwise operators: what the inputs promote to; products: what they round to */
    bool kernel_makes_output; /* the shape depends on values (nonzero) */
} ac_infer;

/* torch.result_type of the tensors: dimensioned ones decide, then 0-d ones, then numbers. */
ac_dtype ac_result_type(ac_tensor *const *in, int n);

/* Runs an operator: autocast, shape function, kernel, record. Inputs are borrowed; out receives the
 * results (new). Defined in dispatch/. */
int ac_call(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor **out) AC_CHECKED;
/* The same with one result written into `target` (in place), outside autocast. */
int ac_call_into(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) AC_CHECKED;
/* The same with every result shown written into a target, as `out=` does: a target of another shape takes
 * its result's, in its own storage, which grows where it must. Off the tape; nothing is written unless all dtypes fit.
 */
int ac_call_out(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *const *targets,
                int n) AC_CHECKED;
/* target += a product's result, without a tensor for that; off the tape. target is contiguous. */
int ac_call_adding(ac_op op, ac_tensor *const *in, int n_in, const void *attrs, ac_tensor *target) AC_CHECKED;

#endif
