"""Writing for TensorBoard, through the tensorboard library (``pip install tensorboard``), which is asked for when a writer is made."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional, Tuple

__all__ = ["FileWriter", "SummaryWriter"]


def _array(x: Any) -> Any:
    import numpy as np

    if hasattr(x, "detach"):
        t = x.detach().cpu()
        x = (t.float() if t.dtype.is_floating_point else t).numpy()
    return np.asarray(x)


class SummaryWriter:
    """Events in files under ``log_dir`` (runs/<date>_<machine><comment> when None). Source: torch.utils.tensorboard.
    ModuleNotFoundError when tensorboard is not installed."""

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: Optional[int] = None, max_queue: int = 10, flush_secs: int = 120,
                 filename_suffix: str = "") -> None:
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("SummaryWriter: the tensorboard library is not installed; pip install tensorboard") from error
        if log_dir is None:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir = os.fspath(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._make = EventFileWriter
        self._writers: Dict[str, Any] = {}
        self.file_writer = self._writer("")
        if purge_step is not None:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog

            self._add("", Event(file_version="brain.Event:2", step=purge_step), None, None)
            self._add("", Event(session_log=SessionLog(status=SessionLog.START), step=purge_step), None, None)

    def _writer(self, run: str) -> Any:
        if run not in self._writers:
            self._writers[run] = self._make(os.path.join(self.log_dir, run), *self._options)
        return self._writers[run]

    def _add(self, run: str, event: Any, step: Optional[int], walltime: Optional[float]) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self._writer(run).add_event(event)

    def _summary(self, run: str, step: Optional[int], walltime: Optional[float], *values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(run, Event(summary=Summary(value=values)), step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """One number: float32, or with ``new_style`` and ``double_precision`` float64."""
        value = _array(scalar_value)
        if value.size != 1:
            raise ValueError(f"add_scalar: {tag!r} is not one number but {value.shape}")
        if not new_style:
            self._summary("", global_step, walltime, *self._number(tag, value))
            return
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto

        number = float(scalar_value.item() if hasattr(scalar_value, "item") else scalar_value)
        tensor = TensorProto(double_val=[number], dtype="DT_DOUBLE") if double_precision else TensorProto(float_val=[number], dtype="DT_FLOAT")
        plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        self._summary("", global_step, walltime, Summary.Value(tag=tag, tensor=tensor, metadata=plugin))

    def add_scalars(self, main_tag: str, tag_scalar_dict: Dict[str, Any], global_step: Optional[int] = None,
                    walltime: Optional[float] = None) -> None:
        """Several numbers in one chart: each in a run of its own, named ``main_tag``_key."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        for key, value in tag_scalar_dict.items():
            run = main_tag.replace("/", "_") + "_" + key
            self._summary(run, global_step, walltime, Summary.Value(tag=main_tag, simple_value=float(_array(value).reshape(()))))

    def add_histogram(self, tag: str, values: Any, global_step: Optional[int] = None, bins: Any = "auto", walltime: Optional[float] = None,
                      max_bins: Optional[int] = None) -> None:
        """How values are distributed, in NumPy's bins. ValueError for an empty tensor or one with nan or inf."""
        import numpy as np
        from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary

        x = _array(values).astype(np.float64).reshape(-1)
        if not x.size or not np.isfinite(x).all():
            raise ValueError(f"add_histogram: {tag!r} has no values, or some that are not finite")
        if bins in ("auto", "tensorflow", "fd"):
            bins = 64
        counts, edges = np.histogram(x, bins=min(bins, max_bins) if max_bins and isinstance(bins, int) else bins)
        proto = HistogramProto(min=x.min(), max=x.max(), num=x.size, sum=x.sum(), sum_squares=float(x @ x), bucket_limit=edges[1:].tolist(),
                               bucket=counts.tolist())
        self._summary("", global_step, walltime, Summary.Value(tag=tag, histo=proto))

    def add_text(self, tag: str, text_string: str, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A text in Markdown."""
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

        meta = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        tensor = TensorProto(dtype="DT_STRING", string_val=[text_string.encode()], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]))
        self._summary("", global_step, walltime, Summary.Value(tag=tag + "/text_summary", metadata=meta, tensor=tensor))

    def add_image(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                  dataformats: str = "CHW") -> None:
        """A picture [C, H, W] (or in the order of ``dataformats``), uint8, or real in [0, 1]. ModuleNotFoundError without Pillow."""
        import io

        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        x = _picture(_array(img_tensor), dataformats)
        out = io.BytesIO()
        Image.fromarray(x[..., 0] if x.shape[2] == 1 else x).save(out, format="PNG")
        image = Summary.Image(height=x.shape[0], width=x.shape[1], colorspace=x.shape[2], encoded_image_string=out.getvalue())
        self._summary("", global_step, walltime, Summary.Value(tag=tag, image=image))

    def add_images(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   dataformats: str = "NCHW") -> None:
        """Pictures [N, C, H, W], side by side."""
        import numpy as np

        order = dataformats.replace("N", "")
        each = [_picture(x, order) for x in np.moveaxis(_array(img_tensor), dataformats.index("N"), 0)]
        self.add_image(tag, np.concatenate(each, axis=1), global_step, walltime, "HWC")

    def add_figure(self, tag: str, figure: Any, global_step: Optional[int] = None, close: bool = True, walltime: Optional[float] = None) -> None:
        """A Matplotlib figure."""
        import numpy as np
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        self.add_image(tag, np.asarray(canvas.buffer_rgba())[..., :3], global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            plt.close(figure)

    def add_hparams(self, hparam_dict: Dict[str, Any], metric_dict: Dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: Optional[str] = None, global_step: Optional[int] = None) -> None:
        """What a run was made with, and what came of it. ``hparam_domain_discrete``: the values that may occur, by name."""
        from tensorboard.plugins.hparams import summary_v2 as hparams

        run, domains = run_name or str(time.time()), hparam_domain_discrete or {}
        if not isinstance(domains, dict) or not set(domains) <= set(hparam_dict):
            raise TypeError(f"add_hparams: `hparam_domain_discrete` must be a dict of values by names of {sorted(hparam_dict)}, got {domains!r}")
        known = [hparams.HParam(name, hparams.Discrete(domains[name]) if name in domains else None) for name in hparam_dict]
        self._summary(run, global_step, None, *hparams.hparams_config_pb(known, [hparams.Metric(tag) for tag in metric_dict]).value)
        self._summary(run, global_step, None, *hparams.hparams_pb(hparam_dict).value)
        for tag, value in metric_dict.items():
            self._summary(run, global_step, None, *self._number(tag, value))

    def _number(self, tag: str, value: Any) -> Tuple[Any, ...]:
        from tensorboard.compat.proto.summary_pb2 import Summary

        return (Summary.Value(tag=tag, simple_value=float(_array(value).reshape(()))),)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """The model as it prints: there is no traced graph to draw."""
        self.add_text("model", "```\n" + repr(model) + "\n```")

    def flush(self) -> None:
        """Everything so far is in the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Flushes and closes the files."""
        for writer in self._writers.values():
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


FileWriter = SummaryWriter


def _picture(x: Any, order: str) -> Any:
    """[H, W, C] in uint8."""
    import numpy as np

    if sorted(order) not in (["C", "H", "W"], ["H", "W"]) or x.ndim != len(order):
        raise ValueError(f"add_image: shape {x.shape} is not in the order {order!r} of channels, height and width")
    x = x[..., None] if "C" not in order else np.moveaxis(x, [order.index(c) for c in "HWC"], [0, 1, 2])
    return np.ascontiguousarray(x if x.dtype == np.uint8 else (np.clip(x, 0, 1) * 255).round().astype(np.uint8))
