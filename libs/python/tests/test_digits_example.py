"""The digits example for real: two ranks with the environment that an agent would set, a TERM in the middle, a resume, equal digests.

Needs numpy and scikit-learn: in this Python, or in the one that `make setup-demo` prepares.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from tests.fake_agent import FakeAgent

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
EXAMPLE = os.path.join(ROOT, "docs", "examples", "digits", "train.py")
CONFIG = {"epochs": 6, "hidden": 32, "lr": 0.1, "batch": 64, "seed": 17, "step_sleep_ms": 0, "checkpoint_every": 20}
STEPS = 6 * (1437 // 64)


def _python():
    for candidate in (sys.executable, os.path.join(ROOT, ".tools", "python", "bin", "python")):
        try:
            if subprocess.run([candidate, "-c", "import numpy, sklearn"], capture_output=True).returncode == 0:
                return candidate
        except OSError:
            continue
    return None


PYTHON = _python()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@unittest.skipUnless(PYTHON, "needs numpy and scikit-learn (make setup-demo)")
class DigitsExample(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def agent(self, name):
        os.mkdir(os.path.join(self.folder, name))
        agent = FakeAgent(os.path.join(self.folder, name)).start()
        self.addCleanup(agent.kill)
        return agent

    def launch(self, agent, attempt=1, **config):
        work = os.path.join(agent.folder, "work-{}".format(attempt))
        os.mkdir(work)
        config_path = os.path.join(work, "config.json")
        with open(config_path, "w") as file:
            json.dump(dict(CONFIG, **config), file)
        port = free_port()
        workers = []
        for rank in range(2):
            environment = dict(
                os.environ, FOOTPLATE_SOCKET=agent.path, FOOTPLATE_RUN_ID="0" * 31 + "1", FOOTPLATE_ATTEMPT=str(attempt), FOOTPLATE_PROJECT="p",
                FOOTPLATE_CONFIG=config_path, FOOTPLATE_SPOOL=os.path.join(work, "spool"), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), PYTHONUNBUFFERED="1")
            workers.append(subprocess.Popen([PYTHON, EXAMPLE], cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            self.addCleanup(workers[-1].stdout.close)
            self.addCleanup(workers[-1].kill)
        return workers

    def finish(self, workers, code):
        outputs = [worker.communicate(timeout=120)[0] for worker in workers]
        self.assertEqual([worker.returncode for worker in workers], [code] * 2, outputs)
        return outputs

    def digest(self, outputs):
        return [line.split()[1] for line in outputs[0].splitlines() if line.startswith("final_digest ")][0]

    def test_a_run_stopped_in_the_middle_and_resumed_ends_with_the_digest_of_an_undisturbed_one(self):
        calm = self.agent("calm")
        expected = self.digest(self.finish(self.launch(calm), 0))
        self.assertEqual(len(calm.points("train/loss")), STEPS)
        self.assertEqual([point[1] for point in calm.points("train/acc")], list(range(1, STEPS + 1)))
        self.assertGreater(calm.points("val/acc")[-1][3], 0.9)
        artifact = calm.of_kind("artifact")[0]
        with open(artifact["kept"]) as file:
            self.assertEqual((artifact["name"], file.read().strip()), ("final_digest", expected))
        self.assertEqual([kept["name"] for kept in calm.of_kind("artifact")], ["final_digest", "model.npz"])

        stormy = self.agent("stormy")
        workers = self.launch(stormy, step_sleep_ms=20)
        self.assertTrue(stormy.wait(lambda: any(op["op"] == "checkpoint" for _, _, op in stormy.ops), 60))
        workers[1].send_signal(signal.SIGTERM)  # one rank alone: the others learn of it with the gradients
        outputs = self.finish(workers, 75)
        self.assertIn("asked to stop: checkpoint at step", outputs[0])
        stopped_at = stormy.checkpoint["step"]
        self.assertTrue(20 <= stopped_at < STEPS, stopped_at)
        outputs = self.finish(self.launch(stormy, attempt=2), 0)
        self.assertIn("resuming after step {}".format(stopped_at), outputs[0])
        self.assertEqual(self.digest(outputs), expected)
        self.assertEqual([point[1] for point in stormy.points("train/loss")], list(range(1, STEPS + 1)), "no step lost, none twice")

    def test_a_dead_rank_ends_the_other_with_a_failure(self):
        agent = self.agent("dead")
        workers = self.launch(agent, step_sleep_ms=20)
        self.assertTrue(agent.wait(lambda: any(op["op"] == "checkpoint" for _, _, op in agent.ops), 60))
        workers[1].kill()
        output = workers[0].communicate(timeout=60)[0]
        self.assertEqual(workers[0].returncode, 1, output)
        self.assertIn("a peer of the gang is gone", output)

    def test_alone_and_without_a_platform_it_trains_too(self):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("FOOTPLATE_", "RANK", "WORLD_SIZE", "MASTER_"))}
        config_path = os.path.join(self.folder, "config.json")
        with open(config_path, "w") as file:
            json.dump(dict(CONFIG, epochs=2), file)
        environment.update(FOOTPLATE_CONFIG=config_path, FOOTPLATE_SPOOL=os.path.join(self.folder, "spool"), HOME=self.folder)
        done = subprocess.run([PYTHON, EXAMPLE], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("final_digest ", done.stdout)
        self.assertEqual(len(os.listdir(os.path.join(self.folder, "spool"))), 2, "a spool file, and the artifact set aside")
