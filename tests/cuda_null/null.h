/* What the files of the driver that does nothing know of each other: a counter for each function of csrc/cuda/abi.h. */
#pragma once

#include "cuda/abi.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

#define CU_ENTRY(name, ...) COUNT_##name,
#define LT_ENTRY(result, name, ...) COUNT_##name,
enum { AC_CU_FUNCTIONS(CU_ENTRY) AC_LT_FUNCTIONS(LT_ENTRY) N_COUNTS };
#undef CU_ENTRY
#undef LT_ENTRY

EXPORTED void null_count(int which);
#define CALLED(name) null_count(COUNT_##name)
