"""A downstream team of the demo: it follows the project's events with nats-py and credentials, and nothing of ours.

Run as a program it is that team: `subscriber.py CREDENTIALS BROKER STREAM CONSUMER` prints an event a line, until it is ended.
"""

import asyncio
import json
import subprocess
import sys

NAME = "downstream"
CREDENTIALS = "downstream.creds"


class Subscriber:
    """What the demo does with it: lets it in, starts it, and asks at the end whether it saw everything."""

    def __init__(self, demo):
        self.demo = demo
        self.path = demo.folder / "seen.jsonl"
        self.process = None

    def enter(self, program):
        self.demo.footplate("subscription", "create", NAME, "--from", "1", "--out", CREDENTIALS, show=True)
        made = self.demo.data("subscription", "list")[0]
        command = [str(program), __file__, CREDENTIALS, made["brokerAddress"], made["stream"], made["consumer"]]
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(command, cwd=self.demo.folder / "digits", env=self.demo.env, stdout=out,
                                            stderr=open(self.demo.folder / "subscriber.log", "wb"))

    def seen(self):
        with open(self.path, encoding="utf-8") as lines:
            return [tuple(json.loads(line)) for line in lines if line.endswith("\n")]

    def saw_it_all(self):
        """Whether it has each event of the project once or more, in order, as the ledger has them."""
        listed = self.demo.footplate("event", "tail", "--from", "1", "-o", "json")
        ledger = [(int(event["sequence"]), event["id"], event["type"]) for event in map(json.loads, listed.splitlines())]
        self.demo.eventually("the subscriber has what is in the ledger", lambda: set(ledger) <= set(self.seen()))
        firsts = list(dict.fromkeys(self.seen()))
        kinds = {kind for _, _, kind in ledger}
        print("   %d events of %d kinds, each seen in the ledger's order" % (len(ledger), len(kinds)), flush=True)
        return firsts[:len(ledger)] == ledger and {"footplate.model.promoted.v1", "footplate.trial.finished.v1"} <= kinds

    def end(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=30)


async def follow(credentials, broker, stream, consumer):
    import nats  # Only the team's own program needs it.

    connection = await nats.connect(broker, user_credentials=credentials, max_reconnect_attempts=-1)
    subscription = await connection.jetstream().pull_subscribe_bind(consumer, stream)
    while True:
        try:
            batch = await subscription.fetch(100, timeout=1)
        except (asyncio.TimeoutError, nats.errors.TimeoutError):
            continue
        for event in batch:
            print(json.dumps([event.metadata.sequence.stream, event.headers["ce-id"], event.headers["ce-type"]]), flush=True)
            await event.ack()


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:]))
