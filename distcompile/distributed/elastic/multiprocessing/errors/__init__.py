"""torch.distributed.elastic.multiprocessing.errors: `record`, with which scripts mark their main function.

In: a function. Out: the same function. Under distcompile-run nothing more is needed: the launcher hears of a rank's
exception from the rank itself, traceback and all. Where another launcher asks for it, by naming a file in
TORCHELASTIC_ERROR_FILE, the error is written there as torch writes it.
"""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

__all__ = ["record"]
P = ParamSpec("P")
R = TypeVar("R")
VARIABLE = "TORCHELASTIC_ERROR_FILE"


def record(fn: Callable[P, R], error_handler: Any = None) -> Callable[P, R]:
    """`fn`, whose error is left in TORCHELASTIC_ERROR_FILE, if that is set, and raised.

    error_handler: an object whose `initialize()` runs before, and `record_exception(error)` for the error.
    """

    @functools.wraps(fn)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        if error_handler is not None:
            error_handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit:
            raise
        except Exception as error:
            (_write if error_handler is None else error_handler.record_exception)(error)
            raise

    return recorded


def _write(error: Exception) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        said = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
        message = {"message": f"{type(error).__name__}: {error}", "extraInfo": said}
        Path(path).write_text(json.dumps({"message": message}))
