"""Writing for TensorBoard, through the tensorboard library (``pip install tensorboard``), which is asked for when a writer is made."""

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
