#!/usr/bin/env python3
"""The demo: real trainings from submit to a sealed record, a preemption and a resume, a sweep, its best model to production and back, the
lineages, and the rebuild of every view.

Runs the built `footplate` binary as a stranger would, over a temporary data folder and free ports. Writes target/demo.json with `ok`,
`rebuild_equal`, `resumed_equal`, `promoted`, `best_trial`, `first_line_ms`, `engines` and `steps`. ENGINES=real keeps the series in a real Cassandra and the objects in a
bucket of a real S3 server. KEEP=1 leaves the platform running.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import models
from subscriber import Subscriber
from engines import Engines, NotUp, free_port

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("FOOTPLATE_BINARY", ROOT / "target" / "debug" / "footplate"))
KEEP = os.environ.get("KEEP") == "1"
ENGINES = os.environ.get("ENGINES") or "local"
PATIENCE_S = 240
SERVICES = {"scheduler", "executor", "gpu-inventory", "tracker", "sweep", "registry"}
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def say(text):
    print("\n\033[1m== %s\033[0m" % text if COLOUR else "\n== %s" % text, flush=True)


class Failed(Exception):
    pass


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.steps = []
        self.result = {"ok": False, "rebuild_equal": False, "resumed_equal": False, "promoted": False, "subscriber_saw": False, "best_trial": None, "first_line_ms": None,
                       "engines": ENGINES}
        self.address = "127.0.0.1:%d" % free_port()
        self.env = dict(os.environ)
        for name in list(self.env):
            if name.startswith("FOOTPLATE_"):
                del self.env[name]
        self.env["XDG_CONFIG_HOME"] = str(folder / "config")
        self.env["PATH"] = os.pathsep.join([str(ROOT / ".tools/python/bin"), str(ROOT / ".tools/nats/bin"), self.env["PATH"]])
        self.platform = None
        self.engines = None
        self.second_person = models.Second(self)
        self.subscriber = Subscriber(self)

    say = staticmethod(say)

    @staticmethod
    def check(holds, otherwise):
        if not holds:
            raise Failed(otherwise)

    def step(self, name, began):
        took = round((time.monotonic() - began) * 1000)
        self.steps.append({"step": name, "ms": took})
        print("   (%s: %d ms)" % (name, took), flush=True)

    def footplate(self, *args, show=False, ok=(0,), token=None):
        """Runs one command; prints it as a person would type it, with `token` (a variable's name and value) as someone else."""
        env = {**self.env, "FOOTPLATE_TOKEN": token[1]} if token else self.env
        if show:
            print("$ %sfootplate %s" % ("FOOTPLATE_TOKEN=$%s " % token[0] if token else "", shlex.join(args)), flush=True)
        done = subprocess.run([str(BINARY), *args], env=env, cwd=self.folder / "digits", stdout=subprocess.PIPE,
                              stderr=None if show else subprocess.PIPE, timeout=PATIENCE_S)
        out = done.stdout.decode(errors="replace")
        if show and out:
            print(out, end="" if out.endswith("\n") else "\n", flush=True)
        if done.returncode not in ok:
            err = "" if done.stderr is None else done.stderr.decode(errors="replace")
            raise Failed("footplate %s ended with %d\n%s%s" % (" ".join(args), done.returncode, out, err))
        return out

    def data(self, *args, **kwargs):
        return json.loads(self.footplate(*args, "-o", "json", **kwargs))

    def eventually(self, what, look):
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE_S:
            found = look()
            if found is not None and found is not False:
                return found
            if self.platform.poll() is not None:
                raise Failed("the platform ended with %s while waiting for: %s" % (self.platform.returncode, what))
            time.sleep(0.1)
        raise Failed("waited %d s in vain for: %s" % (PATIENCE_S, what))

    def start_engines(self):
        began = time.monotonic()
        say("The engines: an Apache Cassandra for the metrics, an S3 server for artifacts, checkpoints and logs")
        self.engines = Engines(self.folder)
        self.engines.start()
        self.env.update(self.engines.env)
        self.step("engines up", began)

    def start(self):
        began = time.monotonic()
        say("The platform: six services, an agent with two slots and a broker, in one process; a second person gets a token")
        command = [str(BINARY), "up", "--data", str(self.folder / "data"), "--listen", self.address, "--slots", "2",
                   "--set", "nats.port=%d" % free_port(), "--set", "nats.monitor-port=%d" % free_port(),
                   "--set", "admin.listen=127.0.0.1:%d" % free_port(), "--set", "nats.disk=2GiB"]
        flags = self.engines.flags if self.engines else []
        print("$ footplate %s" % " ".join(command[1:6] + flags), flush=True)
        command += flags
        self.log = open(self.folder / "up.log", "wb")
        self.platform = subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log, start_new_session=True)
        self.eventually("a node that is ready", self.ready)
        self.footplate("node", "list", show=True)
        self.second_person.enter()
        self.subscriber.enter(ROOT / ".tools/python/bin/python3")
        self.step("platform up", began)

    def ready(self):
        try:
            return any(node.get("state") == "ready" for node in self.data("node", "list"))
        except (Failed, ValueError):
            return False

    def project(self):
        """A small repository of the example, as a user would have one."""
        shutil.copytree(ROOT / "docs/examples/digits", self.folder / "digits", ignore=shutil.ignore_patterns("__pycache__"))
        if shutil.which("git"):
            who = ["-c", "user.name=demo", "-c", "user.email=demo@example.org"]
            for args in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-q", "-m", "digits"]):
                subprocess.run(["git", *args], cwd=self.folder / "digits", check=True, env=self.env)

    def submit(self, *more, show=False):
        return self.footplate("submit", "-q", "job.yaml", *more, show=show).strip().splitlines()[-1]

    def follow(self, run, began):
        """Prints the log as it comes; remembers when the first line came."""
        reader = subprocess.Popen([str(BINARY), "run", "logs", "-f", run], env=self.env, cwd=self.folder / "digits", stdout=subprocess.PIPE)
        first = None
        lines = 0
        for line in reader.stdout:
            if first is None:
                first = round((time.monotonic() - began) * 1000)
            lines += 1
            if lines <= 12 or b"final" in line or lines % 20 == 0:
                print("   | %s" % line.decode(errors="replace").rstrip(), flush=True)
        reader.wait(timeout=PATIENCE_S)
        return first

    def show_metric(self, run, name, stop):
        """Shows one metric as it moves."""
        shown = None
        while not stop.wait(0.7):
            try:
                latest = {value["name"]: value for value in self.data("run", "show", run).get("latest", [])}
            except (Failed, ValueError, subprocess.TimeoutExpired):
                continue
            value = latest.get(name)
            if value and value.get("step") != shown:
                shown = value.get("step")
                print("   ~ %s = %.4f at step %s" % (name, float(value.get("value", 0)), shown or 0), flush=True)

    def tag(self, run, name):
        return self.data("run", "show", run).get("tags", {}).get(name)

    def undisturbed(self):
        say("A training: two workers that exchange gradients")
        began = time.monotonic()
        run = self.submit("--set", "config.step_sleep_ms=5", show=True)
        stop = threading.Event()
        metric = threading.Thread(target=self.show_metric, args=(run, "train/loss", stop))
        metric.start()
        try:
            self.result["first_line_ms"] = self.follow(run, began)
        finally:
            stop.set()
            metric.join()
        self.footplate("run", "wait", run, show=True)
        self.step("training sealed", began)
        return run

    def disturbed(self):
        say("The same training again, preempted by a more urgent job and resumed from its checkpoint")
        began = time.monotonic()
        run = self.submit("--set", "config.step_sleep_ms=20", "--name", "digits-preempted", show=True)
        self.eventually("some steps of training", lambda: any(
            value["name"] == "train/loss" and int(value.get("step", 0)) >= 60 for value in self.data("run", "show", run).get("latest", [])))
        urgent = self.footplate("submit", "-q", "--name", "urgent", "--slots", "2", "--priority", "10", "--no-source", "--",
                                "sh", "-c", "echo urgent work on rank $RANK; sleep 1", show=True).strip().splitlines()[-1]
        self.eventually("the preemption", lambda: any(
            attempt.get("stopCause") == "preempted" for attempt in self.data("run", "show", run).get("attempts", [])))
        self.footplate("why", run, show=True)
        self.footplate("run", "wait", urgent, show=True)
        self.footplate("run", "wait", run, show=True)
        attempts = self.data("run", "show", run).get("attempts", [])
        if len(attempts) < 2:
            raise Failed("the preempted run had %d attempt(s)" % len(attempts))
        self.step("preempted, resumed, sealed", began)
        return run

    def run(self):
        self.project()
        if ENGINES == "real":
            self.start_engines()
        self.start()
        first = self.undisturbed()
        second = self.disturbed()
        digests = [self.tag(run, "final_digest") for run in (first, second)]
        self.result["resumed_equal"] = digests[0] is not None and digests[0] == digests[1]
        print("   final digest undisturbed: %s\n   final digest resumed:     %s" % tuple(digests), flush=True)
        say("What that run stands on, rebuilt from the ledger alone")
        began = time.monotonic()
        self.footplate("lineage", second, show=True)
        self.step("lineage", began)
        self.sweep, best = models.sweep(self)
        models.to_production_and_back(self, self.second_person, first, best)
        models.lineage(self, best)
        say("A downstream team with a NATS client of its own: has it seen everything?")
        began = time.monotonic()
        self.result["subscriber_saw"] = self.subscriber.saw_it_all()
        self.step("subscriber", began)
        say("Every view of the six services rebuilt in a shadow copy and compared with the living one")
        began = time.monotonic()
        self.footplate("replay", "--verify", show=True, ok=(0, 1))
        views = self.data("replay", "--verify", ok=(0, 1))
        rebuilt = {view["service"] for view in views if view.get("equal") and int(view.get("events", 0)) > 0}
        self.result["rebuild_equal"] = all(view.get("equal") for view in views) and rebuilt == SERVICES
        self.step("rebuild", began)
        self.result["ok"] = all(self.result[key] for key in ("resumed_equal", "rebuild_equal", "promoted", "subscriber_saw", "best_trial"))
        self.first, self.second = first, second

    def end(self):
        self.subscriber.end()
        if self.platform is not None and self.platform.poll() is None:
            self.platform.send_signal(signal.SIGTERM)
            try:
                self.platform.wait(timeout=90)
            except subprocess.TimeoutExpired:
                os.killpg(self.platform.pid, signal.SIGKILL)
                self.platform.wait()
        if self.engines is not None:
            self.engines.end()


def main():
    if not BINARY.exists():
        sys.exit("demo: %s is not there; run `make demo`, which builds it" % BINARY)
    if ENGINES not in ("local", "real"):
        sys.exit("demo: ENGINES=%s: local (the data folder) or real (Cassandra and an S3 server)" % ENGINES)
    if KEEP and ENGINES == "real":
        sys.exit("demo: KEEP=1 with ENGINES=real: the engines end with the demo; docs/reference/object-store.md says how to run with your own")
    folder = Path(tempfile.mkdtemp(prefix="footplate-demo-"))
    demo = Demo(folder)
    began = time.monotonic()
    failure = None
    try:
        demo.run()
    except (Failed, NotUp, subprocess.SubprocessError, KeyboardInterrupt) as error:
        failure = error
    except (LookupError, ValueError) as error:
        failure = Failed("an answer lacks what it should have: %r" % error)
    demo.step("all of it", began)
    out = Path(os.environ.get("FOOTPLATE_DEMO_JSON", ROOT / "target" / "demo.json"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**demo.result, "steps": demo.steps}, indent=2) + "\n")
    say("Time of each step")
    for step in demo.steps:
        print("   %8d ms  %s" % (step["ms"], step["step"]))
    if failure is not None or not demo.result["ok"]:
        print("\ndemo: failed: %s" % (failure or "see above"), flush=True)
        log = folder / "up.log"
        if log.exists():
            print("the last of %s:\n%s" % (log, "\n".join(log.read_text(errors="replace").splitlines()[-60:])))
        demo.end()
        return 1
    if KEEP:
        say("The platform is still running; what to try next:")
        print("export XDG_CONFIG_HOME=%s PATH=%s:$PATH" % (folder / "config", BINARY.parent))
        first, second, sweep = demo.first[:12], demo.second[:12], demo.sweep[:12]
    else:
        demo.end()
        shutil.rmtree(folder, ignore_errors=True)
        say("Done; KEEP=1 make demo leaves the platform running. What to try then, with the ids that it prints:")
        first, second, sweep = "RUN", "OTHER", "SWEEP"
    print("   footplate run compare %s %s" % (first, second))
    print("   footplate event tail -n 40 --run %s" % second)
    print("   footplate run rerun %s --wait" % first)
    print("   footplate sweep resume %s --trials 16" % sweep)
    print("   footplate artifact download models:/%s/Production --to served" % models.MODEL)
    print("   footplate model rollback %s" % models.MODEL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
