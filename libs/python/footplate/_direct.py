"""The way to the platform without an agent: one thread that sends a session's ops through the JSON door, in order, each until it is answered.

Every call carries a number or an idempotency key, so that sending it twice stores it once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import _arguments
from ._backlog import Backlog, Op
from ._door import Door, FootplateError, Refused, Unavailable, pick
from ._faults import LOG, warn
from ._places import Place

RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.25, 15.0
DOUBTFUL_TRIES_MAX = 10
"""So often an op is sent that the platform answers with "no such run" (its view may be behind) or with a fault of its own. Then it is refused, lest it
hold up all that follows."""
DOUBTFUL_CODES = ("not_found", "internal", "unknown", "data_loss")
GATHER_SECONDS = 0.1
BLOB_BYTES_MAX = 4 << 20
"""The largest file that goes through the JSON door."""
ARTIFACTS_MAX = 500
"""Files named in one call."""

_RANDOM = random.Random()  # an own one: the state of the module's belongs to the training


class Sender:
    """Turns ops into calls. Also used by `sync`, for ops from a file."""

    def __init__(self, door: Door, header: Dict[str, Any]) -> None:
        self._door, self._header = door, header
        self._created = header.get("create") is None
        self._batches = 0

    def close(self) -> None:
        """Closes the connection."""
        self._door.close()

    def create(self) -> None:
        """Creates the run, if this process is to. Does nothing the second time."""
        create = self._header.get("create")
        if self._created or create is None:
            return
        params = {key: json.dumps(value, ensure_ascii=False) for key, value in (create.get("config") or {}).items()}
        self._door.call("RunService", "CreateRun", {
            "runId": self._header["run"], "requestId": self._header["run"], "name": create.get("name") or "",
            "experiment": create.get("experiment") or "", "tags": create.get("tags") or {}, "params": params})
        self._created = True

    def send(self, op: Op) -> Optional[str]:
        """Sends one op; the digest when it was a file. Raises FootplateError."""
        document = json.loads(op.body)
        act = getattr(self, "_send_" + str(document["op"]), None)
        if act is None:
            raise Refused("unimplemented", "op {!r} cannot be sent without an agent".format(document["op"]))
        request = {"runId": self._header["run"], "requestId": "{}-{}".format(self._header["session"], op.n)}
        digest: Optional[str] = act(op, document, request)
        return digest

    def _send_metrics(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> None:
        if not self._batches:
            self._batches = op.batch - 1
        while self._batches + 1 < op.batch:  # a batch that a damaged disk has lost: its number is used up all the same
            self._log_batch(self._batches + 1, {})
        series: Dict[str, List[Dict[str, Any]]] = {}
        for name, step, at, value in document["points"]:
            series.setdefault(name, []).append({"step": str(step), "timeMs": str(at), "value": value})
        self._log_batch(op.batch, series)

    def _log_batch(self, n: int, series: Dict[str, List[Dict[str, Any]]]) -> None:
        header = self._header
        answer = self._door.call("MetricService", "LogBatch", {
            "runId": header["run"], "attempt": header["attempt"], "rank": header["rank"], "session": header["session"], "n": str(n),
            "series": [{"name": name, "points": points} for name, points in series.items()]})
        self._batches = n
        implausible = int(pick(answer, "implausible_times", 0) or 0)
        if implausible:
            warn("implausible times {}".format(header["run"]), "run %s: the platform finds the time of %d points implausible (before 2000, or over a "
                 "day ahead) and keeps it as it is; look at this machine's clock", header["run"], implausible, once=True)

    def _send_params(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> None:
        params = {key: json.dumps(value, ensure_ascii=False) for key, value in document["params"].items()}
        self._door.call("RunService", "LogParams", dict(request, params=params))

    def _send_tags(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> None:
        self._door.call("RunService", "SetTags", dict(request, set=document["set"]))

    def _send_note(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> None:
        texts = {key: document[key] for key in ("note", "conclusion") if key in document}
        self._door.call("RunService", "NoteRun", dict(request, **texts))

    def _send_finish(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> None:
        outcome = "OUTCOME_SUCCEEDED" if document["status"] == "finished" else "OUTCOME_FAILED"
        sessions = [{"session": self._header["session"], "batches": str(self._batches)}] if self._batches else []
        self._door.call("RunService", "FinishRun", dict(request, outcome=outcome, sessions=sessions))

    def _send_artifact(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> Optional[str]:
        return self._upload(document["path"], document["name"], request)

    def _send_checkpoint(self, op: Op, document: Dict[str, Any], request: Dict[str, Any]) -> Optional[str]:
        step = document.get("step")
        name = "checkpoints/{}".format("latest" if step is None else "step-{}".format(step))
        return self._upload(document["path"], name, request)

    def _upload(self, path: str, name: str, request: Dict[str, Any]) -> Optional[str]:
        artifacts = []
        for file, artifact in _files(path, name):
            size, digest = self._put(file)
            artifacts.append({"path": artifact, "digest": digest, "bytes": str(size), "attempt": self._header["attempt"], "rank": self._header["rank"]})
        if not artifacts:
            raise Refused("invalid_argument", "{}: a folder without a file".format(path))
        for start in range(0, len(artifacts), ARTIFACTS_MAX):
            part = dict(request, artifacts=artifacts[start:start + ARTIFACTS_MAX], requestId="{}-{}".format(request["requestId"], start))
            self._door.call("ArtifactService", "LogArtifacts", part)
        return "sha256:{}".format(artifacts[0]["digest"]) if os.path.isfile(path) else None

    def _put(self, file: str) -> Tuple[int, str]:
        try:
            with open(file, "rb") as stream:
                data = stream.read(BLOB_BYTES_MAX + 1)
        except OSError as fault:
            raise Refused("invalid_argument", str(fault)) from fault
        if len(data) > BLOB_BYTES_MAX:
            raise Refused("out_of_range", "{}: over {:,} bytes, the most that goes through the JSON door; under an agent there is no such "
                          "limit".format(file, BLOB_BYTES_MAX))
        digest = hashlib.sha256(data).hexdigest()
        self._door.call("BlobService", "PutBlob", {"digest": digest, "data": base64.b64encode(data).decode()})
        return len(data), digest


class Direct:
    """One session through the JSON door."""

    def __init__(self, place: Place, header: Dict[str, Any], backlog: Backlog) -> None:
        self._place, self._backlog = place, backlog
        self._sender = Sender(Door(place), header)
        self._work = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name="footplate-direct", daemon=True)
        self.refused: Optional[str] = None
        self._tries = 0

    def start(self) -> None:
        self._thread.start()
        self._work.set()

    def wake(self) -> None:
        if not self._work.is_set():
            self._work.set()

    def hurry(self, on: bool) -> None:
        """Without gathering, and without the rest of a retry's delay, while somebody waits in flush()."""
        if on:
            self._hurry.set()
            self._work.set()
        else:
            self._hurry.clear()

    def abandon(self) -> None:
        self._sender.close()

    def _run(self) -> None:
        delay = RETRY_SECONDS_FIRST
        while self.refused is None:
            try:
                self._sender.create()
                self._send_waiting()
                delay = RETRY_SECONDS_FIRST
                self._rest()
            except Unavailable as fault:
                warn("away", "the platform does not answer (%s); what is logged waits", fault)
                self._hurry.wait(delay * _RANDOM.uniform(0.5, 1.0))
                if self._hurry.is_set():
                    threading.Event().wait(RETRY_SECONDS_FIRST)
                delay = min(delay * 2, RETRY_SECONDS_MAX)
            except FootplateError as fault:
                self.refused = str(fault)
                warn("create refused", "the platform refused run %s (%s); what is logged stays in its spool file", self._backlog_run(), fault)
            except Exception as fault:
                warn("direct", "sending failed: %s: %s", type(fault).__name__, fault)
                LOG.debug("footplate: sending failed", exc_info=True)
                self._hurry.wait(delay)
                delay = min(delay * 2, RETRY_SECONDS_MAX)
        self._sender.close()

    def _backlog_run(self) -> str:
        return str(self._sender._header["run"])

    def _rest(self) -> None:
        self._work.wait()
        self._hurry.wait(GATHER_SECONDS)
        self._work.clear()
        if self._backlog.is_new():
            self._work.set()

    def _send_waiting(self) -> None:
        while True:
            waiting = self._backlog.on_the_way() or self._backlog.take(1, 1)
            if not waiting:
                return
            op = waiting[0]
            try:
                digest = self._sender.send(op)
            except FootplateError as fault:
                self._tries = self._tries + 1 if fault.code in DOUBTFUL_CODES else 0
                if not self._is_final(fault):
                    raise Unavailable(fault.code, fault.message, fault.reason) from fault
                warn("refused " + fault.code, "the platform refused a record: %s", fault)
                self._backlog.refuse(op.n)
                self._backlog.settle(op.n, None, str(fault))
            else:
                self._backlog.answer(op.n)
                self._backlog.settle(op.n, digest, None)
            self._tries = 0

    def _is_final(self, fault: FootplateError) -> bool:
        if fault.code in DOUBTFUL_CODES:
            return self._tries >= DOUBTFUL_TRIES_MAX
        return isinstance(fault, Refused) and fault.code != "unauthenticated"


def _files(path: str, name: str) -> Iterator[Tuple[str, str]]:
    """The files of a file or folder with their names in the run, in the order of the names. Refuses a name that cannot be kept."""
    found = [(path, name)]
    if os.path.isdir(path):
        found = []
        for folder, folders, files in os.walk(path, followlinks=True):
            folders.sort()
            if not folders and not files:
                warn("empty folder", "%s is empty; without an agent only files are recorded", folder)
            below = os.path.relpath(folder, path)
            parts = [] if below == "." else below.split(os.sep)
            found.extend((os.path.join(folder, file), "/".join([name] + parts + [file])) for file in files)
    for _, artifact in found:
        try:
            _arguments.artifact_name(artifact)
        except ValueError as fault:
            raise Refused("invalid_argument", str(fault)) from fault
    return iter(sorted(found, key=lambda pair: pair[1]))
