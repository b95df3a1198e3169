"""Keeps the bytes of a handed-over file as they were, while the training goes on and may delete or replace it.

Small ones are copied at the call. Larger ones get hard links, which survive a delete and a replacing rename; a file that is written to in
place after that is refused by the agent while it reads, and told afterwards. Where neither is possible the path itself is handed over.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import time
from dataclasses import dataclass
from typing import List, Optional, Tuple

from ._faults import warn

COPY_BYTES_MAX = 64 << 20
"""Up to here a copy costs milliseconds; above, hard links are made instead."""

FILES_MAX = 10_000
"""A folder with more files is handed over as it is."""


class Refused(ValueError):
    """The path cannot be handed over."""


def check(path: str) -> Tuple[int, int]:
    """Bytes and files below a path. Refuses what is no file or folder, and links that lead out of the folder."""
    if not os.path.exists(path):
        raise Refused("{!r}: no such file or folder".format(path))
    if not os.path.isdir(path):
        if not os.path.isfile(path):
            raise Refused("{!r}: neither a file nor a folder".format(path))
        return os.stat(path).st_size, 1
    root = os.path.realpath(path)
    size = files = 0
    for folder, folders, names in os.walk(path):
        for entry in folders + names:
            full = os.path.join(folder, entry)
            mode = os.lstat(full).st_mode
            if stat.S_ISLNK(mode):
                target = os.path.realpath(full)
                if target != root and not target.startswith(root + os.sep):
                    raise Refused("{!r}: a link that leads out of the folder".format(full))
            elif stat.S_ISREG(mode):
                size, files = size + os.lstat(full).st_size, files + 1
            elif not stat.S_ISDIR(mode):
                raise Refused("{!r}: neither a file nor a folder".format(full))
    return size, files


@dataclass(frozen=True)
class Staged:
    """What was set aside: `path` is handed over, `inside` is removed afterwards."""

    path: str
    inside: str
    linked_as: Optional[List[Tuple[int, int]]]
    """Size and time of change of each file when it was linked; None when it was copied."""

    def was_written_to(self) -> bool:
        """Whether somebody wrote into a linked file, which links cannot prevent."""
        return self.linked_as is not None and _shape(self.path) != self.linked_as


def stage(path: str, folder: str) -> Optional[Staged]:
    """Sets a path aside below `folder`; None when it cannot be, and the user's own path has to do."""
    size, files = check(path)
    if files > FILES_MAX:
        return None
    inside = os.path.join(folder, secrets.token_hex(8))
    place = os.path.join(inside, os.path.basename(path) or "root")
    linked = size > COPY_BYTES_MAX
    try:
        os.makedirs(inside, mode=0o700)
        if os.path.isdir(path):
            shutil.copytree(path, place, symlinks=True, copy_function=_link if linked else shutil.copy2)
            _make_links_relative(path, place)
        elif linked:
            _link(os.path.realpath(path), place)
        else:
            shutil.copy2(path, place)
        return Staged(place, inside, _shape(place) if linked else None)
    except OSError as fault:
        shutil.rmtree(inside, ignore_errors=True)
        warn("staging", "%s cannot be set aside (%s); leave it unchanged until its handle is done", path, fault, once=True)
        return None


def _link(source: str, target: str) -> str:
    os.link(source, target, follow_symlinks=False)
    return target


def _make_links_relative(original: str, copy: str) -> None:
    """An absolute link into the folder would lead out of its copy."""
    root = os.path.realpath(original)
    for folder, folders, names in os.walk(copy):
        for entry in folders + names:
            full = os.path.join(folder, entry)
            if os.path.islink(full) and os.path.isabs(os.readlink(full)):
                inside = os.path.relpath(os.path.realpath(os.readlink(full)), root)
                os.unlink(full)
                os.symlink(os.path.relpath(os.path.join(copy, inside), folder), full)


def _shape(place: str) -> List[Tuple[int, int]]:
    found = []
    for folder, _, names in os.walk(place) if os.path.isdir(place) else [(os.path.dirname(place), [], [os.path.basename(place)])]:
        for entry in sorted(names):
            stat_ = os.lstat(os.path.join(folder, entry))
            found.append((stat_.st_size, stat_.st_mtime_ns))
    return sorted(found)


def release(inside: Optional[str]) -> None:
    """Removes what `stage` made."""
    if inside is not None:
        shutil.rmtree(inside, ignore_errors=True)


ABANDONED_SECONDS = 7 * 24 * 3600.0


def sweep(spool_folder: str) -> None:
    """Removes what killed processes have set aside and nobody will ask for: no spool file is left of their session, for a week."""
    sessions = {entry.rsplit("-", 1)[-1].split(".")[0] for entry in os.listdir(spool_folder) if ".spool" in entry}
    staged = os.path.join(spool_folder, "staged")
    for session in os.listdir(staged) if os.path.isdir(staged) else []:
        place = os.path.join(staged, session)
        if session not in sessions and time.time() - os.lstat(place).st_mtime > ABANDONED_SECONDS:
            shutil.rmtree(place, ignore_errors=True)


def forget(folder: str) -> None:
    """Removes a session's folder of set-aside files when it is empty."""
    try:
        os.rmdir(folder)
    except OSError:
        pass
