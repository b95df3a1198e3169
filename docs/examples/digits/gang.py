"""The workers of one training, joined over plain TCP: a star around rank 0.

Reads the environment that torchrun would set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). Sums are taken by rank 0 in the order of
the ranks, in float64, and every rank gets the same bytes back: so all ranks stay bitwise equal, and a resumed training is bitwise
equal to an undisturbed one. It never retries a lost peer: a gang starts together or not at all.
"""

import hmac
import json
import os
import socket
import struct
import time

import numpy as np

RENDEZVOUS_SECONDS_MAX = 60.0
SILENCE_SECONDS_MAX = 120.0  # a peer that says nothing for so long is taken for hung
MESSAGE_BYTES_MAX = 1 << 30


class Stopped(Exception):
    """Asked to stop before the gang was complete."""


class PeerGone(ConnectionError):
    """A gang that has lost a member cannot go on."""

    def __str__(self):
        return "a peer of the gang is gone"


class Gang:
    def __init__(self, stop_requested=lambda: False):
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.address = os.environ.get("MASTER_ADDR", "127.0.0.1")
        self.port = int(os.environ.get("MASTER_PORT", "0"))
        # Peers of another run or another attempt must never be taken in, even where a port was used again.
        self.identity = "{}/{}".format(os.environ.get("FOOTPLATE_RUN_ID", "-"), os.environ.get("FOOTPLATE_ATTEMPT", "1"))
        self.peers = {}  # rank 0: rank -> socket; others: {0: socket}
        if self.world > 1:
            deadline = time.monotonic() + RENDEZVOUS_SECONDS_MAX
            (self._host if self.rank == 0 else self._join)(deadline, stop_requested)

    # Joining -------------------------------------------------------------------------------------------------------------

    def _host(self, deadline, stop_requested):
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._until(deadline, stop_requested, lambda: door.bind((self.address, self.port)), "port %d is taken" % self.port)
            door.listen(self.world)
            door.settimeout(0.1)
            while len(self.peers) < self.world - 1:
                try:
                    peer, _ = door.accept()
                except socket.timeout:
                    self._check(deadline, stop_requested, "only %d of %d ranks came" % (len(self.peers) + 1, self.world))
                    continue
                self._admit(peer)

    def _admit(self, peer):
        peer.settimeout(5.0)
        try:
            hello = json.loads(_receive(peer, limit=4096))
            known = hmac.compare_digest(str(hello["gang"]), self.identity) and hello["world"] == self.world
            if not known or not 0 < hello["rank"] < self.world or hello["rank"] in self.peers:
                raise ValueError("a stranger: %r" % (hello,))
        except (OSError, ValueError, KeyError, TypeError) as fault:
            print("rank 0 turned a caller away: %s" % fault, flush=True)
            peer.close()
            return
        _tune(peer)
        _send(peer, b"welcome")
        self.peers[hello["rank"]] = peer

    def _join(self, deadline, stop_requested):
        hello = json.dumps({"gang": self.identity, "rank": self.rank, "world": self.world}).encode()

        def call():
            peer = socket.create_connection((self.address, self.port), timeout=5.0)
            try:
                _send(peer, hello)
                if _receive(peer, limit=64) != b"welcome":
                    raise ConnectionError("no welcome")
                _tune(peer)
            except BaseException:
                peer.close()
                raise
            self.peers[0] = peer

        self._until(deadline, stop_requested, call, "rank 0 is not at %s:%d" % (self.address, self.port))

    def _until(self, deadline, stop_requested, act, complaint):
        while True:
            try:
                return act()
            except OSError as fault:
                self._check(deadline, stop_requested, "%s (%s)" % (complaint, fault))
                time.sleep(0.05)

    def _check(self, deadline, stop_requested, complaint):
        if stop_requested():
            raise Stopped()
        if time.monotonic() > deadline:
            raise TimeoutError("no gang after %.0f s: %s" % (RENDEZVOUS_SECONDS_MAX, complaint))

    # Talking -------------------------------------------------------------------------------------------------------------

    def gather(self, data):
        """Rank 0: what every rank gave, by rank. Others: None."""
        if self.rank != 0:
            _send(self.peers[0], data)
            return None
        return [data] + [_receive(self.peers[rank]) for rank in range(1, self.world)]

    def broadcast(self, data):
        """What rank 0 gave, at every rank."""
        if self.rank != 0:
            return _receive(self.peers[0])
        for rank in range(1, self.world):
            _send(self.peers[rank], data)
        return data

    def sum(self, vector):
        """The sum over all ranks of a float64 vector, the same bits at every rank."""
        parts = self.gather(vector.tobytes())
        if parts is not None:
            total = np.zeros_like(vector)
            for part in parts:  # in the order of the ranks: float addition is not associative
                total += np.frombuffer(part, dtype=np.float64)
            vector = total
        return np.frombuffer(self.broadcast(vector.tobytes()), dtype=np.float64)

    def close(self):
        for peer in self.peers.values():
            peer.close()


def _tune(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.settimeout(SILENCE_SECONDS_MAX)


def _send(peer, data):
    try:
        peer.sendall(struct.pack("!Q", len(data)) + data)
    except (BrokenPipeError, ConnectionResetError):
        raise PeerGone() from None


def _receive(peer, limit=MESSAGE_BYTES_MAX):
    (length,) = struct.unpack("!Q", _exactly(peer, 8))
    if length > limit:
        raise ConnectionError("a message of %d bytes, over the limit of %d" % (length, limit))
    return _exactly(peer, length)


def _exactly(peer, count):
    parts = bytearray()
    while len(parts) < count:
        try:
            part = peer.recv(min(count - len(parts), 1 << 20))
        except ConnectionResetError:
            part = b""
        if not part:
            raise PeerGone()
        parts += part
    return bytes(parts)
