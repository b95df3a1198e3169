"""The JSON door, in one process: stores what it is told, once a key, and answers with errors on demand."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SERVICE = "/footplate.api.v1."


class FakeDoor:
    def __init__(self, port=0):
        door = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                door.headers = dict(self.headers)
                status, answer = door.serve(self.path, request)
                if status is None:  # the call landed, its answer did not
                    self.close_connection = True
                    return
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, request, client_address):
                pass  # callers that go away are part of the tests

        self.lock = threading.RLock()
        self.calls = []  # (method, request), as they came
        self.runs = {}
        self.keys = {}  # idempotency key -> body
        self.batches = {}  # session -> highest n
        self.points = []  # (run, rank, name, step, value), each stored once
        self.blobs = {}
        self.artifacts = {}
        self.implausible_times = 0  # that every batch is told
        self.fail = {}  # method -> list of (status, code) or "lose" for the next calls
        self.server = Server(("127.0.0.1", port), Handler)
        self.address = "127.0.0.1:{}".format(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, path, request):
        method = path[len(SERVICE):]
        with self.lock:
            self.calls.append((method, request))
            planned = self.fail.get(method)
            failure = planned.pop(0) if planned else None
            if failure is not None and failure != "lose":
                details = [{"debug": {"reason": failure[2]}}] if len(failure) > 2 else []
                return failure[0], {"code": failure[1], "message": "as planned", "details": details}
            act = getattr(self, method.split("/")[1], None)
            if act is None:
                return 404, {"code": "unimplemented", "message": method}
            key = request.get("requestId")
            body = json.dumps(request, sort_keys=True)
            if key and self.keys.setdefault(key, body) != body:
                return 409, {"code": "already_exists", "message": "another body under " + key}
            answer = act(request)
            if failure == "lose":
                return None, None
            return answer if isinstance(answer, tuple) else (200, answer)

    def count(self, method):
        with self.lock:
            return sum(called.split("/")[1] == method for called, _ in self.calls)

    # The methods ---------------------------------------------------------------------------------------------------------

    def CreateRun(self, request):
        self.runs.setdefault(request["runId"], {"runId": request["runId"], "name": request["name"], "experiment": request["experiment"],
                                                "state": "RUN_STATE_RUNNING", "tags": dict(request["tags"]),
                                                "params": {key: {"json": text} for key, text in request["params"].items()}})
        return {"runId": request["runId"], "sequence": "1"}

    def _run(self, request):
        return self.runs.get(request["runId"])

    def LogParams(self, request):
        if self._run(request) is None:
            return 404, {"code": "not_found", "message": "no run"}
        self._run(request)["params"].update({key: {"json": text} for key, text in request["params"].items()})
        return {"sequence": "2"}

    def SetTags(self, request):
        self._run(request)["tags"].update(request["set"])
        return {"sequence": "2"}

    def NoteRun(self, request):
        self._run(request).update({key: request[key] for key in ("note", "conclusion") if key in request})
        return {"sequence": "2"}

    def FinishRun(self, request):
        self._run(request).update(state="RUN_STATE_ENDING", outcome=request["outcome"], sessions=request["sessions"])
        return {"sequence": "3"}

    def LogBatch(self, request):
        n, highest = int(request["n"]), self.batches.get(request["session"], 0)
        if n == highest + 1:
            self.batches[request["session"]] = n
            for series in request["series"]:
                for point in series["points"]:
                    self.points.append((request["runId"], request["rank"], series["name"], int(point["step"]), point["value"]))
        elif n > highest + 1:
            return 400, {"code": "invalid_argument", "message": "batch {} after {}".format(n, highest)}
        answer = {"session": request["session"], "acked": str(self.batches[request["session"]])}
        return dict(answer, implausibleTimes=str(self.implausible_times)) if self.implausible_times else answer

    def PutBlob(self, request):
        data = base64.b64decode(request["data"])
        digest = hashlib.sha256(data).hexdigest()
        if request["digest"] != digest:
            return 400, {"code": "invalid_argument", "message": "digest"}
        self.blobs[digest] = data
        return {"blob": {"digest": digest}}

    def LogArtifacts(self, request):
        self.artifacts.setdefault(request["runId"], {}).update({one["path"]: one["digest"] for one in request["artifacts"]})
        return {"sequence": "4"}

    def ListRuns(self, request):
        if request["filter"] == "bad(":
            return 400, {"code": "invalid_argument", "message": "filter: column 4"}
        found = sorted(self.runs.values(), key=lambda run: run["runId"])
        start = int(request["pageToken"] or 0)
        page = found[start:start + 2]  # pages are as large as the server likes
        token = str(start + 2) if start + 2 < len(found) else ""
        return {"runs": page, "nextPageToken": token}

    def GetHistory(self, request):
        if request["runId"] not in self.runs:
            return 404, {"code": "not_found", "message": "no run " + request["runId"]}
        found = [point for point in self.points if point[0] == request["runId"] and point[2] == request["name"] and point[1] == request["rank"]]
        start = int(request["pageToken"] or 0)
        page = [{"step": str(step), "timeMs": "1", "value": value} for _, _, _, step, value in found[start:start + 3]]
        return {"points": page, "count": str(len(found)), "nextPageToken": str(start + 3) if start + 3 < len(found) else ""}
