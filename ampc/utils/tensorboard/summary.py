"""What a writer writes, each as tensorboard's Summary message. Source: torch.utils.tensorboard.summary, and the plugins of the tensorboard library,
which each function asks for (ModuleNotFoundError when it is not installed). Arrays may be tensors, NumPy's, or numbers."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Dict, List, Optional, Tuple

import numpy as np


def array(x: Any) -> np.ndarray:
    """An array of what may be a tensor; 16-bit numbers become float32."""
    if hasattr(x, "detach"):
        t = x.detach().cpu()
        x = (t.float() if t.dtype.is_floating_point and t.element_size() < 4 else t).numpy()
    return np.asarray(x)


def _summary(*values: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=values)


def _value(tag: str, **fields: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary.Value(tag=tag, **fields)


def _plugin(name: str, content: bytes = b"") -> Any:
    """The metadata that says which plugin shows a tensor."""
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata

    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=name, content=content))


def _tensor(dtype: str, shape: Optional[Sequence[int]] = None, **values: Any) -> Any:
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto

    sizes = {} if shape is None else {"tensor_shape": TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in shape])}
    return TensorProto(dtype=dtype, **sizes, **values)


# -- numbers ----------------------------------------------------------------------------------------------------------------


def scalar(name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number: float32, or with ``new_style`` and ``double_precision`` float64. ValueError where there is not one."""
    values = array(tensor)
    if values.size != 1:
        raise ValueError(f"add_scalar: {name!r} is not one number but {values.shape}")
    number = float(tensor.item() if hasattr(tensor, "item") else tensor)
    if not new_style:
        return _summary(_value(name, simple_value=number))
    made = _tensor("DT_DOUBLE", double_val=[number]) if double_precision else _tensor("DT_FLOAT", float_val=[number])
    return _summary(_value(name, tensor=made, metadata=_plugin("scalars")))


def tensor_proto(tag: str, tensor: Any) -> Any:
    """A whole tensor, in its dtype."""
    x = array(tensor)
    names = {"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE", "uint8": "DT_UINT8", "int8": "DT_INT8", "int16": "DT_INT16",
             "int32": "DT_INT32", "int64": "DT_INT64", "bool": "DT_BOOL"}
    return _summary(_value(tag, tensor=_tensor(names[x.dtype.name], x.shape, tensor_content=x.tobytes()), metadata=_plugin("tensor")))


def _usual_edges() -> np.ndarray:
    """Edges a tenth apart from 1e-12 to 1e20, to both sides of 0: TensorFlow's."""
    up: List[float] = []
    edge = 1e-12
    while edge < 1e20:
        up.append(edge)
        edge *= 1.1
    return np.array([*(-e for e in reversed(up)), 0.0, *up])


def _joined(counts: np.ndarray, edges: np.ndarray, at_most: int) -> Tuple[np.ndarray, np.ndarray]:
    """The counts of so many neighbouring bins together that no more than about ``at_most`` are left."""
    each = len(counts) // at_most
    if each < 2:
        return counts, edges
    counts = np.pad(counts, (0, -len(counts) % each)).reshape(-1, each).sum(1)
    return counts, np.append(edges[:-1:each], edges[-1])


def histogram(name: str, values: Any, bins: Any, max_bins: Optional[int] = None) -> Any:
    """How values are distributed over NumPy's bins, or with ``bins`` 'tensorflow' over bins a tenth wide; without the empty ones at both ends.
    ValueError where no value lies in the bins, and for nan or inf where NumPy seeks bins between the least and the largest value."""
    x = array(values).astype(np.float64).reshape(-1)
    if not x.size:
        raise ValueError(f"add_histogram: {name!r} has no values")
    counts, edges = np.histogram(x, bins=_usual_edges() if isinstance(bins, str) and bins == "tensorflow" else bins)
    if max_bins is not None:
        counts, edges = _joined(counts, edges, max_bins)
    held = np.flatnonzero(counts)
    if not held.size:
        raise ValueError(f"add_histogram: no value of {name!r} lies in the bins")
    first, last = int(held[0]), int(held[-1]) + 1
    before = counts[first - 1:first] if first else np.zeros(1, counts.dtype)  # an empty bin, whose limit is where the values begin
    counted, limits = [*before.tolist(), *counts[first:last].tolist()], edges[first:last + 1].tolist()
    return histogram_raw(name, x.min(), x.max(), x.size, x.sum(), float(x @ x), limits, counted)


def histogram_raw(name: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Sequence[float],
                  bucket_counts: Sequence[float]) -> Any:
    """A histogram that was counted elsewhere: the upper limit of each bin, and how many values lie in it."""
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    counted = HistogramProto(min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=bucket_limits, bucket=bucket_counts)
    return _summary(_value(name, histo=counted))


def text(tag: str, text: str) -> Any:
    """A text in Markdown."""
    return _summary(_value(tag + "/text_summary", metadata=_plugin("text", b""), tensor=_tensor("DT_STRING", [1], string_val=[text.encode()])))


# -- pictures and sound -----------------------------------------------------------------------------------------------------


def picture(x: np.ndarray, order: str) -> np.ndarray:
    """[H, W, C] in uint8, of 1, 3 or 4 channels, from an array in the order of dimensions that the letters say."""
    order = order.upper()
    if sorted(order) not in (["C", "H", "W"], ["H", "W"]) or x.ndim != len(order):
        raise ValueError(f"add_image: shape {x.shape} is not in the order {order!r} of channels, height and width")
    x = x[..., None] if "C" not in order else np.moveaxis(x, [order.index(c) for c in "HWC"], [0, 1, 2])
    return np.ascontiguousarray(x if x.dtype == np.uint8 else (np.clip(x, 0, 1) * 255).round().astype(np.uint8))


def side_by_side(x: np.ndarray, order: str) -> np.ndarray:
    """One picture [H, W, C] of several, N among the letters: in rows of eight, and what is left of the last row is black."""
    order = order.upper()
    if x.ndim != len(order) or "N" not in order or not x.size:
        raise ValueError(f"add_images: shape {x.shape} is not in the order {order!r} of pictures, channels, height and width, or is empty")
    each = [picture(one, order.replace("N", "")) for one in np.moveaxis(x, order.index("N"), 0)]
    across = min(len(each), 8)
    each += [np.zeros_like(each[0])] * (-len(each) % across)
    return np.concatenate([np.concatenate(each[i:i + across], axis=1) for i in range(0, len(each), across)])


def _encoded(x: np.ndarray) -> Any:
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    out = io.BytesIO()
    Image.fromarray(x[..., 0] if x.shape[2] == 1 else x).save(out, format="PNG")
    return Summary.Image(height=x.shape[0], width=x.shape[1], colorspace=x.shape[2], encoded_image_string=out.getvalue())


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """A picture, or several in rows of eight: uint8, or real in [0, 1]. ModuleNotFoundError without Pillow."""
    from PIL import Image

    x = (side_by_side if "N" in dataformats.upper() else picture)(array(tensor), dataformats)
    if rescale != 1:
        size = int(x.shape[1] * rescale), int(x.shape[0] * rescale)
        resized = np.asarray(Image.fromarray(x[..., 0] if x.shape[2] == 1 else x).resize(size))
        x = resized if resized.ndim == 3 else resized[..., None]
    return _summary(_value(tag, image=_encoded(x)))


def image_boxes(tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW",
                labels: Optional[Sequence[str]] = None) -> Any:
    """A picture with boxes [N, 4] of left, top, right and bottom, in pixels, each with its label."""
    from PIL import Image, ImageDraw

    x = picture(array(tensor_image), dataformats)
    drawn = Image.fromarray(np.repeat(x, 3, axis=2) if x.shape[2] == 1 else x)
    pen = ImageDraw.Draw(drawn)
    for i, box in enumerate(array(tensor_boxes).reshape(-1, 4).tolist()):
        pen.rectangle(box, outline="red", width=1)
        if labels is not None:
            pen.text((box[0] + 2, box[1] + 1), labels[i], fill="red")
    return image(tag, np.asarray(drawn), rescale, "HWC")


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """Pictures over time [N, T, C, H, W], uint8, or real in [0, 1], as a GIF; the N videos stand as pictures of ``add_images``."""
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    x = array(tensor)
    if x.ndim != 5:
        raise ValueError(f"add_video: shape {x.shape} is not [videos, pictures, channels, height, width]")
    frames = [side_by_side(x[:, t], "NCHW") for t in range(x.shape[1])]
    drawn = [Image.fromarray(f[..., 0] if f.shape[2] == 1 else f) for f in frames]
    out = io.BytesIO()
    drawn[0].save(out, format="GIF", save_all=True, append_images=drawn[1:], duration=round(1000 / fps), loop=0)
    height, width, channels = frames[0].shape
    return _summary(_value(tag, image=Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=out.getvalue())))


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """Sound of one channel, real in [-1, 1], as 16-bit WAV."""
    import wave

    from tensorboard.compat.proto.summary_pb2 import Summary

    samples = array(tensor).squeeze()
    if samples.ndim != 1:
        raise ValueError(f"add_audio: shape {samples.shape} is not one channel of samples")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    about = {"sample_rate": sample_rate, "num_channels": 1, "length_frames": len(samples), "content_type": "audio/wav"}
    sound = Summary.Audio(encoded_audio_string=out.getvalue(), **about)
    return _summary(_value(tag, audio=sound))


# -- curves and meshes ------------------------------------------------------------------------------------------------------


def _pr_curve(tag: str, rows: np.ndarray) -> Any:
    from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

    content = PrCurvePluginData(version=0, num_thresholds=rows.shape[1]).SerializeToString()
    return _summary(_value(tag, metadata=_plugin("pr_curves", content), tensor=_tensor("DT_FLOAT", rows.shape, float_val=rows.reshape(-1).tolist())))


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """Precision and recall of predictions in [0, 1] of labels 0 and 1, at evenly spaced thresholds (127 at most)."""
    n = min(num_thresholds, 127)
    truth, predicted = array(labels).reshape(-1).astype(np.float64), array(predictions).reshape(-1).astype(np.float64)
    weighed = np.broadcast_to(np.float64(1.0) if weights is None else array(weights).reshape(-1).astype(np.float64), truth.shape)
    bucket = np.clip(np.floor(predicted * (n - 1)), 0, n - 1).astype(np.int64)
    above = [np.bincount(bucket, weighed * side, n)[::-1].cumsum()[::-1] for side in (truth, 1 - truth)]  # true and false positives
    tp, fp = above
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7
    return _pr_curve(tag, np.stack([tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)]))


def pr_curve_raw(tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """A curve that was computed elsewhere: counts, precision and recall at each threshold."""
    return _pr_curve(tag, np.stack([array(x).astype(np.float64) for x in (tp, fp, tn, fn, precision, recall)]))


def custom_scalars(layout: Mapping[str, Mapping[str, Any]]) -> Any:
    """Charts of several numbers: {category: {chart: ['Multiline', tags]}} or ['Margin', [value, lower, upper]]."""
    from tensorboard.plugins.custom_scalar import layout_pb2 as pb

    def chart(title: str, kind: str, tags: Sequence[str]) -> Any:
        if kind == "Margin":
            value, lower, upper = tags
            series = [pb.MarginChartContent.Series(value=value, lower=lower, upper=upper)]
            return pb.Chart(title=title, margin=pb.MarginChartContent(series=series))
        return pb.Chart(title=title, multiline=pb.MultilineChartContent(tag=list(tags)))

    categories = [pb.Category(title=title, chart=[chart(name, *each) for name, each in charts.items()]) for title, charts in layout.items()]
    made = pb.Layout(category=categories).SerializeToString()
    return _summary(_value("custom_scalars__config__", metadata=_plugin("custom_scalars"), tensor=_tensor("DT_STRING", [], string_val=[made])))


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config_dict: Optional[Dict[str, Any]] = None, display_name: Optional[str] = None,
         description: Optional[str] = None) -> Any:
    """Points [B, N, 3] in space with colours [B, N, 3] and triangles [B, M, 3] of them; the last two may be None. ``config_dict`` goes
    to three.js."""
    from tensorboard.plugins.mesh import metadata
    from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData

    kinds = (MeshPluginData.VERTEX, vertices), (MeshPluginData.FACE, faces), (MeshPluginData.COLOR, colors)
    given = [(kind, array(x)) for kind, x in kinds if x is not None]
    components, config = metadata.get_components_bitmask([kind for kind, _ in given]), json.dumps(config_dict or {}, sort_keys=True)
    values = []
    for kind, x in given:
        about = metadata.create_summary_metadata(tag, display_name, kind, components, x.shape, description, json_config=config)
        made = _tensor("DT_FLOAT", x.shape, float_val=x.reshape(-1).tolist())
        values.append(_value(metadata.get_instance_name(tag, kind), tensor=made, metadata=about))
    return _summary(*values)


# -- what a run was made with -----------------------------------------------------------------------------------------------


def hparams(hparam_dict: Any = None, metric_dict: Any = None, hparam_domain_discrete: Any = None) -> Tuple[Any, Any, Any]:
    """Three messages: what parameters and metrics there are, the parameters of this run, and its end. ``hparam_domain_discrete``: the values that may
    occur, by name (TypeError for other names)."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
    from tensorboard.plugins.hparams import summary_v2 as own

    if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
        raise TypeError(f"hparams: parameters and metrics must be dicts, got {type(hparam_dict).__name__} and {type(metric_dict).__name__}")
    domains = {} if hparam_domain_discrete is None else hparam_domain_discrete
    if not isinstance(domains, Mapping) or not set(domains) <= set(hparam_dict):
        raise TypeError(f"hparams: `hparam_domain_discrete` must be a dict of values by names of {sorted(hparam_dict)}, got {domains!r}")
    plain = {k: v.item() if hasattr(v, "item") else v for k, v in hparam_dict.items() if v is not None}
    known = [own.HParam(name, own.Discrete(list(domains[name])) if name in domains else None) for name in hparam_dict]
    ended = plugin_data_pb2.HParamsPluginData(session_end_info=plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS))
    end = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=metadata.create_summary_metadata(ended), tensor=metadata.NULL_TENSOR)
    return own.hparams_config_pb(known, [own.Metric(tag) for tag in metric_dict]), own.hparams_pb(plain), _summary(end)
