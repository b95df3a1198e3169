"""What an exception that ends the process says, left where the agent looks for it: a traceback on stderr may be followed by anything."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, Callable

from ._faults import contained

_before: "Callable[..., Any] | None" = None
_CALLSTACK_MAX = 64 * 1024


def listen() -> None:
    """Takes over `sys.excepthook` in a worker of the platform, once; the one that was there is called as before."""
    global _before
    if _before is None and os.environ.get("TORCHELASTIC_ERROR_FILE"):
        _before = sys.excepthook
        sys.excepthook = _hook


def _hook(kind: Any, value: Any, trace: Any) -> None:
    with contained("the last words"):
        _leave(kind, value, trace)
    (_before or sys.__excepthook__)(kind, value, trace)


def _leave(kind: Any, value: Any, trace: Any) -> None:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path) or issubclass(kind, KeyboardInterrupt):
        return  # torch's @record was here
    said = {"message": "%s: %s" % (_name(kind), value),
            "extraInfo": {"py_callstack": "".join(traceback.format_exception(kind, value, trace))[-_CALLSTACK_MAX:], "timestamp": str(int(time.time()))}}
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    # Whole or not at all, in the form of torch's @record: torchrun reads it too.
    part = "%s.%d" % (path, os.getpid())
    with open(part, "w", encoding="utf-8") as file:
        json.dump({"message": said}, file)
    os.replace(part, path)


def _name(kind: Any) -> str:
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else "%s.%s" % (kind.__module__, kind.__qualname__)
