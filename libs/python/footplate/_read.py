"""The read side: runs and their series, through the JSON door. Unlike logging it waits, and raises FootplateError."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional

from . import _places
from ._door import Door, pick

PAGE_SIZE = 500
RUNS_MAX = 10_000
POINTS_PAGE_SIZE = 10_000


class Point(NamedTuple):
    """One point of a series. `time_ms` is the clock of whoever logged it."""

    step: int
    time_ms: int
    value: float


@dataclass(frozen=True)
class RunInfo:
    """A run as the tracker shows it."""

    id: str
    name: str
    experiment: str
    state: str
    """`pending`, `preparing`, `running`, `stopping`, `ending` or `sealed`."""
    outcome: Optional[str]
    """`succeeded`, `failed` or `cancelled`, once it has ended."""
    cause: str
    params: Dict[str, Any] = field(default_factory=dict)
    tags: Dict[str, str] = field(default_factory=dict)
    latest: Dict[str, float] = field(default_factory=dict)
    """The newest value of each metric of rank 0."""
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)
    """All that the platform said."""


def runs(filter: Optional[str] = None, experiment: Optional[str] = None, order_by: Optional[str] = None, limit: int = RUNS_MAX,
         project: Optional[str] = None) -> List[RunInfo]:
    """Runs that match, such as `runs("state = sealed and params.lr < 0.1", order_by="metrics.`val/acc` desc")`."""
    with Door(_places.place(project)) as door:
        return _runs(door, filter, experiment, order_by, limit)


def _runs(door: Door, filter: Optional[str], experiment: Optional[str], order_by: Optional[str], limit: int) -> List[RunInfo]:
    found: List[RunInfo] = []
    token = ""
    while len(found) < limit:
        answer = door.call("RunService", "ListRuns", {
            "filter": filter or "", "experiment": experiment or "", "orderBy": order_by or "", "pageSize": min(PAGE_SIZE, limit - len(found)),
            "pageToken": token})
        found.extend(_run_info(document) for document in pick(answer, "runs", []))
        token = pick(answer, "next_page_token", "")
        if not token:
            break
    return found


def history(run: Any, name: str, attempt: Optional[int] = None, rank: int = 0, max_points: Optional[int] = None,
            project: Optional[str] = None) -> List[Point]:
    """The points of one series in the order of their steps; `run` is an id or what `runs` or `init` gave.

    Without an attempt, points of a later attempt stand in place of an earlier one's from its first step on. With `max_points` it is reduced; first,
    last, least and greatest are kept.
    """
    with Door(_places.place(project)) as door:
        return _history(door, run if isinstance(run, str) else run.id, name, attempt or 0, rank, max_points or 0)


def _history(door: Door, run: str, name: str, attempt: int, rank: int, max_points: int) -> List[Point]:
    points: List[Point] = []
    token = ""
    while True:
        request: Dict[str, Any] = {"runId": run, "name": name, "rank": rank, "attempt": attempt, "maxPoints": max_points,
                                   "pageSize": 0 if max_points else POINTS_PAGE_SIZE, "pageToken": token}
        answer = door.call("MetricService", "GetHistory", request)
        points.extend(Point(int(pick(point, "step", 0)), int(pick(point, "time_ms", 0)), float(pick(point, "value", 0.0)))
                      for point in pick(answer, "points", []))
        token = pick(answer, "next_page_token", "")
        if not token:
            return points


def _run_info(document: Dict[str, Any]) -> RunInfo:
    outcome = str(pick(document, "outcome", "OUTCOME_UNSPECIFIED")).replace("OUTCOME_", "").lower()
    return RunInfo(
        id=pick(document, "run_id", ""),
        name=pick(document, "name", ""),
        experiment=pick(document, "experiment", ""),
        state=str(pick(document, "state", "RUN_STATE_UNSPECIFIED")).replace("RUN_STATE_", "").lower(),
        outcome=None if outcome == "unspecified" else outcome,
        cause=pick(document, "cause", ""),
        params={key: _param(value) for key, value in pick(document, "params", {}).items()},
        tags=dict(pick(document, "tags", {})),
        latest={pick(one, "name", ""): float(pick(one, "value", 0.0)) for one in pick(document, "latest", []) if int(pick(one, "rank", 0)) == 0},
        raw=document,
    )


def _param(value: Any) -> Any:
    text = pick(value, "json", "null") if isinstance(value, dict) else value
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text
