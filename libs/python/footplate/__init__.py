"""Logs a training to Footplate and never stands in its way.

    import footplate

    footplate.init(config={"lr": 0.1})
    for step in range(1000):
        footplate.log({"train/loss": loss}, step=step)
        if footplate.stop_requested():
            footplate.save_checkpoint("model.npz", step=step)
            sys.exit(75)

Under the platform's agent it writes to the agent's local socket; without one, to the address in FOOTPLATE_ADDR; without that, to a spool file that
`python -m footplate sync` sends later. Logging never waits for any of them, and their faults become warnings. What raises: a wrong argument
(TypeError, ValueError), a config file that cannot be read, `latest_checkpoint` without an answer, and the read side (`runs`, `history`).
"""

from __future__ import annotations

import os
import threading
from typing import Any, Mapping, Optional

from . import _config, _exit, _open
from ._config import Config, ConfigUnreadable
from ._door import FootplateError, NotFound, Refused, Unavailable
from ._handle import Handle
from ._read import Point, RunInfo, history, runs
from ._run import CHECKPOINT_SECONDS_MAX, EXIT_SECONDS_MAX, Checkpoint, CheckpointUnknown, PathLike, Run
from ._stop import Stop
from ._sync import sync

os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.RLock()))

__version__ = "0.1.0"
__all__ = [
    "Checkpoint", "CheckpointUnknown", "Config", "ConfigUnreadable", "FootplateError", "Handle", "NotFound", "Point", "Refused", "Run", "RunInfo",
    "Stop", "Unavailable", "conclusion", "config", "finish", "flush", "history", "init", "latest_checkpoint", "log", "log_artifact",
    "log_params", "note", "report", "run", "runs", "save_checkpoint", "set_tags", "should_prune", "stop", "stop_requested", "sync",
]

config: Config
_run: Optional[Run] = None
_lock = threading.RLock()


def __getattr__(name: str) -> Any:
    if name == "config":
        return _config.current()
    raise AttributeError("module {!r} has no attribute {!r}".format(__name__, name))


def init(
    project: Optional[str] = None,
    experiment: Optional[str] = None,
    name: Optional[str] = None,
    config: Optional[Mapping[str, Any]] = None,
    tags: Optional[Mapping[str, Any]] = None,
    run: Optional[str] = None,
) -> Run:
    """Opens the run of this process and returns it.

    Under the platform the run is the one that was submitted; `config` gives defaults for keys that the platform set no value for, and rank 0 records
    them as params. Elsewhere a new run is created with it, or, with `run`, the one with that id is opened again: what it has stays on record, and
    other values are recorded as newer ones.
    Never waits for the network.
    """
    global _run
    with _lock:
        before = _run
        if before is not None and (before._opening.socket or run in (None, before.id) and not any((project, experiment, name, config, tags))):
            opened = before
        else:
            if before is not None:
                before.finish(timeout=0.0)
            opened = _open.open_run(project, experiment, name, config, tags, run)
            if _run is not None and _run is not before:  # a signal handler that logs has opened one in the meantime
                opened = _run
            _run = opened
            _exit.remember(opened)
        added = {} if config is None else _config.fill(config)
        if tags is not None and opened._opening.create is None:
            opened.set_tags(tags)
        if added and opened._opening.create is None and opened.rank == 0:
            opened.log_params(added)
        return opened


def run() -> Run:
    """The run of this process; opens one when there is none."""
    return _run if _run is not None else init()


def log(metrics: Mapping[str, Any], step: Any = None) -> None:
    """See Run.log."""
    run().log(metrics, step)


def report(value: Any, step: Any) -> None:
    """See Run.report."""
    run().report(value, step)


def log_params(params: Mapping[str, Any]) -> None:
    """See Run.log_params."""
    run().log_params(params)


def set_tags(tags: Mapping[str, Any]) -> None:
    """See Run.set_tags."""
    run().set_tags(tags)


def note(text: str) -> None:
    """See Run.note."""
    run().note(text)


def conclusion(text: str) -> None:
    """See Run.conclusion."""
    run().conclusion(text)


def log_artifact(path: PathLike, name: Optional[str] = None) -> Handle:
    """See Run.log_artifact."""
    return run().log_artifact(path, name)


def save_checkpoint(path: PathLike, step: Any = None, metadata: Optional[Mapping[str, Any]] = None) -> Handle:
    """See Run.save_checkpoint."""
    return run().save_checkpoint(path, step, metadata)


def latest_checkpoint(timeout: float = CHECKPOINT_SECONDS_MAX) -> Optional[Checkpoint]:
    """See Run.latest_checkpoint."""
    return run().latest_checkpoint(timeout)


def stop_requested() -> bool:
    """See Run.stop_requested."""
    return run().stop_requested()


def should_prune() -> bool:
    """See Run.should_prune."""
    return run().should_prune()


def stop() -> Optional[Stop]:
    """Why and in what time, once the run is asked to stop."""
    return run().stop


def flush(timeout: float = EXIT_SECONDS_MAX) -> bool:
    """See Run.flush."""
    return run().flush(timeout)


def finish(status: Optional[str] = None) -> bool:
    """See Run.finish."""
    return run().finish(status)
