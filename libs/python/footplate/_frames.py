"""The spool file: frames with a length and a CRC, read back tolerantly. A torn or damaged frame costs that frame and no other.

A frame is the mark `FPS1`, the payload's length and its CRC-32 (4 bytes each, little-endian), and the payload, one JSON object. The first
frame of a file is its header.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

MARK = b"FPS1"
PREFIX = struct.Struct("<4sII")
PAYLOAD_BYTES_MAX = 4 << 20
READ_BYTES = 1 << 20
_WHOLE, _SHORT, _DAMAGED = range(3)


def pack(payload: bytes) -> bytes:
    """One frame."""
    return PREFIX.pack(MARK, len(payload), zlib.crc32(payload)) + payload


def write_all(handle: int, data: bytes) -> None:
    """Writes to a file descriptor until all is written: no buffer of ours that a fork could write twice."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view):]


class Reader:
    """Reads frames of a file in order, from a place on, and knows where it stands. Damage is skipped and counted."""

    def __init__(self, path: str, start: int = 0) -> None:
        self._file = open(path, "rb")
        self._file.seek(start)
        self.place = start
        self.damaged_bytes = 0
        self._rest = b""

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            payload = self.next()
            if payload is None:
                return
            yield payload

    def next(self) -> Optional[bytes]:
        """The next whole payload, or None at the end of what is whole (more may be written later)."""
        while True:
            state, payload = self._parse()
            if state == _WHOLE:
                self._drop(PREFIX.size + len(payload))
                return payload
            if state == _DAMAGED:
                self._skip_damage()
                continue
            more = self._file.read(READ_BYTES)
            if more:
                self._rest += more
            elif self._rest.find(MARK, 1) > 0:  # cut short in the middle, with whole frames after it
                self._skip_damage()
            else:
                return None

    def _parse(self) -> Tuple[int, bytes]:
        if len(self._rest) < PREFIX.size:
            return _SHORT, b""
        mark, length, check = PREFIX.unpack_from(self._rest)
        if mark != MARK or length > PAYLOAD_BYTES_MAX:
            return _DAMAGED, b""
        payload = self._rest[PREFIX.size:PREFIX.size + length]
        if len(payload) < length:
            return _SHORT, b""
        return (_WHOLE, payload) if zlib.crc32(payload) == check else (_DAMAGED, b"")

    def _skip_damage(self) -> None:
        at = self._rest.find(MARK, 1)
        if at < 0:
            at = max(1, len(self._rest) - len(MARK) + 1)
        self.damaged_bytes += at
        self._drop(at)

    def _drop(self, count: int) -> None:
        self._rest = self._rest[count:]
        self.place += count


def read_file(path: str) -> Tuple[Optional[Dict[str, Any]], List[Dict[str, Any]], int]:
    """Header (None when the file has none), the other frames, and how many bytes were damaged."""
    reader = Reader(path)
    try:
        frames = []
        for payload in reader:
            try:
                frames.append(json.loads(payload))
            except ValueError:
                reader.damaged_bytes += len(payload)
        torn = os.path.getsize(path) - reader.place
    finally:
        reader.close()
    if not frames or "header" not in frames[0]:
        return None, frames, reader.damaged_bytes + torn
    return frames[0]["header"], frames[1:], reader.damaged_bytes + torn
