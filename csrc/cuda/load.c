/* Opens the driver and its libraries by name at first use. It searches the folders that
 * ampc/_process/cuda_folders.py lists (of the `nvidia-*` wheels, of conda, of the toolkit), and then the system's. If
 * AMPC_CUDA_LIBS is set, it names the only folder to search. Tests set it to the simulator's. */
#include "cuda/gpu.h"

#include "base/alloc.h"
#include "base/system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ac_cu_table ac_cu;
ac_lt_table ac_lt;
ac_dnn_table ac_dnn;
ac_nccl_table ac_nccl;
int (*ac_gpu_warn)(const char *text);
int (*_Atomic ac_gpu_told)(void);

#ifndef AC_CUDA_TOOLKIT
#define AC_CUDA_TOOLKIT 12000
#endif
enum { OLDEST_TOOLKIT = 12000, NOTE_BYTES = 400 };

typedef struct {
    const char *name;
    const char *files[3]; /* newest first */
    int majors[3];        /* of CUDA, which the driver must know for the file */
    void *handle;
    char note[NOTE_BYTES];
    char closed[NOTE_BYTES / 2]; /* of a file that is there but does not open: which, and why; or "" */
} library;

static library libraries[] = {
    {.name = "driver", .files = {"libcuda.so.1"}},
    {.name = "cublasLt", .files = {"libcublasLt.so.13", "libcublasLt.so.12"}, .majors = {13, 12}},
    {.name = "nccl", .files = {"libnccl.so.2"}},
    {.name = "cudnn", .files = {"libcudnn.so.9"}},
};
enum { DRIVER, CUBLASLT, NCCL, CUDNN, N_LIBRARIES };

static struct {
    char *paths; /* NULL: none */
    int driver;  /* what it knows, 13000 for CUDA 13.0; 0 before it is open */
    bool tried;
    _Atomic bool ready, lt_ready, dnn_ready, dnn_tried, nccl_ready; /* read without the lock */
    _Atomic bool forked; /* a child of the process that uses the driver, which cannot */
    char failure[NOTE_BYTES];
} state;

#define FREE PTHREAD_MUTEX_INITIALIZER
static const ac_gpu_lock_set all_free = {FREE, FREE, FREE, FREE, FREE, FREE, FREE, FREE, FREE};
ac_gpu_lock_set ac_gpu_locks = {FREE, FREE, FREE, FREE, FREE, FREE, FREE, FREE, FREE};

int ac_gpu_set_paths(const char *paths) {
    if (state.paths) ac_free(state.paths, strlen(state.paths) + 1);
    state.paths = ac_alloc(strlen(paths) + 1);
    if (!state.paths) return -1;
    memcpy(state.paths, paths, strlen(paths) + 1);
    return 0;
}

int ac_gpu_oldest_driver(int toolkit) { return toolkit > OLDEST_TOOLKIT ? toolkit / 1000 * 1000 : OLDEST_TOOLKIT; }

static void *open_path(library *l, const char *path) {
    void *handle = ac_open_library(path);
    const char *why = handle ? NULL : ac_library_failure();
    bool absent = why && strncmp(why, path, strlen(path)) == 0 && strstr(why, "No such file");
    if (why && !absent && !l->closed[0])
        (void)snprintf(l->closed, sizeof l->closed, "; one is there that does not open: %.150s", why);
    return handle;
}

static void *open_in(library *l, const char *folder, size_t length, const char *file) {
    char path[4400];
    int n = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, file);
    return n > 0 && (size_t)n < sizeof path ? open_path(l, path) : NULL;
}

static void *open_file(library *l, const char *file) {
    const char *only = getenv("AMPC_CUDA_LIBS");
    if (only && *only) return open_in(l, only, strlen(only), file);
    void *handle = l == libraries ? open_path(l, file) : NULL; /* the driver belongs to the system, */
    for (const char *p = state.paths; p && *p && !handle; p += strcspn(p, ":"), p += *p == ':')
        handle = open_in(l, p, strcspn(p, ":"), file); /* of the others the packages' own come first */
    return handle ? handle : open_path(l, file);
}

/* Whether the driver is new enough for a file. */
static bool suits_driver(const library *l, int i) { return state.driver == 0 || l->majors[i] <= state.driver / 1000; }

static const char *newest_suitable(const library *l) {
    int i = 0;
    while (l->files[i + 1] && !suits_driver(l, i)) i++;
    return l->files[i];
}

static void *open_library(library *l) {
    for (int i = 0; i < 3 && l->files[i] && !l->handle; i++)
        if (suits_driver(l, i)) l->handle = open_file(l, l->files[i]);
    if (!l->handle) (void)snprintf(l->note, sizeof l->note, "not found (%s)%s", newest_suitable(l), l->closed);
    return l->handle;
}

/* ISO C has no cast from data to function. */
static bool find(void *handle, const char *name, void *function) {
    void *symbol = ac_library_symbol(handle, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char *find_driver_functions(void *handle) {
#define ENTRY(name, ...)                                                                                               \
    if (!find(handle, #name, &ac_cu.name)) return #name;
    AC_CU_FUNCTIONS(ENTRY)
#undef ENTRY
    return NULL;
}

static const char *find_lt_functions(void *handle) {
#define ENTRY(result, name, ...)                                                                                       \
    if (!find(handle, #name, &ac_lt.name)) return #name;
    AC_LT_FUNCTIONS(ENTRY)
#undef ENTRY
    return NULL;
}

static bool find_dnn_functions(void *handle) {
#define ENTRY(name, ...)                                                                                               \
    if (!find(handle, #name, &ac_dnn.name)) return false;
    AC_DNN_FUNCTIONS(ENTRY)
#undef ENTRY
    return true;
}

static const char *find_nccl_functions(void *handle) {
#define ENTRY(result, name, ...)                                                                                       \
    if (!find(handle, #name, &ac_nccl.name)) return #name;
    AC_NCCL_FUNCTIONS(ENTRY)
#undef ENTRY
    return NULL;
}

int ac_cu_check(CUresult result, const char *what) {
    const char *name = NULL, *text = NULL;
    if (result == AC_CU_SUCCESS) return 0;
    (void)ac_cu.cuGetErrorName(result, &name);
    (void)ac_cu.cuGetErrorString(result, &text);
    bool capture = result >= AC_CU_CAPTURE_UNSUPPORTED && result <= AC_CU_CAPTURE_WRONG_THREAD;
    return ac_fail(capture ? AC_CAPTURE : AC_RUNTIME, "%s: %s (%d): %s", what, name ? name : "unknown CUDA error",
                   (int)result, text ? text : "the driver says no more");
}

int ac_lt_check(cublasStatus_t status, const char *what) {
    if (status == AC_LT_SUCCESS) return 0;
    return ac_fail(AC_RUNTIME, "%s: %s (%d)", what, ac_lt.cublasLtGetStatusName(status), (int)status);
}

static const char *why_no_device(library *l) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible) return "the NVIDIA driver sees no GPU";
    (void)snprintf(l->note, sizeof l->note,
                   "the NVIDIA driver sees no GPU, and CUDA_VISIBLE_DEVICES, which says what it may see, is '%.60s'",
                   visible);
    return l->note;
}

/* NULL when the driver is ready, else why it is not. */
static const char *open_driver(void) {
    library *l = &libraries[DRIVER];
    int version = 0;
    if (!open_library(l)) {
        (void)snprintf(l->note, sizeof l->note, "no NVIDIA driver was found (libcuda.so.1%s)%s", l->closed,
                       ac_gpu_has_images() ? "" : ", and this build has no GPU code either");
        return l->note;
    }
    if (find_driver_functions(l->handle)) return "the NVIDIA driver is too old: CUDA 12.0 or newer is needed";
    CUresult result = ac_cu.cuInit(0);
    if (result == AC_CU_NO_DEVICE) return why_no_device(l);
    if (result != AC_CU_SUCCESS) {
        if (ac_cu_check(result, "cuInit") < 0) (void)snprintf(l->note, sizeof l->note, "%.200s", ac_error_message());
        return l->note;
    }
    (void)ac_cu.cuDriverGetVersion(&version);
    state.driver = version;
    /* The simulator runs no machine code, so no toolkit decides how old it may be. */
    int oldest = ac_gpu_is_simulated() ? OLDEST_TOOLKIT : ac_gpu_oldest_driver(AC_CUDA_TOOLKIT);
    (void)snprintf(l->note, sizeof l->note, "CUDA %d.%d%s", version / 1000, version % 1000 / 10,
                   ac_gpu_is_simulated() ? ", simulated" : "");
    if (version < oldest) {
        (void)snprintf(l->note, sizeof l->note,
                       "the NVIDIA driver is too old: it knows CUDA %d.%d, and %d.%d is needed%s", version / 1000,
                       version % 1000 / 10, oldest / 1000, oldest % 1000 / 10,
                       version >= OLDEST_TOOLKIT ? "; compiled by a toolkit of CUDA 12, ampc runs on it" : "");
        return l->note;
    }
    if (!ac_gpu_has_images() && !ac_gpu_is_simulated())
        return "this build has no GPU code: it was made without nvcc, or with AMPC_CUDA=0; AMPC_CUDA=1 pip install . "
               "makes one";
    return NULL;
}

void ac_gpu_forked(void) {
    state.forked = state.forked || state.ready;
    state.ready = false;
    ac_gpu_locks = all_free;
}

int ac_gpu_init(void) {
    if (state.ready) return 0;
    if (state.forked)
        return ac_fail(AC_RUNTIME,
                       "CUDA cannot be used in a process forked from one that used it; start processes with the "
                       "'spawn' method (multiprocessing.set_start_method('spawn')), or use CUDA in the child alone");
    (void)pthread_mutex_lock(&ac_gpu_locks.libraries);
    if (!state.tried) {
        const char *failure = open_driver();
        if (failure) (void)snprintf(state.failure, sizeof state.failure, "%s", failure);
        state.tried = true;
        state.ready = failure == NULL; /* last: who sees it sees the rest */
    }
    (void)pthread_mutex_unlock(&ac_gpu_locks.libraries);
    if (state.ready) return 0;
    return ac_fail(AC_NO_GPU, "CUDA cannot be used: %s; test cuda.is_available() first", state.failure);
}

bool ac_gpu_usable(void) { return state.ready; }

bool ac_gpu_is_simulated(void) {
    return libraries[DRIVER].handle && ac_library_symbol(libraries[DRIVER].handle, "ampc_simulator") != NULL;
}

int ac_lt_open(void) {
    library *l = &libraries[CUBLASLT];
    if (state.lt_ready) return 0;
    (void)pthread_mutex_lock(&ac_gpu_locks.libraries);
    const char *missing = NULL;
    if (!state.lt_ready && (l->handle || open_library(l))) {
        missing = find_lt_functions(l->handle);
        state.lt_ready = !missing;
        if (state.lt_ready) {
            size_t v = ac_lt.cublasLtGetVersion();
            (void)snprintf(l->note, sizeof l->note, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
        }
    }
    (void)pthread_mutex_unlock(&ac_gpu_locks.libraries);
    if (state.lt_ready) return 0;
    if (missing)
        return ac_fail(AC_RUNTIME, "matrix products on CUDA: cuBLASLt lacks %s; 12.0 or newer is needed", missing);
    const char *file = newest_suitable(l);
    return ac_fail(AC_RUNTIME,
                   "matrix products on CUDA need cuBLASLt (%s%s): install the toolkit or `pip install nvidia-cublas%s`",
                   file, l->closed, strcmp(file, l->files[0]) == 0 ? "" : "-cu12");
}

bool ac_dnn_open(void) {
    library *l = &libraries[CUDNN];
    if (state.dnn_tried) return state.dnn_ready;
    (void)pthread_mutex_lock(&ac_gpu_locks.libraries);
    if (!state.dnn_tried) state.dnn_ready = (l->handle || open_library(l)) && find_dnn_functions(l->handle);
    state.dnn_tried = true; /* last: who sees it sees the rest */
    (void)pthread_mutex_unlock(&ac_gpu_locks.libraries);
    return state.dnn_ready;
}

int ac_nccl_open(void) {
    library *l = &libraries[NCCL];
    AC_TRY(ac_gpu_init());
    if (state.nccl_ready) return 0;
    (void)pthread_mutex_lock(&ac_gpu_locks.libraries);
    const char *missing = NULL;
    if (!state.nccl_ready && (l->handle || open_library(l))) {
        missing = find_nccl_functions(l->handle);
        state.nccl_ready = !missing;
    }
    (void)pthread_mutex_unlock(&ac_gpu_locks.libraries);
    if (state.nccl_ready) return 0;
    if (missing) return ac_fail(AC_RUNTIME, "NCCL lacks %s; 2.14 or newer is needed", missing);
    return ac_fail(AC_RUNTIME, "NCCL (libnccl.so.2) was not found%s; `pip install nvidia-nccl-cu%d` installs it",
                   l->closed, state.driver >= 13000 ? 13 : 12);
}

/* Versions, of those that say it by one call. */
static void note_version(library *l, const char *function) {
    size_t (*plain)(void);
    int (*through)(int *), version = 0;
    if (!open_library(l)) return;
    if (l == &libraries[CUDNN] && find(l->handle, function, &plain)) version = (int)plain();
    else if (l == &libraries[NCCL] && find(l->handle, function, &through)) (void)through(&version);
    (void)snprintf(l->note, sizeof l->note, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

const char *ac_gpu_library_note(const char *name) {
    bool ready = ac_gpu_init() == 0;
    if (strcmp(name, "kernels") == 0) return ac_gpu_has_images() ? "built in" : "not built: no nvcc, or AMPC_CUDA=0";
    for (int i = 0; i < N_LIBRARIES; i++) {
        library *l = &libraries[i];
        if (strcmp(name, l->name) != 0) continue;
        if (i == DRIVER) return ready || l->note[0] ? l->note : state.failure;
        if (i == CUBLASLT && ac_lt_open() < 0 && !l->note[0])
            (void)snprintf(l->note, sizeof l->note, "%.200s", ac_error_message());
        if (i == NCCL && !l->note[0]) note_version(l, "ncclGetVersion");
        if (i == CUDNN && !l->note[0]) note_version(l, "cudnnGetVersion");
        return l->note;
    }
    return "";
}
