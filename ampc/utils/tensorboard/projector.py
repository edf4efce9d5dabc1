"""The files that TensorBoard's projector of embeddings reads."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from . import summary

CONFIG = "projector_config.pbtxt"


def _names(tag: str, step: Optional[int]) -> str:
    """The folder of one embedding, under the log folder."""
    plain = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02x}" for c in tag)
    return os.path.join(f"{0 if step is None else step:05d}", plain)


def _write_labels(path: str, labels: Sequence[Any], header: Optional[Sequence[str]]) -> None:
    rows = [[str(x) for x in label] if header else [str(label)] for label in labels]
    with open(path, "w", encoding="utf-8") as file:
        for row in [list(header), *rows] if header else rows:
            file.write("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row) + "\n")


def _write_sprite(path: str, pictures: np.ndarray) -> None:
    """The pictures in a square, row by row; what is left of it is black."""
    from PIL import Image

    each = [summary.picture(x, "CHW") for x in pictures]
    across = math.ceil(math.sqrt(len(each)))
    each += [np.zeros_like(each[0])] * (across * across - len(each))
    square = np.concatenate([np.concatenate(each[i:i + across], axis=1) for i in range(0, len(each), across)])
    Image.fromarray(square[..., 0] if square.shape[2] == 1 else square).save(path)


def _entry(tag: str, folder: str, labels: bool, pictures: Optional[np.ndarray]) -> str:
    """The lines of the projector's configuration about one embedding."""
    lines = [f"tensor_name: {json.dumps(tag)}", f"tensor_path: {json.dumps(os.path.join(folder, 'tensors.tsv'))}"]
    if labels:
        lines.append(f"metadata_path: {json.dumps(os.path.join(folder, 'metadata.tsv'))}")
    if pictures is not None:
        size = f"  single_image_dim: {pictures.shape[3]}\n  single_image_dim: {pictures.shape[2]}"
        lines.append(f"sprite {{\n  image_path: {json.dumps(os.path.join(folder, 'sprite.png'))}\n{size}\n}}")
    return "embeddings {\n" + "\n".join(lines) + "\n}\n"


def write_embedding(log_dir: str, mat: Any, metadata: Optional[Sequence[Any]], label_img: Any, step: Optional[int], tag: str,
                    header: Optional[Sequence[str]]) -> None:
    """Points [N, D], with labels and pictures [N, C, H, W] where given. ValueError where there are not as many of each."""
    points = summary.array(mat)
    pictures = None if label_img is None else summary.array(label_img)
    if points.ndim != 2:
        raise ValueError(f"add_embedding: points must be [N, D], got the shape {points.shape}")
    for what, given in (("labels", metadata), ("pictures", pictures)):
        if given is not None and len(given) != len(points):
            raise ValueError(f"add_embedding: {len(points)} points and {len(given)} {what}; there must be as many")
    folder = _names(tag, step)
    os.makedirs(os.path.join(log_dir, folder), exist_ok=True)
    np.savetxt(os.path.join(log_dir, folder, "tensors.tsv"), points, delimiter="\t", fmt="%.9g")
    if metadata is not None:
        _write_labels(os.path.join(log_dir, folder, "metadata.tsv"), metadata, header)
    if pictures is not None:
        _write_sprite(os.path.join(log_dir, folder, "sprite.png"), pictures)
    with open(os.path.join(log_dir, CONFIG), "a", encoding="utf-8") as file:
        file.write(_entry(f"{tag}:{0 if step is None else step:05d}", folder, metadata is not None, pictures))
