/* A stand-in for libcuda that does nothing and counts calls: what is left of a step's time is the host's own. Nothing
 * is computed, so every number that comes back is 0. A function that csrc/cuda/abi.h lists and answers.cpp does not
 * have succeeds at once. */
#include "null.h"

static long long counts[N_COUNTS];
static const char *const names[] = {
#define CU_ENTRY(name, ...) #name,
#define LT_ENTRY(result, name, ...) #name,
    AC_CU_FUNCTIONS(CU_ENTRY) AC_LT_FUNCTIONS(LT_ENTRY)
#undef CU_ENTRY
#undef LT_ENTRY
};

EXPORTED void null_count(int which) { counts[which]++; }

#define CU_ENTRY(name, ...)                                                                                            \
    EXPORTED __attribute__((weak)) CUresult name(__VA_ARGS__) { return CALLED(name), AC_CU_SUCCESS; }
AC_CU_FUNCTIONS(CU_ENTRY)
#undef CU_ENTRY

/* For the program that counts: the name of function i, NULL behind the last; how often it was called so far. */
EXPORTED const char *null_name(int i) { return i < N_COUNTS ? names[i] : nullptr; }
EXPORTED long long null_calls(int i) { return counts[i]; }

/* The core takes a driver with this function for a simulated one, which needs no compiled kernels. */
EXPORTED long long ampc_simulator(const char *, long long) { return -1; }
