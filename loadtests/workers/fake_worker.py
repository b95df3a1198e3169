#!/usr/bin/env python3
"""A worker for system tests: the environment, rendezvous and rhythm of a real one, no training, and misbehaviour on demand. Standard library only.

The ranks meet over TCP and walk through steps together. Each step every rank gives a hash, and all fold the same hashes into their state; so the
`final_digest` that every rank prints is equal, and equal again after any stop and resume. TERM: all agree on the step, rank 0 checkpoints, exit 75.
It speaks docs/reference/local-socket.md by itself: a second client, written apart from the package. A RANKS value is `all` or like `0,2`.

FAKE_STEPS=100             steps to walk            FAKE_STEP_MS=20            sleep after each
FAKE_CHECKPOINT_EVERY=10   steps between them       FAKE_POINTS_PER_STEP=1     metric points a rank logs each step
FAKE_EXIT=2:7@1.0          rank 2 ends 1 s after the ranks have met by exit code 7; `2:SEGV@1` by a signal; `2:raise@1` by an exception; several: `0:1@1,2:7@2`
FAKE_HANG=1@2.0            rank 1 stands still from second 2 on (but still hears TERM, and does nothing)
FAKE_IGNORE_TERM=RANKS     TERM does nothing
FAKE_SETSID=RANKS          leaves a child in a session of its own that ignores TERM and sleeps FAKE_SETSID_SECONDS=600; prints `child PID`
FAKE_BYTES=RANKS           prints bytes that are not UTF-8, a carriage return and a NUL at each step
FAKE_LAST_WORDS=30@3.0     on TERM rank 0 prints 30 lines over 3 s, the last one without a newline
FAKE_FLUSH_SECONDS=10      how long it waits at its end for the agent's acknowledgements
"""

import hashlib
import json
import os
import secrets
import signal
import socket
import struct
import sys
import time

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
ATTEMPT, RUN = int(os.environ.get("FOOTPLATE_ATTEMPT", 1)), os.environ.get("FOOTPLATE_RUN_ID", "0" * 32)
PEER_SECONDS_MAX = 60.0
stop_asked = False


def say(text):
    sys.stdout.buffer.write(text.encode() + b"\n")
    sys.stdout.buffer.flush()


def number(name, default):
    return float(os.environ.get("FAKE_" + name, default))


def mine(name):
    value = os.environ.get("FAKE_" + name, "")
    return value == "all" or str(RANK) in value.split(",")


def scripted(name):
    """What `RANK[:WHAT]@SECONDS` entries say for this rank: (what, seconds) or None."""
    for entry in filter(None, os.environ.get("FAKE_" + name, "").split(",")):
        head, _, seconds = entry.partition("@")
        rank, _, what = head.partition(":")
        if int(rank) == RANK:
            return what, float(seconds or 0)
    return None


class Link:
    """The agent's socket. Ops wait here until they are acknowledged, and are sent again after a reconnect."""

    def __init__(self):
        self.path, self.session = os.environ.get("FOOTPLATE_SOCKET"), secrets.token_hex(16)
        self.n = self.acked = 0
        self.waiting, self.answers, self.socket, self.rest = [], {}, None, b""

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(5.0)
        self.socket.connect(self.path)
        self.rest = b""
        self.write({"v": 1, "op": "hello", "run": RUN, "attempt": ATTEMPT, "rank": RANK, "session": self.session})
        while b"\n" not in self.rest:
            self.read(5.0)
        line, _, self.rest = self.rest.partition(b"\n")
        self.settle(json.loads(line)["acked"])
        for _, op in self.waiting:
            self.write(op)

    def write(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def read(self, seconds):
        self.socket.settimeout(seconds)
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self.rest += data

    def settle(self, n):
        self.acked = max(self.acked, n)
        self.waiting = [(number, op) for number, op in self.waiting if number > self.acked]

    def hear(self, seconds=0.0001):
        """Takes in what the agent has said; reconnects when it is gone. Never raises for an agent that is away."""
        global stop_asked
        try:
            if self.socket is None:
                self.connect()
            try:
                self.read(seconds)
            except socket.timeout:
                pass
            *lines, self.rest = self.rest.split(b"\n")
            for message in map(json.loads, lines):
                if "ack" in message:
                    self.settle(message["ack"])
                elif "stop" in message and "id" not in message:
                    stop_asked = True
                elif "id" in message:
                    self.answers[message["id"]] = message
                elif "error" in message:
                    say("rank %d refused %s" % (RANK, json.dumps(message["error"])))
                    self.settle(message["error"].get("n", 0))
        except (OSError, ValueError, KeyError):
            self.close()

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def op(self, **op):
        if self.path:
            self.n += 1
            op["n"] = self.n
            self.waiting.append((self.n, op))
            self.hear()
            if self.socket is not None and self.acked < self.n:
                try:
                    self.write(op)
                except OSError:
                    self.close()

    def ask(self, question, seconds=60.0):
        deadline = time.monotonic() + seconds
        while self.path and time.monotonic() < deadline:
            self.hear()
            try:
                self.write({"op": question, "id": 1})
                while self.socket is not None and 1 not in self.answers and time.monotonic() < deadline:
                    self.hear(0.5)
            except (OSError, AttributeError):
                self.close()
                time.sleep(0.1)
            if 1 in self.answers:
                return self.answers.pop(1)
        return {}

    def flush(self, seconds):
        deadline = time.monotonic() + seconds
        while self.path and self.waiting and time.monotonic() < deadline:
            self.hear(0.2)
            if self.socket is None:
                time.sleep(0.1)
        say("rank %d logged %d acked %d session %s" % (RANK, self.n, self.acked, self.session))


def meet():
    """Rank 0's sockets to the others by rank, or this rank's one to rank 0."""
    place = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 0)))
    token = ("%s/%d/" % (RUN, ATTEMPT)).encode()
    peers, deadline = {}, time.monotonic() + PEER_SECONDS_MAX
    if WORLD > 1 and RANK == 0:
        with socket.create_server(place, backlog=WORLD) as door:
            door.settimeout(0.2)
            while len(peers) < WORLD - 1:
                try:
                    peer, _ = door.accept()
                except socket.timeout:
                    if stop_asked or time.monotonic() > deadline:
                        sys.exit(75 if stop_asked else "rank 0 waits in vain for the others")
                    continue
                peer.settimeout(PEER_SECONDS_MAX)
                hello = receive(peer)
                if hello.startswith(token):
                    peers[int(hello[len(token):])] = peer
                else:
                    say("rank 0 turned away %r" % hello)
    while RANK > 0 and not peers:
        try:
            peers[0] = socket.create_connection(place, timeout=PEER_SECONDS_MAX)
            give(peers[0], token + str(RANK).encode())
        except OSError:
            if stop_asked or time.monotonic() > deadline:
                sys.exit(75 if stop_asked else "rank %d waits in vain for rank 0" % RANK)
            time.sleep(0.05)
    return peers


def give(peer, data):
    peer.sendall(struct.pack("!I", len(data)) + data)


def receive(peer):
    data = b""
    wanted = 4
    while len(data) < wanted:
        try:
            part = peer.recv(wanted - len(data))
        except ConnectionResetError:
            part = b""
        if not part:
            raise ConnectionError("a peer is gone")
        data += part
        if wanted == 4 and len(data) == 4:
            wanted = 4 + struct.unpack("!I", data)[0]
    return data[4:]


def exchange(peers, data):
    """Every rank's data in the order of the ranks, at every rank."""
    if RANK > 0:
        give(peers[0], data)
        return receive(peers[0])
    everyone = data + b"".join(receive(peers[rank]) for rank in sorted(peers))
    for peer in peers.values():
        give(peer, everyone)
    return everyone


def misbehave(began):
    ending = scripted("EXIT")
    if ending is not None and time.monotonic() - began >= ending[1]:
        if ending[0] == "raise":
            raise RuntimeError("rank %d raises as scripted" % RANK)
        if ending[0].isdigit():
            os._exit(int(ending[0]))
        os.kill(os.getpid(), getattr(signal, "SIG" + ending[0]))
    hang = scripted("HANG")
    while hang is not None and time.monotonic() - began >= hang[1]:
        time.sleep(1.0)
    if mine("BYTES"):
        sys.stdout.buffer.write(b"bytes \xff\xfe\x80 \x00 10%\r20%\r\n")
        sys.stdout.buffer.flush()


def leave_a_child():
    child = os.fork()
    if child == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(number("SETSID_SECONDS", 600))
        os._exit(0)
    say("child %d" % child)


def last_words():
    count, _, seconds = os.environ.get("FAKE_LAST_WORDS", "").partition("@")
    for line in range(1, int(count or 0) + 1):
        time.sleep(float(seconds or 0) / int(count))
        sys.stdout.buffer.write(b"last words %d" % line + (b"\n" if line < int(count) else b""))
        sys.stdout.buffer.flush()


def checkpoint(link, step, state):
    path = os.path.abspath("checkpoint-%d-%d.json" % (ATTEMPT, step))
    with open(path + ".partial", "w") as file:
        json.dump({"step": step, "state": state.hex()}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".partial", path)
    link.op(op="checkpoint", path=path, step=step, metadata={})


def resume(link, peers):
    """The step and state that rank 0 found, at every rank."""
    found = {}
    if RANK == 0 and link.path:
        answer = link.ask("latest_checkpoint")
        if "checkpoint" not in answer:  # to start over by mistake would throw work away
            sys.exit("no answer about the latest checkpoint: %s" % json.dumps(answer))
        found = answer["checkpoint"] or {}
    step, state = 0, hashlib.sha256(b"start").digest()
    if found:
        with open(found["path"]) as file:
            saved = json.load(file)
        step, state = saved["step"], bytes.fromhex(saved["state"])
        say("rank 0 resumes after step %d" % step)
    heard = exchange(peers, struct.pack("!Q", step) + state)[:40]
    return struct.unpack("!Q", heard[:8])[0], heard[8:]


def main():
    global stop_asked

    def on_term(*_):
        global stop_asked
        stop_asked = True

    signal.signal(signal.SIGTERM, signal.SIG_IGN if mine("IGNORE_TERM") else on_term)
    say("rank %d of %d attempt %d pid %d starts" % (RANK, WORLD, ATTEMPT, os.getpid()))
    if mine("SETSID"):
        leave_a_child()
    link = Link()
    link.hear()
    peers = meet()
    step, state = resume(link, peers)
    steps, every = int(number("STEPS", 100)), int(number("CHECKPOINT_EVERY", 10))
    began = time.monotonic()
    while step < steps:
        misbehave(began)
        ask_to_stop = stop_asked and not mine("IGNORE_TERM")
        everyone = exchange(peers, bytes([ask_to_stop]) + hashlib.sha256(state + bytes([RANK])).digest())
        parts = [everyone[at:at + 33] for at in range(0, len(everyone), 33)]
        state = hashlib.sha256(state + b"".join(part[1:] for part in parts)).digest()
        step += 1
        now = int(time.time() * 1000)
        for point in range(int(number("POINTS_PER_STEP", 1))):
            link.op(op="metrics", points=[["step" if point == 0 else "fake/%d" % point, step, now, float(step)]])
        stopping = any(part[0] for part in parts) and step < steps
        if RANK == 0:
            say("step %d/%d" % (step, steps))
            if stopping:
                last_words()
            if stopping or step % every == 0:
                checkpoint(link, step, state)
        if stopping:
            link.flush(number("FLUSH_SECONDS", 10))
            exchange(peers, b"!")  # nobody leaves before rank 0 has its checkpoint acknowledged
            return 75
        time.sleep(number("STEP_MS", 20) / 1000.0)
    link.op(op="finish", status="finished")
    link.flush(number("FLUSH_SECONDS", 10))
    digests = exchange(peers, state)
    assert digests == state * WORLD, "the ranks' states differ"
    say("final_digest %s" % state.hex())
    return 0


if __name__ == "__main__":
    sys.exit(main())
