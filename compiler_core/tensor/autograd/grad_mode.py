"""Whether operations are recorded for backward: no_grad, enable_grad, set_grad_enabled, inference_mode.

In: nothing. Out: context managers that also decorate functions, as in torch. The mode belongs to the thread: the
`threaded` transport runs one rank a thread. In inference_mode nothing is recorded whatever else is said, and what is
made is an inference tensor (`inference.py`).
"""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Generator
from inspect import isgeneratorfunction
from types import TracebackType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(threading.local):
    enabled: bool = True  # whether operations are recorded
    inference: bool = False
    wanted: bool = True  # in inference mode: what was said last of gradients


thread_mode = _Mode()


class Inference:
    """entered: whether any thread was ever in `inference_mode()`. in_use: whether a tensor was ever made there."""

    entered = in_use = False


def is_grad_enabled() -> bool:
    """Whether this thread records operations for backward."""
    return thread_mode.wanted if thread_mode.inference else thread_mode.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside `inference_mode()`."""
    return thread_mode.inference


def _now() -> tuple[bool, bool, bool]:
    return thread_mode.enabled, thread_mode.inference, not Inference.entered or thread_mode.wanted


def _want(gradients: bool) -> None:
    if not Inference.entered:
        thread_mode.enabled = gradients
        return
    thread_mode.wanted = gradients
    thread_mode.enabled = gradients and not thread_mode.inference


class _Block:
    """A mode that holds inside `with`, or during the calls of a decorated function. May be entered again."""

    def __init__(self) -> None:
        self.before: list[tuple[bool, bool, bool]] = []

    def change(self) -> None:
        """Set the thread's mode."""

    def __enter__(self) -> None:
        self.before.append((thread_mode.enabled, thread_mode.inference, not Inference.entered or thread_mode.wanted))
        self.change()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if Inference.entered:
            thread_mode.enabled, thread_mode.inference, thread_mode.wanted = self.before.pop()
        else:
            thread_mode.enabled, _, _ = self.before.pop()

    def __copy__(self) -> _Block:
        block: _Block = object.__new__(type(self))
        block.__dict__.update(self.__dict__, before=[])
        return block

    def __call__(self, function: F) -> F:
        # a call's own copy: it may be inside itself, and go on after a graph break
        return _within(lambda: copy.copy(self), function)


def _within(make: Callable[[], _Block], function: F) -> F:
    """`function` in a block of its own each call; the body of a generator function, but not who iterates over it."""
    if isgeneratorfunction(function):
        return _generating_within(make, function)  # type: ignore[return-value]

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


def _generating_within(make: Callable[[], _Block], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        resume: Callable[[], Any] = functools.partial(generator.send, None)
        while True:
            try:
                with make():
                    value = resume()
            except StopIteration as end:
                return end.value
            try:
                resume = functools.partial(generator.send, (yield value))
            except GeneratorExit:
                with make():
                    generator.close()
                raise
            except BaseException as error:  # noqa: BLE001  (what was thrown is for the body to see)
                resume = functools.partial(generator.throw, error)

    return wrapped


class _PlainBlock(_Block):
    """A block without parameters: `@no_grad` decorates as `@no_grad()` does."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        block = super().__new__(cls)
        if function is None:
            return block
        block.__init__()  # type: ignore[misc]
        return block(function)


class no_grad(_PlainBlock):
    """Nothing is recorded inside."""

    def change(self) -> None:
        if Inference.entered:
            thread_mode.wanted = False
        thread_mode.enabled = False


class enable_grad(_PlainBlock):
    """Operations are recorded inside, also within no_grad."""

    def change(self) -> None:
        _want(True)


class inference_mode(_Block):
    """Nothing is recorded inside, and tensors made there are inference tensors.

    `inference_mode(False)`: the opposite, also inside of `inference_mode()` and of `no_grad()`.
    `@inference_mode` decorates as `@inference_mode()` does.
    """

    def __new__(cls, mode: bool | Callable[..., Any] = True) -> Any:
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def change(self) -> None:
        Inference.entered = Inference.entered or self.mode
        thread_mode.inference = self.mode
        _want(not self.mode)


class set_grad_enabled(_Block):
    """Set the mode at once; used as a context manager or a decorator, only inside."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.enabled = bool(mode)
        self.at_creation = _now()
        self.change()

    def change(self) -> None:
        _want(self.enabled)

    def __enter__(self) -> None:
        self.before.append(self.at_creation)
        self.change()

    def __call__(self, function: F) -> F:
        thread_mode.enabled, thread_mode.inference, thread_mode.wanted = self.at_creation  # no use of the mode yet
        enabled = self.enabled
        return _within(lambda: set_grad_enabled(enabled), function)


class _Taping(threading.local):
    """depth: how many functions that differentiate this thread is in, which record while tracing, too (taped.py).
    closed: how many of torch.func's are running a function, which may not ask for gradients itself."""

    depth = closed = 0


taping = _Taping()
