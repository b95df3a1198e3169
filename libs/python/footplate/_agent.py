"""The way to the agent beside us: one thread, one Unix socket, docs/reference/local-socket.md.

The thread never blocks on the socket, so an agent that hangs costs nothing but its silence. It never gives up while the process lives,
except on a refused hello.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import select
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Optional

from ._backlog import Backlog
from ._faults import LOG, contained, warn

LINE_BYTES_MAX = 1 << 20
WINDOW_OPS_MAX = 256
WINDOW_BYTES_MAX = 4 << 20
HELLO_SECONDS_MAX = 10.0
LINGER_SECONDS = 0.02
"""After the first record the thread lets others gather, so that a burst travels as one op."""

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.1, 5.0
FINAL_CODES = ("VERSION_UNSUPPORTED", "UNKNOWN_RUN", "WRONG_ATTEMPT", "MALFORMED")
IDLE_SECONDS = 30.0

_RANDOM = random.Random()  # an own one: the state of the module's belongs to the training


class Agent:
    """One session with the agent."""

    def __init__(self, path: str, hello: Dict[str, Any], backlog: Backlog, stopped: Callable[[Dict[str, Any]], None]) -> None:
        self._path, self._hello, self._backlog, self._stopped = path, hello, backlog, stopped
        self._waker, self._woken = os.pipe()[::-1]
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._asleep = False
        self._hurried = False
        self._socket: Optional[socket.socket] = None
        self._in, self._out = b"", b""
        self._greeted = False
        self._sent_at: Optional[float] = None
        self._questions: Dict[int, "_Question"] = {}
        self._question_lock = threading.Lock()
        self._next_id = 1
        self.refused: Optional[str] = None
        self._thread = threading.Thread(target=self._run, name="footplate-agent", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def wake(self) -> None:
        """Tells the thread that there is something to send. Cheap when it is awake."""
        if self._asleep:
            self._asleep = False
            try:
                os.write(self._waker, b"!")
            except OSError:
                pass  # the pipe is full: it will wake

    def hurry(self, on: bool) -> None:
        """Without lingering, while somebody waits in flush()."""
        self._hurried = on
        self._asleep = True
        self.wake()

    def ask(self, op: str, timeout: float) -> Optional[Dict[str, Any]]:
        """Asks a question and waits for its answer; None when there was none in time. Asked again after a reconnect."""
        question = _Question(op)
        with self._question_lock:
            identity = self._next_id
            self._next_id += 1
            self._questions[identity] = question
        self._asleep = True
        self.wake()
        try:
            return question.answer if question.ready.wait(timeout) else None
        finally:
            with self._question_lock:
                self._questions.pop(identity, None)

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connection without a word on it."""
        for handle in (self._waker, self._woken):
            os.close(handle)
        if self._socket is not None:
            self._socket.close()

    # The thread ----------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        delay = 0.0
        while self.refused is None:
            began = time.monotonic()
            try:
                self._connect()
                self._converse()
            except Exception as fault:  # whatever the other side says, this thread goes on
                LOG.debug("footplate: the agent at %s: %s", self._path, fault)
                if not self._greeted:
                    warn("agent away", "no agent answers at %s (%s); what is logged waits for it", self._path, fault)
            if self._greeted and time.monotonic() - began > RETRY_SECONDS_MAX:
                delay = 0.0
            self._hang_up()
            if self.refused is None:
                time.sleep(delay * _RANDOM.uniform(0.5, 1.0))
                delay = min(max(RETRY_SECONDS_FIRST, delay * 2), RETRY_SECONDS_MAX)

    def _connect(self) -> None:
        self._greeted = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(HELLO_SECONDS_MAX)
        self._socket.connect(self._path)
        self._socket.setblocking(False)
        self._in = b""
        self._out = _line(self._hello)
        self._sent_at = None
        with self._question_lock:
            for question in self._questions.values():
                question.asked = False

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _converse(self) -> None:
        assert self._socket is not None
        began = time.monotonic()
        while True:
            if self._greeted:
                self._fill()
            elif time.monotonic() - began > HELLO_SECONDS_MAX:
                raise OSError("no answer to the hello")
            self._asleep = True
            waiting = self._greeted and self._may_send()
            events = self._poll(0.0 if waiting else IDLE_SECONDS if self._greeted else 1.0)
            self._asleep = False
            if events & select.POLLOUT:
                self._out = self._out[self._socket.send(self._out[:1 << 18]):]
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                self._read()

    def _may_send(self) -> bool:
        return not self._out and self._backlog.is_new() and self._backlog.window_open(WINDOW_OPS_MAX, WINDOW_BYTES_MAX)

    def _poll(self, timeout: float) -> int:
        """Waits for the socket or for wake(). Returns what the socket is ready for."""
        assert self._socket is not None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
        poll.register(self._woken, select.POLLIN)
        ready = dict(poll.poll(timeout * 1000.0))
        if ready.get(self._woken):
            os.read(self._woken, 4096)
            if not self._hurried:
                time.sleep(LINGER_SECONDS)
        return ready.get(self._socket.fileno(), 0)

    def _fill(self) -> None:
        """Questions first, then as many ops as the window allows."""
        with self._question_lock:
            for identity, question in self._questions.items():
                if not question.asked:
                    question.asked = True
                    self._out += _line({"op": question.op, "id": identity})
        if len(self._out) < WINDOW_BYTES_MAX // 4:
            self._send(self._backlog.take(WINDOW_OPS_MAX, WINDOW_BYTES_MAX))

    def _send(self, ops: List[Any]) -> None:
        for op in ops:
            line = op.line(self._backlog.base)
            if len(line) <= LINE_BYTES_MAX:
                self._out += line
            else:  # the checks at the call make this impossible short of a foreign spool file
                self._out += _line({"n": op.n - self._backlog.base, "op": "tags", "set": {"footplate.too_long": "op {}".format(op.n)}})

    # Reading -------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise OSError("the agent closed the connection")
        *lines, self._in = (self._in + data).split(b"\n")
        if len(self._in) > LINE_BYTES_MAX:
            raise ValueError("a line over the limit")
        for line in lines:
            message = json.loads(line)
            if self._greeted:
                self._hear(message)
            else:
                self._greet(message)

    def _greet(self, message: Dict[str, Any]) -> None:
        error = message.get("error")
        if error is not None:
            if error.get("code") in FINAL_CODES:
                self.refused = "{}: {}".format(error.get("code"), error.get("message"))
                warn("agent refused", "the agent refused this process (%s); what it logs stays in its spool file", self.refused)
            raise OSError(error.get("message"))
        acked = message["acked"] + self._backlog.base
        if acked < self._backlog.answered:
            warn("agent lost", "the agent has lost %d records that it had acknowledged", self._backlog.answered - acked)
            self._hello = dict(self._hello, session=secrets.token_hex(16))
            self._backlog.renumber(self._hello["session"])
            raise OSError("a new session is needed")
        self._greeted = True
        self._answered(acked, None)
        self._send(self._backlog.on_the_way())

    def _hear(self, message: Dict[str, Any]) -> None:
        if "ack" in message:
            self._answered(message["ack"] + self._backlog.base, message.get("digest"))
        elif "id" in message:
            with self._question_lock:
                question = self._questions.get(message["id"])
            if question is not None:
                question.answer = message
                question.ready.set()
        elif "stop" in message:
            with contained("stop"):
                self._stopped(message["stop"])
        elif "error" in message:
            error = message["error"]
            if "n" not in error:
                raise OSError("{}: {}".format(error.get("code"), error.get("message")))
            n = error["n"] + self._backlog.base
            text = "{}: {}".format(error.get("code"), error.get("message"))
            if self._backlog.refuse(n):
                warn("refused " + str(error.get("code")), "the platform refused a record: %s", text)
                self._backlog.settle(n, None, text)

    def _answered(self, n: int, digest: Optional[str]) -> None:
        for settled in self._backlog.answer(n):
            self._backlog.settle(settled, digest if settled == n else None, None)


class _Question:
    def __init__(self, op: str) -> None:
        self.op = op
        self.asked = False
        self.ready = threading.Event()
        self.answer: Optional[Dict[str, Any]] = None


def _line(message: Dict[str, Any]) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"
