"""The second half of the demo: a sweep, and the way of its best model to production and back, with a second pair of eyes."""

import time

MODEL = "digits"
METRIC = "val/acc"
TRIALS = 8
# Who approves what the demo's own user proposes.
SECOND = "user:rosa"


class Second:
    """A second person: a principal with a role and a token of her own."""

    def __init__(self, demo):
        self.demo = demo
        self.token = None

    def enter(self):
        """Made by the first: a principal, the role to approve, a token that ends by itself."""
        self.demo.footplate("user", "create", SECOND, show=True)
        self.demo.footplate("project", "grant", "default", SECOND, "approver", show=True)
        command = ["token", "create", "-q", "--for", SECOND, "--expires", "1d"]
        print("$ ROSA=$(footplate %s)" % " ".join(command), flush=True)
        self.token = self.demo.footplate(*command).strip()

    def types(self, *args):
        self.demo.footplate(*args, show=True, token=("ROSA", self.token))


def sweep(demo):
    """Eight trials; what `sweep show` calls the best is held against what every trial and the best one's own run say."""
    demo.say("A sweep: %d short trainings, two at a time, search for the learning rate and the width" % TRIALS)
    began = time.monotonic()
    sweep_id = demo.footplate("sweep", "run", "-q", "--wait", "sweep.yaml", show=True).strip().splitlines()[-1]
    demo.footplate("sweep", "show", sweep_id, show=True)
    shown = demo.data("sweep", "show", sweep_id)
    values = [trial["value"] for trial in shown["trialList"] if trial["state"] == "complete"]
    demo.check(len(values) == TRIALS, "%d of %d trials are complete" % (len(values), TRIALS))
    best = shown["best"]
    logged = latest(demo, best["runId"], METRIC)
    demo.check(best["value"] == max(values) == logged, "the best trial has %s, all have %s, its run logged %s" % (best["value"], values, logged))
    demo.result["best_trial"] = {"number": best["number"], "run": best["runId"], "value": best["value"], "point": best["values"]}
    demo.step("sweep of %d trials" % TRIALS, began)
    return sweep_id, best["runId"]


def latest(demo, run, name):
    """The last value of a metric that a run logged."""
    return {value["name"]: value["value"] for value in demo.data("run", "show", run)["latest"] if "value" in value}[name]


def to_production_and_back(demo, second, first, best):
    """The first training's model serves, the sweep's best one takes its place, and is rolled back."""
    demo.say("The first training's model becomes version 1, and serves: what one proposes another approves")
    began = time.monotonic()
    accuracy = [latest(demo, run, METRIC) for run in (first, best)]
    register(demo, 1, first, accuracy[0], "the first training")
    second.types("model", "approve", MODEL, "1", "--reason", "the loss is smooth")
    demo.footplate("model", "promote", MODEL, "1", show=True)
    before = serves(demo)

    demo.say("The sweep's best one becomes version 2; nobody approves a proposal of their own")
    register(demo, 2, best, accuracy[1], "the best of %d trials" % TRIALS)
    demo.footplate("model", "approve", MODEL, "2", show=True, ok=(4,))
    second.types("model", "approve", MODEL, "2", "--reason", "%.4f against %.4f" % (accuracy[1], accuracy[0]))
    demo.footplate("model", "promote", MODEL, "2", show=True)
    demo.footplate("model", "list", MODEL, show=True)
    promoted = serves(demo)

    demo.say("And back: one event brings back what served before")
    demo.footplate("model", "rollback", MODEL, "--reason", "latency doubled", show=True)
    demo.footplate("model", "show", MODEL, show=True)
    back = serves(demo)

    four_eyes = all(seen_by_two(demo.data("model", "show", MODEL, version)) for version in ("1", "2"))
    demo.result["promoted"] = (before, promoted, back) == (1, 2, 1) and four_eyes
    demo.step("registered, approved, promoted, rolled back", began)


def register(demo, version, run, accuracy, note):
    demo.footplate("model", "register", MODEL, "runs:/%s/model.npz" % run, "--note", note, show=True)
    demo.footplate("model", "evaluate", MODEL, str(version), "%s=%.4f" % (METRIC, accuracy), "--data", "digits-validation", show=True)
    demo.footplate("model", "propose", MODEL, str(version), "--reason", "%s %.4f" % (METRIC, accuracy), show=True)


def serves(demo):
    """The version that serves; None where the model, the stage and the version itself do not all say the same."""
    by_model = demo.data("model", "show", MODEL).get("serving")
    by_stage = demo.data("model", "show", "models:/%s/Production" % MODEL)
    return by_model if by_stage["version"] == by_model and by_stage["stage"] == "Production" else None


def seen_by_two(version):
    """Whether a version was approved, by someone else than who proposed it."""
    proposer, approver = version["proposed"]["by"], version["answered"]["by"]
    return version["approval"] == "approved" and approver == SECOND and proposer != approver


def lineage(demo, best):
    """From the version back to its run, code, config and artifact, and what was done with it by whom."""
    demo.say("Where version 2 comes from, and who did what with it: rebuilt from the ledger alone")
    began = time.monotonic()
    demo.footplate("model", "lineage", MODEL, "2", show=True)
    nodes = demo.data("model", "lineage", MODEL, "2")["nodes"]
    kinds = {node["kind"] for node in nodes}
    missing = {"version", "run", "source", "config", "artifact", "act", "person"} - kinds
    demo.check(not missing and any(node["id"] == "run:%s" % best for node in nodes), "the lineage lacks %s" % (sorted(missing) or "run:%s" % best))
    demo.step("lineage of the version", began)
