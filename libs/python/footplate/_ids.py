"""Ids: 32 lower-case hex digits. Entropy comes from the system, never from `random`, whose state belongs to the training."""

from __future__ import annotations

import re
import secrets
import time

_SHAPE = re.compile(r"^[0-9a-f]{32}$")


def run_id() -> str:
    """A UUIDv7: 48 bits of Unix milliseconds, then randomness, with version and variant set."""
    value = (int(time.time() * 1000) & ((1 << 48) - 1)) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return "{:032x}".format(value)


def session_id() -> str:
    """A session: minted by each process that opens a run."""
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Whether this is 32 lower-case hex digits."""
    return bool(_SHAPE.match(text))
