/* Linear algebra of a GPU's matrices: copied to the CPU, computed there by LAPACK, and copied back. */
#include "cuda/gpu.h"

#include "cpu/kernels.h"

enum { MAX_OPERANDS = 3 };

static ac_tensor *brought(ac_tensor *from) {
    ac_dims shape = ac_shape_of(from);
    ac_tensor *copy = ac_tensor_new(from->dtype, &shape);
    if (copy && ac_gpu_transfer(copy, from, false) < 0) ac_tensor_clear(&copy);
    return copy;
}

static int on_cpu(const ac_run *r, ac_kernel kernel) {
    ac_tensor *in[MAX_OPERANDS] = {NULL}, *out[AC_MAX_OUT] = {NULL};
    int failed = 0;
    for (int i = 0; i < r->n_in && !failed; i++) failed = (in[i] = brought(r->in[i])) ? 0 : -1;
    for (int i = 0; i < r->n_out && !failed; i++) {
        ac_dims shape = ac_shape_of(r->out[i]);
        failed = (out[i] = ac_tensor_new(r->out[i]->dtype, &shape)) ? 0 : -1;
    }
    ac_run there = *r;
    there.in = in, there.out = out;
    if (!failed) failed = kernel(&there);
    for (int i = 0; i < r->n_out && !failed; i++) failed = ac_gpu_transfer(r->out[i], out[i], false);
    for (int i = 0; i < MAX_OPERANDS; i++) ac_tensor_clear(&in[i]);
    for (int i = 0; i < AC_MAX_OUT; i++) ac_tensor_clear(&out[i]);
    return failed;
}

int ac_cuda_solve(const ac_run *r) { return on_cpu(r, ac_cpu_solve); }
int ac_cuda_det(const ac_run *r) { return on_cpu(r, ac_cpu_det); }
int ac_cuda_slogdet(const ac_run *r) { return on_cpu(r, ac_cpu_slogdet); }
int ac_cuda_cholesky(const ac_run *r) { return on_cpu(r, ac_cpu_cholesky); }
int ac_cuda_qr(const ac_run *r) { return on_cpu(r, ac_cpu_qr); }
int ac_cuda_eigh(const ac_run *r) { return on_cpu(r, ac_cpu_eigh); }
int ac_cuda_svd(const ac_run *r) { return on_cpu(r, ac_cpu_svd); }
int ac_cuda_solve_triangle(const ac_run *r) { return on_cpu(r, ac_cpu_solve_triangle); }
int ac_cuda_lu_factor(const ac_run *r) { return on_cpu(r, ac_cpu_lu_factor); }
int ac_cuda_row_order(const ac_run *r) { return on_cpu(r, ac_cpu_row_order); }
int ac_cuda_ldl_factor(const ac_run *r) { return on_cpu(r, ac_cpu_ldl_factor); }
int ac_cuda_ldl_solve(const ac_run *r) { return on_cpu(r, ac_cpu_ldl_solve); }
int ac_cuda_reflections(const ac_run *r) { return on_cpu(r, ac_cpu_reflections); }
