/* A stand-in for libcublasLt: plain loops over the simulated device's memory, in the stream's order. It refuses
 * what the real library refuses: mixed operand types, leading dimensions too small, plans it did not choose; and what
 * tests tell it to (ampc_simulated_products). A pointer less aligned than promised is a fault. */
#include "sim.h"

#include "base/half.h"

#include <math.h>
#include <stdlib.h>

#include <initializer_list>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, F64 = 1, F16 = 2, BF16 = 14 };
enum { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_TF32 = 77 };
enum { IN_THE_RESULTS_TYPE = 4, EVERY_REDUCTION = 7 };
enum { EPILOGUE_NONE = 1, EPILOGUE_BIAS = 4 };

struct Desc {
    int compute, scale, transa, transb;
    unsigned epilogue;
    const void *bias;
};
struct Layout {
    int type, count;
    uint64_t rows, cols;
    int64_t ld, offset;
};
struct Wish {
    unsigned align[4];
    size_t workspace;
    unsigned reductions; /* ways of joining parts of a sum that are allowed */
};
struct Algo {
    uint64_t mark, shape, workspace;
    uint32_t align[4]; /* of a, b, c and the result, as promised */
    uint64_t halves;   /* each half of a sum is rounded to the result's type, as the real library does where it may */
    uint64_t rest[2];
};
struct Heuristic {
    Algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
static const uint64_t MARK = 0x616D7063;

/* Products that there is no algorithm for. */
enum Refusal {
    WITH_BIAS = 1,      /* in the epilogue, */
    ONE_ROW_BIAS = 2,   /* or of one row alone */
    MANY_BATCHES = 4,   /* 65,536 and more */
    LITTLE_ALIGNED = 8, /* pointers, or lines, not on boundaries of 16 bytes */
    HALVES = 16,        /* operands of 16 bits */
    AT_THE_CALL = 32,   /* said by the product itself, not when it is asked for an algorithm */
    WIDE = 64           /* float64 */
};
enum { VECTOR = 16 };

static long long refused, asked, done;
API long long ampc_simulated_products(const char *what, long long value) {
    if (!strcmp(what, "refuse")) return refused = value, 0;
    return !strcmp(what, "asked") ? asked : !strcmp(what, "done") ? done : -1;
}

API size_t cublasLtGetVersion(void) { return 130000; }
API const char *cublasLtGetStatusName(int s) {
    return s == SUCCESS   ? "CUBLAS_STATUS_SUCCESS"
           : s == INVALID ? "CUBLAS_STATUS_INVALID_VALUE"
                          : "CUBLAS_STATUS_NOT_SUPPORTED";
}
API int cublasLtCreate(void **h) { return *h = (void *)&MARK, SUCCESS; }

API int cublasLtMatmulDescCreate(Desc **d, int compute, int scale) {
    *d = new Desc{compute, scale, 0, 0, EPILOGUE_NONE, nullptr};
    return SUCCESS;
}
API int cublasLtMatmulDescDestroy(Desc *d) { return delete d, SUCCESS; }
API int cublasLtMatmulDescSetAttribute(Desc *d, int which, const void *v, size_t bytes) {
    switch (which) {
    case 3: return bytes == 4 ? (memcpy(&d->transa, v, 4), SUCCESS) : INVALID;
    case 4: return bytes == 4 ? (memcpy(&d->transb, v, 4), SUCCESS) : INVALID;
    case 7: return bytes == 4 ? (memcpy(&d->epilogue, v, 4), SUCCESS) : INVALID;
    case 8: return bytes == 8 ? (memcpy(&d->bias, v, 8), SUCCESS) : INVALID;
    default: return INVALID;
    }
}
API int cublasLtMatrixLayoutCreate(Layout **l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
    *l = new Layout{type, 1, rows, cols, ld, 0};
    return SUCCESS;
}
API int cublasLtMatrixLayoutDestroy(Layout *l) { return delete l, SUCCESS; }
API int cublasLtMatrixLayoutSetAttribute(Layout *l, int which, const void *v, size_t bytes) {
    if (which == 5 && bytes == 4) return memcpy(&l->count, v, 4), SUCCESS;
    if (which == 6 && bytes == 8) return memcpy(&l->offset, v, 8), SUCCESS;
    return INVALID;
}
API int cublasLtMatmulPreferenceCreate(Wish **w) {
    return *w = new Wish{{256, 256, 256, 256}, 0, EVERY_REDUCTION}, SUCCESS;
}
API int cublasLtMatmulPreferenceDestroy(Wish *w) { return delete w, SUCCESS; }
API int cublasLtMatmulPreferenceSetAttribute(Wish *w, int which, const void *v, size_t bytes) {
    if (which == 1 && bytes == 8) return memcpy(&w->workspace, v, 8), SUCCESS;
    if (which == 3 && bytes == 4) return memcpy(&w->reductions, v, 4), SUCCESS;
    if (which >= 5 && which <= 8 && bytes == 4) return memcpy(&w->align[which - 5], v, 4), SUCCESS;
    return INVALID;
}

static int check(const Desc *d, const Layout *a, const Layout *b, const Layout *c, const Layout *o) {
    uint64_t m = d->transa ? a->cols : a->rows, k = d->transa ? a->rows : a->cols;
    uint64_t bk = d->transb ? b->cols : b->rows, n = d->transb ? b->rows : b->cols;
    if (m != o->rows || n != o->cols || k != bk || m == 0 || n == 0 || k == 0) return INVALID;
    if (c->rows != o->rows || c->cols != o->cols || c->type != o->type) return INVALID;
    for (const Layout *l : {a, b, c, o})
        if (l->ld < (int64_t)l->rows || l->count != o->count) return INVALID;
    if (a->type != b->type) return NOT_SUPPORTED;
    bool wide = a->type == F64;
    if (wide != (d->compute == COMPUTE_F64) || wide != (o->type == F64) || wide != (d->scale == F64))
        return NOT_SUPPORTED;
    if (a->type == F32 && o->type != F32) return NOT_SUPPORTED;
    if (o->type != a->type && o->type != F32 && !wide) return NOT_SUPPORTED;
    return SUCCESS;
}

static uint64_t shape_of(const Layout *a, const Layout *b, const Layout *o) {
    return a->rows * 31 + a->cols * 17 + b->rows * 13 + b->cols * 7 + o->rows * 5 + (uint64_t)o->type;
}

static bool is_little(const Layout *l, unsigned align) {
    int64_t each = l->type == F64 ? 8 : l->type == F32 ? 4 : 2;
    return align < VECTOR || l->ld * each % VECTOR || (l->count > 1 && l->offset * each % VECTOR);
}

static bool refuses(const Desc *d, const Layout *a, const Layout *b, const Layout *o, const unsigned *align) {
    bool bias = d->epilogue == EPILOGUE_BIAS;
    return (refused & WITH_BIAS && bias) || (refused & ONE_ROW_BIAS && bias && o->cols == 1) ||
           (refused & MANY_BATCHES && o->count > 65535) ||
           (refused & LITTLE_ALIGNED && (is_little(a, align[0]) || is_little(b, align[1]) || is_little(o, align[3]))) ||
           (refused & WIDE && a->type == F64) || (refused & HALVES && (a->type == F16 || a->type == BF16));
}

API int cublasLtMatmulAlgoGetHeuristic(void *, Desc *d, Layout *a, Layout *b, Layout *c, Layout *o, Wish *w, int,
                                       Heuristic *found, int *n) {
    asked++, *n = 0;
    int wrong = check(d, a, b, c, o);
    if (wrong) return wrong;
    for (unsigned align : w->align)
        if (align == 0 || align & (align - 1)) return INVALID;
    if (!(refused & AT_THE_CALL) && refuses(d, a, b, o, w->align))
        return refused & MANY_BATCHES ? SUCCESS : NOT_SUPPORTED; /* it says so either way */
    size_t workspace = (a->rows + b->cols) % 2 ? 4096 : 0;       /* now and then some, which the product then writes */
    if (workspace > w->workspace) workspace = 0;
    uint64_t halves = (w->reductions & IN_THE_RESULTS_TYPE) != 0;
    *found = Heuristic{{MARK, shape_of(a, b, o), workspace, {}, halves, {}}, workspace, SUCCESS, 1, {0}};
    memcpy(found->algo.align, w->align, sizeof w->align);
    return *n = 1, SUCCESS;
}

static double read(const void *p, int type, int64_t i) {
    switch (type) {
    case F32: return ((const float *)p)[i];
    case F64: return ((const double *)p)[i];
    case F16: return ac_f16_to_f32(((const uint16_t *)p)[i]);
    default: return ac_bf16_to_f32(((const uint16_t *)p)[i]);
    }
}
static void write(void *p, int type, int64_t i, double x) {
    switch (type) {
    case F32: ((float *)p)[i] = (float)x; return;
    case F64: ((double *)p)[i] = x; return;
    case F16: ((uint16_t *)p)[i] = ac_f32_to_f16((float)x); return;
    default: ((uint16_t *)p)[i] = ac_f32_to_bf16((float)x);
    }
}
static double rounded(double x, int type) {
    double held = 0;
    return write(&held, type, 0, x), read(&held, type, 0);
}
static double tf32(double x) { return (double)ac_from_bits((ac_bits((float)x) + 0x1000) & 0xFFFFE000u); }

struct Product {
    Desc d;
    Layout a, b, c;
    double alpha, beta;
    const void *pa, *pb;
    void *pc, *room;
    size_t room_bytes;
    uint32_t align[4];
    bool halves;
};

/* The promises about pointers, which the real one does not check: it faults. */
static bool is_misaligned(const Product &p) {
    const void *at[4] = {p.pa, p.pb, p.pc, p.pc};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)at[i] % p.align[i]) return true;
    bool bias = p.d.epilogue == EPILOGUE_BIAS && (uintptr_t)p.d.bias % VECTOR;
    return bias || (p.room_bytes && (uintptr_t)p.room % VECTOR);
}

/* A matrix as double, rounded as the product rounds its operands: element (line, l) at line + l * lines, for each l of
 * the inner dimension. */
static void unpack(const void *from, const Layout &a, int64_t offset, bool across, bool round,
                   std::vector<double> &to) {
    int64_t lines = (int64_t)(across ? a.cols : a.rows), inner = (int64_t)(across ? a.rows : a.cols);
    to.resize((size_t)(lines * inner));
    for (int64_t l = 0; l < inner; l++)
        for (int64_t i = 0; i < lines; i++) {
            double x = read(from, a.type, offset + (across ? i * a.ld + l : l * a.ld + i));
            to[(size_t)(l * lines + i)] = round ? tf32(x) : x;
        }
}

/* Sums over l in order, for a column of results at a time. */
static const char *multiply(void *context) {
    const Product &p = *(const Product *)context;
    if (is_misaligned(p)) return "cublasLtMatmul: misaligned address";
    int64_t m = (int64_t)p.c.rows, n = (int64_t)p.c.cols, k = (int64_t)(p.d.transa ? p.a.rows : p.a.cols);
    bool round = p.d.compute == COMPUTE_TF32;
    std::vector<double> x, y, column((size_t)m);
    if (p.room_bytes) memset(p.room, 0xA5, p.room_bytes);
    for (int q = 0; q < p.c.count; q++) {
        unpack(p.pa, p.a, q * p.a.offset, p.d.transa, round, x);
        unpack(p.pb, p.b, q * p.b.offset, !p.d.transb, round, y);
        for (int64_t j = 0; j < n; j++) {
            double *sum = column.data();
            memset(sum, 0, (size_t)m * sizeof *sum);
            for (int64_t l = 0; l < k; l++) {
                if (p.halves && l == k / 2)
                    for (int64_t i = 0; i < m; i++) sum[i] = rounded(sum[i], p.c.type);
                const double *row = &x[(size_t)(l * m)], by = y[(size_t)(l * n + j)];
                for (int64_t i = 0; i < m; i++) sum[i] += row[i] * by;
            }
            for (int64_t i = 0; i < m; i++) {
                int64_t at = q * p.c.offset + j * p.c.ld + i;
                double z = p.alpha * sum[i] + (p.beta != 0 ? p.beta * read(p.pc, p.c.type, at) : 0);
                if (p.d.epilogue == EPILOGUE_BIAS) z += read(p.d.bias, p.c.type, i);
                write(p.pc, p.c.type, at, z);
            }
        }
    }
    return nullptr;
}

API int cublasLtMatmul(void *, Desc *d, const void *alpha, const void *pa, Layout *a, const void *pb, Layout *b,
                       const void *beta, const void *pc, Layout *c, void *po, Layout *o, const Algo *algo, void *room,
                       size_t room_bytes, void *stream) {
    int wrong = check(d, a, b, c, o);
    if (wrong) return wrong;
    if (!algo || algo->mark != MARK || algo->shape != shape_of(a, b, o) || pc != po) return INVALID;
    if (d->epilogue == EPILOGUE_BIAS && !d->bias) return INVALID;
    if (room_bytes < algo->workspace || (algo->workspace && !room)) return INVALID;
    if (refused & AT_THE_CALL && refuses(d, a, b, o, algo->align)) return NOT_SUPPORTED;
    bool wide = d->scale == F64;
    Product *p = new Product{*d,
                             *a,
                             *b,
                             *o,
                             wide ? *(const double *)alpha : *(const float *)alpha,
                             wide ? *(const double *)beta : *(const float *)beta,
                             pa,
                             pb,
                             po,
                             room,
                             algo->workspace,
                             {},
                             algo->halves != 0};
    memcpy(p->align, algo->align, sizeof p->align);
    done++;
    int failed = sim_enqueue(stream, multiply, [](void *x) { delete (Product *)x; }, p);
    return failed ? INVALID : SUCCESS;
}
