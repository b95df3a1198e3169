"""The ends of a process: interpreter exit, a multiprocessing child's end, a fork. One place, so that each hook is registered once."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import TYPE_CHECKING, List

from ._faults import contained

if TYPE_CHECKING:
    from ._run import Run

_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
_left_pid = 0


def remember(run: "Run") -> None:
    """This process will have something to flush at its end."""
    _runs.add(run)
    util = sys.modules.get("multiprocessing.util")
    in_child = util is not None and getattr(sys.modules.get("multiprocessing.process"), "parent_process", lambda: None)() is not None
    if in_child:  # such a child ends by os._exit and runs no atexit
        util.Finalize(None, leave, exitpriority=-100)  # type: ignore[union-attr]


@atexit.register
def leave() -> None:
    """Flushes what this process has logged, once."""
    global _left_pid
    if _left_pid == os.getpid():
        return
    _left_pid = os.getpid()
    status = "failed" if _died() else "finished"
    for run in _sorted():
        run._leave(status)


def _died() -> bool:
    """Whether an exception ends this process. In a notebook an exception of a cell ends nothing."""
    interactive = hasattr(sys, "ps1") or "IPython" in sys.modules
    return not interactive and getattr(sys, "last_type", None) is not None


def _sorted() -> "List[Run]":
    return sorted(_runs, key=lambda run: run.id)


def _forked() -> None:
    for run in list(_runs):
        with contained("fork"):
            run._forked()


os.register_at_fork(after_in_child=_forked)
