"""What a process has logged and nobody has answered yet: memory first, then a spool file, in the order it was logged.

```
log() --> inbox (memory) --> [spool file, when the inbox runs full] --> on the way (memory) --> answered
```

Whoever moves records out of the inbox makes them into ops and numbers them 1, 2, 3, ...; a number never changes after that, so an op
that is sent twice is known as one. `add` never touches the disk or the network. It never drops a record without counting it.
"""

from __future__ import annotations

import collections
import fcntl
import json
import os
import threading
import time
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple, Union

from . import _frames
from ._arguments import wire_number
from ._faults import warn
from ._handle import Handle

INBOX_POINTS_MAX = 100_000
INBOX_BYTES_MAX = 16 << 20
SPILL_SHARE = 0.5
"""The inbox goes to the spool file when it is so full; below that a slow platform costs memory only."""

ADD_WAIT_SECONDS_MAX = 0.1
"""At most so long `add` waits for a full inbox to go to disk, and not again before the disk has moved."""

METRICS_POINTS_MAX = 1_000
METRICS_BYTES_MAX = 256 << 10
PERSIST_WAIT_SECONDS_MAX = 5.0
"""At its end a process waits so long for a disk that hangs."""

SPOOL_BYTES_MAX = 1 << 30
"""The default bound of one process's spool file; FOOTPLATE_SPOOL_MAX_BYTES sets another."""

Point = Tuple[str, int, int, float]
Record = Union[List[Point], Dict[str, Any]]


class Op:
    """An op with its number, and its number among the metric batches (0 when it is none). `body` is its JSON object without either."""

    __slots__ = ("n", "batch", "body", "from_disk", "lost")

    def __init__(self, n: int, batch: int, body: bytes, from_disk: bool = False, lost: bool = False) -> None:
        self.n, self.batch, self.body, self.from_disk, self.lost = n, batch, body, from_disk, lost

    def line(self, base: int) -> bytes:
        """The op as a line of the local socket, numbered from `base`."""
        return b'{"n":%d,' % (self.n - base) + self.body[1:] + b"\n"

    def frame(self) -> bytes:
        """The op as the spool file keeps it."""
        return b'{"n":%d,"batch":%d,' % (self.n, self.batch) + self.body[1:]

    @classmethod
    def from_frame(cls, frame: Dict[str, Any]) -> "Op":
        """The inverse of `frame`, read as JSON."""
        body = {key: value for key, value in frame.items() if key not in ("n", "batch")}
        return cls(frame["n"], frame.get("batch", 0), _compact(body), from_disk=True)


class Backlog:
    """The records of one session. Safe to use from several threads."""

    def __init__(self, header: Callable[[], Dict[str, Any]], folder: str, spool_bytes_max: int = SPOOL_BYTES_MAX) -> None:
        self._header, self._folder, self._spool_bytes_max = header, folder, spool_bytes_max
        self.lock = threading.RLock()  # reentrant: a signal handler may log in the middle of a log()
        self.changed = threading.Condition(self.lock)
        self._inbox: Deque[Record] = collections.deque()
        self._inbox_points = 0
        self._inbox_bytes = 0
        self.dropped_points = 0
        self.dropped_ops = 0
        self._dropped_told = 0
        self._disk_stalled = False
        # Guarded by `order`, which may be held across disk writes and which `add` never takes.
        self.order = threading.Lock()
        self._next_n = 1
        self._batches = 0
        self.answered = 0
        self.base = 0
        self._on_the_way: "collections.OrderedDict[int, Op]" = collections.OrderedDict()
        self._refused: Set[int] = set()
        self._unwritten: Optional[Op] = None
        self.handles: Dict[int, Handle] = {}
        self._spool: Optional[_Spool] = None
        self._spiller: Optional[threading.Thread] = None
        self._pressure = threading.Event()
        self.wake: Callable[[], None] = lambda: None

    # Filling -------------------------------------------------------------------------------------------------------------

    def add(self, record: Record) -> bool:
        """Takes in the points of one call or one op. False when it had to be dropped (and counted)."""
        points, size = (len(record), sum(120 + len(point[0]) for point in record)) if isinstance(record, list) else (0, _size(record))
        with self.lock:
            if not self._fits(points, size) and not self._wait_for_room(points, size):
                self.dropped_points += points
                self.dropped_ops += 0 if points else 1
                warn("dropped", "the spool file cannot take what is logged (full or broken disk): %d points and %d other records dropped so far",
                     self.dropped_points, self.dropped_ops)
                return False
            self._inbox.append(record)
            self._inbox_points += points
            self._inbox_bytes += size
            pressed = self._pressed()
        if pressed:
            self._spill_soon()
        self.wake()
        return True

    def _fits(self, points: int, size: int) -> bool:
        return self._inbox_points + points <= INBOX_POINTS_MAX and self._inbox_bytes + size <= INBOX_BYTES_MAX

    def _pressed(self) -> bool:
        return self._inbox_points > INBOX_POINTS_MAX * SPILL_SHARE or self._inbox_bytes > INBOX_BYTES_MAX * SPILL_SHARE

    def _wait_for_room(self, points: int, size: int) -> bool:
        if self._disk_stalled:
            return False
        self._spill_soon()
        deadline = time.monotonic() + ADD_WAIT_SECONDS_MAX
        while not self._fits(points, size):
            left = deadline - time.monotonic()
            if left <= 0:
                self._disk_stalled = True
                return False
            self.changed.wait(left)
        return True

    def _spill_soon(self) -> None:
        self._pressure.set()
        if self._spiller is None:
            self._spiller = threading.Thread(target=self._spill_for_ever, name="footplate-spill", daemon=True)
            try:
                self._spiller.start()
            except RuntimeError:  # the interpreter is ending: persist() writes what is left
                self._spiller = None

    # Moving --------------------------------------------------------------------------------------------------------------

    def _seal(self) -> Optional[Op]:
        """The oldest records of the inbox as one numbered op. Hold `order`."""
        with self.lock:
            if not self._inbox:
                self._inbox_points = self._inbox_bytes = 0  # a signal handler that logs may have made them drift
                return self._seal_dropped()
            record = self._inbox.popleft()
            if isinstance(record, dict):
                self._inbox_bytes -= _size(record)
                handle = record.pop("handle", None)
                op = self._number(_compact(record))
                if handle is not None:
                    self.handles[op.n] = handle
                return op
            points: List[Point] = []
            size = 0
            while True:
                points.extend(record)
                size += sum(120 + len(point[0]) for point in record)
                if not self._inbox or isinstance(self._inbox[0], dict):
                    break
                if len(points) + len(self._inbox[0]) > METRICS_POINTS_MAX or size > METRICS_BYTES_MAX:
                    break
                record = self._inbox.popleft()
                assert isinstance(record, list)
            self._inbox_points -= len(points)
            self._inbox_bytes -= size
            wire = [(name, step, at, wire_number(value)) for name, step, at, value in points]
            return self._number(_compact({"op": "metrics", "points": wire}), is_batch=True)

    def _seal_dropped(self) -> Optional[Op]:
        """Once there is room again, the record itself says what it lacks."""
        dropped = self.dropped_points + self.dropped_ops
        if dropped == self._dropped_told:
            return None
        self._dropped_told = dropped
        tags = {"footplate.dropped_points": str(self.dropped_points), "footplate.dropped_records": str(self.dropped_ops)}
        return self._number(_compact({"op": "tags", "set": tags}))

    def _number(self, body: bytes, is_batch: bool = False) -> Op:
        self._batches += is_batch
        op = Op(self._next_n, self._batches if is_batch else 0, body)
        self._next_n += 1
        self._disk_stalled = False
        self.changed.notify_all()
        return op

    def take(self, ops_max: int, bytes_max: int) -> List[Op]:
        """The next ops to send, oldest first; they are on the way until answered."""
        taken: List[Op] = []
        with self.order:
            size = sum(len(op.body) for op in self._on_the_way.values())
            while len(self._on_the_way) < ops_max and size < bytes_max:
                op = self._oldest()
                if op is None:
                    break
                self._on_the_way[op.n] = op
                size += len(op.body)
                taken.append(op)
        return taken

    def _oldest(self) -> Optional[Op]:
        if self._spool is not None and self._spool.unread():
            op = self._spool.read()
            if op.lost:
                self.settle(op.n, None, "lost on a damaged disk")
            return op
        if self._unwritten is not None:
            op, self._unwritten = self._unwritten, None
            return op
        return self._seal()

    def window_open(self, ops_max: int, bytes_max: int) -> bool:
        """Whether `take` with these bounds would take anything now."""
        with self.order:
            return len(self._on_the_way) < ops_max and sum(len(op.body) for op in self._on_the_way.values()) < bytes_max

    def settle(self, n: int, digest: Optional[str], error: Optional[str]) -> None:
        """Tells whoever handed over a file with op `n` what became of it."""
        handle = self.handles.pop(n, None)
        if handle is not None:
            handle._settle(digest, error)

    def on_the_way(self) -> List[Op]:
        """What was sent and not answered, oldest first."""
        with self.order:
            return list(self._on_the_way.values())

    def answer(self, n: int) -> List[int]:
        """Everything up to `n` is answered. Returns which numbers that settles."""
        with self.order:
            settled = [known for known in self._on_the_way if known <= n]
            for known in settled:
                del self._on_the_way[known]
            self._advance(min(n, self._next_n - 1))
        return settled

    def refuse(self, n: int) -> bool:
        """Op `n` alone is answered, with a refusal. False when it was not on the way."""
        with self.order:
            known = self._on_the_way.pop(n, None) is not None
            if known:
                self._refused.add(n)
                self._advance(self.answered)
        return known

    def _advance(self, n: int) -> None:
        with self.lock:
            self.answered = max(self.answered, n)
            while self.answered + 1 in self._refused:
                self.answered += 1
            self._refused = {refused for refused in self._refused if refused > self.answered}
            self.changed.notify_all()
        if self._spool is not None and self._spool.last_n <= self.answered:
            self._spool.remove()
            self._spool = None

    def renumber(self, session: str) -> None:
        """What is unanswered goes on in a new session, from 1: the other side has lost the old one."""
        with self.order:
            self.base = self.answered
            if self._spool is not None:
                self._spool.note({"session": session, "base": self.base})

    def is_new(self) -> bool:
        """Whether anything waits to be sent for the first time."""
        spool = self._spool
        return bool(self._inbox) or self._unwritten is not None or (spool is not None and spool.unread())

    def is_new_in_memory(self) -> bool:
        """Whether anything was neither sent nor written to the spool file."""
        return bool(self._inbox) or self._unwritten is not None

    def is_idle(self) -> bool:
        """Whether everything that was logged is answered."""
        with self.lock:
            return not self._inbox and self.answered >= self._next_n - 1

    def wait_idle(self, deadline: float, hopeless: Callable[[], object]) -> bool:
        """Waits until everything is answered, at most to `deadline` of the monotonic clock, or until it is hopeless."""
        with self.lock:
            while not self.is_idle():
                left = deadline - time.monotonic()
                if left <= 0 or hopeless():
                    return False
                self.changed.wait(min(left, 0.2))
            return True

    # Spooling ------------------------------------------------------------------------------------------------------------

    def _spill_for_ever(self) -> None:
        while True:
            self._pressure.wait()
            self._pressure.clear()
            try:
                while self._pressed() and self._spill_one():
                    pass
            except Exception as fault:
                warn("spill", "the spool file cannot be written: %s", fault)

    def _spill_one(self) -> bool:
        """Moves the oldest records of the inbox to the spool file. False when the disk does not take them: they stay in memory."""
        with self.order:
            try:
                spool = self._open_spool()
                spool.check_room()
                op = self._unwritten or self._seal()
                if op is None:
                    return False
                self._unwritten = op  # its number is given, so it keeps its place until it is written or sent
                spool.write(op)
                self._unwritten = None
            except OSError as fault:
                warn("spill", "the spool file cannot be written: %s", fault)
                return False
        return True

    def _open_spool(self) -> "_Spool":
        if self._spool is None:
            self._spool = _Spool(self._folder, dict(self._header(), base=self.base), self._spool_bytes_max)
            warn("spilling", "what is logged goes to %s until the platform takes it", self._spool.path)
        return self._spool

    def spill_all(self) -> None:
        """Moves what is in memory to the spool file now."""
        while self.is_new_in_memory() and self._spill_one():
            pass

    def persist(self) -> Optional[str]:
        """Writes all that is unanswered to the spool file, for `footplate sync`. The file's path, or None when nothing was left."""
        if not self.order.acquire(timeout=PERSIST_WAIT_SECONDS_MAX):
            raise OSError("the disk of the spool file does not answer")
        try:
            if self.is_idle():
                return None
            spool = self._open_spool()
            for op in self._on_the_way.values():
                if not op.from_disk:
                    op.from_disk = True  # there for `sync`; this process does not read it back
                    spool.write(op)
            left = self._unwritten or self._seal()
            while left is not None:
                self._unwritten = left
                spool.write(left)
                left = self._seal()
            self._unwritten = None
            spool.note({"answered": self.answered})
            spool.sync()
            return spool.path
        finally:
            self.order.release()

    def wait_spilled(self, deadline: float) -> bool:
        """Waits until nothing is in memory alone, at most to `deadline` of the monotonic clock."""
        with self.lock:
            while self.is_new_in_memory():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self.changed.wait(min(left, 0.5))
            return True

    def staged_bytes(self) -> int:
        """Bytes set aside for files that wait to be answered."""
        return sum(handle._staged_bytes for handle in list(self.handles.values()))

    def count_unanswered(self) -> int:
        """Ops on the way, in the spool file and, at least, in memory."""
        with self.lock:
            return self._next_n - 1 - self.answered + len(self._inbox)

    def drop_reader(self) -> None:
        """In a forked child: forgets the parent's spool file without touching it."""
        if self._spool is not None:
            self._spool.close()
            self._spool = None


class _Spool:
    """One session's spool file, written at its end and read from its start. Locked while its process lives."""

    def __init__(self, folder: str, header: Dict[str, Any], bytes_max: int) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.path = os.path.join(folder, "{}-{}.spool".format(header["run"], header["session"]))
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass  # not every file system locks; `sync` then trusts the numbers of the ops
        self._bytes_max = bytes_max
        self._size = os.fstat(self._handle).st_size
        self.last_n = 0
        self._ranges: Deque[List[int]] = collections.deque()  # which ops were written and not read back, as [first, last]
        self._ahead: Optional[Dict[str, Any]] = None
        start = self._size
        if start == 0:
            self.note({"header": header})
        self._reader = _frames.Reader(self.path, start)

    def check_room(self) -> None:
        if self._size >= self._bytes_max:
            raise OSError("{} holds {:,} bytes, its limit (FOOTPLATE_SPOOL_MAX_BYTES)".format(self.path, self._size))

    def write(self, op: Op) -> None:
        self._append(op.frame())
        self.last_n = max(self.last_n, op.n)
        if not op.from_disk:
            if self._ranges and self._ranges[-1][1] == op.n - 1:
                self._ranges[-1][1] = op.n
            else:
                self._ranges.append([op.n, op.n])

    def note(self, frame: Dict[str, Any]) -> None:
        self._append(_compact(frame))

    def _append(self, payload: bytes) -> None:
        frame = _frames.pack(payload)
        try:
            _frames.write_all(self._handle, frame)
        except OSError:
            os.ftruncate(self._handle, self._size)  # a torn frame would be skipped, but why leave it
            raise
        self._size += len(frame)

    def sync(self) -> None:
        os.fsync(self._handle)

    def unread(self) -> bool:
        return bool(self._ranges)

    def read(self) -> Op:
        """The next op that was written here and not yet read back. One that the disk has damaged is replaced by a tag that says so."""
        expected = self._ranges[0][0]
        frame = self._ahead or self._next_frame()
        while frame is not None and frame["n"] < expected:
            frame = self._next_frame()
        self._ahead = None
        self._ranges[0][0] += 1
        if self._ranges[0][0] > self._ranges[0][1]:
            self._ranges.popleft()
        if frame is not None and frame["n"] == expected:
            return Op.from_frame(frame)
        self._ahead = frame
        warn("damaged", "%s is damaged: a record was lost", self.path)
        body = _compact({"op": "tags", "set": {"footplate.damaged": "op {}".format(expected)}})
        return Op(expected, 0, body, from_disk=True, lost=True)

    def _next_frame(self) -> Optional[Dict[str, Any]]:
        while True:
            try:
                payload = self._reader.next()
                frame = None if payload is None else json.loads(payload)
            except (OSError, ValueError) as fault:
                warn("spool read", "the spool file cannot be read: %s", fault)
                return None
            if frame is None or "n" in frame:
                return frame

    def close(self) -> None:
        os.close(self._handle)
        self._reader.close()

    def remove(self) -> None:
        try:
            os.unlink(self.path)
        except OSError as fault:
            warn("spool remove", "the spool file cannot be removed: %s", fault)
        self.close()


def _compact(value: Dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "backslashreplace")


def _size(record: Dict[str, Any]) -> int:
    """About how much memory an op takes; exact enough for a bound, and the same each time it is asked for."""
    return 200 + sum(len(str(key)) + (len(str(value)) if not isinstance(value, (int, float)) else 24) for key, value in record.items() if key != "handle")
