"""Event files of TensorBoard, written through the tensorboard library."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Dict, Optional

from . import summary
from .projector import write_embedding


class FileWriter:
    """One file of events under ``log_dir``, which a SummaryWriter has for each run. ModuleNotFoundError when tensorboard is not installed."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        try:
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("SummaryWriter: the tensorboard library is not installed; pip install tensorboard") from error
        self.event_writer = EventFileWriter(os.fspath(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return str(self.event_writer.get_logdir())

    def add_event(self, event: Any, step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """One of tensorboard's Event messages."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """One of tensorboard's Summary messages, as the functions of ``summary`` make them."""
        from tensorboard.compat.proto.event_pb2 import Event

        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Everything so far is in the file."""
        self.event_writer.flush()

    def close(self) -> None:
        """Flushes and closes the file."""
        self.event_writer.close()


class SummaryWriter:
    """Events in files under ``log_dir`` (runs/<date>_<machine><comment> when None). Source: torch.utils.tensorboard.
    ModuleNotFoundError when tensorboard is not installed. What each method writes, and the errors that it raises, are those of the function of the
    same name in ``summary``; ``global_step`` is the step it belongs to, ``walltime`` its time in seconds (now when None). What is written
    after ``close()`` goes to a new file."""

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: Optional[int] = None, max_queue: int = 10, flush_secs: int = 120,
                 filename_suffix: str = "") -> None:
        if log_dir is None:
            import socket

            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir = os.fspath(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._writers: Dict[str, FileWriter] = {}  # by the names of runs
        self._get_file_writer()
        if purge_step is not None:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog

            self._get_file_writer().add_event(Event(file_version="brain.Event:2", step=purge_step))
            self._get_file_writer().add_event(Event(session_log=SessionLog(status=SessionLog.START), step=purge_step))

    @property
    def file_writer(self) -> Optional[FileWriter]:
        """The writer of the run itself; None once it is closed."""
        return self._writers.get("")

    def _get_file_writer(self) -> FileWriter:
        return self._writer("")

    def _writer(self, run: str) -> FileWriter:
        if run not in self._writers:
            self._writers[run] = FileWriter(os.path.join(self.log_dir, run), *self._options)
        return self._writers[run]

    def _write(self, made: Any, step: Optional[int] = None, walltime: Optional[float] = None, run: str = "") -> None:
        self._writer(run).add_summary(made, step, walltime)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """One number: float32, or with ``new_style`` and ``double_precision`` float64."""
        self._write(summary.scalar(tag, scalar_value, None, new_style, double_precision), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: Optional[int] = None,
                    walltime: Optional[float] = None) -> None:
        """Several numbers in one chart: each in a run of its own, named ``main_tag``_key."""
        for key, value in tag_scalar_dict.items():
            self._write(summary.scalar(main_tag, value), global_step, walltime, main_tag.replace("/", "_") + "_" + key)

    def add_tensor(self, tag: str, tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A whole tensor, in its dtype."""
        self._write(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Optional[int] = None, bins: Any = "tensorflow", walltime: Optional[float] = None,
                      max_bins: Optional[int] = None) -> None:
        """How values are distributed: over bins a tenth wide, or over NumPy's."""
        self._write(summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Sequence[float],
                          bucket_counts: Sequence[float], global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A histogram that was counted elsewhere: the upper limit of each bin, and how many values lie in it."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(f"add_histogram_raw: {len(bucket_limits)} limits of bins and {len(bucket_counts)} counts; there must be as many")
        self._write(summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A text in Markdown."""
        self._write(summary.text(tag, text_string), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                  dataformats: str = "CHW") -> None:
        """A picture [C, H, W] (or in the order of ``dataformats``), uint8, or real in [0, 1]. ModuleNotFoundError without Pillow."""
        self._write(summary.image(tag, img_tensor, 1, dataformats), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   dataformats: str = "NCHW") -> None:
        """Pictures [N, C, H, W], in rows of eight."""
        self._write(summary.image(tag, img_tensor, 1, dataformats), global_step, walltime)

    def add_image_with_boxes(self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                             rescale: float = 1, dataformats: str = "CHW", labels: Any = None) -> None:
        """A picture with boxes [N, 4] of left, top, right and bottom, in pixels; ``labels`` is a text for each."""
        names = [labels] if isinstance(labels, str) else labels
        if names is not None and len(names) != len(box_tensor):
            raise ValueError(f"add_image_with_boxes: {len(box_tensor)} boxes and {len(names)} labels; there must be as many")
        self._write(summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, names), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: Optional[int] = None, close: bool = True, walltime: Optional[float] = None) -> None:
        """A Matplotlib figure, or a list of figures of one size side by side."""
        import numpy as np
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        figures, drawn = (list(figure) if isinstance(figure, (list, tuple)) else [figure]), []
        for each in figures:
            canvas = FigureCanvasAgg(each)
            canvas.draw()
            drawn.append(np.asarray(canvas.buffer_rgba())[..., :3])
        self.add_image(tag, np.concatenate(drawn, axis=1), global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            for each in figures:
                plt.close(each)

    def add_video(self, tag: str, vid_tensor: Any, global_step: Optional[int] = None, fps: float = 4, walltime: Optional[float] = None) -> None:
        """Pictures over time [N, T, C, H, W], uint8, or real in [0, 1], as a GIF. ModuleNotFoundError without Pillow."""
        self._write(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: Optional[int] = None, sample_rate: int = 44100,
                  walltime: Optional[float] = None) -> None:
        """Sound of one channel, real in [-1, 1]."""
        self._write(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: Optional[int] = None, num_thresholds: int = 127, weights: Any = None,
                     walltime: Optional[float] = None) -> None:
        """Precision and recall of predictions in [0, 1] of labels 0 and 1."""
        self._write(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any, false_negative_counts: Any,
                         precision: Any, recall: Any, global_step: Optional[int] = None, num_thresholds: int = 127, weights: Any = None,
                         walltime: Optional[float] = None) -> None:
        """A curve that was computed elsewhere."""
        counts = true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts
        self._write(summary.pr_curve_raw(tag, *counts, precision, recall, num_thresholds, weights), global_step, walltime)

    def add_mesh(self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Optional[Dict[str, Any]] = None,
                 global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """Points [B, N, 3] in space, with colours [B, N, 3] and triangles [B, M, 3]."""
        self._write(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_embedding(self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: Optional[int] = None, tag: str = "default",
                      metadata_header: Optional[Sequence[str]] = None) -> None:
        """Points [N, D] for the projector, with a label and a picture [N, C, H, W] for each."""
        write_embedding(self.log_dir, mat, metadata, label_img, global_step, tag, metadata_header)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Charts of several numbers: {category: {chart: ['Multiline', tags]}} or ['Margin', [value, lower, upper]]."""
        self._write(summary.custom_scalars(layout))

    def add_custom_scalars_multilinechart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """One chart of several numbers."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """One chart of a number between two others: three tags."""
        if len(tags) != 3:
            raise ValueError(f"add_custom_scalars_marginchart: expected three tags, of the value, the lower and the upper limit, got {list(tags)}")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_hparams(self, hparam_dict: Dict[str, Any], metric_dict: Dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: Optional[str] = None, global_step: Optional[int] = None) -> None:
        """What a run was made with, and what came of it. ``hparam_domain_discrete``: the values that may occur, by name."""
        run = run_name or str(time.time())
        for made in summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete):
            self._write(made, global_step, None, run)
        for tag, value in metric_dict.items():
            self._write(summary.scalar(tag, value), global_step, None, run)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """The model as it prints: there is no traced graph to draw."""
        self.add_text("model", "```\n" + repr(model) + "\n```")

    def flush(self) -> None:
        """Everything so far is in the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Flushes and closes the files."""
        while self._writers:
            self._writers.popitem()[1].close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
