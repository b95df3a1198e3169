"""No platform in reach: what is logged goes to the spool file at once, for `footplate sync`."""

from __future__ import annotations

import threading
import time

from ._backlog import Backlog
from ._faults import contained

GATHER_SECONDS = 0.2


class Offline:
    """Moves a session's records to disk, a fraction of a second after they were logged."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="footplate-offline", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._work.set()

    def hurry(self, on: bool) -> None:
        self._work.set()

    def abandon(self) -> None:
        pass

    def _run(self) -> None:
        while True:
            self._work.wait()
            time.sleep(GATHER_SECONDS)
            self._work.clear()
            with contained("spooling"):
                self._backlog.spill_all()
