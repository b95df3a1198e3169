"""Data-parallel training of a small network on scikit-learn's digits: the example that `make demo` runs.

Each rank takes its part of every batch, the ranks sum their gradients, and all of them apply the same step. Asked to stop, they agree on the
step after which they stop, rank 0 saves a checkpoint, and all exit 75: "checkpointed, requeue me". A resumed training ends with the
same parameters, to the bit, as an undisturbed one; the digest that it prints says so.

Alone: `python train.py`. Two workers by hand: see README.md. On the platform: `footplate submit job.yaml`.
"""

import os
import sys

print("rank %s of %s: starting, attempt %s" % (
    os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1"), os.environ.get("FOOTPLATE_ATTEMPT", "1")), flush=True)

# One thread of linear algebra a rank: ranks share a machine, and the order of additions must not depend on the cores at hand.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import hashlib
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

try:
    import footplate
except ModuleNotFoundError:  # from a checkout, without `pip install libs/python`
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "libs" / "python"))
    import footplate

from gang import Gang, Stopped

EXIT_REQUEUE = 75
MOMENTUM = 0.9
DEFAULTS = {"epochs": 20, "hidden": 64, "lr": 0.1, "batch": 64, "seed": 17, "step_sleep_ms": 0,
            "checkpoint_every": 50, "checkpoint_dir": "checkpoints"}


class Network:
    """64 pixels, one hidden layer, 10 classes. All parameters live in one flat vector, so that sums and digests are simple."""

    def __init__(self, hidden, seed):
        self.shapes = [(64, hidden), (hidden,), (hidden, 10), (10,)]
        self.flat = np.zeros(sum(int(np.prod(shape)) for shape in self.shapes))
        self.velocity = np.zeros_like(self.flat)
        random = np.random.default_rng([seed, 0])
        for part in self.parts(self.flat):
            if part.ndim == 2:
                part[...] = random.normal(0.0, np.sqrt(2.0 / part.shape[0]), part.shape)

    def parts(self, flat):
        start = 0
        for shape in self.shapes:
            end = start + int(np.prod(shape))
            yield flat[start:end].reshape(shape)
            start = end

    def forward(self, pixels):
        w1, b1, w2, b2 = self.parts(self.flat)
        hidden = np.maximum(pixels @ w1 + b1, 0.0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        return hidden, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

    def gradient(self, pixels, labels):
        """The gradient, the loss and the number of right answers, each summed over the examples."""
        _, _, w2, _ = self.parts(self.flat)
        hidden, chances = self.forward(pixels)
        rows = np.arange(len(labels))
        loss = -np.log(np.maximum(chances[rows, labels], 1e-300)).sum()
        right = (chances.argmax(axis=1) == labels).sum()
        chances[rows, labels] -= 1.0
        gradient = np.empty_like(self.flat)
        g_w1, g_b1, g_w2, g_b2 = self.parts(gradient)
        g_w2[...], g_b2[...] = hidden.T @ chances, chances.sum(axis=0)
        back = (chances @ w2.T) * (hidden > 0.0)
        g_w1[...], g_b1[...] = pixels.T @ back, back.sum(axis=0)
        return gradient, loss, right

    def apply(self, gradient, lr):
        self.velocity = MOMENTUM * self.velocity - lr * gradient
        self.flat = self.flat + self.velocity

    def accuracy(self, pixels, labels):
        return float((self.forward(pixels)[1].argmax(axis=1) == labels).mean())

    def save(self, path):
        np.savez(path, **dict(zip(("w1", "b1", "w2", "b2"), self.parts(self.flat))))

    def digest(self):
        return hashlib.sha256(self.flat.astype("<f8").tobytes()).hexdigest()


class Checkpoints:
    """Files of rank 0, each written whole under a new name, then handed to the platform. The two newest stay on disk."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.saved = []  # (path, what footplate.save_checkpoint returned)
        self.step = -1

    def save(self, network, step):
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / ("attempt-%s-step-%08d.npz" % (os.environ.get("FOOTPLATE_ATTEMPT", "1"), step))
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.savez(file, flat=network.flat, velocity=network.velocity, step=np.int64(step))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        self.saved.append((path, footplate.save_checkpoint(path, step=step, metadata={"digest": network.digest()})))
        self.step = step
        while len(self.saved) > 2 and self.saved[0][1].done():
            self.saved.pop(0)[0].unlink()

    def wait(self, seconds):
        return all(handle.wait(seconds) for _, handle in self.saved)


def resume(gang, network):
    """Rank 0 asks for the last checkpoint and tells the others, so that all start from the same one. Returns the step to go on from."""
    state = np.concatenate([[0.0], network.flat, network.velocity])
    if gang.rank == 0:
        checkpoint = footplate.latest_checkpoint()
        if checkpoint is not None:
            with np.load(checkpoint.path) as saved:
                state = np.concatenate([[float(saved["step"])], saved["flat"], saved["velocity"]])
            print("resuming after step %d" % int(state[0]), flush=True)
    state = np.frombuffer(gang.broadcast(state.tobytes()), dtype=np.float64)
    if len(state) != 1 + 2 * len(network.flat):
        raise SystemExit("the checkpoint is of another network: hidden differs")
    network.flat, network.velocity = state[1:1 + len(network.flat)].copy(), state[1 + len(network.flat):].copy()
    return int(state[0])


def data(seed):
    digits = load_digits()
    order = np.random.default_rng([seed, 1]).permutation(len(digits.target))
    pixels, labels = digits.data[order] / 16.0, digits.target[order]
    return (pixels[360:], labels[360:]), (pixels[:360], labels[:360])


def train(gang, config, network, checkpoints):
    """True when the training is complete; False when it was asked to stop and has saved a checkpoint."""
    (pixels, labels), validation = data(config.seed)
    steps_an_epoch = len(labels) // config.batch
    steps = steps_an_epoch * config.epochs
    step = resume(gang, network)
    lead = gang.rank == 0
    while step < steps:
        began = time.monotonic()
        epoch, place = divmod(step, steps_an_epoch)
        order = np.random.default_rng([config.seed, 2, epoch]).permutation(len(labels))
        mine = order[place * config.batch:(place + 1) * config.batch][gang.rank::gang.world]
        gradient, loss, right = network.gradient(pixels[mine], labels[mine])
        # The wish to stop travels with the gradients: whoever has it, all ranks see it after the same step.
        total = gang.sum(np.concatenate([gradient, [loss, right, float(footplate.stop_requested())]]))
        network.apply(total[:-3] / config.batch, config.lr)
        step += 1
        footplate.log({"time/step_ms": (time.monotonic() - began) * 1000.0}, step=step)
        if lead:
            footplate.log({"train/loss": total[-3] / config.batch, "train/acc": total[-2] / config.batch}, step=step)
            if step % steps_an_epoch == 0:
                accuracy = network.accuracy(*validation)
                footplate.log({"val/acc": accuracy}, step=step)
                print("epoch %d/%d step %d/%d loss %.4f val/acc %.4f" % (
                    step // steps_an_epoch, config.epochs, step, steps, total[-3] / config.batch, accuracy), flush=True)
            if step % config.checkpoint_every == 0:
                checkpoints.save(network, step)
        if total[-1] > 0.0 and step < steps:
            if lead:
                if checkpoints.step != step:
                    checkpoints.save(network, step)
                checkpoints.wait(10.0)
                print("asked to stop: checkpoint at step %d saved" % step, flush=True)
            gang.broadcast(b"saved")  # nobody leaves before the checkpoint is whole
            return False
        if config.step_sleep_ms:
            time.sleep(config.step_sleep_ms / 1000.0)
    return True


def main():
    footplate.init(experiment="digits", config=DEFAULTS)
    footplate.stop_requested()  # from here on TERM means: save and leave
    config = footplate.config
    try:
        gang = Gang(footplate.stop_requested)
    except Stopped:
        return EXIT_REQUEUE
    network, checkpoints = Network(config.hidden, config.seed), Checkpoints(config.checkpoint_dir)
    if not train(gang, config, network, checkpoints):
        gang.close()
        footplate.flush(10.0)
        return EXIT_REQUEUE
    digest = network.digest()
    digests = gang.gather(digest.encode())
    everyone = gang.broadcast(b" ".join(digests) if digests else b"").decode().split()
    if set(everyone) != {digest}:
        raise SystemExit("the ranks' parameters differ: %s" % everyone)
    if gang.rank == 0:
        Path("final_digest").write_text(digest + "\n")
        footplate.log_artifact("final_digest")
        network.save("model.npz")
        footplate.log_artifact("model.npz")
        footplate.set_tags({"final_digest": digest})
        print("final_digest %s" % digest, flush=True)
    gang.close()
    footplate.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
