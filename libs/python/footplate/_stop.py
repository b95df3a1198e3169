"""The wish to stop: TERM, or the agent's word. It sets a flag and does nothing else; when to stop is the training's decision."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ._faults import contained


@dataclass(frozen=True)
class Stop:
    """Why the run is asked to stop."""

    cause: str
    """`preempted`, `cancelled`, ...; `signal` when only TERM came."""
    grace_ms: Optional[int]
    """From the asking until KILL; None when unknown."""


class Stopping:
    """The state of one process."""

    def __init__(self) -> None:
        self.stop: Optional[Stop] = None
        self.listens = False

    def asked(self, message: Mapping[str, Any]) -> None:
        """The agent's word; it knows more than a signal does."""
        grace = message.get("grace_ms")
        self.stop = Stop(str(message.get("cause", "unknown")), grace if isinstance(grace, int) else None)

    def listen(self) -> None:
        """Takes over TERM, but only its default action and only in the main thread. Called when the training first asks whether it should
        stop: one that never asks must still die of a TERM."""
        if self.listens or threading.current_thread() is not threading.main_thread():
            return
        with contained("listening for TERM"):
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_term)
            self.listens = True

    def _on_term(self, number: int, frame: object) -> None:
        if self.stop is None:
            self.stop = Stop("signal", None)

    def forget(self) -> None:
        """In a forked child (a data loader's, say): TERM kills it again, as its parent expects."""
        if self.listens:
            self.listens = False
            with contained("giving TERM back"):
                if signal.getsignal(signal.SIGTERM) == self._on_term:
                    signal.signal(signal.SIGTERM, signal.SIG_DFL)
