"""Whether ampc stands in torch's place. There the classes that libraries know by the module they are of, instead of importing torch to ask, say
torch's; and what programs compare with words, such as ``str(dtype)``, has torch's.

A dtype's text begins with the module of its class (``csrc/python/dtype.c``)."""

_taken = False


def take_torchs_place() -> None:
    """From now on ampc stands in torch's place."""
    global _taken
    from .._C import Tensor, dtype

    _taken = True
    Tensor.__module__ = dtype.__module__ = "torch"


def shown_name(name: str) -> str:
    """What ``ampc.x`` is called: ``torch.x``, where ampc stands in torch's place."""
    return "torch" + name[len("ampc"):] if _taken else name
