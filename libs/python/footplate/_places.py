"""Where things are: the platform's address, project, token and authorities, and the spool folder. Flags win over the environment, which wins over the file."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Dict, Optional

from ._faults import warn


@dataclass(frozen=True)
class Place:
    """How the platform is reached. `address` is a URL without a trailing slash, or None."""

    address: Optional[str]
    project: str
    token: Optional[str]
    ca: Optional[str] = None
    """The file of the authorities that alone are trusted where the address is https; else the machine's."""


DEFAULT_PROJECT = "default"


def place(project: Optional[str] = None) -> Place:
    """The platform as this process knows it."""
    context = _context(os.path.join(_config_home(), "footplate", "config.toml"))
    given, kept = _url(os.environ.get("FOOTPLATE_ADDR")), _url(context.get("addr") or context.get("address"))
    # A token belongs to its platform: the file's is not sent to an address from elsewhere.
    of_place = context if given in (None, kept) else {}
    return Place(
        given or kept,
        project or os.environ.get("FOOTPLATE_PROJECT") or context.get("project") or DEFAULT_PROJECT,
        os.environ.get("FOOTPLATE_TOKEN") or of_place.get("token"),
        os.environ.get("FOOTPLATE_CA") or of_place.get("ca"),
    )


def _url(address: Optional[str]) -> Optional[str]:
    if not address:
        return None
    return (address if "://" in address else "http://" + address).rstrip("/")


def spool_folder() -> str:
    """FOOTPLATE_SPOOL, or the user's data folder."""
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return os.environ.get("FOOTPLATE_SPOOL") or os.path.join(home, "footplate", "spool")


def bytes_from_environment(name: str, default: int) -> int:
    """A size in bytes from the environment; a bad one is told and not used."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if text.isdigit():
        return int(text)
    warn(name, "%s=%r is not a number of bytes; %d it is", name, text, default)
    return default


def _config_home() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")


_TABLE = re.compile(r"^\[\s*([^\]]+?)\s*\]\s*(?:#.*)?$")
_PAIR = re.compile(r"""^([A-Za-z0-9_-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*')\s*(?:#.*)?$""")


def _context(path: str) -> Dict[str, str]:
    """The current context of the command line's config file: `current = "NAME"` and `[context.NAME]` or `[contexts.NAME]`.

    Reads the few shapes that file has: Python has no TOML reader before 3.11.
    """
    tables: Dict[str, Dict[str, str]] = {"": {}}
    table = ""
    try:
        with open(path, encoding="utf-8") as file:
            for line in map(str.strip, file):
                heading, pair = _TABLE.match(line), _PAIR.match(line)
                if heading:
                    table = heading.group(1).replace('"', "")
                    tables.setdefault(table, {})
                elif pair:
                    text = pair.group(2)
                    tables[table][pair.group(1)] = json.loads(text) if text[0] == '"' else text[1:-1]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        warn("config.toml", "%s cannot be read: %s", path, fault)
        return {}
    top = tables[""]
    name = os.environ.get("FOOTPLATE_CONTEXT") or top.get("current") or top.get("current_context") or top.get("current-context")
    for prefix in ("contexts.", "context."):
        if name and prefix + name in tables:
            return tables[prefix + name]
    return top
