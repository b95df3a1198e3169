"""Logging through an agent that behaves, hangs, dies and comes back."""

import logging
import os
import tempfile
import threading
import time
import unittest
from unittest import mock

import footplate
from footplate import _backlog, _exit, _faults, _places
from footplate._run import Opening, Run

from tests.fake_agent import FakeAgent

RUN = "0" * 31 + "1"


class WithAgent(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.spool = os.path.join(self.folder, "spool")
        patched = mock.patch.dict(os.environ, {"FOOTPLATE_SPOOL": self.spool, "FOOTPLATE_EXIT_SECONDS": "0"})
        patched.start()
        self.addCleanup(patched.stop)
        _faults._shown.clear()
        self.agent = FakeAgent(self.folder)
        self.addCleanup(self.agent.kill)

    def run_(self):
        run = Run(Opening(RUN, 1, 0, _places.Place(None, "p", None), socket=self.agent.path))
        self.addCleanup(self.let_go, run)
        return run

    def let_go(self, run):
        """Ends the run's thread, as the end of the process would."""
        _exit._runs.discard(run)
        run._door.refused = "the test is over"
        run._door.hurry(True)

    def spooled(self):
        return [name for name in os.listdir(self.spool) if name.endswith(".spool")] if os.path.isdir(self.spool) else []


class Recording(WithAgent):
    def test_all_kinds_arrive_once_in_order_and_numbered(self):
        self.agent.start()
        run = self.run_()
        run.log({"loss": 0.5, "推荐/模型": float("nan")}, step=3)
        run.log_params({"lr": 0.1, "deep": {"a": [1, 2.0, None]}})
        run.set_tags({"团队": "视觉"})
        run.note("a note")
        run.conclusion("é")
        self.assertTrue(run.finish("failed"))
        self.assertEqual([n for _, n, _ in self.agent.ops], [1, 2, 3, 4, 5, 6])
        self.assertEqual([op["op"] for _, _, op in self.agent.ops], ["metrics", "params", "tags", "note", "note", "finish"])
        points = self.agent.points()
        self.assertEqual([(point[0], point[1], point[3]) for point in points], [("loss", 3, 0.5), ("推荐/模型", 3, "NaN")])
        self.assertAlmostEqual(points[0][2], time.time() * 1000, delta=60_000)
        self.assertEqual(self.agent.ops[1][2]["params"], {"lr": 0.1, "deep": {"a": [1, 2.0, None]}})
        self.assertEqual(self.agent.ops[5][2]["status"], "failed")
        self.assertEqual(self.agent.hellos[0]["run"], RUN)
        self.assertEqual(self.spooled(), [])

    def test_what_is_logged_after_finish_is_recorded(self):
        self.agent.start()
        run = self.run_()
        run.finish()
        run.log({"post/score": 1.0})
        self.assertTrue(run.flush())
        self.assertEqual(len(self.agent.points("post/score")), 1)

    def test_without_a_step_each_name_counts_its_own(self):
        self.agent.start()
        run = self.run_()
        for _ in range(3):
            run.log({"infer/lat": 1.0})
        run.log({"train/loss": 1.0}, step=100)
        run.log({"train/loss": 1.0, "val/acc": 0.5})
        run.log({"train/loss": 1.0}, step=60)
        run.flush()
        steps = [(name, step) for name, step, _, _ in self.agent.points()]
        self.assertEqual(steps, [("infer/lat", 0), ("infer/lat", 1), ("infer/lat", 2), ("train/loss", 100), ("train/loss", 101), ("val/acc", 0),
                                 ("train/loss", 60)])

    def test_a_call_with_a_wrong_part_records_nothing(self):
        self.agent.start()
        run = self.run_()
        with self.assertRaises(TypeError):
            run.log({"good": 1.0, "bad": True}, step=1)
        with self.assertRaises(ValueError):
            run.log({"good": 1.0}, step=50.5)
        run.log({"last": 1.0})
        run.flush()
        self.assertEqual([point[0] for point in self.agent.points()], ["last"])

    def test_a_call_with_very_many_names_is_cut_to_the_limit_of_an_op(self):
        self.agent.start()
        run = self.run_()
        run.log({"m/{}".format(at): at for at in range(3_500)}, step=1)
        run.log_params({"p/{}".format(at): "x" * 500 for at in range(5_000)})
        self.assertTrue(run.flush())
        self.assertEqual(len(self.agent.points()), 3_500)
        self.assertLessEqual(max(len(op["points"]) for op in self.agent.of_kind("metrics")), 1_000)
        self.assertEqual(sum(len(op["params"]) for op in self.agent.of_kind("params")), 5_000)


class Files(WithAgent):
    def path(self, name, data=b"data"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def test_an_artifact_keeps_its_bytes_though_the_file_changes_at_once(self):
        run = self.run_()
        path = self.path("a%b 图.txt", b"before")
        handle = run.log_artifact(path)
        self.path("a%b 图.txt", b"after")
        self.agent.start()
        self.assertTrue(handle.wait(20))
        op = self.agent.of_kind("artifact")[0]
        self.assertEqual(op["name"], "a%b 图.txt")
        with open(op["kept"], "rb") as file:
            self.assertEqual(file.read(), b"before")
        self.assertRegex(handle.digest, "^sha256:[0-9a-f]{64}$")
        self.assertEqual(os.listdir(os.path.join(self.spool, "staged", run._session)), [], "what was set aside is gone")

    def test_a_folder_with_unusual_names_arrives_as_it_is(self):
        self.agent.start()
        run = self.run_()
        folder = os.path.join(self.folder, "plots")
        os.makedirs(os.path.join(folder, "empty"))
        for name in ("轴.png", "x#1.bin", "t:0", "p q+r", "é", "e\u0301", ".hidden"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"" if name == "t:0" else name.encode())
        os.symlink("t:0", os.path.join(folder, "inside"))
        self.assertTrue(run.log_artifact(folder, "plots/all").wait(20))
        kept = self.agent.of_kind("artifact")[0]["kept"]
        self.assertEqual(sorted(os.listdir(kept)), sorted(os.listdir(folder)))

    def test_what_cannot_be_handed_over_is_told_and_kills_nothing(self):
        self.agent.start()
        run = self.run_()
        folder = os.path.join(self.folder, "leaky")
        os.mkdir(folder)
        os.symlink("/etc/passwd", os.path.join(folder, "out"))
        with self.assertLogs("footplate", logging.WARNING):
            for handle in (run.log_artifact(folder), run.log_artifact("/no/such/file"), run.save_checkpoint("/dev/null")):
                self.assertTrue(handle.done())
                self.assertFalse(handle.wait(0))
                self.assertTrue(handle.error)
        self.assertRaises(TypeError, run.log_artifact, 5)
        self.assertRaises(ValueError, run.log_artifact, folder, "../x")
        self.assertRaises(ValueError, run.save_checkpoint, folder, 1.5)

    def test_a_refused_op_is_told_and_the_rest_goes_on(self):
        self.agent.refusals["artifact"] = ("TOO_LARGE", "3 bytes, at most 2")
        self.agent.start()
        run = self.run_()
        with self.assertLogs("footplate", logging.WARNING) as logs:
            handle = run.log_artifact(self.path("x"))
            run.log({"loss": 1.0})
            self.assertTrue(run.flush())
        self.assertEqual(handle.error, "TOO_LARGE: 3 bytes, at most 2")
        self.assertIn("TOO_LARGE", "".join(logs.output))
        self.assertEqual(len(self.agent.points()), 1)

    def test_a_refusal_of_the_last_op_leaves_nothing_waiting(self):
        self.agent.refusals["note"] = ("INVALID_ARGUMENT", "no")
        self.agent.start()
        run = self.run_()
        run.note("x")
        self.assertTrue(run.flush(10))

    def test_large_files_are_linked_and_survive_a_delete(self):
        run = self.run_()
        path = self.path("big", b"x" * 1_000)
        with mock.patch("footplate._staging.COPY_BYTES_MAX", 10):
            handle = run.save_checkpoint(path, step=5, metadata={"epoch": 1})
        os.unlink(path)
        self.agent.start()
        self.assertTrue(handle.wait(20))
        self.assertEqual(self.agent.checkpoint["step"], 5)
        self.assertEqual(self.agent.of_kind("checkpoint")[0]["metadata"], {"epoch": 1})
        self.assertEqual(run.latest_checkpoint(10), footplate.Checkpoint(5, self.agent.checkpoint["path"], handle.digest, {"epoch": 1}))


    def test_a_linked_file_that_is_written_to_in_place_is_told(self):
        run = self.run_()
        path = self.path("big", b"x" * 1_000)
        with mock.patch("footplate._staging.COPY_BYTES_MAX", 10):
            handle = run.log_artifact(path)
        with open(path, "r+b") as file:
            file.write(b"yyy")
        self.agent.start()
        self.assertFalse(handle.wait(20))
        self.assertIn("in place", handle.error)

    def test_links_inside_a_folder_stay_inside_whatever_their_form(self):
        self.agent.start()
        run = self.run_()
        folder = os.path.join(self.folder, "f")
        os.makedirs(os.path.join(folder, "sub"))
        with open(os.path.join(folder, "a"), "w") as file:
            file.write("a")
        os.symlink(os.path.join(folder, "a"), os.path.join(folder, "sub", "absolute"))
        os.symlink("../a", os.path.join(folder, "sub", "relative"))
        os.symlink(os.path.join(folder, "sub"), os.path.join(folder, "to-folder"))
        self.assertTrue(run.log_artifact(folder).wait(20))
        kept = self.agent.of_kind("artifact")[0]["kept"]
        for name in ("sub/absolute", "sub/relative", "to-folder/absolute"):
            self.assertTrue(os.path.realpath(os.path.join(kept, name)).startswith(os.path.realpath(kept)), name)
            with open(os.path.join(kept, name)) as file:
                self.assertEqual(file.read(), "a")

    def test_several_threads_count_one_name_without_a_repeat(self):
        self.agent.start()
        run = self.run_()
        threads = [threading.Thread(target=lambda: [run.log({"n": 1.0}) for _ in range(2_000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(run.flush(30))
        self.assertEqual(sorted(point[1] for point in self.agent.points("n")), list(range(8_000)))


class Faults(WithAgent):
    def test_an_agent_killed_in_the_middle_loses_and_doubles_nothing(self):
        self.agent.start()
        run = self.run_()
        done = threading.Event()

        def torment():
            for round_ in range(5):
                self.agent.wait(lambda: len(self.agent.ops) > 3 * round_, 5)
                self.agent.kill_after = 2
                self.agent.wait(lambda: self.agent.listener is None, 5)
                self.agent.start()
            done.set()

        threading.Thread(target=torment, daemon=True).start()
        step = 0
        while not done.is_set():
            run.log({"loss": float(step)}, step=step)
            step += 1
            time.sleep(0.001)
        self.assertTrue(run.flush(30))
        self.assertEqual([point[1] for point in self.agent.points()], list(range(step)))
        self.assertEqual(len({(session, n) for session, n, _ in self.agent.ops}), len(self.agent.ops))
        self.assertGreater(len(self.agent.hellos), 5)
        self.assertEqual(len({hello["session"] for hello in self.agent.hellos}), 1)

    def test_an_agent_that_comes_late_gets_all(self):
        run = self.run_()
        for step in range(100):
            run.log({"loss": 1.0}, step=step)
        self.assertFalse(run.flush(0.05))
        self.agent.start()
        self.assertTrue(run.flush(20))
        self.assertEqual([point[1] for point in self.agent.points()], list(range(100)))

    def test_a_socket_that_never_answers_costs_the_training_no_time(self):
        self.agent.silent = True
        self.agent.start()
        run = self.run_()
        run.log({"loss": 1.0})
        slowest = 0.0
        began = time.perf_counter()
        for step in range(2_000):
            start = time.perf_counter()
            run.log({"loss": 1.0, "acc": 0.5}, step=step)
            slowest = max(slowest, time.perf_counter() - start)
        mean = (time.perf_counter() - began) / 2_000
        self.assertLess(mean, 0.001)
        self.assertLess(slowest, 2.0, "a call may wait for a busy core, never for the ten seconds that the hello has")

    def test_many_calls_into_silence_go_to_disk_and_lose_nothing(self):
        self.agent.ack_delay.clear()
        self.agent.start()
        run = self.run_()
        for step in range(100_000):
            run.log({"loss": 1.0, "acc": 0.5, "lr": 0.1}, step=step)
        self.assertLessEqual(run._backlog._inbox_points, _backlog.INBOX_POINTS_MAX)
        self.assertEqual(len(self.spooled()), 1)
        self.assertEqual(run._backlog.dropped_points, 0)
        self.agent.kill()
        self.agent.ack_delay.set()
        self.agent.start()
        self.assertTrue(run.flush(60))
        for name in ("loss", "acc", "lr"):
            self.assertEqual([point[1] for point in self.agent.points(name)], list(range(100_000)))
        self.assertEqual(self.spooled(), [], "what is taken in leaves the disk")

    def test_a_broken_disk_drops_counts_warns_and_says_so_in_the_record(self):
        with open(self.spool, "w"):
            pass  # a file where the folder should be
        run = self.run_()
        with mock.patch.object(_backlog, "INBOX_POINTS_MAX", 1_000), self.assertLogs("footplate", logging.WARNING) as logs:
            for step in range(3_000):
                run.log({"loss": 1.0}, step=step)
        self.assertEqual(run._backlog.dropped_points, 2_000)
        self.assertIn("dropped so far", "".join(logs.output))
        self.agent.start()
        self.assertTrue(run.flush(20))
        self.assertEqual([point[1] for point in self.agent.points()], list(range(1_000)))
        self.assertEqual(self.agent.of_kind("tags")[-1]["set"]["footplate.dropped_points"], "2000")

    def test_a_disk_that_fills_keeps_what_it_has_and_goes_on_when_there_is_room(self):
        run = self.run_()
        write, full = _backlog._frames.write_all, threading.Event()

        def failing(handle, data):
            if full.is_set():
                raise OSError(28, "No space left on device")
            write(handle, data)

        with mock.patch.object(_backlog, "INBOX_POINTS_MAX", 4_000), mock.patch.object(_backlog._frames, "write_all", failing):
            for step in range(6_000):
                if step == 3_000:
                    full.set()
                run.log({"loss": 1.0}, step=step)
            lost = run._backlog.dropped_points
            full.clear()
            self.agent.start()
            self.assertTrue(run.flush(20))
        steps = [point[1] for point in self.agent.points()]
        self.assertEqual(steps, sorted(set(steps)), "in order, none twice")
        self.assertEqual(len(steps) + lost, 6_000)

    def test_a_damaged_spool_file_costs_the_damaged_ops_and_says_so(self):
        run = self.run_()
        with mock.patch.object(_backlog, "INBOX_POINTS_MAX", 2_000), mock.patch.object(_backlog, "METRICS_POINTS_MAX", 100):
            for step in range(10_000):
                run.log({"loss": 1.0}, step=step)
        path = os.path.join(self.spool, self.spooled()[0])
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"\0" * 64)
        self.agent.start()
        self.assertTrue(run.flush(20))
        damaged = [op for op in self.agent.of_kind("tags") if "footplate.damaged" in op["set"]]
        self.assertIn(len(damaged), (1, 2))
        self.assertGreaterEqual(len(self.agent.points()), 10_000 - 100 * len(damaged))

    def test_an_agent_that_lost_its_spool_gets_the_rest_in_a_new_session(self):
        self.agent.start()
        run = self.run_()
        for step in range(10):
            run.log({"loss": 1.0}, step=step)
        self.assertTrue(run.flush(10))
        self.agent.kill()
        self.agent.acked.clear()
        for step in range(10, 20):
            run.log({"loss": 1.0}, step=step)
        self.agent.start()
        self.assertTrue(run.flush(20))
        self.assertEqual([point[1] for point in self.agent.points()], list(range(20)))
        self.assertEqual(len({session for session, _, _ in self.agent.ops}), 2)

    def test_a_refused_hello_ends_the_tries_and_keeps_the_data(self):
        self.agent.hello_error = "WRONG_ATTEMPT"
        self.agent.start()
        run = self.run_()
        run.log({"loss": 1.0})
        self.assertTrue(self.agent.wait(lambda: self.agent.hellos))
        self.assertFalse(run.flush(0.3))
        run._leave("finished", 0.0)
        self.assertEqual(len(self.agent.hellos), 1)
        self.assertEqual(len(self.spooled()), 1)

    def test_a_burst_travels_as_few_ops(self):
        self.agent.start()
        run = self.run_()
        run.log({"warm": 1.0})
        run.flush()
        for step in range(200):
            run.log({"loss": 1.0}, step=step)
        run.flush()
        self.assertLess(len(self.agent.of_kind("metrics")), 20)

    def test_the_modules_random_state_is_the_trainings_own(self):
        import random
        random.seed(7)
        state = random.getstate()
        run = self.run_()
        run.log({"loss": 1.0})
        run.flush(0.5)
        self.assertEqual(random.getstate(), state)


class Asking(WithAgent):
    def test_no_checkpoint_is_none_for_certain(self):
        self.agent.start()
        self.assertIsNone(self.run_().latest_checkpoint(10))

    def test_no_answer_about_the_checkpoint_raises_rather_than_starting_over(self):
        self.agent.silent = True
        self.agent.start()
        with self.assertRaises(footplate.CheckpointUnknown):
            self.run_().latest_checkpoint(0.2)

    def test_the_question_is_asked_again_after_a_reconnect(self):
        run = self.run_()
        answers = []
        asking = threading.Thread(target=lambda: answers.append(run.latest_checkpoint(20)))
        asking.start()
        self.agent.checkpoint = {"step": 7, "path": "/x", "digest": "sha256:0", "metadata": {}}
        self.agent.start()
        asking.join(20)
        self.assertEqual(answers[0].step, 7)

    def test_the_agents_push_asks_to_stop(self):
        self.agent.start()
        run = self.run_()
        run.log({"loss": 1.0})
        run.flush()
        self.assertFalse(run._stopping.stop)
        self.agent.order_stop("preempted", 5_000)
        deadline = time.monotonic() + 10
        while run.stop is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(run.stop, footplate.Stop("preempted", 5_000))
        self.assertTrue(run.stop_requested())

    def test_a_process_that_only_asks_hears_a_stop_that_stood_before(self):
        self.agent.stop = {"cause": "cancelled", "grace_ms": 100}
        self.agent.start()
        run = self.run_()
        deadline = time.monotonic() + 10
        while not run.stop_requested() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(run.stop.cause, "cancelled")


class Trials(WithAgent):
    def until(self, condition):
        deadline = time.monotonic() + 10
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(condition())

    def test_a_report_is_the_sweeps_objective_at_its_step(self):
        self.agent.start()
        run = self.run_()
        run.report(0.75, step=1)
        with mock.patch.dict(os.environ, {"FOOTPLATE_OBJECTIVE": "val/loss"}):
            run.report(0.5, step=2)
            run.report(float("nan"), step=3)
            for value, step, fault in (("low", 4, TypeError), (0.1, 4.5, ValueError), (0.1, "4", TypeError)):
                with self.assertRaises(fault):
                    run.report(value, step)
        self.assertTrue(run.flush())
        told = [(name, step, value) for name, step, _, value in self.agent.points()]
        self.assertEqual(told, [("objective", 1, 0.75), ("val/loss", 2, 0.5), ("val/loss", 3, "NaN")])

    def test_a_trial_is_pruned_by_a_cancel_and_by_no_other_stop(self):
        self.agent.start()
        run = self.run_()
        self.assertFalse(run.should_prune())
        self.agent.wait(lambda: self.agent.hellos)
        self.agent.order_stop("preempted")
        self.until(run.stop_requested)
        self.assertFalse(run.should_prune(), "it will go on elsewhere")
        self.agent.order_stop("cancelled")
        self.until(run.should_prune)

    def test_whether_to_prune_is_answered_at_once_by_an_agent_that_hangs_or_is_not_there(self):
        run = self.run_()
        self.assertFalse(run.should_prune())
        self.agent.silent = True
        self.agent.start()
        run.report(1.0, step=0)
        began = time.monotonic()
        for _ in range(1_000):
            self.assertFalse(run.should_prune())
        self.assertLess(time.monotonic() - began, 5.0)


if __name__ == "__main__":
    unittest.main()
