"""The JSON door: a unary call is a POST of JSON to /footplate.api.v1.SERVICE/METHOD (the Connect protocol's unary form). Knows no method."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from ._places import Place

CALL_SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 64 << 20
REFUSED_CODES = ("already_exists", "failed_precondition", "invalid_argument", "out_of_range", "permission_denied", "unauthenticated",
                 "unimplemented")
REFUSED_REASONS = ("TOO_LARGE", "QUOTA_EXCEEDED")
"""Of codes that else mean "not now"."""
LATER_REASONS = ("CHANGED_MEANWHILE", "UNREADABLE_HISTORY")
"""Of codes that else mean "never"."""


class FootplateError(Exception):
    """The platform did not do what was asked. `code` is its word for why (`not_found`, `unavailable`, ...), `reason` its finer one
    (`RUN_NOT_FOUND`, ...), empty when it gave none."""

    def __init__(self, code: str, message: str, reason: str = "") -> None:
        super().__init__("{}: {}".format(code, message))
        self.code, self.message, self.reason = code, message, reason


class NotFound(FootplateError):
    """There is no such thing."""


class Refused(FootplateError):
    """It will not be done, and asking again changes nothing."""


class Unavailable(FootplateError):
    """Not now: the platform is away, busy, or did not answer in time."""


class Door:
    """One connection, kept open between calls. A call is made by one thread at a time."""

    def __init__(self, place: Place, timeout: float = CALL_SECONDS_MAX) -> None:
        if not place.address:
            raise Unavailable("unavailable", "no platform is known here: set FOOTPLATE_ADDR (host:port or URL)")
        self._place, self._timeout = place, timeout
        self._url = urlsplit(place.address)
        self._connection: Optional[http.client.HTTPConnection] = None
        self._context: Optional[ssl.SSLContext] = None
        self._lock = threading.Lock()

    def call(self, service: str, method: str, request: Dict[str, Any], timeout: Optional[float] = None) -> Dict[str, Any]:
        """Calls `service` (as `RunService`) and returns its answer. Raises FootplateError and nothing else."""
        seconds = self._timeout if timeout is None else timeout
        body = json.dumps(dict(request, project=self._place.project), ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1", "Connect-Timeout-Ms": str(int(seconds * 1000))}
        if self._place.token:
            headers["Authorization"] = "Bearer " + self._place.token
        path = "{}/footplate.api.v1.{}/{}".format(self._url.path.rstrip("/"), service, method)
        with self._lock:
            try:
                status, answer = self._post(path, body, headers, seconds)
            except ssl.SSLCertVerificationError as fault:
                self.close()
                raise Unavailable("unavailable", self._distrust(fault), "CERTIFICATE_UNTRUSTED") from fault
            except (OSError, http.client.HTTPException) as fault:
                self.close()
                raise Unavailable("unavailable", "{}: {}".format(self._place.address, fault or type(fault).__name__)) from fault
        return _read(status, answer)

    def _post(self, path: str, body: bytes, headers: Dict[str, str], seconds: float) -> Any:
        kept = self._connection is not None
        try:
            return self._exchange(path, body, headers, seconds)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.close()
            if not kept:
                raise
            return self._exchange(path, body, headers, seconds)  # the other side had closed a connection that was kept too long

    def _exchange(self, path: str, body: bytes, headers: Dict[str, str], seconds: float) -> Any:
        if self._connection is None:
            self._connection = self._unopened(seconds)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sock.settimeout(seconds)
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        answer = response.read(ANSWER_BYTES_MAX + 1)
        if len(answer) > ANSWER_BYTES_MAX:
            raise http.client.HTTPException("an answer over {:,} bytes".format(ANSWER_BYTES_MAX))
        if response.will_close:
            self.close()
        return response.status, answer

    def _unopened(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "127.0.0.1", self._url.port
        if self._url.scheme != "https":
            return http.client.HTTPConnection(host, port, timeout=seconds)
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._place.ca or None)
            except (OSError, ValueError) as fault:
                raise OSError("FOOTPLATE_CA={} holds no certificates that can be read: {}".format(self._place.ca, fault)) from fault
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=self._context)

    def _distrust(self, fault: ssl.SSLCertVerificationError) -> str:
        trusted = "the authorities in " + self._place.ca if self._place.ca else "the authorities of this machine; FOOTPLATE_CA names a file of others"
        return "{}: its certificate is not trusted ({}), going by {}".format(self._place.address, fault.verify_message, trusted)

    def __enter__(self) -> "Door":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next call opens one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _read(status: int, answer: bytes) -> Dict[str, Any]:
    try:
        document = json.loads(answer or b"{}")
        if not isinstance(document, dict):
            raise ValueError("not an object")
    except ValueError:
        raise Unavailable("unknown", "HTTP {}: not the platform's JSON: {!r}".format(status, answer[:200])) from None
    if status == 200:
        return document
    code, message = str(document.get("code", "unknown")), str(document.get("message", "HTTP {}".format(status)))
    reason = _reason(document)
    if code == "not_found":
        raise NotFound(code, message, reason)
    never = code in REFUSED_CODES or code == "unknown" and 400 <= status < 500 and status not in (408, 429)
    if reason in REFUSED_REASONS or never and reason not in LATER_REASONS:
        raise Refused(code, message, reason)
    raise Unavailable(code, message, reason)


def _reason(document: Dict[str, Any]) -> str:
    """The word of the error info, which the door shows in plain under `debug`."""
    try:
        return str(document["details"][0]["debug"]["reason"])
    except (KeyError, IndexError, TypeError):
        return ""


def pick(document: Dict[str, Any], name: str, default: Any = None) -> Any:
    """A field by its proto name, as proto3 JSON may spell it (`run_id` or `runId`)."""
    head, *rest = name.split("_")
    camel = head + "".join(part.title() for part in rest)
    return document.get(camel, document.get(name, default))
