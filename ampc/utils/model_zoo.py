"""torch.utils.model_zoo: the older name of hub's function."""

from typing import Any

from ..hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    """``tqdm``, where that package is installed: torch shows it here."""
    if name != "tqdm":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tqdm.auto import tqdm

    return tqdm
