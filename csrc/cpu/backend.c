/* The CPU backend: the kernel of every operator in the table. */
#include "cpu/kernels.h"

const ac_backend ac_cpu = {
    .name = "cpu",
    .kernels =
        {
#define POINT1(name, ...) [AC_OP_##name] = ac_cpu_pointwise,
#define POINT2 POINT1
#define POINT3 POINT1
#define KERNEL(name, py, home, infer, kernel, ...) [AC_OP_##name] = ac_cpu_##kernel,
#include "ops/ops.def"
        },
    .panels_bytes = ac_cpu_panels_bytes,
    .pack = ac_cpu_pack,
    .compute = ac_cpu_compute,
    .grad_stats = ac_cpu_grad_stats,
    .scale = ac_cpu_scale,
    .step = ac_cpu_step,
};
