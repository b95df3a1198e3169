"""Decides which run a process logs to, from its environment and from what `init` was given. Touches neither the network nor the disk."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Mapping, Optional

from . import _arguments, _ids, _places
from ._faults import LOG, warn
from ._run import Opening, Run


def open_run(project: Optional[str], experiment: Optional[str], name: Optional[str], config: Optional[Mapping[str, Any]],
             tags: Optional[Mapping[str, Any]], run: Optional[str]) -> Run:
    """Checks the arguments (they may raise) and opens the run."""
    for field, text in (("project", project), ("experiment", experiment), ("run", name)):
        if text is not None:
            _arguments.name(field, text)
    if run is not None and not _ids.is_id(run):
        raise ValueError("run {!r}: must be 32 lower-case hex digits".format(run))
    create: Dict[str, Any] = {"name": name or _script_name(), "experiment": experiment, "tags": {} if tags is None else _arguments.tags(tags),
                              "config": {} if config is None else _arguments.json_object("config", config)}
    place = _places.place(project)
    rank = _whole("RANK", 0)
    socket, known = os.environ.get("FOOTPLATE_SOCKET"), os.environ.get("FOOTPLATE_RUN_ID")
    if socket and known:
        if run not in (None, known):
            warn("other run", "this process belongs to run %s; it logs there, not to %s", known, run)
        return Run(Opening(known, _whole("FOOTPLATE_ATTEMPT", 1), rank, place, socket=socket))
    attach = run or known
    if attach:
        return _announced(Run(Opening(attach, _whole("FOOTPLATE_ATTEMPT", 0), rank, place)))
    if rank != 0:
        warn("no run", "rank %d has no run: without an agent set FOOTPLATE_RUN_ID for all ranks; nothing of this rank is recorded", rank, once=True)
        return Run(Opening(_ids.run_id(), 0, rank, _places.Place(None, place.project, None), muted=True))
    return _announced(Run(Opening(_ids.run_id(), 0, rank, place, create=create)))


def _script_name() -> str:
    """What a run is called that was given no name."""
    script = os.path.basename(sys.argv[0] if sys.argv else "")
    name = os.path.splitext(script)[0]
    try:
        return _arguments.name("run", name) if name not in ("", "-c", "-", "__main__", "ipykernel_launcher") else "notebook"
    except ValueError:
        return "run"


def _announced(run: Run) -> Run:
    address = run._opening.place.address
    if address is None:
        warn("offline", "no platform is known here (FOOTPLATE_ADDR, ~/.config/footplate/config.toml): run %s goes to %s; "
             "`python -m footplate sync` sends it later", run.id, _places.spool_folder(), once=True)
    else:
        LOG.info("footplate: run %s at %s", run.id, address)
    return run


def _whole(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if text.isdigit():
        return int(text)
    if text:
        warn(variable, "%s=%r is not a number; %d it is", variable, text, default)
    return default
