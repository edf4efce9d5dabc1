/* Elementwise operators, copies, casts and dropout on a GPU: the host side of elementwise.cu. */
#include "cuda/gpu.h"

#include "cpu/kernels.h"

#include <string.h>

const char *const ac_gpu_opmath_names[3] = {"f32", "f64", "i64"};

int ac_gpu_opmath(ac_dtype compute) { return (int)ac_opmath_of(compute); }
bool ac_gpu_is_bulk(ac_dtype t) { return t == AC_float32 || ac_is_half(t); }

ac_gpu_ref ac_gpu_ref_of(const ac_tensor *t) {
    if (!t) return (ac_gpu_ref){.data = NULL};
    return (ac_gpu_ref){.data = ac_data(t), .dtype = (int32_t)t->dtype};
}

/* A 0-d tensor of the CPU travels as a number. */
static ac_gpu_ref operand(const ac_tensor *t) {
    if (ac_device_of(t) != AC_CPU) return ac_gpu_ref_of(t);
    return (ac_gpu_ref){.f = ac_read_double(ac_data(t), t->dtype, 0),
                        .i = ac_read_int(ac_data(t), t->dtype, 0),
                        .dtype = (int32_t)t->dtype};
}

enum { RUN = 8 }; /* elements of a run, at most */

/* Whether an operand goes by runs along the innermost dimension. */
static bool goes_by_runs(const ac_gpu_point *p, int k) {
    int last = p->ndim - 1;
    int64_t stride = p->strides[k][last];
    if (!p->operand[k].data) return true;
    ac_dtype dtype = (ac_dtype)p->operand[k].dtype;
    if (!(ac_gpu_is_bulk(dtype) || dtype == AC_bool) || (stride != 0 && stride != 1) || (k == 0 && stride != 1))
        return false;
    if (stride == 0) return true;
    for (int d = 0; d < last; d++)
        if (p->strides[k][d] % RUN) return false;
    return ac_gpu_aligned(p->operand[k].data);
}

static void take_iter(ac_gpu_point *p, const ac_iter *it, ac_tensor *const *operands, int n, int opmath) {
    memset(p, 0, sizeof *p);
    p->numel = it->numel, p->ndim = it->ndim, p->wraps = AC_int64;
    memcpy(p->shape, it->shape, sizeof p->shape);
    memcpy(p->strides, it->strides, sizeof p->strides);
    for (int k = 0; k < n; k++) p->operand[k] = operand(operands[k]);
    bool runs = opmath == AC_OPMATH_F32 && (it->ndim == 1 || it->shape[it->ndim - 1] % RUN == 0);
    for (int k = 0; k < n && runs; k++) runs = goes_by_runs(p, k);
    p->vector = runs;
}

/* Along the memory of the result, which is operands[0]. */
static void walk_of(ac_gpu_point *p, ac_tensor *const *operands, int n, int opmath) {
    ac_iter it;
    ac_iter_init_along(&it, operands, n);
    take_iter(p, &it, operands, n, opmath);
}

static int launch_walk(ac_device d, ac_gpu_kernel *k, const ac_gpu_point *p) {
    if (p->numel == 0) return 0;
    return ac_gpu_launch(d, k, ac_gpu_blocks(d, p->numel, p->vector ? RUN : 1), 0, p);
}

/* -- elementwise ------------------------------------------------------------------------------------ */

#define NAMES_KEEP(name) {"ac_point_" #name "_f32", "ac_point_" #name "_f64", "ac_point_" #name "_i64"}
#define NAMES_BOOL(name) NAMES_KEEP(name)
#define NAMES_FLOAT(name) {"ac_point_" #name "_f32", "ac_point_" #name "_f64", NULL}
#define NAMES_INT(name) {NULL, NULL, "ac_point_" #name "_i64"}
#define POINT1(name, py, home, result, ...) [AC_OP_##name] = NAMES_##result(name),
#define POINT2(name, py, home, result, ...) POINT1(name, py, home, result)
#define POINT3(name, py, home, result, ...) POINT1(name, py, home, result)
static const char *const point_names[AC_N_OPS][AC_N_OPMATHS] = {
#include "ops/ops.def"
};
static ac_gpu_kernel points[AC_N_OPS][AC_N_OPMATHS]; /* 0 at first: a megabyte that the library's file need not hold */

/* A divisor that travels with the call is looked at; those on the device are not waited for: they give 0. */
static int refuse_zero(const ac_run *r, int opmath) {
    bool divides = r->op == AC_OP_floor_divide || r->op == AC_OP_remainder || r->op == AC_OP_fmod;
    if (!divides || opmath != AC_OPMATH_I64 || ac_device_of(r->in[1]) != AC_CPU) return 0;
    if (!ac_wraps_to_zero(ac_read_int(ac_data(r->in[1]), r->in[1]->dtype, 0), r->compute)) return 0;
    return ac_fail(AC_RUNTIME, "%s: integer division by zero", ac_ops[r->op].shown);
}

int ac_cuda_pointwise(const ac_run *r) {
    ac_tensor *operands[AC_GPU_OPERANDS] = {r->out[0]};
    int opmath = ac_gpu_opmath(r->compute);
    ac_gpu_point p;
    ac_gpu_kernel *k = &points[r->op][opmath];
    AC_TRY(refuse_zero(r, opmath));
    k->image = AC_IMAGE_ELEMENTWISE, k->name = point_names[r->op][opmath];
    for (int i = 0; i < r->n_in; i++) operands[i + 1] = r->in[i];
    walk_of(&p, operands, r->n_in + 1, opmath);
    p.wraps = (int32_t)ac_wraps_into(r);
    if (ac_ops[r->op].attrs_size) memcpy(p.attrs, r->attrs, ac_ops[r->op].attrs_size);
    return launch_walk(ac_run_device(r), k, &p);
}

/* -- copies ----------------------------------------------------------------------------------------- */

static ac_gpu_kernel copies[AC_N_OPMATHS] = AC_GPU_BY_OPMATH(AC_IMAGE_ELEMENTWISE, "ac_copy");

static int neighbours_of(const ac_gpu_point *p, int k) {
    for (int d = p->ndim - 1; d >= 0; d--)
        if (p->strides[k][d] == 1) return d;
    return -1;
}

/* The dimensions of operand k beside the two that the tiles lie in. */
static ac_space items_of(const ac_gpu_point *p, int k, int across, int down) {
    ac_space s = {.n = 0, .numel = 1};
    for (int d = 0; d < p->ndim; d++) {
        if (d == across || d == down) continue;
        s.size[s.n] = p->shape[d], s.stride[s.n++] = p->strides[k][d];
        s.numel *= p->shape[d];
    }
    if (s.n == 0) s.size[0] = 1, s.stride[0] = 0, s.n = 1;
    return s;
}

static bool all_even(const ac_gpu_turn *a) {
    bool even = a->across % 2 == 0 && a->down % 2 == 0 && a->from_step % 2 == 0 && a->to_step % 2 == 0;
    for (int d = 0; d < a->from_items.n; d++)
        even = even && a->from_items.stride[d] % 2 == 0 && a->to_items.stride[d] % 2 == 0;
    return even && ((uintptr_t)a->from & 3) == 0 && ((uintptr_t)a->to & 3) == 0;
}

/* Whether one operand's neighbours lie apart in the other, and enough of them follow each other on both sides. */
static bool turns(const ac_gpu_point *p, ac_gpu_turn *a) {
    enum { LEAST = 8 };
    int across = neighbours_of(p, 0), down = neighbours_of(p, 1);
    if (across < 0 || down < 0 || across == down || p->shape[across] < LEAST || p->shape[down] < LEAST) return false;
    *a = (ac_gpu_turn){.from = p->operand[1].data,
                       .to = p->operand[0].data,
                       .across = p->shape[across],
                       .down = p->shape[down],
                       .from_step = p->strides[1][across],
                       .to_step = p->strides[0][down],
                       .from_items = items_of(p, 1, across, down),
                       .to_items = items_of(p, 0, across, down)};
    a->tiles_across = (a->across + AC_GPU_TURN - 1) / AC_GPU_TURN;
    a->tiles = a->tiles_across * ((a->down + AC_GPU_TURN - 1) / AC_GPU_TURN);
    a->jobs = a->tiles * a->from_items.numel, a->pairs = all_even(a);
    return true;
}

static int launch_turn(ac_device d, int64_t item, const ac_gpu_turn *a) {
    static ac_gpu_kernel kernels[4] = {{.image = AC_IMAGE_ELEMENTWISE, .name = "ac_turn_8"},
                                       {.image = AC_IMAGE_ELEMENTWISE, .name = "ac_turn_16"},
                                       {.image = AC_IMAGE_ELEMENTWISE, .name = "ac_turn_32"},
                                       {.image = AC_IMAGE_ELEMENTWISE, .name = "ac_turn_64"}};
    int which = item == 1 ? 0 : item == 2 ? 1 : item == 4 ? 2 : 3;
    int64_t shared = AC_GPU_TURN * (AC_GPU_TURN * item + (item > 4 ? item : 4));
    return ac_gpu_launch(d, &kernels[which], a->jobs, (size_t)shared, a);
}

static int move_bytes(ac_tensor *to, const ac_tensor *from) {
    return ac_gpu_memory.copy(ac_device_of(to), ac_data(to), ac_data(from), to->numel * ac_itemsize(to->dtype));
}

int ac_gpu_copy(ac_tensor *to, const ac_tensor *from) {
    ac_tensor *operands[2] = {to, (ac_tensor *)(uintptr_t)from};
    int opmath = ac_gpu_opmath(ac_copy_dtype(to->dtype, from->dtype));
    ac_gpu_point p;
    ac_gpu_turn turn;
    if (to->numel == 0) return 0;
    bool same = to->dtype == from->dtype && ac_device_of(from) != AC_CPU && ac_same_shape(to, from);
    if (same && ac_lie_alike(to, from)) return move_bytes(to, from);
    walk_of(&p, operands, 2, opmath);
    if (same && turns(&p, &turn)) return launch_turn(ac_device_of(to), ac_itemsize(to->dtype), &turn);
    return launch_walk(ac_device_of(to), &copies[opmath], &p);
}

int ac_cuda_flip(const ac_run *r) {
    ac_tensor from = ac_flipped(r->in[0], &((const ac_attrs_dims *)r->attrs)->dims);
    return ac_gpu_copy(r->out[0], &from);
}

int ac_gpu_clear(ac_tensor *t) {
    ac_gpu_scope scope;
    ac_device d = ac_device_of(t);
    size_t bytes = (size_t)(t->numel * ac_itemsize(t->dtype));
    if (bytes == 0) return 0;
    AC_TRY(ac_gpu_enter(d, &scope));
    CUresult result = ac_cu.cuMemsetD8Async((CUdeviceptr)(uintptr_t)ac_data(t), 0, bytes, ac_gpu_stream(d));
    ac_gpu_leave(&scope);
    return ac_cu_check(result, "clearing memory");
}

int ac_cuda_copy(const ac_run *r) { return ac_gpu_copy(r->out[0], r->in[0]); }

ac_tensor *ac_gpu_copy_as(const ac_tensor *t, ac_dtype dtype) {
    ac_dims shape = ac_shape_of(t);
    ac_tensor *copy = ac_tensor_new_on(ac_device_of(t), dtype, &shape);
    if (copy && ac_gpu_copy(copy, t) < 0) ac_tensor_clear(&copy);
    return copy;
}

ac_tensor *ac_gpu_dense_as(ac_tensor *t, ac_dtype dtype) {
    return t->dtype == dtype && ac_is_contiguous(t) ? ac_tensor_retain(t) : ac_gpu_copy_as(t, dtype);
}

/* -- dropout ---------------------------------------------------------------------------------------- */

int ac_cuda_dropout_mask(const ac_run *r) {
    ATTRS(dropout_mask);
    static ac_gpu_kernel kernels[2] = {{.image = AC_IMAGE_ELEMENTWISE, .name = "ac_dropout_f32"},
                                       {.image = AC_IMAGE_ELEMENTWISE, .name = "ac_dropout_f64"}};
    ac_tensor *operands[2] = {r->out[0], r->in[0]};
    ac_gpu_point p;
    if (!ac_is_floating(r->in[0]->dtype))
        return ac_fail(AC_NOT_IMPLEMENTED, "dropout: needs floating point, got %s", ac_dtypes[r->in[0]->dtype].name);
    int opmath = ac_gpu_opmath(r->in[0]->dtype);
    ac_iter it; /* row by row, as the numbers are drawn */
    ac_dims shape = ac_shape_of(operands[0]);
    ac_iter_init(&it, &shape, operands, 2);
    take_iter(&p, &it, operands, 2, opmath);
    p.p = a->p;
    AC_TRY(ac_gpu_random_of(ac_run_device(r), (uint64_t)a->seed, (uint64_t)a->offset, &p.random));
    return launch_walk(ac_run_device(r), &kernels[opmath], &p);
}
