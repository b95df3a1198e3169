"""What `log_artifact` and `save_checkpoint` return: whether the bytes are safe by now."""

from __future__ import annotations

import threading
from typing import Optional

from . import _staging
from ._faults import warn

WAIT_SECONDS = 60.0


class Handle:
    """A file or folder on its way to the platform."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.digest: Optional[str] = None
        """`sha256:` and 64 hex digits once stored; None when the answer did not say."""
        self.error: Optional[str] = None
        """Why it was not stored."""
        self._settled = threading.Event()
        self._staged: Optional[_staging.Staged] = None
        self._staged_bytes = 0

    def done(self) -> bool:
        """Whether it is stored or refused. Until then a path that could not be set aside must stay unchanged."""
        return self._settled.is_set()

    def wait(self, timeout: float = WAIT_SECONDS) -> bool:
        """Waits until it is stored or refused, at most `timeout` seconds. True when it is stored."""
        return self._settled.wait(timeout) and self.error is None

    def _settle(self, digest: Optional[str] = None, error: Optional[str] = None, keep: bool = False) -> None:
        if not self._settled.is_set():
            self.digest, self.error = digest, error
            if self._staged is not None and not keep:
                if error is None and self._staged.was_written_to():
                    self.error = "written to in place while it was on its way: what is stored may be a mixture; save under a new name"
                    warn("in place", "%s was %s", self.name, self.error)
                _staging.release(self._staged.inside)
            self._settled.set()

    def __repr__(self) -> str:
        state = "on its way" if not self.done() else self.error or self.digest or "stored"
        return "<{} {}: {}>".format(type(self).__name__, self.name, state)
