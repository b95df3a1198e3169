"""A run, as the process that trains it sees it. Its methods return at once and contain their own faults."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Union

from . import _arguments, _ids, _places, _staging
from ._agent import Agent
from ._backlog import METRICS_POINTS_MAX, SPOOL_BYTES_MAX, Backlog, Point
from ._direct import Direct
from ._faults import LOG, contained, warn
from ._handle import Handle
from ._offline import Offline
from ._places import Place
from ._stop import Stop, Stopping

EXIT_SECONDS_MAX = 10.0
"""At its end a process waits so long for what it has logged to be taken in; FOOTPLATE_EXIT_SECONDS sets another."""

CHECKPOINT_SECONDS_MAX = 300.0
"""`latest_checkpoint` waits so long for the agent, which may have to download it first."""

STAGED_BYTES_MAX = 8 << 30
"""Files set aside and not yet answered; beyond, the user's own paths are handed over. FOOTPLATE_STAGED_MAX_BYTES sets another."""

OBJECTIVE_ELSEWHERE = "objective"
"""What `report` logs in a run that is no trial."""

PRUNED = "cancelled"
"""The cause of the stop by which a trial is pruned: its job is cancelled."""

PathLike = Union[str, "os.PathLike[str]"]


class CheckpointUnknown(RuntimeError):
    """Nobody could say which checkpoint is the latest. Raised, not contained: to start from nothing by mistake would throw work away."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint to resume from. Only read what is at `path`."""

    step: Optional[int]
    path: str
    digest: Optional[str]
    metadata: Dict[str, Any] = field(default_factory=dict)


@dataclass
class Opening:
    """Which run this process logs to, and what to create when it is a new one."""

    run: str
    attempt: int
    rank: int
    place: Place
    socket: Optional[str] = None
    create: Optional[Dict[str, Any]] = None
    """name, experiment, tags and config of a new run; None when the run exists."""
    muted: bool = False
    """No run is known to this rank: nothing is recorded."""


class Run:
    """The run of this process. Get it from `footplate.init()`."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._stopping = Stopping()
        self._next_steps: Dict[str, Iterator[int]] = {}
        self._last_checkpoint: Optional[Checkpoint] = None
        self._finished: Optional[str] = None
        self._folder = _places.spool_folder()
        self._open()

    def _open(self) -> None:
        """A new session. Its thread starts with the first record."""
        self._session = _ids.session_id()
        self._backlog = Backlog(self._header, self._folder, _places.bytes_from_environment("FOOTPLATE_SPOOL_MAX_BYTES", SPOOL_BYTES_MAX))
        self._start_lock = threading.RLock()  # reentrant: a signal handler may log in the middle of the first log()
        self._started = False
        opening = self._opening
        self._door: Union[Agent, Direct, Offline]
        if opening.socket:
            hello = {"v": 1, "op": "hello", "run": self.id, "attempt": self.attempt, "rank": self.rank, "session": self._session}
            self._door = Agent(opening.socket, hello, self._backlog, self._stopping.asked)
        elif opening.place.address:
            self._door = Direct(opening.place, self._header(), self._backlog)
        else:
            self._door = Offline(self._backlog)

    def _header(self) -> Dict[str, Any]:
        opening = self._opening
        return {"v": 1, "run": self.id, "attempt": self.attempt, "rank": self.rank, "session": self._session, "project": opening.place.project,
                "create": opening.create, "agent": bool(opening.socket), "made_ms": int(time.time() * 1000)}

    # Who it is -----------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """32 lower-case hex digits."""
        return self._opening.run

    @property
    def attempt(self) -> int:
        """1, 2, ...: which try of the job this is; 0 without a job."""
        return self._opening.attempt

    @property
    def rank(self) -> int:
        """This process's rank in the gang."""
        return self._opening.rank

    @property
    def project(self) -> str:
        """The project's slug."""
        return self._opening.place.project

    def __repr__(self) -> str:
        return "<footplate run {} attempt {} rank {}>".format(self.id, self.attempt, self.rank)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        left_well = kind is None or (issubclass(kind, SystemExit) and value is not None and value.code in (None, 0))
        self.finish("finished" if left_well else "failed")

    # Recording -----------------------------------------------------------------------------------------------------------

    def log(self, metrics: Mapping[str, Any], step: Any = None) -> None:
        """Records one value a name, all at one step. Without a step each name counts its own: 0, 1, 2, ...

        Values are numbers, or NumPy and Torch scalars; NaN and infinities are kept. Nothing of a call is recorded when a part of it is wrong.
        """
        checked, at = _arguments.points(metrics, step)
        with contained("log"):
            now = time.time_ns() // 1_000_000
            points: List[Point] = []
            for name, value in checked:
                if at is not None:
                    self._next_steps[name] = itertools.count(at + 1)
                # `next` is one step of the interpreter: neither a thread nor a signal handler gets in between
                place = next(self._next_steps.setdefault(name, itertools.count())) if at is None else at
                points.append((name, place, now, value))
            for start in range(0, len(points), METRICS_POINTS_MAX):
                self._add(points[start:start + METRICS_POINTS_MAX])

    def report(self, value: Any, step: Any) -> None:
        """Records the objective of a sweep's trial at a step: the metric that the sweep goes by (FOOTPLATE_OBJECTIVE), `objective` elsewhere.

        The same as logging that metric by its name; the sweep looks at what rank 0 reports at its rungs, and at the run's end.
        """
        self.log({os.environ.get("FOOTPLATE_OBJECTIVE") or OBJECTIVE_ELSEWHERE: value}, step)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """Records params. Numbers, text, booleans, lists and dicts keep their type; other objects are recorded as text."""
        checked = _arguments.json_object("param", params)
        with contained("log_params"):
            for part in _parts(checked):
                self._add({"op": "params", "params": part})

    def set_tags(self, tags: Mapping[str, Any]) -> None:
        """Sets tags, text to text; a tag that is there gets the new value."""
        checked = _arguments.tags(tags)
        with contained("set_tags"):
            for part in _parts(checked):
                self._add({"op": "tags", "set": part})

    def note(self, text: str) -> None:
        """The run's note; the last one stands."""
        checked = _arguments.text("note", text)
        with contained("note"):
            self._add({"op": "note", "note": checked})

    def conclusion(self, text: str) -> None:
        """What the run has shown; the last one stands."""
        checked = _arguments.text("conclusion", text)
        with contained("conclusion"):
            self._add({"op": "note", "conclusion": checked})

    def log_artifact(self, path: PathLike, name: Optional[str] = None) -> Handle:
        """Records a file, or a folder with all that is in it. `name` is its path in the run; its own name unless given."""
        place = _path("artifact", path)
        if name is not None:
            _arguments.artifact_name(name)
        handle = Handle(name or os.path.basename(place))
        with contained("log_artifact"):
            try:
                _arguments.artifact_name(handle.name)
                self._hand_over(place, handle, {"op": "artifact", "name": handle.name})
            except (OSError, ValueError) as fault:
                self._not_handed_over(handle, place, fault)
        return handle

    def save_checkpoint(self, path: PathLike, step: Any = None, metadata: Optional[Mapping[str, Any]] = None) -> Handle:
        """Records a file or folder as the run's latest checkpoint. Write it whole under a new name first."""
        place = _path("checkpoint", path)
        at = None if step is None else _arguments.step(step)
        about = {} if metadata is None else _arguments.metadata(metadata)
        handle = Handle("checkpoint" if at is None else "checkpoint at step {}".format(at))
        with contained("save_checkpoint"):
            try:
                if isinstance(self._door, Offline) or self._opening.muted:
                    _staging.check(place)
                    handle._settle()  # it stays where it is: there is nobody to hand it to
                else:
                    self._hand_over(place, handle, {"op": "checkpoint", "step": at, "metadata": about})
                self._last_checkpoint = Checkpoint(at, place, None, about)
            except (OSError, ValueError) as fault:
                self._not_handed_over(handle, place, fault)
        return handle

    def _hand_over(self, place: str, handle: Handle, op: Dict[str, Any]) -> None:
        if self._opening.muted:
            _staging.check(place)
            return handle._settle()
        size, _ = _staging.check(place)
        limit = _places.bytes_from_environment("FOOTPLATE_STAGED_MAX_BYTES", STAGED_BYTES_MAX)
        given = place
        if self._backlog.staged_bytes() + size <= limit:
            staged = _staging.stage(place, os.path.join(self._folder, "staged", self._session))
            if staged is not None:
                given, handle._staged, handle._staged_bytes = staged.path, staged, size
        else:
            warn("staged", "files of %d bytes wait for the platform; leave %s unchanged until its handle is done", limit, place)
        if not self._add(dict(op, path=given, handle=handle)):
            handle._settle(error="dropped: the spool file cannot take more")
        elif isinstance(self._door, Offline) and handle._staged:
            handle._settle(keep=True)

    def _not_handed_over(self, handle: Handle, place: str, fault: Exception) -> None:
        warn("handing over", "%s was not recorded: %s", place, fault)
        handle._settle(error=str(fault))

    def _add(self, record: Any) -> bool:
        if self._opening.muted:
            return True
        if not self._started:
            self._start()
        return self._backlog.add(record)

    def _start(self) -> None:
        with self._start_lock:
            if self._started:
                return
            self._started = True
            self._backlog.wake = self._door.wake
            from . import _exit
            _exit.remember(self)
            with contained("starting the thread"):
                self._door.start()

    # Asking --------------------------------------------------------------------------------------------------------------

    def latest_checkpoint(self, timeout: float = CHECKPOINT_SECONDS_MAX) -> Optional[Checkpoint]:
        """The checkpoint to resume from; None when there is none, for certain.

        Under an agent this waits, at most `timeout` seconds, and raises CheckpointUnknown when there was no answer. In a gang let rank 0 ask and
        tell the others. Without an agent: what this process has saved last.
        """
        if not isinstance(self._door, Agent):
            return self._last_checkpoint
        self._start()
        answer = self._door.ask("latest_checkpoint", timeout)
        if answer is None or "error" in answer or "checkpoint" not in answer:
            reason = (answer or {}).get("error", {}).get("message") or self._door.refused or "no answer in {:g} s".format(timeout)
            raise CheckpointUnknown("the agent cannot say which checkpoint is the latest: {}".format(reason))
        found = answer["checkpoint"]
        if found is None:
            return None
        return Checkpoint(found.get("step"), found["path"], found.get("digest"), dict(found.get("metadata") or {}))

    def stop_requested(self) -> bool:
        """Whether the run should save a checkpoint and end. The first call takes over TERM, if nobody has (and only in the main thread)."""
        self._stopping.listen()
        if not self._started and isinstance(self._door, Agent):
            with contained("stop_requested"):
                self._start()
        return self._stopping.stop is not None

    def should_prune(self) -> bool:
        """Whether this trial was given up: pruned at a rung, or its sweep (or the run itself) cancelled. It should end; what it saves is not used.

        Says what the agent has told so far and never waits; False while nothing is known, and without an agent. A stop that is not for good (a
        preemption, a drained node) is no pruning: ask `stop_requested` too, which is where the first call takes over TERM, as here.
        """
        return self.stop_requested() and self._stopping.stop is not None and self._stopping.stop.cause == PRUNED

    @property
    def stop(self) -> Optional[Stop]:
        """Why and in what time, once it is asked to stop."""
        return self._stopping.stop

    # Ending --------------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = EXIT_SECONDS_MAX) -> bool:
        """Waits until all that was logged is taken in, at most `timeout` seconds. False when something is still on its way."""
        with contained("flush"):
            if not self._started:
                return True
            deadline = time.monotonic() + timeout
            self._door.hurry(True)
            try:
                door = self._door
                if isinstance(door, Offline):
                    return self._backlog.wait_spilled(deadline)
                return self._backlog.wait_idle(deadline, lambda: door.refused)
            finally:
                self._door.hurry(False)
        return False

    def finish(self, status: Optional[str] = None, timeout: float = EXIT_SECONDS_MAX) -> bool:
        """Says what the script thinks of the run (`finished` or `failed`), and flushes. What is logged afterwards is still recorded."""
        if status not in (None, "finished", "failed"):
            raise ValueError("status {!r}: must be 'finished' or 'failed'".format(status))
        with contained("finish"):
            self._finished = status or "finished"
            self._add({"op": "finish", "status": self._finished})
        return self.flush(timeout)

    def _leave(self, status: str, seconds: float) -> None:
        """At the end of the process: a bounded flush, then what is left goes to the spool file."""
        if not self._started:
            return
        with contained("leaving"):
            if self._finished is None and self._opening.create is not None:
                self.finish(status, timeout=0.0)  # whoever created a run ends it
            try:
                self.flush(seconds)
            except KeyboardInterrupt:
                pass  # whoever is in a hurry loses nothing: the rest goes to disk
            left = self._backlog.count_unanswered()
            path = self._backlog.persist()
            if path is not None:
                LOG.warning("footplate: %d records wait in %s; `python -m footplate sync` sends them", left, path)
            elif not self._backlog.handles:
                _staging.forget(os.path.join(self._folder, "staged", self._session))

    def _forked(self) -> None:
        """In a forked child: a session of its own, nothing of the parent's."""
        self._stopping.forget()
        door, backlog = self._door, self._backlog
        self._open()
        with contained("letting go after a fork"):
            door.abandon()
            backlog.drop_reader()


def _parts(checked: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Cuts a dict that would not fit in one op."""
    parts: List[Dict[str, Any]] = [{}]
    size = 0
    for key, value in checked.items():
        added = len(key.encode()) + _arguments.json_bytes(value) + 8
        if parts[-1] and (size + added > _arguments.OP_BYTES_MAX or len(parts[-1]) >= _arguments.KEYS_MAX):
            parts.append({})
            size = 0
        parts[-1][key] = value
        size += added
    return [part for part in parts if part]


def _path(what: str, path: PathLike) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError("{} path {!r}: must be str or a path, not {}".format(what, path, type(path).__name__))
    place = os.fspath(path)
    if not isinstance(place, str) or not place:
        raise TypeError("{} path {!r}: must be text and not empty".format(what, path))
    return os.path.abspath(place)
