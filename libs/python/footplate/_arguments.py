"""What may be logged. Each check returns the value as it will be stored or raises a TypeError or ValueError that names key, field and value.

These are the only errors a training ever gets from this package: a wrong argument is a bug at the call, found at its first step, while a
value stored as something else would only be found when it is too late.
"""

from __future__ import annotations

import json
import operator
import re
from typing import Any, Dict, List, Mapping, Tuple, Union

NAME_CHARACTERS_MAX = 250
ARTIFACT_NAME_BYTES_MAX = 1_024
VALUE_BYTES_MAX = 128 << 10
"""One param's value as JSON."""
METADATA_BYTES_MAX = 64 << 10
"""A checkpoint's metadata as JSON."""
TAG_CHARACTERS_MAX = 8_000
NOTE_CHARACTERS_MAX = 4_000
KEYS_MAX = 1_000
OP_BYTES_MAX = 160 << 10
"""Params or tags of one op: what exceeds either goes as several."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_STEP_MIN, _STEP_MAX = -(1 << 63), (1 << 63) - 1


def name(kind: str, text: object) -> str:
    """A metric's, param's or tag's name: 1 to 250 characters of any Unicode."""
    if not isinstance(text, str):
        raise TypeError("{} name {!r}: must be str, not {}".format(kind, text, type(text).__name__))
    if not 1 <= len(text) <= NAME_CHARACTERS_MAX or text.strip() != text or _CONTROL.search(text) or not _encodable(text):
        raise ValueError(
            "{} name {!r}: must be 1 to {} characters without control characters, not starting or ending with a blank".format(
                kind, text[:300], NAME_CHARACTERS_MAX))
    return text


def step(value: object) -> int:
    """A step: a whole number of 64 bits. `50.0` is 50; `50.5`, `"50"` and `True` are refused."""
    if type(value) is int:
        whole = value
    elif isinstance(value, bool) or isinstance(value, (str, bytes)):
        raise TypeError("step {!r}: must be a whole number, not {}".format(value, type(value).__name__))
    else:
        plain = _plain("step", value)
        if isinstance(plain, bool):
            raise TypeError("step {!r}: must be a whole number, not bool".format(value))
        if isinstance(plain, float):
            if not plain.is_integer():
                raise ValueError("step {!r}: must be a whole number".format(value))
            plain = int(plain)
        whole = plain
    if not _STEP_MIN <= whole <= _STEP_MAX:
        raise ValueError("step {!r}: must fit in 64 bits with a sign".format(value))
    return whole


def number(key: str, value: object) -> float:
    """A metric's value as a 64-bit float. NaN and infinities are values; bool, text and several numbers at once are refused."""
    if type(value) is float:
        return value
    plain = value if type(value) is int else _plain("value of {!r}".format(key), value)
    if isinstance(plain, bool):
        raise TypeError("value of {!r} {!r}: must be a number, not bool; log int(...) when 1 and 0 are meant".format(key, value))
    if isinstance(plain, int):
        return _exact(key, plain)
    return plain


def _exact(key: str, value: int) -> float:
    try:
        nearest = float(value)
    except OverflowError:
        raise ValueError("value of {!r}: the integer is beyond a 64-bit float".format(key)) from None
    if int(nearest) != value:
        raise ValueError("value of {!r} {!r}: not exact as a 64-bit float; log float(...) when the nearest is meant".format(key, value))
    return nearest


def _plain(field: str, value: Any) -> Union[int, float, bool]:
    """The Python number inside a NumPy or Torch scalar, or whatever calls itself a number."""
    if isinstance(value, float):  # numpy.float64 is one
        return float(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if value is None or isinstance(value, (str, bytes, bytearray, complex)):
        raise TypeError("{} {!r}: must be a number, not {}".format(field, value, type(value).__name__))
    item = getattr(value, "item", None)
    if callable(item):
        try:
            inner = item()
        except Exception as fault:
            raise ValueError("{}: must be one number, not {} ({})".format(field, _shape(value), fault)) from fault
        if isinstance(inner, (bool, int, float)) and type(inner) in (bool, int, float):
            return inner
        if isinstance(inner, (str, bytes, complex)):
            raise TypeError("{} {!r}: must be a number, not {}".format(field, inner, type(inner).__name__))
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return float(value)
    except (TypeError, ValueError) as fault:
        raise TypeError("{} {!r}: must be a number, not {}".format(field, value, type(value).__name__)) from fault


def _shape(value: object) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else "{} of shape {}".format(type(value).__name__, tuple(shape))


def points(metrics: object, at: object) -> Tuple[List[Tuple[str, float]], Any]:
    """All values of one call, checked before any is stored; and the step, or None."""
    if not isinstance(metrics, Mapping):
        raise TypeError("metrics {!r}: must be a dict of name to number, not {}".format(metrics, type(metrics).__name__))
    checked = [(name("metric", key), number(key, value)) for key, value in metrics.items()]
    return checked, None if at is None else step(at)


def jsonable(field: str, value: object, depth: int = 0) -> Any:
    """A param or config value in JSON's types. Scalars, lists and dicts keep theirs; NaN and infinities become text, as does what JSON has not."""
    if value is None or isinstance(value, (bool, str)):
        return _text(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _json_float(float(value))
    if depth > 32:
        raise ValueError("{}: nested more than 32 deep".format(field))
    if isinstance(value, Mapping):
        return {_text(str(key)): jsonable("{}.{}".format(field, key), inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(field, inner, depth + 1) for inner in value]
    for unpack in ("item", "tolist"):  # NumPy and Torch scalars, then arrays
        method = getattr(value, unpack, None)
        if callable(method):
            try:
                inner = method()
            except Exception:
                continue
            if type(inner) in (bool, int, float, str, list):
                return jsonable(field, inner, depth + 1)
    return _text(str(value))


def json_object(field: str, value: object) -> Dict[str, Any]:
    """A dict in JSON's types, each value within the size of one op."""
    if not isinstance(value, Mapping):
        raise TypeError("{} {!r}: must be a dict, not {}".format(field, value, type(value).__name__))
    checked = {}
    for key, inner in value.items():
        plain = jsonable("{} {!r}".format(field, key), inner)
        size = json_bytes(plain)
        if size > VALUE_BYTES_MAX:
            raise ValueError("{} {!r}: {:,} bytes as JSON, at most {:,}; log it as an artifact".format(field, key, size, VALUE_BYTES_MAX))
        checked[name(field, key)] = plain
    return checked


def json_bytes(value: object) -> int:
    """The length of a value as JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8"))


def tags(value: object) -> Dict[str, str]:
    """Tags: text to text. Other scalars are written as JSON writes them."""
    if not isinstance(value, Mapping):
        raise TypeError("tags {!r}: must be a dict, not {}".format(value, type(value).__name__))
    checked = {}
    for key, inner in value.items():
        plain = jsonable("tag", inner)
        if isinstance(plain, (dict, list)):
            raise TypeError("tag {!r} {!r}: must be text, not {}".format(key, inner, type(inner).__name__))
        words = plain if isinstance(plain, str) else json.dumps(plain)
        checked[name("tag", key)] = text("tag {!r}".format(key), words, TAG_CHARACTERS_MAX)
    return checked


def metadata(value: object) -> Dict[str, Any]:
    """What is recorded beside a checkpoint."""
    checked = json_object("metadata", value)
    if json_bytes(checked) > METADATA_BYTES_MAX:
        raise ValueError("metadata: {:,} bytes as JSON, at most {:,}".format(json_bytes(checked), METADATA_BYTES_MAX))
    return checked


def text(field: str, value: object, characters_max: int = NOTE_CHARACTERS_MAX) -> str:
    """Free text of a note."""
    if not isinstance(value, str):
        raise TypeError("{} {!r}: must be str, not {}".format(field, value, type(value).__name__))
    if len(value) > characters_max:
        raise ValueError("{}: {:,} characters, at most {:,}; log a longer text as an artifact".format(field, len(value), characters_max))
    return _text(value)


def artifact_name(value: object) -> str:
    """A relative path in a run, with `/` between its parts."""
    if not isinstance(value, str):
        raise TypeError("artifact name {!r}: must be str, not {}".format(value, type(value).__name__))
    parts = value.split("/")
    if (not _encodable(value) or len(value.encode("utf-8")) > ARTIFACT_NAME_BYTES_MAX or "\\" in value or _CONTROL.search(value)
            or any(part in ("", ".", "..") for part in parts)):
        raise ValueError(
            "artifact name {!r}: must be a relative path of at most {:,} bytes without empty, `.` or `..` parts, backslashes or "
            "control characters".format(value[:300], ARTIFACT_NAME_BYTES_MAX))
    return value


def _json_float(value: float) -> Union[float, str]:
    return value if value - value == 0.0 else wire_number(value)


def wire_number(value: float) -> Union[float, str]:
    """A float as it travels in JSON, which has no NaN and no infinity of its own."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
        return True
    except UnicodeEncodeError:
        return False


def _text(value: str) -> str:
    return value if _encodable(value) else value.encode("utf-8", "backslashreplace").decode("utf-8")
