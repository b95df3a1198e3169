"""How faults of this package become warnings. Nothing here may raise, and nothing may flood a training's output."""

from __future__ import annotations

import contextlib
import logging
import time
from typing import Dict, Iterator

LOG = logging.getLogger("footplate")

REPEAT_SECONDS_MIN = 60.0
"""A warning of one kind is shown at most once in this time."""

KINDS_MAX = 1_000
"""So many kinds of warning are told apart; more are not shown, so that the table stays bounded."""

_shown: Dict[str, float] = {}


def warn(kind: str, message: str, *args: object, once: bool = False) -> None:
    """Logs a warning unless one of this kind was shown just before (or, with `once`, ever)."""
    now = time.monotonic()
    last = _shown.get(kind)
    if last is not None and (once or now - last < REPEAT_SECONDS_MIN):
        return
    if last is None and len(_shown) >= KINDS_MAX:
        return
    _shown[kind] = now
    LOG.warning("footplate: " + message, *args)


@contextlib.contextmanager
def contained(what: str) -> Iterator[None]:
    """Turns any fault inside into a warning: a training never dies of its logging. Interrupts and exits pass."""
    try:
        yield
    except Exception as fault:
        warn("contained " + what, "%s failed and was skipped: %s: %s", what, type(fault).__name__, fault)
        LOG.debug("footplate: %s failed", what, exc_info=True)
