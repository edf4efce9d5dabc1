"""Futures: values that are computed while others go on. Source: ``torch.futures``."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, Callable, List

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value that may come later. ``set_result`` or ``set_exception`` gives it; ``wait`` and ``value`` return it."""

    def __init__(self, *, devices: Any = None) -> None:
        if devices:
            raise NotImplementedError("Future: `devices` must be empty; values on GPUs are not waited for here")
        self._get: Any = None
        self._is_done: Callable[[], bool] = lambda: False
        self._after: List[Callable[[], Any]] = []

    def __class_getitem__(cls, kind: Any) -> Any:
        """``Future[Tensor]``, for annotations."""
        return GenericAlias(cls, kind)

    @classmethod
    def of(cls, get: Callable[[], Any], is_done: Callable[[], bool]) -> Future:
        """A future whose value ``get()`` waits for and returns."""
        made = cls()
        made._get, made._is_done = get, is_done
        return made

    def done(self) -> bool:
        """Whether the value is there."""
        return self._is_done()

    def wait(self) -> Any:
        """The value. RuntimeError where nothing computes it; the exception that was set."""
        if self._get is None:
            raise RuntimeError("Future.wait: nobody has set a result yet, and nothing computes one; set_result() must come before wait() here")
        return self._get()

    value = wait

    def _settle(self, get: Callable[[], Any]) -> None:
        if self._get is not None:
            raise RuntimeError("Future: it has a result already")
        self._get, self._is_done = get, lambda: True
        for after in self._after:
            after()

    def set_result(self, result: Any) -> None:
        """Gives the value. RuntimeError the second time."""
        self._settle(lambda: result)

    def set_exception(self, result: BaseException) -> None:
        """``wait`` raises it. AssertionError for what is no exception."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"Future.set_exception: expected an exception, got {type(result).__name__}")

        def fail() -> Any:
            raise result

        self._settle(fail)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of ``callback(self)``, which runs once: when somebody waits for it, or when the result is set."""
        kept: List[Any] = []

        def get() -> Any:
            self.wait()
            if not kept:
                kept.append(callback(self))
            return kept[0]

        made = Future.of(get, lambda: bool(kept) or self.done())
        if self._get is None:
            self._after.append(get)
        return made

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Calls ``callback(self)`` when the result is set; at once where it is there."""
        if self._get is not None:
            self.wait()
            callback(self)
        else:
            self._after.append(lambda: callback(self))


def collect_all(futures: List[Future]) -> Future:
    """A future of the list of these futures, once all are done."""
    def get() -> List[Future]:
        for future in futures:
            future.wait()
        return futures

    return Future.of(get, lambda: all(future.done() for future in futures))


def wait_all(futures: List[Future]) -> List[Any]:
    """The values of all of them."""
    return [future.wait() for future in futures]
