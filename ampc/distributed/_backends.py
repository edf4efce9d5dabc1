"""Which backend a group takes for tensors of which device, as ``init_process_group(backend=...)`` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from .._messages.callers import warn
from .._process import launcher as _launcher
from .._tensor import creation as make
from . import _mpi
from ._agreement import agree
from ._gpus import number_of_gpu, why_no_nccl
from ._over_mpi import OverMPI

if TYPE_CHECKING:
    from .groups import ProcessGroup
    from .work import Message, Work

_told: List[str] = []


class Backends:
    """The backend for tensors of the CPU, and for those of a GPU: 'mpi', 'nccl', '' for none, and for a GPU None: NCCL where it can be. ``mpi`` is
    what the script calls MPI, which may be 'gloo'."""

    def __init__(self, cpu: str, gpu: Optional[str], mpi: str = "mpi") -> None:
        self.cpu, self.gpu, self.mpi = cpu, gpu, mpi

    @classmethod
    def of(cls, backend: Any, rank: int = -1) -> Backends:
        """What is asked for. TypeError and ValueError for what is none; 'gloo' is said once, by rank 0, to mean MPI."""
        if backend is None:
            return cls("mpi", None)
        if not isinstance(backend, str):
            raise TypeError(f"init_process_group: `backend` must be None, 'mpi' or 'nccl', got {type(backend).__name__}")
        found: Dict[str, str] = {}
        for part in backend.lower().split(","):
            device, _, name = part.strip().rpartition(":")
            if name not in ("mpi", "gloo", "nccl") or device not in ("", "cpu", "cuda") or (device, name) == ("cpu", "nccl"):
                raise ValueError(f"init_process_group: unknown backend {backend!r}; 'mpi', 'nccl' and 'cpu:mpi,cuda:nccl' are those that are here, "
                                 "and 'gloo' means 'mpi'")
            if name == "gloo" and not _told:
                _told.append(backend)
                if (rank if rank >= 0 else _launcher.rank()) in (None, 0):
                    warn("init_process_group: the backend 'gloo' means MPI here")
            name = "nccl" if name == "nccl" else "mpi"
            found.update(dict.fromkeys([device] if device else ["cuda"] if name == "nccl" else ["cpu", "cuda"], name))
        return cls(found.get("cpu", ""), found.get("cuda", ""), "gloo" if "gloo" in backend.lower() else "mpi")

    def asked(self) -> str:
        """What is asked for. It does not look for NCCL, which would start CUDA."""
        return self.name() if self.gpu is not None else self.cpu

    def name(self) -> str:
        """As ``get_backend`` says it."""
        gpu = ("" if why_no_nccl() else "nccl") or "mpi" if self.gpu is None else self.gpu
        text = gpu if not self.cpu else self.cpu if gpu in ("", self.cpu) else f"cpu:{self.cpu},cuda:{gpu}"
        return text.replace("mpi", self.mpi)

    def is_nccl_alone(self) -> bool:
        """Whether tensors of GPUs alone are taken, by NCCL."""
        return not self.cpu

    def can_be_nccl_alone(self) -> bool:
        """Whether it may be so where MPI is missing."""
        return self.gpu is None or self.is_nccl_alone()

    @staticmethod
    def nccl_alone() -> Backends:
        """NCCL for GPUs, and nothing for the CPU."""
        return Backends("", "nccl")

    @staticmethod
    def need_nccl() -> None:
        """RuntimeError where NCCL is not found."""
        why = why_no_nccl()
        if why:
            raise RuntimeError(f"init_process_group: backend='nccl': {why}; backend='mpi' also takes tensors of a GPU, which travel through the "
                               "host's memory")


class Ways:
    """What moves a group's tensors."""

    def __init__(self, group: ProcessGroup, backends: Backends) -> None:
        self._group, self._backends = group, backends
        self._host = OverMPI(group) if "mpi" in (backends.cpu, backends.gpu) else None
        self._pairs: Dict[int, ProcessGroup] = {}  # by the partner's rank, for messages
        self._gpu: Any = None  # OverNCCL, once a tensor of a GPU has come

    def of(self, what: str, tensors: Any) -> Any:
        """For these tensors. RuntimeError where the group takes none of their device."""
        on_gpu = all(t.device.type == "cuda" for t in tensors)
        if on_gpu and self._backends.gpu != "mpi":
            found = self._by_nccl(what, tensors)
            if found is not None:
                return found
        if not (self._backends.cpu or (on_gpu and self._backends.gpu == "mpi")):
            there = next(t for t in tensors if t.device.type != "cuda").device
            raise RuntimeError(f"{what}: this group takes tensors of GPUs alone (backend {self._backends.name()!r}), and this one is on "
                               f"{str(there)!r}; move it to a GPU, or give init_process_group no backend, which takes both")
        return self._host

    def _by_nccl(self, what: str, tensors: Any) -> Any:
        """``OverNCCL``; None where it cannot be and MPI can. RuntimeError where it must be."""
        indices = {t.device.index or 0 for t in tensors}
        if len(indices) > 1:
            raise RuntimeError(f"{what}: the tensors must be on one GPU, got {sorted(indices)}")
        if self._gpu is None:
            from ._over_nccl import OverNCCL

            self._gpu = OverNCCL(self._group)
        refused = self._gpu.takes(what, indices.pop())
        if refused and self._backends.gpu == "nccl":
            raise RuntimeError(f"{what}: NCCL cannot connect these processes: {refused}")
        return None if refused else self._gpu

    def begin(self, messages: List[Message]) -> List[Work]:
        """Begins messages. Between two GPUs of a larger group they go by a connection of the two, which no other rank must come to."""
        tensors, partners = [m.t for m in messages], {m.rank for m in messages}
        on_gpu = self._backends.gpu != "mpi" and all(t.device.type == "cuda" for t in tensors)
        if not on_gpu or (self._backends.gpu is None and why_no_nccl()):
            return self.of("messages", tensors).messages(messages) if not on_gpu else self._need_host().messages(messages)
        if None in partners:
            raise ValueError("irecv: between GPUs the sender must be named: give `src`")
        if len(partners) > 1 or self._group.size() == 2:
            return self.of("messages", tensors).messages(messages)
        partner = partners.pop()
        assert partner is not None
        if partner not in self._pairs:
            self._pairs[partner] = self._group.pair(partner)
        pair = self._pairs[partner]
        other = 1 - pair.rank()
        return pair.way("messages", *tensors).messages([m._replace(rank=other) for m in messages])

    def _need_host(self) -> OverMPI:
        assert self._host is not None
        return self._host

    def pairs(self) -> List[ProcessGroup]:
        """Groups that messages have made."""
        return list(self._pairs.values())

    def of_barrier(self, device_ids: Any) -> Any:
        """For a barrier: by the CPU where the group takes its tensors and no GPU is named."""
        if self._host is not None and (self._backends.cpu or self._backends.gpu == "mpi") and not device_ids:
            return self._host
        return self.of("barrier", [make.empty(0, device=f"cuda:{number_of_gpu(device_ids)}")])

    @property
    def device(self) -> str:
        """Where the package's own messages lie."""
        return "cpu" if self._backends.cpu else f"cuda:{number_of_gpu(None)}"

    def objects(self, what: str, f: Callable[[Any], Any]) -> None:
        """Calls ``f`` with what exchanges Python objects: MPI's communicator, or what has its functions for them."""
        if self._group.start is _mpi:
            def g() -> None:
                agree(self._group, what)
                f(self._group.comm)

            self._group.submit(what, g).wait()
        else:
            from ._over_nccl import ObjectsOverNCCL

            f(ObjectsOverNCCL(self._group))

    def stop(self) -> None:
        """Ends what is connected."""
        if self._gpu is not None:
            self._gpu.stop()
