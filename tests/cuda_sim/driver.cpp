/* A stand-in for libcuda: devices whose memory the host cannot read, streams whose work waits until somebody waits
 * for it, and the kernels of the .cu files, compiled into this library. Tests steer it through ampc_simulator. */
#include "sim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int

namespace {

enum Result {
    SUCCESS = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    BAD_IMAGE = 200,
    BAD_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    BAD_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    DEVICE_LOST = 46,
    ILLEGAL_STATE = 401,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900, /* waiting for what is captured, memory that is asked for */
    CAPTURE_INVALIDATED = 901,
    CAPTURE_UNJOINED = 904,  /* a stream that joined a capture has work that its first stream does not wait for */
    CAPTURE_ISOLATION = 905, /* captured work would wait for work outside */
    CAPTURE_IMPLICIT = 906,  /* the legacy stream is used, which waits for all others */
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908
};

typedef std::function<const char *()> Work;

struct Stream;
struct Device;
struct Capture;
struct Event {
    Device *device;                        /* whose streams it is for */
    Stream *stream = nullptr;              /* where it was recorded, */
    uint64_t number = 0;                   /* behind that much work */
    Capture *capture = nullptr;            /* that it was recorded in, */
    std::map<Stream *, uint64_t> captured; /* behind so much work of each stream */
    bool timing = false;
    double time = 0;
};
struct Item {
    Work work;
    Event *event = nullptr; /* set its time */
    Stream *wait = nullptr; /* another stream's work must be done, */
    uint64_t wait_number = 0;
};
struct Stream {
    Device *device;
    std::deque<Item> queue;
    uint64_t queued = 0, done = 0;         /* numbers of pieces of work */
    Capture *capture = nullptr;            /* that its work goes to, */
    std::map<Stream *, uint64_t> captured; /* and the work of each stream that it waits for, its own included */
};
/* What a program holds of a stream. Destroying the stream does not wait for its work, and the next stream gets the
 * handle. */
struct Handle {
    Stream *stream; /* NULL: destroyed */
};
enum { GLOBAL, THREAD_LOCAL, RELAXED }; /* modes of capture */
/* Work that is captured: in the order it came, which its streams' order and events allow. */
struct Capture {
    Stream *first;
    int mode;
    std::thread::id thread;
    bool invalid = false;
    std::vector<Work> work;
    std::set<Stream *> streams;
};
struct Graph {
    Device *device;
    std::vector<Work> work;
};
struct Device {
    int index;
    char *base = nullptr;
    size_t room = (size_t)16 << 30, used = 0, limit;
    long long open = 0;                        /* how many want its memory open */
    std::map<size_t, size_t> live;             /* offset -> bytes */
    std::multimap<size_t, size_t> free_blocks; /* bytes -> offset */
    Stream legacy;
    std::set<Stream *> streams;
    std::vector<Stream *> destroyed; /* whose work goes on */
};
struct Function {
    std::string name;
    void (*run)(void **);
    size_t bytes;
    long long launches = 0;
    sim_traffic moved = {0, 0};
};

/* The simulator's lock, which a thread may take several times. Who waits for another process lets others in. */
struct TurnLock {
    std::recursive_mutex mutex;
    static thread_local int depth;
    void lock() { mutex.lock(), depth++; }
    void unlock() { depth--, mutex.unlock(); }
    void let_others_in() {
        int held = depth;
        for (int i = 0; i < held; i++) unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        for (int i = 0; i < held; i++) lock();
    }
};
thread_local int TurnLock::depth;

struct State {
    TurnLock lock;
    bool ready = false, lost = false;
    bool guard = false;          /* each allocation ends where memory does, and work is done when it is queued */
    bool reads_pageable = false; /* the GPU reads the host's memory itself, when a copy's turn has come */
    std::vector<std::unique_ptr<Device>> devices;
    std::map<void *, size_t> pinned;
    std::map<std::string, Function> functions;
    std::set<Event *> events;
    std::set<Capture *> captures;
    std::set<Graph *> graphs, executables;
    std::vector<Handle *> free_handles;
    int refuse_machine_code = 0; /* what loading it gives, as Tegra's driver refuses a desktop's; 0: it loads */
    int refuse_ptx = 0;          /* the same of PTX, as a driver refuses that of a newer toolkit */
    int loaded = 0;              /* the architecture of the last image, less than 0 of PTX */
    std::string wrong;           /* what a kernel did; every later call fails */
    double clock = 0;
    long long fail_alloc = 0, fail_launch = 0, no_memory_to_load = 0, no_memory_to_launch = 0,
              no_memory_to_instantiate = 0, syncs = 0, launches = 0, copies = 0, replays = 0;
    Function *running = nullptr;
} sim;

thread_local std::vector<Device *> contexts;
thread_local int capture_mode = GLOBAL; /* of this thread, for calls that a capture does not stand */

typedef std::lock_guard<TurnLock> Lock;

int failed() {
    if (!sim.ready) return NOT_INITIALIZED;
    if (sim.lost) return DEVICE_LOST;
    return sim.wrong.empty() ? SUCCESS : LAUNCH_FAILED;
}
#define ENTER                                                                                                          \
    Lock lock_(sim.lock);                                                                                              \
    if (int f_ = failed()) return f_

Device *here() { return contexts.empty() ? nullptr : contexts.back(); }
Stream *stream_of(void *handle) { /* NULL: not one of the current device */
    if (!here()) return nullptr;
    Stream *s = handle ? ((Handle *)handle)->stream : &here()->legacy;
    return s && s->device == here() ? s : nullptr;
}

/* -- captures --------------------------------------------------------------------------------------- */

int invalidate(Capture *c, int why) { return c->invalid = true, why; }

/* A call that a capture does not stand: the thread's own, and in global mode that of any thread. */
int unsafe_call() {
    if (capture_mode == RELAXED) return SUCCESS;
    for (Capture *c : sim.captures) {
        bool own = c->thread == std::this_thread::get_id();
        if (c->mode == RELAXED || (!own && (c->mode == THREAD_LOCAL || capture_mode == THREAD_LOCAL))) continue;
        return invalidate(c, CAPTURE_UNSUPPORTED);
    }
    return SUCCESS;
}
#define SAFE_IN_CAPTURE                                                                                                \
    if (int u_ = unsafe_call()) return u_

/* Waiting for, or asking, the work of a stream. */
int refuse_wait(Stream *s) { return s->capture ? invalidate(s->capture, CAPTURE_UNSUPPORTED) : unsafe_call(); }

/* A stream that work is about to be queued on. */
int refuse_use(Stream *s) {
    if (s->capture) return s->capture->invalid ? CAPTURE_INVALIDATED : SUCCESS;
    for (Capture *c : sim.captures)
        if (s == &c->first->device->legacy && c->thread == std::this_thread::get_id())
            return invalidate(c, CAPTURE_IMPLICIT);
    return SUCCESS;
}
#define USABLE(s)                                                                                                      \
    if (int r_ = refuse_use(s)) return r_

/* -- memory is open to this process only while the device works ------------------------------------- */

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* Whole huge pages are opened and closed, because each page takes its time. */
void open_memory(Device *d, bool open) {
    if (sim.guard) return; /* always open, block by block */
    if (open ? d->open++ > 0 : --d->open > 0) return;
    if (size_t all = (d->used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE)
        mprotect(d->base, all, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

Device *owner_of(uint64_t address) {
    for (auto &d : sim.devices)
        if (address >= (uint64_t)d->base && address < (uint64_t)d->base + d->used) return d.get();
    return nullptr;
}

bool is_live(uint64_t address, size_t bytes) {
    Device *d = owner_of(address);
    if (!d) return false;
    size_t at = address - (uint64_t)d->base;
    auto it = d->live.upper_bound(at);
    if (it == d->live.begin()) return false;
    --it;
    return at + bytes <= it->first + it->second;
}

bool is_pinned(const void *p, size_t bytes) {
    auto it = sim.pinned.upper_bound((void *)p);
    if (it == sim.pinned.begin()) return false;
    --it;
    return (char *)p + bytes <= (char *)it->first + it->second;
}

/* -- streams: work runs at the last moment that is legal -------------------------------------------- */

const char *const sim_not_yet = "waits for another process";
thread_local std::set<Stream *> in_progress; /* by this thread */
bool advance(Stream *s, uint64_t until);

/* Does the first piece of a stream's work; false where it waits for another process, and stays the first. */
bool step(Stream *s) {
    Item &item = s->queue.front();
    if (item.wait && !advance(item.wait, item.wait_number)) return false;
    if (item.work && sim.wrong.empty()) {
        open_memory(s->device, true);
        const char *wrong = item.work();
        open_memory(s->device, false);
        if (wrong == sim_not_yet) return false;
        if (wrong) sim.wrong = wrong;
    }
    sim.clock += 0.001;
    if (item.event) item.event->time = sim.clock;
    s->queue.pop_front();
    s->done++;
    return true;
}

/* Does a stream's work up to a number, as far as it can be done now; whether all of it is. */
bool advance(Stream *s, uint64_t until) {
    if (in_progress.count(s)) return true; /* an event that waits for itself is in order already */
    if (s->done >= until || s->queue.empty()) return true;
    in_progress.insert(s);
    open_memory(s->device, true); /* once for all: opening and closing take longer than a small kernel */
    bool can = true;
    while (can && s->done < until && !s->queue.empty()) can = step(s);
    open_memory(s->device, false);
    in_progress.erase(s);
    return can;
}

void drain(Stream *s, uint64_t until) {
    while (!advance(s, until)) sim.lock.let_others_in();
}
void drain(Stream *s) { drain(s, s->queued); }
void drain(Device *d) {
    std::vector<Stream *> all(d->streams.begin(), d->streams.end()); /* another thread may add one meanwhile */
    all.insert(all.end(), d->destroyed.begin(), d->destroyed.end());
    drain(&d->legacy);
    for (Stream *s : all) drain(s);
}

enum { MOST_QUEUED = 20000 };
void enqueue(Stream *s, Item item) {
    if (s->capture) {
        s->capture->work.push_back(std::move(item.work));
        s->captured[s]++;
        return;
    }
    s->queue.push_back(std::move(item));
    s->queued++;
    if (sim.guard || s->queue.size() > MOST_QUEUED) drain(s);
}

int after_wait() {
    sim.syncs++;
    return failed();
}

} // namespace

sim_traffic sim_moved;
bool sim_counts;
bool sim_is_device(uint64_t address) { return owner_of(address) != nullptr; }

#define SHARED extern "C" __attribute__((visibility("default")))
/* Where a stream's work of the current device stands, for a library's stand-in whose work other processes wait for. */
SHARED void sim_advance(void *stream) {
    Lock lock(sim.lock);
    Stream *s = stream_of(stream);
    if (s && !s->capture) advance(s, s->queued);
}
SHARED int sim_owner(uint64_t address, size_t bytes) {
    Lock lock(sim.lock);
    return is_live(address, bytes) ? owner_of(address)->index : -1;
}
SHARED int sim_device(void) { return here() ? here()->index : -1; }
SHARED const char *sim_waits(void) { return sim_not_yet; }

/* Work of another library's stand-in. `drop` frees the context. */
SHARED int sim_enqueue(void *stream, sim_work work, void (*drop)(void *), void *context) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s) return BAD_CONTEXT;
    USABLE(s);
    std::shared_ptr<void> keep(context, drop);
    enqueue(s, {[work, keep]() -> const char * { return work(keep.get()); }});
    return SUCCESS;
}

/* -- start, errors ---------------------------------------------------------------------------------- */

API cuInit(unsigned) {
    Lock lock(sim.lock);
    if (sim.ready) return SUCCESS;
    const char *count = getenv("AMPC_SIM_GPUS"), *bytes = getenv("AMPC_SIM_MEMORY");
    int n = count ? atoi(count) : 2;
    sim.guard = getenv("AMPC_SIM_GUARD") != nullptr;
    if (n < 1) return NO_DEVICE;
    for (int i = 0; i < n; i++) {
        auto d = std::make_unique<Device>();
        d->index = i, d->legacy.device = d.get();
        d->limit = bytes ? (size_t)atoll(bytes) : (size_t)1 << 30;
        void *at = mmap(nullptr, d->room + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return OUT_OF_MEMORY;
        d->base = (char *)(((uint64_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
        if (!sim.guard) madvise(d->base, d->room, MADV_HUGEPAGE);
        sim.devices.push_back(std::move(d));
    }
    sim.ready = true;
    return SUCCESS;
}
API cuDriverGetVersion(int *v) {
    const char *version = getenv("AMPC_SIM_DRIVER");
    return *v = version ? atoi(version) : 13000, SUCCESS;
}

API cuGetErrorName(int e, const char **name) {
    static const std::map<int, const char *> names = {{SUCCESS, "CUDA_SUCCESS"},
                                                      {INVALID, "CUDA_ERROR_INVALID_VALUE"},
                                                      {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                                                      {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
                                                      {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
                                                      {BAD_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
                                                      {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                                                      {INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
                                                      {BAD_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
                                                      {BAD_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                                                      {BAD_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
                                                      {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                                                      {NOT_READY, "CUDA_ERROR_NOT_READY"},
                                                      {DEVICE_LOST, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
                                                      {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"},
                                                      {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
                                                      {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
                                                      {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
                                                      {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
                                                      {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
                                                      {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"},
                                                      {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
                                                      {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}};
    auto it = names.find(e);
    return it == names.end() ? (*name = nullptr, INVALID) : (*name = it->second, SUCCESS);
}
API cuGetErrorString(int e, const char **text) {
    Lock lock(sim.lock);
    *text = e == LAUNCH_FAILED   ? sim.wrong.c_str()
            : e == OUT_OF_MEMORY ? "out of memory"
            : e == DEVICE_LOST   ? "the device is gone"
                                 : "simulated error";
    return SUCCESS;
}

/* -- devices and contexts --------------------------------------------------------------------------- */

API cuDeviceGetCount(int *n) {
    ENTER;
    return *n = (int)sim.devices.size(), SUCCESS;
}
API cuDeviceGet(int *d, int i) {
    ENTER;
    return i < 0 || i >= (int)sim.devices.size() ? BAD_DEVICE : (*d = i, SUCCESS);
}
API cuDeviceGetName(char *name, int n, int d) { return snprintf(name, (size_t)n, "Simulated GPU %d", d), SUCCESS; }
API cuDeviceGetUuid_v2(char *uuid, int d) {
    memset(uuid, 0, 16);
    uuid[15] = (char)d;
    return SUCCESS;
}
API cuDeviceTotalMem_v2(size_t *bytes, int d) {
    ENTER;
    return *bytes = sim.devices[(size_t)d]->limit, SUCCESS;
}
/* Of "90,75" the first GPU has 90, and all others 75. */
static int architecture(int device) {
    const char *numbers = getenv("AMPC_SIM_ARCHITECTURE"), *next;
    if (!numbers) return 90;
    while (device-- > 0 && (next = strchr(numbers, ','))) numbers = next + 1;
    return atoi(numbers);
}
API cuDeviceGetAttribute(int *v, int which, int device) {
    switch (which) {
    case 16: return *v = 4, SUCCESS;                         /* multiprocessors: few, so that kernels go round */
    case 38: return *v = 4 << 20, SUCCESS;                   /* L2 */
    case 39: return *v = 2048, SUCCESS;                      /* threads of a multiprocessor */
    case 75: return *v = architecture(device) / 10, SUCCESS; /* compute capability */
    case 76: return *v = architecture(device) % 10, SUCCESS;
    case 88: return *v = sim.reads_pageable, SUCCESS;
    default: return INVALID;
    }
}
API cuDeviceCanAccessPeer(int *can, int, int) { return *can = 1, SUCCESS; }
API cuDevicePrimaryCtxRetain(void **c, int d) {
    ENTER;
    return *c = sim.devices[(size_t)d].get(), SUCCESS;
}
API cuCtxGetCurrent(void **c) { return *c = here(), SUCCESS; }
API cuCtxSetCurrent(void *c) {
    if (!contexts.empty()) contexts.pop_back();
    if (c) contexts.push_back((Device *)c);
    return SUCCESS;
}
API cuCtxPushCurrent_v2(void *c) { return contexts.push_back((Device *)c), SUCCESS; }
API cuCtxPopCurrent_v2(void **c) {
    if (contexts.empty()) return BAD_CONTEXT;
    *c = contexts.back();
    contexts.pop_back();
    return SUCCESS;
}
API cuCtxSynchronize(void) {
    ENTER;
    if (!here()) return BAD_CONTEXT;
    SAFE_IN_CAPTURE;
    for (Capture *c : sim.captures)
        if (c->first->device == here()) return invalidate(c, CAPTURE_UNSUPPORTED);
    drain(here());
    return after_wait();
}

/* -- kernels ---------------------------------------------------------------------------------------- */

/* An image's architecture, 90 of sm_90; less than 0 of PTX; 0: it is neither machine code nor PTX. */
static int architecture_of(const void *image) {
    const unsigned char *elf = (const unsigned char *)image;
    unsigned flags;
    if (memcmp(image, "\177ELF", 4) == 0) {
        memcpy(&flags, elf + 48, sizeof flags);
        return (int)((elf[8] < 8 ? flags : flags >> 8) & 0xFF); /* CUDA 13 moved it, with a new version of the ABI */
    }
    const char *target = strstr((const char *)image, ".target sm_");
    return target ? -atoi(target + strlen(".target sm_")) : 0;
}

/* Machine code as a driver takes it. What runs are the kernels that this library has, so no image at all is well, too.
 */
API cuModuleLoadData(void **m, const void *image) {
    ENTER;
    SAFE_IN_CAPTURE;
    if (sim.no_memory_to_load && --sim.no_memory_to_load == 0) return OUT_OF_MEMORY;
    if (!here()) return BAD_CONTEXT;
    if (image && *(const char *)image) {
        int of = architecture_of(image), gpu = architecture(here()->index);
        bool runs = of > 0 && of <= gpu && of / 10 == gpu / 10;
        if (of == 0) return BAD_IMAGE;
        if (int refused = of > 0 ? sim.refuse_machine_code : sim.refuse_ptx) return refused;
        if (!runs && !(of < 0 && -of <= gpu)) return NO_BINARY;
        sim.loaded = of;
    }
    return *m = here(), SUCCESS;
}
API cuModuleGetFunction(void **f, void *, const char *name) {
    ENTER;
    Dl_info self;
    dladdr((void *)&cuModuleGetFunction, &self);
    void *library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    void *run = dlsym(library, (std::string("sim_kernel_") + name).c_str());
    void *bytes = dlsym(library, (std::string("sim_bytes_") + name).c_str());
    if (!run || !bytes) return NOT_FOUND;
    Function &found = sim.functions[name];
    found.name = name, found.run = (void (*)(void **))run, found.bytes = *(const size_t *)bytes;
    *f = &found;
    return SUCCESS;
}
enum { SHARED_UNASKED = 48 << 10 };
API cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || gy != 1 || gz != 1 || by != 1 || bz != 1) return INVALID;
    if (shared > SHARED_UNASKED) return INVALID; /* more is for functions that ask for it */
    USABLE(s);
    if (sim.fail_launch && --sim.fail_launch == 0) return LAUNCH_FAILED;
    if (sim.no_memory_to_launch && --sim.no_memory_to_launch == 0) return OUT_OF_MEMORY;
    Function *function = (Function *)f;
    auto args = std::make_shared<std::vector<char>>((char *)params[0], (char *)params[0] + function->bytes);
    sim.launches++, function->launches++;
    enqueue(s, {[=]() -> const char * {
                static std::string said;
                void *one[] = {args->data()};
                sim_moved = {0, 0};
                const char *wrong = sim_run_kernel(function->run, one, gx, bx, shared);
                function->moved.read += sim_moved.read, function->moved.written += sim_moved.written;
                if (!wrong) return nullptr;
                said = function->name + ": " + wrong;
                return said.c_str();
            }});
    return SUCCESS;
}

/* -- memory ----------------------------------------------------------------------------------------- */

enum { MOST_GARBAGE = 4 << 20, MOST_EMBEDDED = 64 << 10, GUARDED_ALIGNMENT = 16 };

size_t pages(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }
/* Pages of an allocation, with the guard behind it. */
size_t whole_of(size_t bytes) { return pages(bytes) + (sim.guard ? PAGE : 0); }
/* Where it begins in them: with the guard, as far right as its alignment allows. */
size_t begin_of(size_t bytes) {
    return sim.guard ? pages(bytes) - (bytes + GUARDED_ALIGNMENT - 1) / GUARDED_ALIGNMENT * GUARDED_ALIGNMENT : 0;
}

API cuMemGetInfo_v2(size_t *left, size_t *total) {
    ENTER;
    if (!here()) return BAD_CONTEXT;
    size_t used = 0;
    for (auto &b : here()->live) used += b.second;
    *total = here()->limit, *left = here()->limit - used;
    return SUCCESS;
}
API cuMemAlloc_v2(unsigned long long *p, size_t bytes) {
    ENTER;
    Device *d = here();
    size_t left, total, whole = whole_of(bytes), at;
    if (!d) return BAD_CONTEXT;
    SAFE_IN_CAPTURE;
    if (sim.fail_alloc && --sim.fail_alloc == 0) return OUT_OF_MEMORY;
    cuMemGetInfo_v2(&left, &total);
    if (bytes > left) return OUT_OF_MEMORY;
    auto it = d->free_blocks.lower_bound(whole);
    if (it != d->free_blocks.end() && it->first == whole) {
        at = it->second;
        d->free_blocks.erase(it);
    } else {
        if (d->used + whole > d->room) return OUT_OF_MEMORY;
        at = d->used, d->used += whole;
    }
    if (sim.guard) mprotect(d->base + at, pages(bytes), PROT_READ | PROT_WRITE);
    open_memory(d, true);
    memset(d->base + at, 0xFF,
           pages(bytes) < MOST_GARBAGE ? pages(bytes)
                                       : (size_t)MOST_GARBAGE); /* nan, -1: what was not written is seen */
    open_memory(d, false);
    at += begin_of(bytes);
    d->live[at] = bytes;
    *p = (unsigned long long)(d->base + at);
    return SUCCESS;
}
API cuMemFree_v2(unsigned long long p) {
    ENTER;
    Device *d = owner_of(p);
    if (!here()) return BAD_CONTEXT;
    if (!d) return INVALID;
    SAFE_IN_CAPTURE;
    drain(d); /* as the real one: freeing waits for the device */
    auto it = d->live.find(p - (unsigned long long)d->base);
    if (it == d->live.end()) return INVALID;
    size_t whole = whole_of(it->second), at = it->first - begin_of(it->second);
    madvise(d->base + at, whole, MADV_DONTNEED);
    if (sim.guard) mprotect(d->base + at, whole, PROT_NONE);
    d->free_blocks.emplace(whole, at);
    d->live.erase(it);
    return SUCCESS;
}
API cuMemHostAlloc(void **p, size_t bytes, unsigned) {
    ENTER;
    SAFE_IN_CAPTURE;
    if (sim.fail_alloc && --sim.fail_alloc == 0) return OUT_OF_MEMORY;
    void *at = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return OUT_OF_MEMORY;
    madvise(at, pages(bytes), MADV_DONTFORK); /* a forked child has none of it */
    *p = at;
    sim.pinned[*p] = bytes;
    return SUCCESS;
}
API cuMemFreeHost(void *p) {
    ENTER;
    SAFE_IN_CAPTURE;
    auto it = sim.pinned.find(p);
    if (it == sim.pinned.end()) return INVALID;
    size_t bytes = it->second;
    sim.pinned.erase(it); /* queued copies that use it will say so */
    for (auto &d : sim.devices) drain(d.get());
    munmap(p, pages(bytes));
    return SUCCESS;
}
API cuMemHostGetDevicePointer_v2(unsigned long long *d, void *p, unsigned) {
    ENTER;
    return sim.pinned.count(p) ? (*d = (unsigned long long)p, SUCCESS) : INVALID;
}
API cuPointerGetAttribute(void *value, int which, unsigned long long p) {
    ENTER;
    if (which == 9 && owner_of(p)) return *(int *)value = owner_of(p)->index, SUCCESS;
    if (which != 2) return INVALID;
    if (is_pinned((void *)p, 1)) return *(unsigned *)value = 1, SUCCESS;
    if (is_live(p, 1)) return *(unsigned *)value = 2, SUCCESS;
    return INVALID;
}

/* -- copies: of pageable memory the driver takes what it needs before it returns -------------------- */

const char *bad_copy = "a copy from or to memory that is not there any more";

API cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !is_live(to, bytes)) return INVALID;
    USABLE(s);
    if (s->capture && !is_pinned(from, bytes)) return invalidate(s->capture, CAPTURE_UNSUPPORTED);
    sim.copies++;
    if (is_pinned(from, bytes)) {
        enqueue(s, {[=]() -> const char * {
                    return !is_pinned(from, bytes) || !is_live(to, bytes) ? bad_copy
                                                                          : (memcpy((void *)to, from, bytes), nullptr);
                }});
        return SUCCESS;
    }
    if (sim.reads_pageable) {
        enqueue(s, {[=]() -> const char * {
                    return !is_live(to, bytes) ? bad_copy : (memcpy((void *)to, from, bytes), nullptr);
                }});
        return SUCCESS;
    }
    if (bytes > MOST_EMBEDDED) sim.syncs++; /* the driver may wait for room to stage it in */
    auto staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    enqueue(s, {[=]() -> const char * {
                return !is_live(to, bytes) ? bad_copy : (memcpy((void *)to, staged->data(), bytes), nullptr);
            }});
    return SUCCESS;
}
API cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !is_live(from, bytes)) return INVALID;
    bool pinned = is_pinned(to, bytes);
    USABLE(s);
    if (s->capture && !pinned) return invalidate(s->capture, CAPTURE_UNSUPPORTED);
    sim.copies++;
    enqueue(s, {[=]() -> const char * {
                return !is_live(from, bytes) || (pinned && !is_pinned(to, bytes))
                           ? bad_copy
                           : (memcpy(to, (void *)from, bytes), nullptr);
            }});
    if (pinned) return SUCCESS;
    drain(s);
    return after_wait();
}
API cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !is_live(to, bytes) || !is_live(from, bytes)) return INVALID;
    USABLE(s);
    sim.copies++;
    enqueue(s, {[=]() -> const char * { return memmove((void *)to, (void *)from, bytes), nullptr; }});
    return SUCCESS;
}
API cuMemcpyPeerAsync(unsigned long long to, void *, unsigned long long from, void *, size_t bytes, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !is_live(to, bytes) || !is_live(from, bytes)) return INVALID;
    USABLE(s);
    sim.copies++;
    Device *there = owner_of(to), *here = owner_of(from);
    enqueue(s, {[=]() -> const char * {
                for (Device *d : {there, here}) open_memory(d, true);
                memmove((void *)to, (void *)from, bytes);
                for (Device *d : {there, here}) open_memory(d, false);
                return nullptr;
            }});
    return SUCCESS;
}
API cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !is_live(to, bytes)) return INVALID;
    USABLE(s);
    enqueue(s, {[=]() -> const char * { return memset((void *)to, value, bytes), nullptr; }});
    return SUCCESS;
}

/* -- streams and events ----------------------------------------------------------------------------- */

API cuStreamCreateWithPriority(void **stream, unsigned flags, int) {
    ENTER;
    if (!here() || flags != 1) return INVALID; /* streams that wait for stream 0 are not simulated */
    Stream *s = new Stream();
    s->device = here();
    here()->streams.insert(s);
    Handle *h = sim.free_handles.empty() ? new Handle() : sim.free_handles.back();
    if (!sim.free_handles.empty()) sim.free_handles.pop_back();
    h->stream = s;
    return *stream = h, SUCCESS;
}
API cuStreamDestroy_v2(void *stream) {
    ENTER;
    Handle *h = (Handle *)stream;
    if (!h || !h->stream) return BAD_HANDLE;
    Device *d = h->stream->device;
    d->streams.erase(h->stream);
    d->destroyed.push_back(h->stream);
    h->stream = nullptr;
    sim.free_handles.push_back(h);
    return SUCCESS;
}
API cuStreamSynchronize(void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s) return BAD_CONTEXT;
    if (int r = refuse_wait(s)) return r;
    drain(s);
    return after_wait();
}
API cuStreamQuery(void *stream) { /* asking again and again must come to an end */
    ENTER;
    Stream *s = stream_of(stream);
    if (!s) return BAD_CONTEXT;
    if (int r = refuse_wait(s)) return r;
    if (!s->queue.empty()) step(s);
    return s->queue.empty() ? failed() : NOT_READY;
}
/* Captured work waits for captured work: a stream that does joins the capture. */
static int join_capture(Stream *s, Event *e) {
    if (!e->capture)
        return e->stream ? invalidate(s->capture, CAPTURE_ISOLATION) : SUCCESS; /* never recorded: nothing */
    if (e->capture->invalid) return CAPTURE_INVALIDATED;
    if (s->capture && s->capture != e->capture) return invalidate(s->capture, CAPTURE_ISOLATION);
    if (s == &s->device->legacy) return invalidate(e->capture, CAPTURE_IMPLICIT);
    s->capture = e->capture;
    s->capture->streams.insert(s);
    for (auto &work : e->captured) s->captured[work.first] = std::max(s->captured[work.first], work.second);
    return SUCCESS;
}
API cuStreamWaitEvent(void *stream, void *event, unsigned) {
    ENTER;
    Stream *s = stream_of(stream);
    Event *e = (Event *)event;
    if (!s || !sim.events.count(e)) return BAD_HANDLE;
    USABLE(s);
    if (e->capture || s->capture) return join_capture(s, e);
    Item item;
    item.wait = e->stream, item.wait_number = e->number;
    if (e->stream && e->stream != s) enqueue(s, std::move(item));
    return SUCCESS;
}
API cuEventCreate(void **event, unsigned flags) {
    ENTER;
    if (!here()) return BAD_CONTEXT;
    Event *e = new Event();
    e->device = here();
    e->timing = !(flags & 2);
    sim.events.insert(e);
    return *event = e, SUCCESS;
}
API cuEventDestroy_v2(void *event) {
    ENTER;
    Event *e = (Event *)event;
    if (!sim.events.erase(e)) return BAD_HANDLE;
    if (e->stream && e->timing) drain(e->stream, e->number); /* which would set its time */
    delete e;
    return SUCCESS;
}
API cuEventRecord(void *event, void *stream) {
    ENTER;
    Event *e = (Event *)event;
    Stream *s = stream_of(stream);
    if (!s || !sim.events.count(e) || e->device != s->device) return BAD_HANDLE;
    USABLE(s);
    if (e->stream && e->timing) drain(e->stream, e->number); /* its earlier place is forgotten */
    e->stream = nullptr, e->capture = s->capture, e->captured = s->captured;
    if (s->capture) return SUCCESS;
    Item item;
    item.event = e->timing ? e : nullptr;
    enqueue(s, std::move(item));
    e->stream = s, e->number = s->queued;
    return SUCCESS;
}
API cuEventQuery(void *event) {
    ENTER;
    Event *e = (Event *)event;
    if (!sim.events.count(e)) return BAD_HANDLE;
    if (e->capture) return invalidate(e->capture, CAPTURED_EVENT);
    SAFE_IN_CAPTURE;
    if (!e->stream || e->stream->done >= e->number) return SUCCESS;
    step(e->stream);
    return e->stream->done >= e->number ? failed() : NOT_READY;
}
API cuEventSynchronize(void *event) {
    ENTER;
    Event *e = (Event *)event;
    if (!sim.events.count(e)) return BAD_HANDLE;
    if (e->capture) return invalidate(e->capture, CAPTURED_EVENT);
    SAFE_IN_CAPTURE;
    if (e->stream) drain(e->stream, e->number);
    return after_wait();
}
API cuEventElapsedTime(float *ms, void *from, void *to) {
    ENTER;
    Event *a = (Event *)from, *b = (Event *)to;
    if (!sim.events.count(a) || !sim.events.count(b) || !a->timing || !b->timing || a->device != b->device)
        return BAD_HANDLE;
    if ((a->stream && a->stream->done < a->number) || (b->stream && b->stream->done < b->number)) return NOT_READY;
    *ms = (float)(b->time - a->time);
    return SUCCESS;
}

/* -- graphs ----------------------------------------------------------------------------------------- */

API cuStreamBeginCapture_v2(void *stream, int mode) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s) return BAD_CONTEXT;
    if (s == &s->device->legacy) return CAPTURE_UNSUPPORTED;
    if (s->capture) return ILLEGAL_STATE;
    Capture *c = new Capture{s, mode, std::this_thread::get_id(), false, {}, {s}};
    sim.captures.insert(c);
    s->capture = c;
    return SUCCESS;
}
API cuStreamEndCapture(void *stream, void **graph) {
    ENTER;
    Stream *s = stream_of(stream);
    *graph = nullptr;
    if (!s) return BAD_CONTEXT;
    Capture *c = s->capture;
    if (!c || c->first != s) return ILLEGAL_STATE;
    if (c->mode != RELAXED && c->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
    int result = c->invalid ? CAPTURE_INVALIDATED : SUCCESS;
    for (Stream *other : c->streams)
        if (!result && s->captured[other] < other->captured[other]) result = CAPTURE_UNJOINED;
    for (Stream *other : c->streams) other->capture = nullptr, other->captured.clear();
    for (Event *e : sim.events)
        if (e->capture == c) e->capture = nullptr, e->captured.clear();
    sim.captures.erase(c);
    if (!result) {
        Graph *g = new Graph{s->device, std::move(c->work)};
        sim.graphs.insert(g);
        *graph = g;
    }
    delete c;
    return result;
}
API cuStreamIsCapturing(void *stream, int *status) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s) return BAD_CONTEXT;
    return *status = !s->capture ? 0 : s->capture->invalid ? 2 : 1, SUCCESS;
}
API cuThreadExchangeStreamCaptureMode(int *mode) {
    std::swap(*mode, capture_mode);
    return SUCCESS;
}
API cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
    ENTER;
    if (!sim.graphs.count((Graph *)graph)) return INVALID;
    if (sim.no_memory_to_instantiate && --sim.no_memory_to_instantiate == 0) return OUT_OF_MEMORY;
    Graph *g = new Graph(*(Graph *)graph);
    sim.executables.insert(g);
    return *exec = g, SUCCESS;
}
API cuGraphDestroy(void *graph) {
    ENTER;
    if (!sim.graphs.erase((Graph *)graph)) return INVALID;
    delete (Graph *)graph;
    return SUCCESS;
}
API cuGraphLaunch(void *exec, void *stream) {
    ENTER;
    Stream *s = stream_of(stream);
    if (!s || !sim.executables.count((Graph *)exec)) return INVALID;
    USABLE(s);
    if (s->capture) return invalidate(s->capture, CAPTURE_UNSUPPORTED);     /* graphs within graphs are not simulated */
    auto work = std::make_shared<std::vector<Work>>(((Graph *)exec)->work); /* it may be destroyed before its turn */
    sim.replays++;
    enqueue(s, {[=]() -> const char * {
                for (Work &one : *work)
                    if (const char *wrong = one ? one() : nullptr) return wrong;
                return nullptr;
            }});
    return SUCCESS;
}
API cuGraphExecDestroy(void *exec) {
    ENTER;
    if (!sim.executables.erase((Graph *)exec)) return INVALID;
    delete (Graph *)exec;
    return SUCCESS;
}

/* -- for tests -------------------------------------------------------------------------------------- */

/* Of kernel i, in the order of their names: its name, NULL behind the last; its launches; the bytes that it read and
 * wrote since `count_traffic` was set, on the GPU that counts them. */
extern "C" __attribute__((visibility("default"))) const char *sim_kernel(int i, long long numbers[3]) {
    Lock lock(sim.lock);
    if (i >= (int)sim.functions.size()) return nullptr;
    const Function &f = std::next(sim.functions.begin(), i)->second;
    numbers[0] = f.launches, numbers[1] = (long long)f.moved.read, numbers[2] = (long long)f.moved.written;
    return f.name.c_str();
}

/* Sets something, or asks for a number; -1 when there is no such thing. */
extern "C" __attribute__((visibility("default"))) long long ampc_simulator(const char *what, long long value) {
    Lock lock(sim.lock);
    std::string w = what;
    long long sum = 0;
    if (w == "order") return sim_set_order((int)(value % 3), (uint64_t)value), 0;
    if (w == "fail_alloc") return sim.fail_alloc = value, 0;
    if (w == "fail_launch") return sim.fail_launch = value, 0;
    if (w == "no_memory_to_load") return sim.no_memory_to_load = value, 0;
    if (w == "refuse_machine_code") return sim.refuse_machine_code = (int)value, 0;
    if (w == "refuse_ptx") return sim.refuse_ptx = (int)value, 0;
    if (w == "loaded") return sim.loaded;
    if (w == "no_memory_to_launch") return sim.no_memory_to_launch = value, 0;
    if (w == "no_memory_to_instantiate") return sim.no_memory_to_instantiate = value, 0;
    if (w == "count_traffic") return sim_counts = value != 0, 0;
    if (w == "lose_device") return sim.lost = value != 0, 0;
    if (w == "reads_pageable") return sim.reads_pageable = value != 0, 0;
    if (w == "forget_error") return sim.wrong.clear(), 0;
    if (w == "syncs") return sim.syncs;
    if (w == "launches") return sim.launches;
    if (w == "copies") return sim.copies;
    if (w == "replays") return sim.replays;
    if (w == "captures") return (long long)sim.captures.size();
    if (w == "graphs") return (long long)(sim.graphs.size() + sim.executables.size());
    if (w == "pinned") return (long long)sim.pinned.size();
    if (w == "events") return (long long)sim.events.size();
    for (auto &d : sim.devices) {
        if (w == "streams") sum += (long long)d->streams.size();
        else if (w == "blocks") sum += (long long)d->live.size();
        else if (w == "pending") {
            sum += (long long)d->legacy.queue.size();
            for (Stream *s : d->streams) sum += (long long)s->queue.size();
            for (Stream *s : d->destroyed) sum += (long long)s->queue.size();
        } else return -1;
    }
    return sum;
}
