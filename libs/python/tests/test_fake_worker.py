"""The system tests' fake worker against the fake agent: it has to be right before it may accuse anybody."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests.fake_agent import FakeAgent
from tests.test_digits_example import ROOT, free_port

WORKER = os.path.join(ROOT, "loadtests", "workers", "fake_worker.py")


class FakeWorker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.agent = self.new_agent()

    def new_agent(self):
        agent = FakeAgent(tempfile.mkdtemp(dir=self.folder)).start()
        self.addCleanup(agent.kill)
        return agent

    def launch(self, world=2, attempt=1, **fake):
        port, workers = free_port(), []
        for rank in range(world):
            environment = dict(os.environ, FOOTPLATE_SOCKET=self.agent.path, FOOTPLATE_RUN_ID="0" * 31 + "1", FOOTPLATE_ATTEMPT=str(attempt),
                               RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), FAKE_STEP_MS="5")
            environment.update({"FAKE_" + name: str(value) for name, value in fake.items()})
            workers.append(subprocess.Popen([sys.executable, WORKER], cwd=self.agent.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
            self.addCleanup(workers[-1].stdout.close)
            self.addCleanup(lambda worker=workers[-1]: (worker.kill(), worker.wait()))
        return workers

    def end(self, workers, *codes):
        outputs = [worker.communicate(timeout=60)[0] for worker in workers]
        self.assertEqual([worker.returncode for worker in workers], list(codes), outputs)
        return outputs

    def digest(self, outputs):
        digests = {line.split()[1] for output in outputs for line in output.splitlines() if line.startswith(b"final_digest ")}
        self.assertEqual(len(digests), 1, outputs)
        return digests.pop()

    def test_stopped_and_resumed_it_ends_with_the_digest_of_an_undisturbed_one(self):
        calm = self.digest(self.end(self.launch(), 0, 0))
        self.assertEqual([point[1] for op in self.agent.of_kind("metrics") for point in op["points"]].count(100), 2, "each rank logs each step")
        self.agent = self.new_agent()
        workers = self.launch()
        self.assertTrue(self.agent.wait(lambda: self.agent.checkpoint))
        workers[1].send_signal(signal.SIGTERM)
        self.end(workers, 75, 75)
        outputs = self.end(self.launch(attempt=2), 0, 0)
        self.assertIn(b"rank 0 resumes after step", outputs[0])
        self.assertEqual(self.digest(outputs), calm)

    def test_the_agents_push_stops_it_too(self):
        workers = self.launch()
        self.assertTrue(self.agent.wait(lambda: self.agent.checkpoint))
        self.agent.order_stop()
        self.end(workers, 75, 75)

    def test_an_agent_that_dies_in_the_middle_costs_it_nothing(self):
        workers = self.launch(POINTS_PER_STEP=3)
        for _ in range(3):
            self.agent.wait(lambda: len(self.agent.ops) > 20, 10)
            self.agent.kill_after = 5
            self.agent.wait(lambda: self.agent.listener is None, 10)
            self.agent.start()
        self.end(workers, 0, 0)
        points = self.agent.points()
        self.assertEqual(len(points), 2 * 3 * 100)
        for name in ("step", "fake/1", "fake/2"):
            self.assertEqual(sorted(point[1] for point in points if point[0] == name), sorted(list(range(1, 101)) * 2))

    def test_scripted_ends_are_those_of_the_named_rank(self):
        outputs = self.end(self.launch(world=3, EXIT="2:7@0.2"), 1, 1, 7)
        self.assertTrue(b"a peer is gone" in outputs[0] or b"BrokenPipe" in outputs[0], outputs[0])
        self.assertEqual(self.ended("1:SEGV@0.2"), -signal.SIGSEGV)
        self.assertEqual(self.ended("1:raise@0.2"), 1)

    def ended(self, script):
        workers = self.launch(EXIT=script)
        for worker in workers:
            worker.communicate(timeout=60)
        return workers[1].returncode

    def test_it_ignores_term_leaves_children_and_prints_bytes_on_demand(self):
        workers = self.launch(world=1, IGNORE_TERM="all", SETSID="0", BYTES="all", STEPS=40, SETSID_SECONDS=5)
        self.assertIn(b"starts", workers[0].stdout.readline())
        child = int(workers[0].stdout.readline().split()[1])
        self.assertTrue(self.agent.wait(lambda: self.agent.ops))
        workers[0].send_signal(signal.SIGTERM)
        os.kill(child, signal.SIGTERM)
        lines = [workers[0].stdout.readline() for _ in range(80)]
        self.assertEqual(workers[0].wait(30), 0)
        self.assertEqual(lines.count(b"bytes \xff\xfe\x80 \x00 10%\r20%\r\n"), 40)
        self.assertEqual(os.getsid(child), child)
        os.kill(child, signal.SIGKILL)

    def test_its_last_words_are_those_that_were_ordered(self):
        workers = self.launch(world=1, LAST_WORDS="30@0.3")
        self.assertTrue(self.agent.wait(lambda: self.agent.ops))
        workers[0].send_signal(signal.SIGTERM)
        output = self.end(workers, 75)[0]
        self.assertIn(b"last words 1\nlast words 2\n", output)
        self.assertNotIn(b"last words 30\n", output)

    def test_a_hung_rank_stands_still_and_hears_term_in_vain(self):
        workers = self.launch(HANG="1@0.3")
        self.assertTrue(self.agent.wait(lambda: self.agent.ops))
        deadline = time.monotonic() + 10
        count = -1
        while count != len(self.agent.ops) and time.monotonic() < deadline:
            count = len(self.agent.ops)
            time.sleep(0.5)
        workers[1].send_signal(signal.SIGTERM)
        with self.assertRaises(subprocess.TimeoutExpired):
            workers[1].wait(0.5)


if __name__ == "__main__":
    unittest.main()
