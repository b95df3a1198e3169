"""Keeps the bytes of a handed-over file as they were, while the training goes on and may delete or replace it.

Small ones are copied at the call. Larger ones get hard links, which survive a delete and a replacing rename; a file that is written to in
place after that is refused by whoever reads it, never stored half old and half new. Where neither is possible the path itself is handed over.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from typing import Optional, Tuple

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


def stage(path: str, folder: str) -> Tuple[str, Optional[str]]:
    """What to hand over, and what to remove once it is answered (None when that is the user's own path)."""
    size, files = check(path)
    if files > FILES_MAX:
        return path, None
    inside = os.path.join(folder, secrets.token_hex(8))
    place = os.path.join(inside, os.path.basename(path) or "root")
    try:
        os.makedirs(inside, mode=0o700)
        if os.path.isdir(path):
            shutil.copytree(path, place, symlinks=True, copy_function=shutil.copy2 if size <= COPY_BYTES_MAX else _link)
        elif size <= COPY_BYTES_MAX:
            shutil.copy2(path, place)
        else:
            _link(os.path.realpath(path), place)
        return place, inside
    except OSError as fault:
        shutil.rmtree(inside, ignore_errors=True)
        warn("staging", "%s cannot be set aside (%s); leave it unchanged until its handle is done", path, fault, once=True)
        return path, None


def _link(source: str, target: str) -> str:
    os.link(source, target, follow_symlinks=False)
    return target


def release(inside: Optional[str]) -> None:
    """Removes what `stage` made."""
    if inside is not None:
        shutil.rmtree(inside, ignore_errors=True)


def forget(folder: str) -> None:
    """Removes a session's folder of set-aside files when it is empty."""
    try:
        os.rmdir(folder)
    except OSError:
        pass
