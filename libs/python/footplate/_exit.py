"""The ends of a process: interpreter exit, a multiprocessing child's end, a fork. One place, so that each hook is registered once."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, List

from . import _last_words
from ._faults import contained

if TYPE_CHECKING:
    from ._run import Run

_runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
_left_pid = 0


def remember(run: "Run") -> None:
    """This process will have something to flush at its end."""
    _runs.add(run)
    _last_words.listen()
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
    deadline = time.monotonic() + _seconds()  # for all runs of the process together
    for run in _sorted():
        run._leave(status, max(0.0, deadline - time.monotonic()))


def _seconds() -> float:
    from ._run import EXIT_SECONDS_MAX
    try:
        return min(float(os.environ.get("FOOTPLATE_EXIT_SECONDS", EXIT_SECONDS_MAX)), 3600.0)
    except ValueError:
        return EXIT_SECONDS_MAX


def _died() -> bool:
    """Whether an exception ends this process. In a notebook an exception of a cell ends nothing."""
    interactive = hasattr(sys, "ps1") or "IPython" in sys.modules
    return not interactive and getattr(sys, "last_type", None) is not None


def _sorted() -> "List[Run]":
    return sorted(_runs, key=lambda run: run.id)


_masks = threading.local()


def _before_fork() -> None:
    """Holds TERM back until the child has given it its default action again: sent in between it would be swallowed by our handler."""
    if any(run._stopping.listens for run in list(_runs)):
        with contained("fork"):
            _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _after_fork_in_parent() -> None:
    before = getattr(_masks, "before", None)
    if before is not None:
        _masks.before = None
        with contained("fork"):
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _after_fork_in_child() -> None:
    for run in list(_runs):
        with contained("fork"):
            run._forked()
    _after_fork_in_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
