"""Sends what spool files hold: of runs without a platform, and of processes that ended before all was taken in.

A file goes away once all in it is answered. Sent twice, nothing is stored twice. A file whose process still lives is left to it.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import _frames, _places, _staging
from ._backlog import Op
from ._direct import Sender
from ._door import Door, FootplateError, NotFound, Refused, Unavailable
from ._faults import LOG, contained


@dataclass(frozen=True)
class Synced:
    """What became of one spool file."""

    path: str
    run: str
    sent: int
    """Records that were stored."""
    refused: Tuple[str, ...] = ()
    """Why others were not, and never will be."""
    damaged_bytes: int = 0
    kept: Optional[str] = None
    """Why the file is still there; None when it is done with."""


def sync(folder: Optional[str] = None, project: Optional[str] = None) -> List[Synced]:
    """Sends all spool files of a folder (FOOTPLATE_SPOOL unless given). Raises Unavailable only when no platform is known."""
    place = _places.place(project)
    Door(place)  # says so when there is no address
    where = folder or _places.spool_folder()
    results = [_sync_file(path, where) for path in sorted(glob.glob(os.path.join(glob.escape(where), "*.spool")))]
    with contained("sweeping"):
        _staging.sweep(where)
    return results


def _sync_file(path: str, folder: str) -> Synced:
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError as fault:
        return Synced(path, "", 0, kept=str(fault))
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Synced(path, "", 0, kept="its process still runs")
        except OSError:
            pass  # a file system without locks
        return _send_file(path, folder)
    finally:
        os.close(handle)


def _send_file(path: str, folder: str) -> Synced:
    header, frames, damaged = _frames.read_file(path)
    if header is None:
        return Synced(path, "", 0, damaged_bytes=damaged, kept="it has no header; nothing in it says which run it is of")
    header, ops = _unanswered(header, frames)
    sent = 0
    refused: List[str] = []
    try:
        with Door(_places.place(header.get("project"))) as door:
            sender = Sender(door, header)
            sender.create()
            for op in ops:
                try:
                    sender.send(op)
                    sent += 1
                except (NotFound, Refused) as fault:
                    if fault.code == "unauthenticated":
                        raise
                    refused.append(str(fault))
    except FootplateError as fault:
        return Synced(path, header["run"], sent, tuple(refused), damaged, kept=str(fault))
    staged = os.path.join(folder, "staged", header["folder"])
    if refused or damaged:
        os.rename(path, path + ".sent")  # what was refused or damaged is for a person to look at
        return Synced(path, header["run"], sent, tuple(refused), damaged)
    os.unlink(path)
    _staging.release(staged)
    return Synced(path, header["run"], sent, damaged_bytes=damaged)


def _unanswered(header: Dict[str, Any], frames: List[Dict[str, Any]]) -> Tuple[Dict[str, Any], List[Op]]:
    """The ops to send, in order, and the session to send them under.

    What was meant for an agent goes under a session derived from its own, numbered anew, since the agent numbers its batches as it likes.
    """
    answered = 0
    by_number: Dict[int, Op] = {}
    for frame in frames:
        answered = max(answered, int(frame.get("answered", 0)))
        if "n" in frame and "op" in frame:
            by_number[frame["n"]] = Op.from_frame(frame)
    ops = [by_number[n] for n in sorted(by_number) if n > answered]
    header = dict(header, folder=header["session"])
    if header.get("agent"):
        ops = [op for op in ops if json.loads(op.body)["op"] != "finish"]  # the agent saw the exit itself
        header["session"] = hashlib.sha256("{}/sync".format(header["session"]).encode()).hexdigest()[:32]
        batch = 0
        for n, op in enumerate(ops, start=1):
            batch += bool(op.batch)
            op.n, op.batch = n, batch if op.batch else 0
    return header, ops


def tell(results: List[Synced]) -> int:
    """Prints what became of the files; the command line's exit code (0 done, 4 something was refused, 5 something has to wait)."""
    code = 0
    for result in results:
        state = "waits: {}".format(result.kept) if result.kept else "done"
        print("{}  run {}  {} sent  {}".format(result.path, result.run or "?", result.sent, state))
        for reason in result.refused:
            print("    refused: {}".format(reason))
        if result.damaged_bytes:
            print("    {} bytes were damaged and are lost".format(result.damaged_bytes))
        code = max(code, 5 if result.kept else 4 if result.refused else 0)
    if not results:
        print("nothing to send in {}".format(_places.spool_folder()))
    LOG.debug("footplate: %d spool files", len(results))
    return code


__all__ = ["Synced", "Unavailable", "sync", "tell"]
