"""An agent as docs/reference/local-socket.md has it, in one process, with faults on demand. What it has acknowledged survives its `kill`."""

import hashlib
import json
import os
import shutil
import socket
import threading


class FakeAgent:
    def __init__(self, folder):
        self.folder = str(folder)
        self.path = os.path.join(self.folder, "agent.sock")
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.acked = {}  # session -> highest answered n
        self.ops = []  # (session, n, op), in the order they were taken in
        self.repeats = 0  # ops that were sent again after they were answered
        self.hellos = []
        self.checkpoint = None
        self.stop = None
        self.refusals = {}  # op kind -> (code, message)
        self.hello_error = None
        self.ack_delay = threading.Event()  # cleared: ops are taken in and never acknowledged
        self.ack_delay.set()
        self.silent = False  # accepts connections and says nothing
        self.kill_after = None  # closes all after so many more ops were taken in and not acknowledged
        self.connections = []
        self.listener = None

    # Life ----------------------------------------------------------------------------------------------------------------

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        listener = self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return self

    def kill(self):
        with self.lock:
            listener, self.listener = self.listener, None
            connections, self.connections = self.connections, []
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            if os.path.exists(self.path):
                os.unlink(self.path)
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _accept(self, listener):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                if self.listener is not listener:
                    connection.close()
                    return
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    # Serving -------------------------------------------------------------------------------------------------------------

    def _serve(self, connection):
        if self.silent:
            return
        try:
            with connection.makefile("rb") as lines:
                session = None
                for line in lines:
                    assert len(line) <= 1 << 20, "a line over the limit"
                    message = json.loads(line)
                    with self.lock:
                        if connection not in self.connections:
                            return
                        if session is None:
                            session = self._greet(connection, message)
                        elif "id" in message:
                            self._answer(connection, message)
                        else:
                            self._take(connection, session, message)
        except (OSError, ValueError):
            pass

    def _say(self, connection, message):
        try:
            connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass

    def _greet(self, connection, hello):
        assert hello["op"] == "hello" and hello["v"] == 1, hello
        self.hellos.append(hello)
        self.changed.notify_all()
        if self.hello_error:
            self._say(connection, {"error": {"code": self.hello_error, "message": "no"}})
            connection.close()
            raise OSError("refused")
        self._say(connection, {"ok": True, "v": 1, "acked": self.acked.get(hello["session"], 0)})
        if self.stop:
            self._say(connection, {"stop": self.stop})
        return hello["session"]

    def _answer(self, connection, message):
        if message["op"] == "latest_checkpoint":
            self._say(connection, {"id": message["id"], "checkpoint": self.checkpoint})
        elif message["op"] == "stop?":
            self._say(connection, {"id": message["id"], "stop": self.stop})

    def _take(self, connection, session, op):
        highest = self.acked.get(session, 0)
        if op["n"] <= highest:
            self.repeats += 1
            return self._say(connection, {"ack": highest})
        if op["n"] != highest + 1:
            self._say(connection, {"error": {"code": "OUT_OF_ORDER", "message": "{} after {}".format(op["n"], highest)}})
            raise OSError("out of order")
        if not self.ack_delay.is_set():
            return  # taken in, not durable: gone when killed
        refusal = self.refusals.get(op["op"])
        digest = None
        if refusal is None:
            digest = self._keep(op)
            self.ops.append((session, op["n"], op))
        self.acked[session] = op["n"]
        self.changed.notify_all()
        if self.kill_after is not None:
            self.kill_after -= 1
            if self.kill_after <= 0:
                self.kill_after = None
                self.kill()
                raise OSError("killed before the ack")
        if refusal is not None:
            return self._say(connection, {"error": {"n": op["n"], "code": refusal[0], "message": refusal[1]}})
        self._say(connection, {"ack": op["n"], "digest": digest} if digest else {"ack": op["n"]})

    def _keep(self, op):
        if op["op"] not in ("artifact", "checkpoint"):
            return None
        place = os.path.join(self.folder, "kept", "{}".format(len(self.ops)), os.path.basename(op["path"]))
        os.makedirs(os.path.dirname(place))
        if os.path.isdir(op["path"]):
            shutil.copytree(op["path"], place, symlinks=True)
            digest = hashlib.sha256(repr(sorted(os.listdir(place))).encode())
        else:
            shutil.copy2(op["path"], place)
            with open(place, "rb") as file:
                digest = hashlib.sha256(file.read())
        op["kept"] = place
        text = "sha256:" + digest.hexdigest()
        if op["op"] == "checkpoint":
            self.checkpoint = {"step": op["step"], "path": place, "digest": text, "metadata": op["metadata"]}
        return text

    # Asking it -----------------------------------------------------------------------------------------------------------

    def order_stop(self, cause="preempted", grace_ms=5000):
        with self.lock:
            self.stop = {"cause": cause, "grace_ms": grace_ms}
            for connection in self.connections:
                self._say(connection, {"stop": self.stop})

    def wait(self, condition, seconds=20.0):
        with self.lock:
            return self.changed.wait_for(condition, seconds)

    def of_kind(self, kind):
        with self.lock:
            return [op for _, _, op in self.ops if op["op"] == kind]

    def points(self, name=None):
        return [tuple(point) for op in self.of_kind("metrics") for point in op["points"] if name in (None, point[0])]
