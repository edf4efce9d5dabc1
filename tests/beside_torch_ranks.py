"""What test_distributed_beside_torch.py runs in two processes, once with ampc and once with torch on gloo: ``python beside_torch_ranks.py LIBRARY
RANK FOLDER``. Each program gives what JSON has, or the kind of its error; each rank writes them to a file."""

import importlib
import json
import sys
from datetime import timedelta
from pathlib import Path

PROGRAMS = []


def program(f):
    PROGRAMS.append(f)
    return f


@program
def expanded(T, dist, rank):
    x, y = T.ones(1) * (rank + 1), T.arange(3.0) * rank
    dist.all_reduce(x.expand(3))
    dist.broadcast(y.expand(2, 3), 1)
    return x.tolist(), y.tolist()


@program
def strided(T, dist, rank):
    x = T.arange(6.0).reshape(2, 3)
    dist.all_reduce(x.t())  # of x[:, ::2] gloo reduces the elements that lie in its memory's first places
    return x.tolist()


@program
def coalesced(T, dist, rank):
    xs = [T.ones(2) * (rank + 1), T.arange(6.0).reshape(2, 3).t()]
    gave = dist.all_reduce_coalesced(xs)
    later = dist.all_reduce_coalesced(xs, async_op=True).wait()
    outs = [[T.zeros(2), T.zeros(3)] for _ in range(2)]
    dist.all_gather_coalesced(outs, [T.ones(2) * rank, T.arange(3.0) + rank])
    return gave, [x.tolist() for x in later], [[t.tolist() for t in each] for each in outs]


@program
def coalesced_of_two_dtypes(T, dist, rank):
    return dist.all_reduce_coalesced([T.ones(2), T.ones(2).double()])


@program
def uneven_reduce_scatter(T, dist, rank):
    out = T.zeros(1 + 2 * rank)
    dist.reduce_scatter(out, [T.ones(1), T.arange(3.0) * (rank + 1)])
    return out.tolist()


@program
def uneven_reduce_scatter_tensor(T, dist, rank):
    return dist.reduce_scatter_tensor(T.zeros(1 + rank), T.arange(3.0))


@program
def uneven_all_gather(T, dist, rank):
    return dist.all_gather([T.zeros(1), T.zeros(2)], T.ones(1 + rank))


@program
def newer_names(T, dist, rank):
    whole, part = T.zeros(4), T.zeros(2)
    dist.all_gather_single(whole, T.arange(2.0) + rank)
    dist.reduce_scatter_single(part, whole)
    return whole.tolist(), part.tolist()


@program
def objects(T, dist, rank):
    found = ["a", {"b": [1]}, None] if rank == 0 else [None] * 3
    gave = dist.send_object_list(found, dst=1) if rank == 0 else dist.recv_object_list(found, src=0)
    return found, gave


@program
def objects_to_itself(T, dist, rank):
    return dist.send_object_list([1], dst=rank)


@program
def subgroups(T, dist, rank):
    mine, made = dist.new_subgroups(1)
    other, more = dist.new_subgroups_by_enumeration([[1]])
    return (dist.get_process_group_ranks(mine), [dist.get_rank(g) for g in made], other is None, [dist.get_rank(g) for g in more],
            dist.get_pg_count())


@program
def subgroups_of_three(T, dist, rank):
    return dist.new_subgroups(3)


@program
def subgroups_of_none(T, dist, rank):
    return dist.new_subgroups(0)


@program
def subgroups_without_gpus(T, dist, rank):
    return dist.new_subgroups()


@program
def a_rank_in_two_subgroups(T, dist, rank):
    return dist.new_subgroups_by_enumeration([[1, 0], [0]])


@program
def no_subgroups(T, dist, rank):
    return dist.new_subgroups_by_enumeration(None)


@program
def other_shapes_of_as_many_elements(T, dist, rank):
    x = T.arange(6.0) if rank == 0 else T.zeros(2, 3)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    return x.flatten().tolist()


@program
def backends(T, dist, rank):
    return [dist.Backend("GLOO"), dist.Backend.NCCL, str(dist.get_debug_level()), dist.Backend.backend_list, dist.Backend("Own")]


@program
def a_backend_of_an_int(T, dist, rank):
    return dist.Backend(3)


def main(library, rank, folder):
    T, dist = importlib.import_module(library), importlib.import_module(f"{library}.distributed")
    method = {"backend": "gloo", "init_method": f"file://{folder}/meeting", "rank": rank, "world_size": 2} if library == "torch" else {}
    dist.init_process_group(**method, timeout=timedelta(seconds=20))
    found = {}
    for f in PROGRAMS:
        try:
            found[f.__name__] = f(T, dist, rank)
        except Exception as error:
            found[f.__name__] = "ValueError" if isinstance(error, ValueError) else "RuntimeError" if isinstance(error, RuntimeError) else repr(error)
        dist.barrier()
    (Path(folder) / f"{library}{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    library, rank, folder = sys.argv[1:]
    if library == "ampc":
        from ampc._process.launcher import rank as rank_of

        rank = rank_of()
    main(library, int(rank), folder)
