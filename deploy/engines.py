"""The real engines for the demo: an Apache Cassandra for the series, an S3 server for the objects, each in a folder of its own on loopback.

They end with this process. `make setup-cassandra setup-s3` installs both into .tools/.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_WITHIN_S = 180
BUCKET = "footplate"
# CQL's question which options a server supports: version 4, no flags, stream 0, opcode 5, no body; the answer's opcode is 6.
CQL_OPTIONS, CQL_SUPPORTED = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0]), 6


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class NotUp(Exception):
    pass


def ends_with_us():
    """In the child, before it becomes the server: the kernel ends it when this process is gone, however that went."""
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Engines:
    """`flags` for `footplate up`, and `env` with the key of the bucket."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.flags, self.env = [], {}

    def start(self):
        cql, storage, s3 = free_port(), free_port(), free_port()
        key, secret = "demo", secrets.token_hex(16)
        buckets = self.folder / "buckets"
        (buckets / BUCKET).mkdir(parents=True)
        self.spawn("cassandra", [str(ROOT / "deploy/cassandra/run"), str(self.folder / "cassandra"), str(cql), str(storage)])
        self.spawn("s3", *self.s3_command(s3, key, secret, buckets))
        self.wait("the S3 server", s3, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", lambda answer: answer.startswith(b"HTTP/"))
        self.wait("Cassandra", cql, CQL_OPTIONS, lambda answer: len(answer) > 4 and answer[4] == CQL_SUPPORTED)
        self.flags = ["--series", "scylla://127.0.0.1:%d/footplate" % cql, "--blobs", "s3://%s/demo" % BUCKET,
                      "--set", "blobs.endpoint=http://127.0.0.1:%d" % s3, "--set", "blobs.allow-http=true"]
        self.env = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

    @staticmethod
    def s3_command(port, key, secret, buckets):
        named = os.environ.get("FOOTPLATE_S3_SERVER")
        installed = [ROOT / ".tools/s3/bin" / name for name in ("versitygw", "s3s-fs")]
        program = Path(named) if named else next((path for path in installed if path.is_file()), None)
        if program is None:
            raise NotUp("there is no S3 server: run `make setup-s3` (or set FOOTPLATE_S3_SERVER)")
        if program.name.startswith("s3s"):
            return [str(program), "--host", "127.0.0.1", "--port", str(port), "--access-key", key, "--secret-key", secret, str(buckets)], {}
        return [str(program), "--port", "127.0.0.1:%d" % port, "--quiet", "posix", str(buckets)], {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}

    def spawn(self, name, command, env=None):
        log = open(self.folder / ("%s.log" % name), "wb")
        process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   start_new_session=True, preexec_fn=ends_with_us if sys.platform == "linux" else None)
        self.processes.append((name, process))

    def wait(self, what, port, question, is_answer):
        began = time.monotonic()
        while time.monotonic() - began < START_WITHIN_S:
            for name, process in self.processes:
                if process.poll() is not None:
                    tail = (self.folder / ("%s.log" % name)).read_text(errors="replace").splitlines()[-20:]
                    raise NotUp("%s ended with %d:\n%s" % (name, process.returncode, "\n".join(tail)))
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                    probe.settimeout(1)
                    probe.sendall(question)
                    if is_answer(probe.recv(16)):
                        return
            except OSError:
                pass
            time.sleep(0.1)
        raise NotUp("%s did not answer within %d s; its log is in %s" % (what, START_WITHIN_S, self.folder))

    def end(self):
        for _, process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
