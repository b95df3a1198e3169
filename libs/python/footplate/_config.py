"""The resolved config of the run, as the platform handed it over, or as `init` was given it."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, NoReturn, Optional

from . import _arguments


class ConfigUnreadable(RuntimeError):
    """FOOTPLATE_CONFIG names a file that cannot be read. Raised, not contained: a training under the wrong config is worse than none."""


class Config(Dict[str, Any]):
    """A dict whose keys are attributes too (`config.optim.lr`), read-only: it is what the run was started with."""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise AttributeError("the config has no {!r}; it has {}".format(key, ", ".join(map(repr, self)) or "nothing")) from None

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the config is what the run was started with; give init() other defaults, or keep what changes in a variable")

    __setattr__ = __delattr__ = __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> Any:
        return _freeze, (dict(self),)

    def __deepcopy__(self, memo: Any) -> Dict[str, Any]:
        return self.copy()

    def copy(self) -> Dict[str, Any]:
        """A plain dict, which may be changed."""
        return {key: thaw(inner) for key, inner in self.items()}


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        frozen = Config()
        for key, inner in value.items():
            dict.__setitem__(frozen, key, _freeze(inner))
        return frozen
    return [_freeze(inner) for inner in value] if isinstance(value, list) else value


def thaw(value: Any) -> Any:
    """Plain dicts all the way down."""
    if isinstance(value, Mapping):
        return {key: thaw(inner) for key, inner in value.items()}
    return [thaw(inner) for inner in value] if isinstance(value, list) else value


def _filled(standing: Mapping[str, Any], defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """`standing` with what only `defaults` has, at every depth."""
    merged = {key: standing[key] for key in standing}
    for key, value in defaults.items():
        if key not in merged:
            merged[key] = value
        elif isinstance(merged[key], Mapping) and isinstance(value, Mapping):
            merged[key] = _filled(merged[key], value)
    return merged


_current: Optional[Config] = None


def current() -> Config:
    """The one config of this process, read from FOOTPLATE_CONFIG at its first use."""
    global _current
    if _current is None:
        _current = _freeze(_read(os.environ.get("FOOTPLATE_CONFIG")))
    return _current


def _read(path: Optional[str]) -> Dict[str, Any]:
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")
        return document
    except (OSError, ValueError) as fault:
        raise ConfigUnreadable("FOOTPLATE_CONFIG {}: {}".format(path, fault)) from fault


def fill(defaults: Mapping[str, Any]) -> Dict[str, Any]:
    """Adds what the script has defaults for and the platform gave no value; what the platform gave stands. Returns the keys that this changed."""
    config = current()
    before = config.copy()
    merged = _filled(config, _arguments.json_object("config", defaults))
    dict.clear(config)
    dict.update(config, _freeze(merged))
    return {key: value for key, value in config.copy().items() if key not in before or before[key] != value}
