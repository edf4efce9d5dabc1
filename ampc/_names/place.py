"""Whether ampc stands in torch's place. There the classes that libraries know by the module they are of, instead of importing torch to ask, say
torch's."""

_taken = False


def take_torchs_place() -> None:
    """From now on ampc stands in torch's place."""
    global _taken
    from .._C import Tensor

    _taken, Tensor.__module__ = True, "torch"


def shown_module(module: str) -> str:
    """What a class of the module ``ampc.x`` says that it is of: ``torch.x``, where ampc stands in torch's place."""
    return "torch" + module[len("ampc"):] if _taken else module
