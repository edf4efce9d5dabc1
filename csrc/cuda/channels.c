/* Batch norm and group norm on a GPU: selects how sets are cut and walked. The host side of channels.cu. */
#include "cuda/gpu.h"

#include "shared/tensor_iter.h"

#define CHANNEL_KERNELS(id)                                                                                            \
    static ac_gpu_kernel id[2] = {{.image = AC_IMAGE_CHANNELS, .name = "ac_channel_" #id "_f32"},                      \
                                  {.image = AC_IMAGE_CHANNELS, .name = "ac_channel_" #id "_f64"}}
#define CHANNEL_KERNEL(id, text) static ac_gpu_kernel id = {.image = AC_IMAGE_CHANNELS, .name = text}

/* -- where values lie ----------------------------------------------------------------------------------- */

/* t itself when its positions follow each other at one stride, else a contiguous copy: new. */
static ac_tensor *with_planes(ac_tensor *t) {
    ac_space positions = ac_space_of(t, ((1u << t->ndim) - 1) & ~3u);
    return positions.n == 1 ? ac_tensor_retain(t) : ac_gpu_contiguous(t);
}

static ac_gpu_planes planes_of(const ac_tensor *t) {
    ac_space positions = ac_space_of(t, ((1u << t->ndim) - 1) & ~3u);
    return (ac_gpu_planes){ac_gpu_ref_of(t), t->strides[0], t->strides[1], positions.stride[0]};
}

static ac_gpu_channels channels_of(const ac_tensor *x, int64_t groups) {
    ac_gpu_channels c = {.batch = x->shape[0], .channels = x->shape[1], .inner = 1, .x = planes_of(x)};
    c.groups = groups, c.depth = groups ? c.channels / groups : 1;
    for (int d = 2; d < x->ndim; d++) c.inner *= x->shape[d];
    return c;
}

/* How many neighbours of lines of t are a run: 8, 4, or 0. */
static int32_t run_of(const ac_gpu_channels *c, const ac_gpu_planes *t) {
    if (!ac_gpu_is_bulk((ac_dtype)t->ref.dtype) || !ac_gpu_aligned(t->ref.data) || t->position != 1) return 0;
    int64_t steps = t->image | t->channel | c->inner;
    return steps % 8 == 0 ? 8 : steps % 4 == 0 ? 4 : 0;
}
static int32_t smaller_run(int32_t a, int32_t b) { return a < b ? a : b; }

/* -- how sets are cut ----------------------------------------------------------------------------------- */

enum { WIDE = 32, SHORT_SET = 1024, PART = 4096, LONG_PART = 4 * PART, MANY = 2048, MOST_PARTS = 2048 };

/* Sets of `lines` lines each, so many of them in an image (`width` channels apart), and their parts. They follow from
 * sizes alone, so sums do not depend on the device they are made on. */
static void plan_sets(ac_gpu_channels *c, int64_t sets, int64_t sets_of_image, int64_t width, int64_t lines) {
    int64_t all = lines * c->inner, part = sets * all >= (int64_t)MANY * LONG_PART ? LONG_PART : PART;
    if (c->columns) part /= WIDE; /* a block takes so many sets at a time */
    c->sets = sets, c->sets_of_image = sets_of_image, c->width = width, c->lines = lines;
    c->parts = (all + part - 1) / part;
    if (c->parts > MOST_PARTS) c->parts = MOST_PARTS;
    if (c->parts < 1) c->parts = 1;
    c->part = ((all + c->parts - 1) / c->parts + 7) / 8 * 8;
    if (c->part > 0) c->parts = (all + c->part - 1) / c->part;
    if (c->parts < 1) c->parts = 1;
    c->group = all <= SHORT_SET ? WIDE : AC_GPU_THREADS;
}

/* Those that share statistics: a channel of all images, or (groups) `depth` channels of one. */
static void plan_statistics(ac_gpu_channels *c) {
    if (c->groups) plan_sets(c, c->batch * c->groups, c->groups, c->depth, c->depth);
    else plan_sets(c, c->channels, c->channels, 1, c->batch);
}

static int launch(ac_device d, ac_gpu_kernel *kernels, const ac_gpu_channels *c) {
    int64_t sets = c->columns ? (c->sets + WIDE - 1) / WIDE : c->sets;
    int64_t groups = c->columns ? 1 : AC_GPU_THREADS / c->group, blocks = (sets * c->parts + groups - 1) / groups;
    int64_t most = (int64_t)ac_gpu_multiprocessors(d) * 64;
    if (blocks == 0) return 0;
    return ac_gpu_launch(d, &kernels[ac_gpu_opmath((ac_dtype)c->x.ref.dtype)], blocks < most ? blocks : most,
                         AC_GPU_THREADS * 8, c);
}
/* A warp for each of `jobs`. */
static int launch_join(ac_device d, ac_gpu_kernel *kernel, int64_t jobs, const ac_gpu_channels *c) {
    return jobs ? ac_gpu_launch(d, kernel, ac_gpu_blocks(d, jobs * WIDE, 1), 0, c) : 0;
}

/* Room for what parts give, where there is more than one (or `always`): *room is NULL else. */
static int partial_room(ac_device d, ac_gpu_channels *c, bool always, ac_gpu_block **room) {
    *room = NULL;
    if (c->parts == 1 && !always) return 0;
    *room = ac_gpu_alloc(d, c->sets * c->parts * 16 + 1);
    c->partial = *room ? ac_gpu_address(*room) : NULL;
    return *room ? 0 : -1;
}

/* -- forward -------------------------------------------------------------------------------------------- */

static int64_t stride_of(const ac_tensor *t) { return t ? t->strides[0] : 0; }

/* Neighbouring threads take neighbouring channels where those are neighbours, and positions are not. */
static bool by_columns(const ac_gpu_channels *c) {
    return !c->groups && c->x.channel == 1 && (c->inner == 1 || c->x.position != 1);
}

static int statistics_of(ac_device d, ac_gpu_channels *c) {
    CHANNEL_KERNELS(statistics);
    CHANNEL_KERNEL(join, "ac_channel_statistics_join");
    ac_gpu_block *room = NULL;
    int failed = 0;
    if (c->training) failed = partial_room(d, c, false, &room);
    if (!failed && c->training) failed = launch(d, statistics, c);
    if (!failed && (room || !c->training)) failed = launch_join(d, &join, c->sets, c);
    ac_gpu_free(room);
    return failed;
}

static int run_forward(const ac_run *r, ac_gpu_channels *c, const ac_tensor *weight, const ac_tensor *bias) {
    CHANNEL_KERNELS(normalize);
    ac_device d = ac_run_device(r);
    c->weight = ac_gpu_ref_of(weight), c->bias = ac_gpu_ref_of(bias);
    c->weight_stride = stride_of(weight), c->bias_stride = stride_of(bias);
    c->y = planes_of(r->out[0]), c->mean = ac_gpu_ref_of(r->out[1]), c->rstd = ac_gpu_ref_of(r->out[2]);
    c->columns = by_columns(c), c->vector = smaller_run(run_of(c, &c->x), run_of(c, &c->y));
    plan_statistics(c);
    AC_TRY(statistics_of(d, c));
    return r->out[0]->numel ? launch(d, normalize, c) : 0;
}

int ac_cuda_batch_norm(const ac_run *r) {
    ATTRS(batch_norm);
    ac_tensor *x = with_planes(r->in[0]);
    if (!x) return -1;
    ac_gpu_channels c = channels_of(x, 0);
    c.running_mean = ac_gpu_ref_of(r->in[1]), c.running_var = ac_gpu_ref_of(r->in[2]);
    c.mean_stride = stride_of(r->in[1]), c.var_stride = stride_of(r->in[2]);
    c.training = a->training != 0, c.momentum = a->momentum, c.eps = a->eps;
    int failed = run_forward(r, &c, r->in[3], r->in[4]);
    ac_tensor_release(x);
    return failed;
}

int ac_cuda_group_norm(const ac_run *r) {
    ATTRS(group_norm);
    ac_tensor *x = with_planes(r->in[0]);
    if (!x) return -1;
    ac_gpu_channels c = channels_of(x, a->num_groups);
    c.training = 1, c.eps = a->eps;
    int failed = run_forward(r, &c, r->in[1], r->in[2]);
    ac_tensor_release(x);
    return failed;
}

/* -- backward ------------------------------------------------------------------------------------------- */

/* The gradients of weight and bias, and the means that those of x need: sums of channels, or (groups) of every channel
 * of every image, which make both the channels' and the groups'. */
static int sums_of(ac_device d, ac_gpu_channels *c) {
    CHANNEL_KERNELS(gradients);
    CHANNEL_KERNEL(join, "ac_channel_gradients_join");
    ac_gpu_block *room;
    if (c->groups) plan_sets(c, c->batch * c->channels, c->channels, 1, 1);
    else plan_statistics(c);
    AC_TRY(partial_room(d, c, c->groups != 0, &room));
    int failed = launch(d, gradients, c);
    if (!failed && room) failed = launch_join(d, &join, c->channels + c->batch * c->groups, c);
    ac_gpu_free(room);
    return failed;
}

/* g, x, mean, rstd, weight give dx, dweight, dbias. */
static int backward_of(const ac_run *r, ac_tensor *const *in, ac_gpu_channels *c) {
    CHANNEL_KERNELS(backward);
    ac_device d = ac_run_device(r);
    ac_gpu_block *means = ac_gpu_alloc(d, 16 * (c->groups ? c->batch * c->groups : c->channels) + 1);
    if (!means) return -1;
    c->g = planes_of(in[0]), c->mean = ac_gpu_ref_of(in[2]), c->rstd = ac_gpu_ref_of(in[3]);
    c->weight = ac_gpu_ref_of(r->in[4]), c->weight_stride = stride_of(r->in[4]);
    c->y = planes_of(r->out[0]), c->dweight = ac_gpu_ref_of(r->out[1]), c->dbias = ac_gpu_ref_of(r->out[2]);
    c->columns = by_columns(c),
    c->vector = smaller_run(smaller_run(run_of(c, &c->x), run_of(c, &c->g)), run_of(c, &c->y));
    c->means = ac_gpu_address(means);
    int failed = sums_of(d, c);
    plan_statistics(c);
    if (!failed && r->out[0]->numel) failed = launch(d, backward, c);
    ac_gpu_free(means);
    return failed;
}

static int run_backward(const ac_run *r, int64_t groups, bool training) {
    ac_tensor *in[4] = {with_planes(r->in[0]), with_planes(r->in[1]), ac_gpu_contiguous(r->in[2]),
                        ac_gpu_contiguous(r->in[3])};
    int failed = -1;
    if (in[0] && in[1] && in[2] && in[3]) {
        ac_gpu_channels c = channels_of(in[1], groups);
        c.training = training;
        failed = backward_of(r, in, &c);
    }
    for (int k = 0; k < 4; k++) ac_tensor_clear(&in[k]);
    return failed;
}

int ac_cuda_batch_norm_backward(const ac_run *r) {
    ATTRS(training);
    return run_backward(r, 0, a->training != 0);
}
int ac_cuda_group_norm_backward(const ac_run *r) {
    ATTRS(num_groups);
    return run_backward(r, a->num_groups, true);
}
