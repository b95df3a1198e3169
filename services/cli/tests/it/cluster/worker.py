"""The worker of the fault tests: the rhythm of a gang, and a record of all that it printed and logged, to compare with what the platform kept.

RECORD names a folder outside of the platform's. There, for each ATTEMPT-RANK:
  .out  every byte of standard output, written after the pipe took it
  .ops  `sent N STEP` before a point is handed to the agent, `acked N` once the agent answered up to N
  .end  the last step and the state after it, from a worker that ended by itself
All ranks end together by 0 once the file `finish` is there. STEP_MS is the sleep after each step.
"""

import hashlib
import os
import signal
import sys
import time

import fake_worker as fake

RECORD = os.environ["RECORD"]
NAME = os.path.join(RECORD, "%d-%d" % (fake.ATTEMPT, fake.RANK))
CHECKPOINT_EVERY = 10
STOP, FINISH = 1, 2


class Out:
    """Standard output, recorded."""

    def __init__(self):
        self.buffer, self.file = self, open(NAME + ".out", "ab", 0)

    def write(self, data):
        rest = data
        while rest:
            rest = rest[os.write(1, rest):]
        self.file.write(data)

    def flush(self):
        pass


class Link(fake.Link):
    """The agent's socket, recorded."""

    def __init__(self):
        self.record = open(NAME + ".ops", "ab", 0)
        super().__init__()

    def point(self, step, *more):
        self.record.write(b"sent %d %d\n" % (self.n + 1, step))
        self.op(op="metrics", points=[["step", step, int(time.time() * 1000), float(step)], *more])

    def settle(self, n):
        super().settle(n)
        self.record.write(b"acked %d\n" % self.acked)


def ended(step, state):
    with open(NAME + ".end", "w") as file:
        file.write("%d %s" % (step, state.hex()))


def on_term(*_):
    fake.stop_asked = True


def main():
    signal.signal(signal.SIGTERM, on_term)
    sys.stdout = Out()
    fake.say("attempt %d rank %d of %d pid %d" % (fake.ATTEMPT, fake.RANK, fake.WORLD, os.getpid()))
    link = Link()
    link.hear()
    peers = fake.meet()
    step, state = fake.resume(link, peers)
    asked = 0
    while not asked:
        wish = STOP * fake.stop_asked | FINISH * os.path.exists(os.path.join(RECORD, "finish"))
        everyone = fake.exchange(peers, bytes([wish]) + hashlib.sha256(state + bytes([fake.RANK])).digest())
        parts = [everyone[at:at + 33] for at in range(0, len(everyone), 33)]
        state = hashlib.sha256(state + b"".join(part[1:] for part in parts)).digest()
        step += 1
        for part in parts:
            asked |= part[0]
        link.point(step)
        sys.stdout.write(b"step %d of attempt %d at rank %d \xff\xfe\x00 50%%\r100%%\n" % (step, fake.ATTEMPT, fake.RANK))
        if fake.RANK == 0 and (asked or step % CHECKPOINT_EVERY == 0):
            fake.checkpoint(link, step, state)
        time.sleep(float(os.environ.get("STEP_MS", 50)) / 1000)
    if asked == FINISH:
        link.op(op="finish", status="finished")
    link.flush(30)
    fake.exchange(peers, b"!")  # nobody leaves before rank 0 has its checkpoint acknowledged
    if asked == FINISH:
        ended(step, state)
    sys.stdout.write(b"the last words end without a new line")
    return 0 if asked == FINISH else 75


if __name__ == "__main__":
    sys.exit(main())
