"""Python functions that the machine runs in the place of C functions which would call Python code."""

from __future__ import annotations

from typing import Any


def spread(function: Any, values: Any, keywords: dict[str, Any]) -> Any:
    """function(*values, **keywords), `values` being iterated by the machine."""
    items = [value for value in values]  # noqa: C416
    return function(*items, **keywords)
