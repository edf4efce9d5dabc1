/* A stand-in for libnccl between processes of one host, each with a simulated GPU of its own. Values go through a file
 * of shared memory, in which each rank has a row of channels, one to every rank; an operation is what it sends and
 * receives there, and what it then combines, in the order of ranks. It is work of a stream, which is done when a
 * process waits for it, or when another process does. It refuses what the real library refuses, and what tests tell it
 * to (ampc_simulate_nccl); that ranks make different calls, for which the real one hangs, is a fault here. */
#include "sim.h"

#include "base/half.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum Result {
    SUCCESS,
    CUDA_ERROR,
    SYSTEM_ERROR,
    INTERNAL_ERROR,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE_ERROR,
    IN_PROGRESS
};
enum Type { I8, U8, I32, U32, I64, U64, F16, F32, F64, BF16, N_TYPES };
enum Op { SUM, PROD, MAX, MIN, AVG, N_OPS };
enum Kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
enum { MOST_RANKS = 8, ROOM = 64 << 10, ID_BYTES = 128 };
const size_t item_bytes[N_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

/* -- what processes share ---------------------------------------------------------------------------- */

struct Header { /* before the values of every operation */
    int kind, type, op, root;
    uint64_t count;
};
struct Channel { /* from one rank to another: a ring of bytes */
    std::atomic<uint64_t> written, taken;
    char bytes[ROOM];
};
struct Shared {
    std::atomic<int> came[MOST_RANKS], device[MOST_RANKS]; /* device + 1 */
    std::atomic<int> wanted[MOST_RANKS];                   /* somebody waits for this rank */
    std::atomic<int> maps;
    Channel channels[MOST_RANKS][MOST_RANKS];
};

struct Comm {
    Shared *shared = nullptr;
    std::string file;
    int rank = 0, size = 0, device = 0;
    void *context = nullptr;
    bool blocking = true, announced = false;
    std::atomic<bool> aborted{false}, hangs{false};
    std::atomic<int> failed{SUCCESS}, progress{0}; /* how often it still says that it is in progress */
    std::atomic<int> open{0};                      /* operations that are not done */
    std::mutex lock;
    std::vector<void *> streams; /* with work that others may wait for */
    std::thread helper;
    std::atomic<bool> ends{false};
};

/* -- an operation -------------------------------------------------------------------------------------- */

struct Transfer { /* header and values to or from a rank */
    int peer;
    char *at;
    size_t bytes, done = 0;
};
struct Part {
    Header header;
    const char *from;
    char *to;
    std::vector<Transfer> sends, receives;
    std::vector<std::vector<char>> rooms; /* headers and values that come, by receive */
};
struct Operation {
    std::shared_ptr<Comm> comm;
    std::vector<Part> parts;
    std::vector<std::vector<char>> out; /* headers and values that go */
    bool begun = false;
    std::string wrong;
};

size_t put(Channel &c, const char *from, size_t bytes) {
    uint64_t written = c.written.load(), room = ROOM - (written - c.taken.load());
    size_t n = bytes < room ? bytes : (size_t)room;
    for (size_t i = 0; i < n; i++) c.bytes[(written + i) % ROOM] = from[i];
    c.written.store(written + n);
    return n;
}
size_t take(Channel &c, char *to, size_t bytes) {
    uint64_t taken = c.taken.load(), there = c.written.load() - taken;
    size_t n = bytes < there ? bytes : (size_t)there;
    for (size_t i = 0; i < n; i++) to[i] = c.bytes[(taken + i) % ROOM];
    c.taken.store(taken + n);
    return n;
}

double read(const char *p, int type, uint64_t i) {
    switch (type) {
    case F16: return ac_f16_to_f32(((const uint16_t *)p)[i]);
    case BF16: return ac_bf16_to_f32(((const uint16_t *)p)[i]);
    case F32: return ((const float *)p)[i];
    default: return ((const double *)p)[i];
    }
}
void write(char *p, int type, uint64_t i, double x) {
    switch (type) {
    case F16: ((uint16_t *)p)[i] = ac_f32_to_f16((float)x); break;
    case BF16: ((uint16_t *)p)[i] = ac_f32_to_bf16((float)x); break;
    case F32: ((float *)p)[i] = (float)x; break;
    default: ((double *)p)[i] = x;
    }
}
int64_t read_int(const char *p, int type, uint64_t i) {
    switch (type) {
    case I8: return ((const int8_t *)p)[i];
    case U8: return ((const uint8_t *)p)[i];
    case I32: return ((const int32_t *)p)[i];
    case U32: return ((const uint32_t *)p)[i];
    default: return ((const int64_t *)p)[i];
    }
}
void write_int(char *p, int type, uint64_t i, int64_t x) { memcpy(p + i * item_bytes[type], &x, item_bytes[type]); }

template <class T> T joined(int op, T a, T b) {
    if (op == SUM || op == AVG) return (T)(a + b);
    if (op == PROD) return (T)(a * b);
    if (a != a || b != b) return a != a ? a : b; /* nan */
    return op == MAX ? (a < b ? b : a) : (b < a ? b : a);
}
/* Of float32 and less in float32, in the order of ranks; a mean is of values that are divided first. */
void combine(char *to, const std::vector<const char *> &from, int type, int op, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if (type >= F16) {
            double scale = op == AVG ? 1.0 / (double)from.size() : 1, x = read(from[0], type, i) * scale;
            for (size_t r = 1; r < from.size(); r++) {
                double y = read(from[r], type, i) * scale;
                x = type == F64 ? joined(op, x, y) : (double)joined(op, (float)x, (float)y);
            }
            write(to, type, i, x);
        } else {
            int64_t x = read_int(from[0], type, i);
            for (size_t r = 1; r < from.size(); r++)
                x = (int64_t)(op == MAX || op == MIN ? (uint64_t)joined(op, x, read_int(from[r], type, i))
                                                     : joined(op, (uint64_t)x, (uint64_t)read_int(from[r], type, i)));
            write_int(to, type, i, x);
        }
    }
}

/* The values that a part sends to a rank, and how many bytes come from it; headers travel to and from everybody. */
bool is_message(const Part &p) { return p.header.kind == SEND || p.header.kind == RECV; }
void plan(Operation &o, Part &p) {
    const Header &h = p.header;
    int me = o.comm->rank, n = o.comm->size;
    size_t bytes = h.count * item_bytes[h.type];
    for (int peer = 0; peer < n; peer++) {
        bool to_root = h.kind == REDUCE && peer == h.root, from_root = h.kind == BROADCAST && me == h.root;
        bool all = h.kind == ALL_REDUCE || h.kind == ALL_GATHER || h.kind == REDUCE_SCATTER;
        bool message = is_message(p);
        bool sends = message ? h.kind == SEND && peer == h.root : true;
        bool takes = message ? h.kind == RECV && peer == h.root : true;
        size_t out = all || to_root || from_root || (message && sends) ? bytes : 0;
        bool comes = all || (h.kind == REDUCE && me == h.root) || (h.kind == BROADCAST && peer == h.root);
        size_t in = comes || (message && takes) ? bytes : 0;
        if (sends) {
            const char *from = p.from + (h.kind == REDUCE_SCATTER ? (size_t)peer * bytes : 0);
            Header said = h;
            if (message) said.kind = SEND, said.root = 0;
            std::vector<char> room((const char *)&said, (const char *)(&said + 1));
            if (out) room.insert(room.end(), from, from + out);
            o.out.push_back(std::move(room));
            p.sends.push_back({peer, o.out.back().data(), o.out.back().size()});
        }
        if (takes) {
            p.rooms.emplace_back(sizeof(Header) + in);
            p.receives.push_back({peer, p.rooms.back().data(), p.rooms.back().size()});
        }
    }
}

std::string called(const Header &h) {
    static const char *const names[] = {"an all-reduce",    "a reduce",  "a broadcast", "an all-gather",
                                        "a reduce-scatter", "a message", "a message"};
    char text[120];
    snprintf(text, sizeof text, "%s of %llu elements of type %d, op %d, root %d", names[h.kind],
             (unsigned long long)h.count, h.type, h.op, h.root);
    return text;
}

/* What came is of the same call. */
void compare(Operation &o, const Part &p, const Transfer &t) {
    Header want = p.header, got;
    if (is_message(p)) want.kind = SEND, want.root = 0;
    memcpy(&got, t.at, sizeof got);
    if (memcmp(&got, &want, sizeof got) != 0 && o.wrong.empty())
        o.wrong = "NCCL: rank " + std::to_string(t.peer) + " calls " + called(got) + ", rank " +
                  std::to_string(o.comm->rank) + " " + called(want);
}

/* Moves what can be moved now, on each channel in the order of the calls: whether anything was, and whether all is. */
bool move(Operation &o, bool *all) {
    Comm &c = *o.comm;
    bool moved = false, sending[MOST_RANKS] = {}, taking[MOST_RANKS] = {};
    *all = true;
    for (Part &p : o.parts) {
        for (Transfer &t : p.sends) {
            size_t n = sending[t.peer] ? 0 : put(c.shared->channels[c.rank][t.peer], t.at + t.done, t.bytes - t.done);
            t.done += n, moved = moved || n;
            if (t.done < t.bytes) *all = false, sending[t.peer] = true, c.shared->wanted[t.peer] = 1;
        }
        for (Transfer &t : p.receives) {
            size_t n = taking[t.peer] ? 0 : take(c.shared->channels[t.peer][c.rank], t.at + t.done, t.bytes - t.done);
            t.done += n, moved = moved || n;
            if (n && t.done >= sizeof(Header)) compare(o, p, t);
            if (t.done < t.bytes) *all = false, taking[t.peer] = true, c.shared->wanted[t.peer] = 1;
        }
    }
    return moved;
}

void finish(Operation &o, Part &p) {
    const Header &h = p.header;
    size_t bytes = h.count * item_bytes[h.type];
    std::vector<const char *> values;
    for (auto &room : p.rooms) values.push_back(room.data() + sizeof(Header));
    if (h.kind == ALL_GATHER)
        for (size_t r = 0; r < values.size(); r++) memcpy(p.to + r * bytes, values[r], bytes);
    else if (h.kind == BROADCAST) memmove(p.to, values[(size_t)h.root], bytes);
    else if (h.kind == RECV) memcpy(p.to, values[0], bytes);
    else if (h.kind != SEND && (h.kind != REDUCE || h.root == o.comm->rank))
        combine(p.to, values, h.type, h.op, h.count);
}

const char *run(void *context) {
    Operation &o = **(std::shared_ptr<Operation> *)context;
    Comm &c = *o.comm;
    if (c.aborted) return nullptr; /* its kernels end */
    if (c.hangs) return sim_waits();
    if (!o.begun)
        for (Part &p : o.parts) plan(o, p);
    o.begun = true;
    bool all = false;
    while (!all && move(o, &all) && o.wrong.empty()) {
    }
    if (!o.wrong.empty()) return o.wrong.c_str();
    if (!all) return sim_waits();
    for (Part &p : o.parts) finish(o, p);
    c.open--;
    return nullptr;
}

/* -- groups and calls ------------------------------------------------------------------------------------ */

struct Group {
    int depth = 0;
    std::shared_ptr<Comm> comm;
    void *stream = nullptr;
    std::vector<Part> parts;
};
thread_local Group group;
std::string last_error;

std::atomic<int> fail_at{0}, fail_with{0}, hang_at{0}, breaks_at{0};
std::atomic<long> calls{0};

int wrong(int code, const std::string &why) { return last_error = why, code; }

int queue(std::shared_ptr<Comm> c, void *stream, std::vector<Part> parts) {
    auto o = std::make_shared<Operation>();
    o->comm = c, o->parts = std::move(parts);
    for (Part &p : o->parts) {
        size_t bytes = p.header.count * item_bytes[p.header.type], n = (size_t)c->size;
        size_t in = p.header.kind == REDUCE_SCATTER ? bytes * n : bytes,
               out = p.header.kind == ALL_GATHER ? bytes * n : bytes;
        bool reads = p.header.kind != RECV && (p.header.kind != BROADCAST || c->rank == p.header.root);
        bool writes = p.header.kind != SEND && (p.header.kind != REDUCE || c->rank == p.header.root);
        if ((reads && in && sim_owner((uint64_t)p.from, in) != c->device) ||
            (writes && out && sim_owner((uint64_t)p.to, out) != c->device))
            return wrong(INVALID_ARGUMENT, "a buffer is not in the GPU's memory");
    }
    if (hang_at && --hang_at == 0) c->hangs = true;
    if (breaks_at && --breaks_at == 0) c->failed = REMOTE_ERROR, c->hangs = true;
    auto *kept = new std::shared_ptr<Operation>(o);
    c->open++;
    if (sim_enqueue(stream, run, [](void *at) { delete (std::shared_ptr<Operation> *)at; }, kept))
        return wrong(CUDA_ERROR, "the stream cannot be used");
    std::lock_guard<std::mutex> lock(c->lock);
    bool known = false;
    for (void *s : c->streams) known = known || s == stream;
    if (!known) c->streams.push_back(stream);
    c->progress = c->blocking ? 0 : 2;
    return c->blocking ? SUCCESS : IN_PROGRESS;
}

typedef std::shared_ptr<Comm> *Handle; /* what a program holds */

int call(Handle h, int kind, const void *from, void *to, size_t count, int type, int op, int root, void *stream) {
    if (!h || !*h) return wrong(INVALID_ARGUMENT, "no communicator");
    Comm &c = **h;
    calls++;
    if (fail_at && --fail_at == 0) return wrong(fail_with, "a failure that was asked for");
    if (c.failed || c.aborted) return wrong(INVALID_USAGE, "the communicator has failed");
    if (c.progress || !c.announced) return wrong(INVALID_USAGE, "the call before is in progress");
    if (type < 0 || type >= N_TYPES || op < 0 || op >= N_OPS || root < 0 || root >= c.size)
        return wrong(INVALID_ARGUMENT, "type, operation or rank");
    if (sim_device() != c.device) return wrong(INVALID_USAGE, "another GPU's context is current");
    Part p = {{kind, type, op, root, count}, (const char *)from, (char *)to, {}, {}, {}};
    if (!group.depth) return queue(*h, stream, {p});
    if (group.comm && (group.comm != *h || group.stream != stream))
        return wrong(INVALID_USAGE, "a group of several communicators is not simulated");
    group.comm = *h, group.stream = stream;
    group.parts.push_back(p);
    return SUCCESS;
}

} // namespace

extern "C" int cuCtxGetCurrent(void **);
extern "C" int cuCtxSetCurrent(void *);

/* Does this process' part of what other processes wait for. It looks more seldom the longer nobody does: a process may
 * have many communicators that rest. */
static void help(Comm *c) {
    const long shortest = 200, longest = 6400;
    long pause = shortest;
    cuCtxSetCurrent(c->context);
    while (!c->ends) {
        pause = pause < longest ? 2 * pause : longest;
        if (c->shared->wanted[c->rank].exchange(0)) {
            pause = shortest;
            std::vector<void *> streams;
            {
                std::lock_guard<std::mutex> lock(c->lock);
                streams = c->streams;
            }
            for (void *s : streams) sim_advance(s);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(pause));
    }
}

/* -- what tests ask ----------------------------------------------------------------------------------- */

/* The n-th call from now fails with a code; the n-th operation never ends; it is lost, which only the question tells.
 */
API void ampc_simulate_nccl(int at, int with, int hangs, int breaks) {
    fail_at = at, fail_with = with, hang_at = hangs, breaks_at = breaks;
}
API long ampc_simulated_nccl_calls(void) { return calls; }

/* -- start and end ------------------------------------------------------------------------------------ */

struct UniqueId {
    char name[ID_BYTES];
};
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

API int ncclGetVersion(int *version) { return *version = 22703, SUCCESS; }
API const char *ncclGetErrorString(int code) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "operation in progress"};
    return code >= 0 && code <= IN_PROGRESS ? texts[code] : "unknown result code";
}
API const char *ncclGetLastError(void *) { return last_error.c_str(); }

API int ncclGetUniqueId(UniqueId *id) {
    static std::atomic<int> number{0};
    snprintf(id->name, sizeof id->name, "/dev/shm/ampc_nccl_%d_%d_%llx", (int)getpid(), number++,
             (unsigned long long)std::chrono::steady_clock::now().time_since_epoch().count());
    return SUCCESS;
}

API int ncclCommGetAsyncError(Handle h, int *state);
API int ncclCommInitRankConfig(Handle *out, int size, UniqueId id, int rank, Config *config) {
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size || strncmp(id.name, "/dev/shm/ampc_nccl_", 19) != 0)
        return wrong(INVALID_ARGUMENT, "size, rank or id");
    if (config->magic != 0xcafebeef || config->size < 20 || config->version < 21400)
        return wrong(INVALID_ARGUMENT, "the configuration is not initialised");
    if (sim_device() < 0) return wrong(CUDA_ERROR, "no context is current");
    int file = open(id.name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Shared)) < 0) return wrong(SYSTEM_ERROR, "no shared memory");
    void *at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return wrong(SYSTEM_ERROR, "no shared memory");
    auto c = std::make_shared<Comm>();
    c->shared = (Shared *)at, c->file = id.name, c->rank = rank, c->size = size, c->device = sim_device();
    c->blocking = config->blocking != 0;
    cuCtxGetCurrent(&c->context);
    c->shared->device[rank] = c->device + 1;
    c->shared->came[rank] = 1;
    if (++c->shared->maps == size) unlink(id.name);
    c->helper = std::thread(help, c.get());
    *out = new std::shared_ptr<Comm>(c);
    if (!c->blocking) return IN_PROGRESS;
    int state;
    while (ncclCommGetAsyncError(*out, &state), state == IN_PROGRESS) usleep(100);
    return state;
}

API int ncclCommGetAsyncError(Handle h, int *state) {
    if (!h || !*h) return INVALID_ARGUMENT;
    Comm &c = **h;
    *state = c.failed;
    if (c.failed || c.aborted) return SUCCESS;
    for (int r = 0; r < c.size; r++)
        if (!c.shared->came[r]) return *state = IN_PROGRESS, SUCCESS;
    for (int r = 0; r < c.size; r++)
        for (int other = 0; other < r; other++)
            if (c.shared->device[r] == c.shared->device[other]) {
                c.failed = *state = wrong(INVALID_USAGE, "two ranks have the same GPU");
                return SUCCESS;
            }
    c.announced = true;
    if (c.progress && --c.progress) *state = IN_PROGRESS;
    return SUCCESS;
}

static int end(Handle h, bool aborts) {
    if (!h || !*h) return wrong(INVALID_ARGUMENT, "no communicator");
    std::shared_ptr<Comm> c = *h;
    if (group.depth) return wrong(INVALID_USAGE, "a group is open");
    if (aborts) c->aborted = true;
    else { /* what was queued is done first */
        for (; c->open && !c->aborted; usleep(100))
            for (void *s : c->streams) sim_advance(s);
    }
    c->ends = true;
    c->helper.join();
    unlink(c->file.c_str());
    *h = nullptr; /* the handle stays, so that a second end is noticed */
    return SUCCESS;
}
API int ncclCommDestroy(Handle h) { return end(h, false); }
API int ncclCommAbort(Handle h) { return end(h, true); }

/* -- calls -------------------------------------------------------------------------------------------- */

API int ncclGroupStart(void) { return group.depth++, SUCCESS; }
API int ncclGroupEnd(void) {
    if (group.depth < 1) return wrong(INVALID_USAGE, "no group is open");
    if (--group.depth || group.parts.empty()) return SUCCESS;
    Group all = std::move(group);
    group = Group();
    return queue(all.comm, all.stream, std::move(all.parts));
}
API int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, Handle h, void *stream) {
    return call(h, ALL_REDUCE, from, to, count, type, op, 0, stream);
}
API int ncclReduce(const void *from, void *to, size_t count, int type, int op, int root, Handle h, void *stream) {
    return call(h, REDUCE, from, to, count, type, op, root, stream);
}
API int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Handle h, void *stream) {
    return call(h, BROADCAST, from, to, count, type, SUM, root, stream);
}
API int ncclAllGather(const void *from, void *to, size_t count, int type, Handle h, void *stream) {
    return call(h, ALL_GATHER, from, to, count, type, SUM, 0, stream);
}
API int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, Handle h, void *stream) {
    return call(h, REDUCE_SCATTER, from, to, count, type, op, 0, stream);
}
API int ncclSend(const void *from, size_t count, int type, int peer, Handle h, void *stream) {
    return call(h, SEND, from, nullptr, count, type, SUM, peer, stream);
}
API int ncclRecv(void *to, size_t count, int type, int peer, Handle h, void *stream) {
    return call(h, RECV, nullptr, to, count, type, SUM, peer, stream);
}
