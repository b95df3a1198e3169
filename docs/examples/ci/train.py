"""A training that takes a second: logistic regression on two overlapping clouds of points, in plain Python. What the guide on CI submits."""

import json
import math
import random
import sys
from pathlib import Path

try:
    import footplate
except ModuleNotFoundError:  # from a checkout, without `pip install libs/python`
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "libs" / "python"))
    import footplate


def points(seed, count):
    """Points of two kinds, each around a centre of its own."""
    numbers = random.Random(seed)
    for index in range(count):
        kind = index % 2
        yield numbers.gauss(2.0 * kind, 1.0), numbers.gauss(4.0 * kind, 1.5), kind


def probability(weights, x, y):
    return 1.0 / (1.0 + math.exp(-(weights[0] + weights[1] * x + weights[2] * y)))


def validate(weights, held_out):
    """Share of right answers, and the mean loss."""
    right = loss = 0.0
    for x, y, kind in held_out:
        p = min(max(probability(weights, x, y), 1e-9), 1.0 - 1e-9)
        right += (p > 0.5) == (kind == 1)
        loss -= math.log(p if kind else 1.0 - p)
    return right / len(held_out), loss / len(held_out)


def main():
    footplate.init(config={"epochs": 20, "lr": 0.05, "seed": 17})
    config = footplate.config
    training, held_out = list(points(config.seed, 400)), list(points(config.seed + 1, 1000))
    weights = [0.0, 0.0, 0.0]
    for epoch in range(1, config.epochs + 1):
        for x, y, kind in training:
            step = config.lr * (kind - probability(weights, x, y))
            weights = [weights[0] + step, weights[1] + step * x, weights[2] + step * y]
        accuracy, loss = validate(weights, held_out)
        footplate.log({"val/acc": accuracy, "val/loss": loss}, step=epoch)
        print(f"epoch {epoch}: val/acc {accuracy:.4f} val/loss {loss:.4f}", flush=True)
    Path("model.json").write_text(json.dumps({"weights": weights}))
    footplate.log_artifact("model.json")
    footplate.finish()


if __name__ == "__main__":
    main()
