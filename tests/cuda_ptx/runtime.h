/* What translated PTX needs: types of its names, memory with checks of every access, barriers, and its instructions as
 * functions. A kernel runs one thread at a time, on the fibers of tests/cuda_sim. */
#pragma once

#include "sim.h"
#include "base/half.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

typedef uint8_t u8, b8;
typedef uint16_t u16, b16;
typedef uint32_t u32, b32;
typedef uint64_t u64, b64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;
typedef bool pred;
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

/* The entry that the simulator's driver finds by name. */
#define PTX_KERNEL(name, size)                                                                                         \
    extern "C" __attribute__((visibility("default"))) void sim_kernel_##name(void **params) {                          \
        begin_thread();                                                                                                \
        v_##name((u8 *)params[0]);                                                                                     \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const size_t sim_bytes_##name = size;

/* -- registers: only widths count ------------------------------------------------------------------- */

/* The bits of a register as another type; of a wider one the low bits. */
template <class T, class R> static inline T as(R r) {
    if constexpr (std::is_same<T, R>::value) return r;
    else if constexpr (std::is_integral<T>::value && std::is_integral<R>::value) return (T)r;
    else {
        static_assert(sizeof(T) <= sizeof(R) && !std::is_same<T, bool>::value, "no register has so few bits");
        T t;
        memcpy(&t, &r, sizeof t);
        return t;
    }
}
/* Into a register that may be wider: then the sign, or zeros. */
template <class R, class V> static inline void put(R &r, V v) {
    if constexpr (std::is_same<V, f16>::value) r = as<R>(v.bits);
    else if constexpr (std::is_integral<V>::value && std::is_integral<R>::value) r = (R)v;
    else {
        static_assert(sizeof(R) == sizeof(V), "a value of another width");
        memcpy(&r, &v, sizeof r);
    }
}

/* -- memory --------------------------------------------------------------------------------------------- */

enum Space { GENERIC, GLOBAL, SHARED, LOCAL, PARAM };
enum Access { READ, WRITE, ATOMIC };

void begin_thread(void);
void block_barrier(void);
void warp_barrier(void);
void no_return(void);
void report_misaligned(u64 address, size_t bytes, const char *what);
/* Looks for a race, and for the end of what the launch asked for; the place, or a spare one. */
u8 *checked_shared(u64 offset, size_t bytes, Access access, const char *what);
/* Adds to sim_moved what an access touches of the GPU's memory, unless the block did so since its last barrier. */
void count_traffic(u64 address, size_t bytes, Access access);

/* A copy to shared memory that goes on while the thread does: `size` bytes, zeros beyond the first `given`. Copies form
 * groups. Those of all but the `left` groups begun last are done when copies_done returns, and no sooner. */
void copy_begins(u64 to, u64 from, u32 size, u32 given, const char *what);
void copies_grouped(void);
void copies_done(u32 left);

template <Space space> static inline bool in_shared(u64 address) {
    return space == SHARED || (space == GENERIC && address - (u64)ac_shared_memory < MOST_SHARED);
}
/* The host's address of `bytes` that an instruction reads or writes. Those in shared memory count from its begin. */
template <Space space, Access access> static inline u8 *checked(u64 address, size_t bytes, const char *what) {
    if (address & (bytes - 1)) report_misaligned(address, bytes, what);
    if (!in_shared<space>(address)) {
        if (sim_counts && space != LOCAL && space != PARAM) count_traffic(address, bytes, access);
        return (u8 *)address;
    }
    return checked_shared(space == SHARED ? (u32)address : address - (u64)ac_shared_memory, bytes, access, what);
}
template <class T> static inline T from(const u8 *at, int i) {
    T t;
    memcpy(&t, at + i * sizeof(T), sizeof t);
    return t;
}
template <class T> static inline void to(u8 *at, int i, T t) { memcpy(at + i * sizeof(T), &t, sizeof t); }

/* Threads take turns, so nobody comes in between. */
template <class T> static inline T ptx_atom_add(u8 *at, T by) {
    T old = from<T>(at, 0);
    to<T>(at, 0, old + by);
    return old;
}
template <class T> static inline T ptx_atom_cas(u8 *at, T expected, T wanted) {
    T old = from<T>(at, 0);
    if (old == expected) to<T>(at, 0, wanted);
    return old;
}

/* -- integers ------------------------------------------------------------------------------------------- */

#define OPERATION template <class T> static inline
template <class T> constexpr bool is_real = std::is_floating_point<T>::value;
template <class T> constexpr bool is_signed = std::is_signed<T>::value;
template <class T> constexpr u32 width = sizeof(T) * 8;

template <class T> struct twice;
template <> struct twice<u16> {
    typedef u32 type;
};
template <> struct twice<s16> {
    typedef s32 type;
};
template <> struct twice<u32> {
    typedef u64 type;
};
template <> struct twice<s32> {
    typedef s64 type;
};
template <> struct twice<u64> {
    typedef unsigned __int128 type;
};
template <> struct twice<s64> {
    typedef __int128 type;
};
template <class T> using twice_t = typename twice<T>::type;

/* Sums and products of integers wrap around. */
OPERATION T ptx_add(T a, T b) {
    if constexpr (is_real<T>) return a + b;
    else return (T)((u64)a + (u64)b);
}
OPERATION T ptx_sub(T a, T b) {
    if constexpr (is_real<T>) return a - b;
    else return (T)((u64)a - (u64)b);
}
OPERATION T ptx_mul(T a, T b) {
    static_assert(is_real<T>, "of integers it says which half");
    return a * b;
}
OPERATION T ptx_mul_lo(T a, T b) { return (T)((u64)a * (u64)b); }
OPERATION T ptx_mul_hi(T a, T b) { return (T)((twice_t<T>)a * (twice_t<T>)b >> width<T>); }
OPERATION twice_t<T> ptx_mul_wide(T a, T b) { return (twice_t<T>)a * (twice_t<T>)b; }
OPERATION T ptx_mad_lo(T a, T b, T c) { return (T)((u64)a * (u64)b + (u64)c); }
OPERATION twice_t<T> ptx_mad_wide(T a, T b, twice_t<T> c) { return ptx_add(ptx_mul_wide(a, b), c); }
OPERATION T ptx_div(T a, T b) {
    if constexpr (is_real<T>) return a / b;
    else if (b == 0) return (T)-1;
    else return is_signed<T> && b == (T)-1 ? ptx_sub((T)0, a) : (T)(a / b);
}
OPERATION T ptx_rem(T a, T b) { return b == 0 ? a : is_signed<T> && b == (T)-1 ? (T)0 : (T)(a % b); }
OPERATION T ptx_neg(T a) {
    if constexpr (is_real<T>) return -a;
    else return ptx_sub((T)0, a);
}
OPERATION T ptx_abs(T a) {
    if constexpr (is_real<T>) return copysign(a, (T)1);
    else return a < 0 ? ptx_neg(a) : a;
}
OPERATION T ptx_and(T a, T b) { return a & b; }
OPERATION T ptx_or(T a, T b) { return a | b; }
OPERATION T ptx_xor(T a, T b) { return a ^ b; }
OPERATION T ptx_not(T a) {
    if constexpr (std::is_same<T, bool>::value) return !a;
    else return ~a;
}
OPERATION u32 ptx_clz(T a) { return a ? (u32)__builtin_clzll((u64)a) - (64 - width<T>) : width<T>; }
OPERATION u32 ptx_popc(T a) { return (u32)__builtin_popcountll((u64)a & (~(u64)0 >> (64 - width<T>))); }
OPERATION T ptx_shl(T a, u32 n) { return n < width<T> ? (T)((u64)a << n) : (T)0; }
OPERATION T ptx_shr(T a, u32 n) {
    if (n < width<T>) return (T)(a >> n);
    return is_signed<T> && a < 0 ? (T)-1 : (T)0;
}
/* b with its bits from `at` on, `n` of them, from a. */
OPERATION T ptx_bfi(T a, T b, u32 at, u32 n) {
    at &= 255, n &= 255;
    if (n == 0 || at >= width<T>) return b;
    T ones = n < width<T> ? ptx_sub((T)((T)1 << n), (T)1) : (T) ~(T)0;
    return (T)((b & ~(T)(ones << at)) | (T)((a & ones) << at));
}
/* `n` bits from `at` on. */
OPERATION T ptx_bfe(T a, u32 at, u32 n) {
    static_assert(!is_signed<T>, "the sign is not repeated");
    return ptx_bfi(ptx_shr(a, at & 255), (T)0, 0, n);
}
/* Of a pair of registers, low one first, shifted: the upper one, or the lower one. */
OPERATION T ptx_shf_l_wrap(T low, T high, T n) { return (T)(((u64)high << 32 | low) << (n & 31) >> 32); }
OPERATION T ptx_shf_r_wrap(T low, T high, T n) { return (T)(((u64)high << 32 | low) >> (n & 31)); }
/* Four of the eight bytes of b and a; of one whose selector has the highest bit, its sign. */
OPERATION T ptx_prmt(T a, T b, T selectors) {
    T all = 0;
    for (int i = 0; i < 4; i++) {
        T selector = selectors >> 4 * i & 15;
        u8 byte = (u8)(((u64)b << 32 | a) >> (selector & 7) * 8);
        all |= (T)(selector & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
    }
    return all;
}
OPERATION T ptx_selp(T a, T b, bool p) { return p ? a : b; }

/* Of 32 bits at a time, with the carry between them. */
OPERATION T carried(u64 sum, bool &carry) {
    static_assert(std::is_same<T, u32>::value, "only parts of 32 bits without a sign");
    carry = sum >> 32 & 1;
    return (T)sum;
}
OPERATION T ptx_add_cc(T a, T b, bool &carry) { return carried<T>((u64)a + b, carry); }
OPERATION T ptx_addc_cc(T a, T b, bool &carry) { return carried<T>((u64)a + b + carry, carry); }
OPERATION T ptx_addc(T a, T b, bool carry) { return ptx_addc_cc(a, b, carry); }
OPERATION T ptx_sub_cc(T a, T b, bool &carry) { return carried<T>((u64)a - b, carry); }
OPERATION T ptx_subc_cc(T a, T b, bool &carry) { return carried<T>((u64)a - b - carry, carry); }
OPERATION T ptx_subc(T a, T b, bool carry) { return ptx_subc_cc(a, b, carry); }
OPERATION T ptx_mad_lo_cc(T a, T b, T c, bool &carry) { return carried<T>((u64)ptx_mul_lo(a, b) + c, carry); }
OPERATION T ptx_madc_lo_cc(T a, T b, T c, bool &carry) { return carried<T>((u64)ptx_mul_lo(a, b) + c + carry, carry); }
OPERATION T ptx_madc_hi_cc(T a, T b, T c, bool &carry) { return carried<T>((u64)ptx_mul_hi(a, b) + c + carry, carry); }
OPERATION T ptx_madc_hi(T a, T b, T c, bool carry) { return ptx_madc_hi_cc(a, b, c, carry); }

/* -- real numbers --------------------------------------------------------------------------------------- */

/* .ftz: subnormal numbers are zeros. */
static inline f32 flushed(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
/* The high half of a double: what the approximations of doubles read and write. */
static inline f64 high_half(f64 x) { return as<f64>(as<u64>(x) & 0xFFFFFFFF00000000u); }

/* For f32 alone. */
#define OPERATION_F32 template <class T, std::enable_if_t<std::is_same<T, f32>::value, int> = 0> static inline T

OPERATION T ptx_fma(T a, T b, T c) { return fma(a, b, c); }
/* By how much the exact a b + c is more than r, which is it rounded: the sign alone is exact. */
static inline f64 rest_of_fma(f32 a, f32 b, f32 c, f32 r) {
    f64 product = (f64)a * b, sum = product + c; /* the product is exact; of the sum the error is, too (Knuth) */
    f64 other = sum - product, error = (product - (sum - other)) + (c - other);
    return sum != r ? sum - r : error;
}
static inline f32 lower(f32 r, f64 rest) { return rest < 0 ? nextafterf(r, -INFINITY) : r; }
static inline f32 nearer_to_0(f32 r, f64 rest) {
    return (r > 0 && rest < 0) || (r < 0 && rest > 0) ? nextafterf(r, 0) : r;
}
OPERATION_F32 ptx_fma_rm(T a, T b, T c) { return lower(fmaf(a, b, c), rest_of_fma(a, b, c, fmaf(a, b, c))); }
OPERATION_F32 ptx_fma_rz(T a, T b, T c) { return nearer_to_0(fmaf(a, b, c), rest_of_fma(a, b, c, fmaf(a, b, c))); }
OPERATION_F32 ptx_add_rz(T a, T b) { return ptx_fma_rz(a, (T)1, b); }
OPERATION_F32 ptx_mul_rz(T a, T b) { return nearer_to_0(a * b, (f64)a * b - a * b); }

/* A nan gives way; -0 is less than 0. */
OPERATION T ptx_min(T a, T b) {
    if constexpr (is_real<T>) return a == b ? (signbit(a) ? a : b) : a < b || b != b ? a : b;
    else return a < b ? a : b;
}
OPERATION T ptx_max(T a, T b) {
    if constexpr (is_real<T>) return a == b ? (signbit(a) ? b : a) : a > b || b != b ? a : b;
    else return a > b ? a : b;
}
/* The second with the sign of the first. */
OPERATION T ptx_copysign(T sign, T a) { return copysign(a, sign); }
OPERATION T ptx_sqrt(T a) { return sqrt(a); }
OPERATION T ptx_rcp(T a) { return 1 / a; }

/* The host rounds what the GPU approximates. */
OPERATION_F32 ptx_ex2_approx(T a) { return exp2f(a); }
OPERATION_F32 ptx_ex2_approx_ftz(T a) { return flushed(exp2f(flushed(a))); }
OPERATION_F32 ptx_lg2_approx(T a) { return log2f(a); }
OPERATION_F32 ptx_lg2_approx_ftz(T a) { return log2f(flushed(a)); }
OPERATION T ptx_rcp_approx_ftz(T a) {
    if constexpr (sizeof(T) == 8) return high_half(1 / high_half(a));
    else return flushed(1 / flushed(a));
}
OPERATION T ptx_rsqrt_approx_ftz(T a) {
    if constexpr (sizeof(T) == 8) return high_half(1 / sqrt(high_half(a)));
    else return flushed((f32)(1 / sqrt((f64)flushed(a))));
}
/* A large divisor has no reciprocal, and gives 0. */
OPERATION_F32 ptx_div_approx(T a, T b) {
    bool large = fabsf(b) > 0x1p126f && fabsf(b) < INFINITY;
    return large ? a * copysignf(0, b) : a / b;
}
OPERATION_F32 ptx_div_approx_ftz(T a, T b) { return flushed(ptx_div_approx(flushed(a), flushed(b))); }

#define COMPARISON(name, expression)                                                                                   \
    OPERATION bool ptx_setp_##name(T a, T b) { return expression; }
COMPARISON(eq, a == b)
COMPARISON(ne, a != b && a == a && b == b)
COMPARISON(lt, a < b)
COMPARISON(le, a <= b)
COMPARISON(gt, a > b)
COMPARISON(ge, a >= b)
COMPARISON(lo, a < b)
COMPARISON(ls, a <= b)
COMPARISON(hi, a > b)
COMPARISON(hs, a >= b)
/* of these a nan holds, too */
COMPARISON(equ, !(a < b || a > b))
COMPARISON(neu, !(a == b))
COMPARISON(ltu, !(a >= b))
COMPARISON(leu, !(a > b))
COMPARISON(gtu, !(a <= b))
COMPARISON(geu, !(a < b))
COMPARISON(num, a == a && b == b)
COMPARISON(nan, a != a || b != b)

/* -- conversions ---------------------------------------------------------------------------------------- */

/* What no integer of the type holds becomes its nearest. A nan becomes 0, or the sign bit alone where 64 bits are on
 * either side. */
template <class D, class S> static inline D to_integer(S x) {
    constexpr D least = is_signed<D> ? (D)((u64)1 << (width<D> - 1)) : 0, most = (D)~least;
    if (x != x) return width<D> == 64 || sizeof(S) == 8 ? (D)((u64)1 << (width<D> - 1)) : 0;
    return x <= (f64)least ? least : x >= ldexp(1, (int)width<D> - is_signed<D>) ? most : (D)x;
}
template <class D, class S> static inline D rounded(S x) {
    if constexpr (is_real<D>) return (D)x;
    else return to_integer<D>(x);
}
#define CONVERSION template <class D, class S> static inline D
CONVERSION ptx_cvt(S x) {
    if constexpr (std::is_same<S, f16>::value) return ac_f16_to_f32(x.bits);
    else if constexpr (std::is_same<D, f16>::value) return {ac_f32_to_f16(x)};
    else {
        static_assert(is_real<D> || !is_real<S>, "to an integer it says which way");
        return (D)x;
    }
}
CONVERSION ptx_cvt_rzi(S x) { return rounded<D>(trunc(x)); }
CONVERSION ptx_cvt_rni(S x) { return rounded<D>(nearbyint(x)); }
CONVERSION ptx_cvt_rmi(S x) { return rounded<D>(floor(x)); }
CONVERSION ptx_cvt_rpi(S x) { return rounded<D>(ceil(x)); }
CONVERSION ptx_cvt_sat(S x) { /* of a nan 0 */
    static_assert(is_real<D> && is_real<S>, "an integer saturates at its own bounds");
    return x > 1 ? 1 : x > 0 ? x : 0;
}

/* -- warps ---------------------------------------------------------------------------------------------- */

/* What the lane whose number differs by `with` has. It orders no memory. */
static inline u32 shuffled(u32 mine, u32 with, u32 clamp, u32 members) {
    if (clamp != 31 || members != ~0u) sim_report("a shuffle of a part of a warp");
    return sim_exchange(mine, sim_lane() ^ (int)with);
}

static inline u32 voted(pred yes, u32 members) {
    if (members != ~0u) sim_report("a vote of a part of a warp");
    return __ballot_sync(members, yes);
}

/* Tiles of 16 x 16. Of an operand lane i has half of vector i / 2 (rows of a, columns of b; columns of a that lies
 * column by column, rows of b that lies row by row), of the sums half of row i / 2; NVIDIA does not tell how it is on a
 * GPU. */
enum { SIDE = 16, OWN = 8 };

template <Space space>
static inline u8 *tile_at(u64 address, size_t row_bytes, size_t own, Access access, const char *what) {
    if (address % 32 || row_bytes % 16) report_misaligned(address % 32 ? address : row_bytes, 32, what);
    u64 mine = address + (u32)sim_lane() / 2 * row_bytes + (u32)sim_lane() % 2 * own;
    if (own == 16) return checked<space, READ>(mine, 16, what);
    if (access == READ) {
        (void)checked<space, READ>(mine + 16, 16, what);
        return checked<space, READ>(mine, 16, what);
    }
    (void)checked<space, WRITE>(mine + 16, 16, what);
    return checked<space, WRITE>(mine, 16, what);
}
template <Space space> static inline void tile_load(u32 (&own)[OWN], u64 address, u32 stride, const char *what) {
    memset(own, 0, sizeof own);
    memcpy(own, tile_at<space>(address, stride * 2, 16, READ, what), 16);
}
template <Space space> static inline void tile_load(f32 (&own)[OWN], u64 address, u32 stride, const char *what) {
    memcpy(own, tile_at<space>(address, stride * 4, 32, READ, what), 32);
}
template <Space space> static inline void tile_store(const f32 (&own)[OWN], u64 address, u32 stride, const char *what) {
    memcpy(tile_at<space>(address, stride * 4, 32, WRITE, what), own, 32);
}
static inline f32 widened(u16 bits, f16) { return ac_f16_to_f32(bits); }
static inline f32 widened(u16 bits, bf16) { return ac_bf16_to_f32(bits); }

/* The vector of a tile that lies with lanes 2 i and 2 i + 1. */
template <class E> static inline void tile_vector(f32 (&x)[SIDE], int i) {
    for (int k = 0; k < SIDE; k++) {
        u16 bits;
        memcpy(&bits, (char *)sim_warp_slot(2 * i + k / OWN) + k % OWN * 2, 2);
        x[k] = widened(bits, E());
    }
}
/* Place n of every such vector. */
template <class E> static inline void tile_across(f32 (&x)[SIDE], int n) {
    for (int k = 0; k < SIDE; k++) {
        u16 bits;
        memcpy(&bits, (char *)sim_warp_slot(2 * k + n / OWN) + n % OWN * 2, 2);
        x[k] = widened(bits, E());
    }
}
/* c += a b, of the sums of this lane. */
template <class E, bool a_by_columns, bool b_by_rows, int N>
static inline void tile_product(const u32 (&a)[N], const u32 (&b)[N], f32 (&c)[OWN]) {
    f32 row[SIDE], column[SIDE];
    memcpy(sim_warp_slot(sim_lane()), a, 16);
    sim_sync_warp();
    if (a_by_columns) tile_across<E>(row, sim_lane() / 2);
    else tile_vector<E>(row, sim_lane() / 2);
    sim_sync_warp();
    memcpy(sim_warp_slot(sim_lane()), b, 16);
    sim_sync_warp();
    for (int i = 0; i < OWN; i++) {
        if (b_by_rows) tile_across<E>(column, sim_lane() % 2 * OWN + i);
        else tile_vector<E>(column, sim_lane() % 2 * OWN + i);
        for (int k = 0; k < SIDE; k++) c[i] += row[k] * column[k];
    }
    sim_sync_warp();
}

/* -- fragments: sums of 16 x 8, a row with four lanes, of each two neighbours in rows i and i + 8 --------------------
 */

/* Four matrices of 8 x 8; a lane says where a row begins. */
static inline void matrices_load(u32 (&own)[4], u64 address, bool turned, const char *what) {
    memcpy(sim_warp_slot(sim_lane()), checked<SHARED, READ>(address, 16, what), 16);
    sim_sync_warp();
    sim_gather_matrices(own, turned);
    sim_sync_warp();
}
/* c += a b, over 8 ks for each register of b. */
template <class E, int A, int B>
static inline void fragment_product(const u32 (&a)[A], const u32 (&b)[B], f32 (&c)[4]) {
    static_assert(A == 2 * B && (B == 1 || B == 2), "m16n8k8 or m16n8k16");
    memcpy(sim_warp_slot(sim_lane()), a, sizeof a);
    memcpy((char *)sim_warp_slot(sim_lane()) + sizeof a, b, sizeof b);
    sim_sync_warp();
    f32 left[2][8 * B], right[2][8 * B];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 8 * B; k++) {
            left[i][k] = widened(sim_half_of(sim_lane() / 4, i + k / 8 * 2, k % 8), E());
            right[i][k] = widened(sim_half_of(sim_lane() % 4 * 2 + i, A + k / 8, k % 8), E());
        }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 8 * B; k++) c[i] += left[i / 2][k] * right[i % 2][k];
    sim_sync_warp();
}
template <class E> static inline u32 two_rounded(f32 upper, f32 lower) {
    bool half = std::is_same<E, f16>::value;
    u32 high = half ? ac_f32_to_f16(upper) : ac_f32_to_bf16(upper),
        low = half ? ac_f32_to_f16(lower) : ac_f32_to_bf16(lower);
    return high << 16 | low;
}
