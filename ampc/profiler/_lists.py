"""What a profile has recorded: events in their nesting, sums by name, and the table that prints them."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple


class Record(NamedTuple):
    """One thing that ran, as it was recorded."""

    name: str
    start: int  # nanoseconds since 1970
    end: int
    kind: str  # 'cpu_op' or 'user_annotation'
    thread: int
    shapes: Tuple[Any, ...] = ()
    stack: Tuple[str, ...] = ()
    bytes: int = 0
    flops: int = 0


class Interval(NamedTuple):
    """Begin and end in microseconds, from the beginning of the recording."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """The difference."""
        return self.end - self.start


def format_time(time_us: float) -> str:
    """'1.500ms'"""
    for size, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def format_bytes(n: float) -> str:
    """'1.50 KB'"""
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n} B"


class FunctionEvent:
    """One operator or range that ran. Times are in microseconds; ``cpu_children`` ran inside."""

    count, is_async, device_time, device_time_total, self_device_time_total = 1, False, 0.0, 0.0, 0.0

    def __init__(self, number: int, record: Record, begin: int) -> None:
        self.name = self.key = "ProfilerStep*" if record.name.startswith("ProfilerStep#") else record.name
        self.id, self.thread, self.kind = number, record.thread, record.kind
        self.time_range = Interval((record.start - begin) / 1e3, (record.end - begin) / 1e3)
        self.input_shapes, self.stack, self.flops = list(record.shapes), list(record.stack), record.flops
        self.self_cpu_memory_usage = record.bytes
        self.cpu_children: List[FunctionEvent] = []
        self.cpu_parent: Optional[FunctionEvent] = None

    @property
    def cpu_time_total(self) -> float:
        """What it took."""
        return self.time_range.elapsed_us()

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """What it took without its children."""
        return max(self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children), 0.0)

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes of results, with those of its children."""
        return self.self_cpu_memory_usage + sum(c.cpu_memory_usage for c in self.cpu_children)

    def __repr__(self) -> str:
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={format_time(self.cpu_time)} start_us={self.time_range.start:.3f} "
                f"end_us={self.time_range.end:.3f} cpu_children={[c.id for c in self.cpu_children]} input_shapes={self.input_shapes} "
                f"cpu_memory_usage={self.cpu_memory_usage}>")


class Average:
    """Events of one name, or of one name and shapes, added up. Times are in microseconds."""

    is_async, device_time_total, self_device_time_total = False, 0.0, 0.0

    def __init__(self, key: str, shapes: Any = "") -> None:
        self.key, self.input_shapes, self.count = key, shapes, 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.flops = 0
        self.stack: List[str] = []

    @property
    def cpu_time(self) -> float:
        """One event's mean."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """0.0: a GPU's own times are not recorded."""
        return 0.0

    def add(self, event: Any) -> Average:
        """One more event, or another Average; itself."""
        for name in ("count", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "flops"):
            setattr(self, name, getattr(self, name) + getattr(event, name))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={format_time(self.self_cpu_time_total)} cpu_time={format_time(self.cpu_time)} "
                f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>")


_COLUMNS = (("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"), ("CPU Mem", "Self CPU Mem"), ("# of Calls",),
            ("Input Shapes",), ("Total FLOPs",))


class EventList(List[Any]):
    """Events, or sums of them. It prints as a table."""

    def __init__(self, events: Iterable[Any] = (), profile_memory: bool = False, with_flops: bool = False) -> None:
        super().__init__(events)
        self._memory, self._flops = profile_memory, with_flops

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all, nothing counted twice."""
        return sum(e.self_cpu_time_total for e in self)

    def total_average(self) -> Average:
        """All as one, which is named Total."""
        total = Average("Total", [])
        for e in self:
            total.add(e)
        return total

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """Sums of the events of one name, and of one list of shapes or the innermost ``group_by_stack_n`` lines of the stack where asked."""
        sums: Dict[Tuple[str, ...], Average] = {}
        for e in self:
            key = (e.name, str(e.input_shapes) if group_by_input_shapes else "", *e.stack[:group_by_stack_n])
            if key not in sums:
                sums[key] = Average(e.name, e.input_shapes if group_by_input_shapes else "")
                sums[key].stack = e.stack[:group_by_stack_n]
            sums[key].add(e)
        return EventList(sums.values(), self._memory, self._flops)

    def supported_export_stacks_metrics(self) -> List[str]:
        """What ``export_stacks`` can write."""
        return ["self_cpu_time_total"]

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes each event's stack with its time in microseconds, a line each, as flame graphs are drawn from. ValueError for another metric."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"export_stacks: `metric` is one of {self.supported_export_stacks_metrics()}, got {metric!r}")
        with open(path, "w", encoding="utf-8") as f:
            for e in self:
                if e.stack and int(getattr(e, metric)) > 0:
                    f.write(";".join(line.replace(" ", "_").replace(";", "_") for line in reversed(e.stack)) + f" {int(getattr(e, metric))}\n")

    def table(self, sort_by: Optional[str] = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: Optional[str] = None, top_level_events_only: bool = False, **more: Any) -> str:
        """The events as text, the largest ``sort_by`` first where that is given, at most ``row_limit`` of them (-1: all). AttributeError for a
        word that events have not."""
        events: Sequence[Any] = [e for e in self if not top_level_events_only or getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            word = sort_by.replace("cuda", "device")
            events = sorted(events, key=lambda e: getattr(e, word), reverse=True)
        shapes = any(e.input_shapes for e in events)
        show = (True, self._memory, True, shapes, self._flops)
        rows = [["Name", *(name for group, shown in zip(_COLUMNS, show) if shown for name in group)]]
        total = self.self_cpu_time_total
        for e in events[:row_limit if row_limit >= 0 else None]:
            cells = self._cells(e, total, max_shapes_column_width)
            rows.append([_cut(e.key, max_name_column_width), *(cell for group, shown in zip(cells, show) if shown for cell in group)])
        return _text(rows, header) + f"Self CPU time total: {format_time(total)}\n"

    @staticmethod
    def _cells(e: Any, total: float, width: int) -> Tuple[Tuple[str, ...], ...]:
        def share(part: float) -> str:
            return f"{100 * part / total:.2f}%" if total else "NaN"

        own, total_time = e.self_cpu_time_total, e.cpu_time_total
        times = (share(own), format_time(own), share(total_time), format_time(total_time), format_time(e.cpu_time))
        memory = (format_bytes(e.cpu_memory_usage), format_bytes(e.self_cpu_memory_usage))
        return times, memory, (str(e.count),), (_cut(str(e.input_shapes), width),), (str(e.flops) if e.flops else "--",)

    def __str__(self) -> str:
        return self.table()


def _cut(text: str, width: int) -> str:
    return text if width < 4 or len(text) <= width else text[:width - 3] + "..."


def _text(rows: List[List[str]], header: Optional[str]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths)) for row in rows]
    rule = "  ".join("-" * w for w in widths)
    return "\n".join([*([header] if header else []), rule, lines[0], rule, *lines[1:], rule]) + "\n"


def nested(records: Sequence[Record], begin: int) -> List[FunctionEvent]:
    """The records as events in the order of their beginnings, each with its parent: the innermost of its thread that it lies in."""
    events: List[FunctionEvent] = []
    open_: Dict[int, List[FunctionEvent]] = {}
    for record in sorted(records, key=lambda r: (r.start, -r.end)):
        event = FunctionEvent(len(events), record, begin)
        around = open_.setdefault(record.thread, [])
        while around and around[-1].time_range.end < event.time_range.end:
            around.pop()
        if around:
            event.cpu_parent = around[-1]
            around[-1].cpu_children.append(event)
        around.append(event)
        events.append(event)
    return events
