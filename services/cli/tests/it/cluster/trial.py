"""A trial of the fault tests' sweep: one worker that walks a few steps, with a loss that only its point and its step decide, recorded as the gang's.

It records into a folder of its run's id in RECORD. Every attempt starts over, so whichever comes to its end says the same. Once the file `finish` is
in RECORD it no longer sleeps between its steps.
"""

import json
import os
import sys
import time

SWEEP = os.environ["RECORD"]
os.environ["RECORD"] = os.path.join(SWEEP, os.environ["FOOTPLATE_RUN_ID"])
os.makedirs(os.environ["RECORD"], exist_ok=True)

import worker  # noqa: E402, it looks at RECORD

STEPS = 40
OF_CHOICE = {"sgd": 0.5, "adam": 0.0}


def loss(point, step):
    away = point["x"] - 0.25
    return away * away + OF_CHOICE[point["opt"]] + (STEPS - step) * 0.125


def main():
    with open(os.environ["FOOTPLATE_CONFIG"]) as file:
        point = json.load(file)
    sys.stdout = worker.Out()
    link = worker.Link()
    for step in range(1, STEPS + 1):
        link.point(step, ["loss", step, int(time.time() * 1000), loss(point, step)])
        sys.stdout.write(b"step %d of attempt %d\n" % (step, worker.fake.ATTEMPT))
        if not os.path.exists(os.path.join(SWEEP, "finish")):
            time.sleep(float(os.environ["STEP_MS"]) / 1000)
    link.op(op="finish", status="finished")
    link.flush(30)
    worker.ended(STEPS, b"")


if __name__ == "__main__":
    main()
