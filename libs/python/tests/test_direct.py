"""Without an agent: through the JSON door, or to a spool file that is sent later."""

import contextlib
import io
import logging
import math
import os
import tempfile
import time
import unittest
from unittest import mock

import footplate
from footplate import __main__ as command
from footplate import _backlog, _direct, _exit, _faults, _frames, _places, _sync
from footplate._run import Opening, Run

from tests.fake_agent import FakeAgent
from tests.fake_door import FakeDoor

RUN = "0" * 31 + "1"
CREATE = {"name": "n", "experiment": "e", "tags": {"k": "v"}, "config": {"lr": 0.1, "optim": {"name": "sgd", "betas": [0.9, 0.99]}}}


class WithDoor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.spool = os.path.join(self.folder, "spool")
        self.door = FakeDoor()
        self.doors = [self.door]
        self.addCleanup(lambda: [door.close() for door in self.doors])
        environment = {"FOOTPLATE_SPOOL": self.spool, "FOOTPLATE_ADDR": self.door.address, "FOOTPLATE_TOKEN": "t-1", "FOOTPLATE_PROJECT": "p",
                       "FOOTPLATE_EXIT_SECONDS": "0"}
        patched = mock.patch.dict(os.environ, environment)
        patched.start()
        self.addCleanup(patched.stop)
        for name in ("RETRY_SECONDS_FIRST", "RETRY_SECONDS_MAX"):
            quick = mock.patch.object(_direct, name, 0.02)
            quick.start()
            self.addCleanup(quick.stop)
        _faults._shown.clear()

    def run_(self, run=RUN, create=CREATE, **opening):
        run = Run(Opening(run, 1, 0, _places.place(), create=create, **opening))
        self.addCleanup(setattr, run._door, "refused", "the test is over")
        self.addCleanup(_exit._runs.discard, run)
        return run

    def offline(self, run=RUN):
        with mock.patch.dict(os.environ):
            del os.environ["FOOTPLATE_ADDR"]
            return Run(Opening(run, 1, 0, _places.Place(None, "p", None), create=CREATE))

    def close(self, run):
        """Ends the run's process, as far as its spool file is concerned."""
        run._leave("finished", 0.0)
        _exit._runs.discard(run)
        run._backlog.drop_reader()

    def files(self):
        return sorted(name for name in os.listdir(self.spool)) if os.path.isdir(self.spool) else []


class Recording(WithDoor):
    def test_a_run_is_created_and_recorded(self):
        run = self.run_()
        for step in range(10):
            run.log({"loss": 1.0 / (step + 1), "bad": float("nan")}, step=step)
        run.log_params({"extra": [1, 2.5], "flag": True})
        run.set_tags({"团队": "视觉"})
        run.note("a note")
        run.conclusion("none")
        self.assertTrue(run.finish())
        stored = self.door.runs[RUN]
        self.assertEqual(stored["params"], {"lr": {"json": "0.1"}, "optim": {"json": '{"name": "sgd", "betas": [0.9, 0.99]}'},
                                            "extra": {"json": "[1, 2.5]"}, "flag": {"json": "true"}})
        self.assertEqual((stored["tags"], stored["note"], stored["conclusion"]), ({"k": "v", "团队": "视觉"}, "a note", "none"))
        self.assertEqual(stored["outcome"], "OUTCOME_SUCCEEDED")
        self.assertEqual(stored["sessions"], [{"session": run._session, "batches": str(self.door.batches[run._session])}])
        self.assertEqual([point[3] for point in self.door.points if point[2] == "loss"], list(range(10)))
        self.assertEqual({point[4] for point in self.door.points if point[2] == "bad"}, {"NaN"})
        self.assertEqual(self.door.headers["Authorization"], "Bearer t-1")
        self.assertTrue(all(request["project"] == "p" for _, request in self.door.calls))

    def test_lost_answers_and_errors_lose_and_double_nothing(self):
        self.door.fail = {"RunService/CreateRun": [(503, "unavailable"), "lose"], "MetricService/LogBatch": ["lose", (503, "unavailable"), "lose"] * 5,
                          "RunService/LogParams": ["lose"], "RunService/FinishRun": ["lose"]}
        run = self.run_()
        with mock.patch.object(_backlog, "METRICS_POINTS_MAX", 10):
            for step in range(200):
                run.log({"loss": 1.0}, step=step)
            run.log_params({"a": 1})
            self.assertTrue(run.finish())
        self.assertEqual([point[3] for point in self.door.points], list(range(200)))

    def test_a_platform_that_comes_late_gets_all(self):
        port = int(self.door.address.split(":")[1])
        self.door.close()
        self.doors.clear()
        run = self.run_()
        for step in range(50):
            run.log({"loss": 1.0}, step=step)
        self.assertFalse(run.flush(0.1))
        late = FakeDoor(port)
        self.doors.append(late)
        self.assertTrue(run.flush(20))
        self.assertEqual([point[3] for point in late.points], list(range(50)))

    def test_a_refused_record_is_told_and_the_rest_goes_on(self):
        self.door.fail = {"RunService/SetTags": [(400, "invalid_argument")]}
        run = self.run_()
        with self.assertLogs("footplate", logging.WARNING) as logs:
            run.set_tags({"a": "b"})
            run.log({"loss": 1.0})
            self.assertTrue(run.flush(20))
        self.assertIn("as planned", "".join(logs.output))
        self.assertEqual(len(self.door.points), 1)

    def test_times_that_the_platform_finds_implausible_are_told_once_a_run(self):
        self.door.implausible_times = 2
        with self.assertLogs("footplate", logging.WARNING) as logs:
            for run in (self.run_(), self.run_("0" * 31 + "2")):
                for step in range(3):
                    run.log({"loss": 1.0}, step=step)
                    self.assertTrue(run.flush(20))
        told = [line for line in logs.output if "implausible" in line]
        self.assertEqual(len(told), 2, told)
        self.assertIn("2 points", told[0])
        self.assertIn("clock", told[0])
        self.assertEqual(len(self.door.points), 6, "they are kept")

    def test_a_run_that_a_view_does_not_show_yet_costs_no_record(self):
        self.door.fail = {"MetricService/LogBatch": [(404, "not_found"), (404, "not_found"), (500, "internal")]}
        run = self.run_()
        run.log({"loss": 1.0})
        self.assertTrue(run.flush(20))
        self.assertEqual(len(self.door.points), 1)

    def test_a_record_that_always_fails_does_not_hold_up_the_rest_for_ever(self):
        self.door.fail = {"RunService/NoteRun": [(500, "internal")] * 100, "RunService/SetTags": [(400, "failed_precondition", "CHANGED_MEANWHILE")] * 20,
                          "RunService/LogParams": [(429, "resource_exhausted", "TOO_LARGE")] * 100}
        run = self.run_()
        with self.assertLogs("footplate", logging.WARNING):
            run.note("x")
            run.log_params({"a": 1})
            run.set_tags({"kept": "yes"})
            run.log({"loss": 1.0})
            self.assertTrue(run.flush(20))
        self.assertEqual((self.door.count("NoteRun"), self.door.count("LogParams")), (_direct.DOUBTFUL_TRIES_MAX, 1))
        self.assertEqual(self.door.runs[RUN]["tags"]["kept"], "yes")
        self.assertEqual(len(self.door.points), 1)

    def test_a_refused_token_loses_nothing(self):
        self.door.fail = {"RunService/CreateRun": [(401, "unauthenticated")]}
        run = self.run_()
        run.log({"loss": 1.0})
        deadline = time.monotonic() + 10
        while run._door.refused is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.close(run)
        self.assertEqual(len(self.files()), 1)
        self.assertEqual(_sync.sync()[0].kept, None)
        self.assertEqual(len(self.door.points), 1)

    def test_artifacts_and_checkpoints_arrive_under_their_names(self):
        run = self.run_()
        folder = os.path.join(self.folder, "out")
        os.makedirs(os.path.join(folder, "图"))
        for name in ("图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", ".hidden"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"" if name == "t:0" else name.encode())
        handles = [run.log_artifact(folder, "all"), run.log_artifact(os.path.join(folder, "a%b.txt")), run.save_checkpoint(os.path.join(folder, "t:0"), step=5)]
        self.assertTrue(all(handle.wait(20) for handle in handles))
        stored = self.door.artifacts[RUN]
        self.assertEqual(set(stored), {"all/图/轴.png", "all/a%b.txt", "all/x#1.bin", "all/t:0", "all/p q+r", "all/.hidden", "a%b.txt", "checkpoints/step-5"})
        self.assertEqual(self.door.blobs[stored["all/图/轴.png"]], "图/轴.png".encode())
        self.assertEqual(handles[1].digest, "sha256:" + stored["a%b.txt"])
        self.assertEqual(run.latest_checkpoint().step, 5)

    def test_a_folder_of_very_many_files_is_named_in_parts(self):
        run = self.run_()
        folder = os.path.join(self.folder, "many")
        os.mkdir(folder)
        for at in range(12):
            with open(os.path.join(folder, str(at)), "w") as file:
                file.write(str(at))
        with mock.patch.object(_direct, "ARTIFACTS_MAX", 5):
            self.assertTrue(run.log_artifact(folder).wait(20))
        self.assertEqual((len(self.door.artifacts[RUN]), self.door.count("LogArtifacts")), (12, 3))

    def test_a_file_over_the_doors_limit_is_refused_by_name(self):
        run = self.run_()
        path = os.path.join(self.folder, "big.bin")
        with open(path, "wb") as file:
            file.truncate(_direct.BLOB_BYTES_MAX + 1)
        handle = run.log_artifact(path)
        self.assertFalse(handle.wait(20))
        self.assertIn("4,194,304", handle.error)


class Later(WithDoor):
    def test_an_offline_run_is_sent_later_whole_and_once(self):
        run = self.offline()
        for step in range(2_500):
            run.log({"loss": 1.0}, step=step)
        run.log_params({"a": 1})
        path = os.path.join(self.folder, "x.txt")
        with open(path, "w") as file:
            file.write("x")
        self.assertTrue(run.log_artifact(path).wait(5))
        os.unlink(path)
        self.close(run)
        self.assertEqual(self.door.calls, [])
        self.door.fail = {"MetricService/LogBatch": [None, (503, "unavailable")]}
        self.assertIn("unavailable", _sync.sync()[0].kept)
        result = _sync.sync()[0]
        self.assertEqual((result.kept, result.refused, result.damaged_bytes), (None, (), 0))
        self.assertEqual([point[3] for point in self.door.points], list(range(2_500)))
        self.assertEqual(self.door.runs[RUN]["outcome"], "OUTCOME_SUCCEEDED")
        self.assertIn("x.txt", self.door.artifacts[RUN])
        self.assertEqual(self.files(), ["staged"])
        self.assertEqual(os.listdir(os.path.join(self.spool, "staged")), [])
        self.assertEqual(_sync.sync(), [])

    def test_a_process_that_ended_early_leaves_the_rest_for_later(self):
        self.door.fail = {"MetricService/LogBatch": [None] + [(503, "unavailable")] * 1_000}
        run = self.run_()
        run.log({"loss": 1.0}, step=0)
        run.flush(10)
        for step in range(1, 20):
            run.log({"loss": 1.0}, step=step)
        self.close(run)
        run._door.refused = "the test is over"
        self.door.fail = {}
        deadline = time.monotonic() + 10
        while run._door._thread.is_alive() and time.monotonic() < deadline:
            run._door.hurry(True)
            time.sleep(0.01)
        self.assertEqual(_sync.sync()[0].kept, None)
        self.assertEqual(sorted(point[3] for point in self.door.points), list(range(20)))

    def test_a_living_process_keeps_its_file(self):
        run = self.offline()
        run.log({"loss": 1.0})
        self.assertTrue(run.flush(10))
        self.assertEqual(_sync.sync()[0].kept, "its process still runs")
        self.close(run)

    def test_what_an_agent_did_not_take_goes_through_the_door_under_another_session(self):
        self.door.CreateRun({"runId": RUN, "name": "", "experiment": "", "tags": {}, "params": {}})
        agent = FakeAgent(self.folder).start()
        run = Run(Opening(RUN, 2, 1, _places.place(), socket=agent.path))
        run.log({"loss": 1.0}, step=0)
        self.assertTrue(run.flush(10))
        agent.kill()
        run._door.refused = "the agent is gone for good"
        for step in range(1, 5):
            run.log({"loss": 1.0}, step=step)
            run.set_tags({"at": str(step)})
        run.finish(timeout=0.0)
        self.close(run)
        self.door.fail = {"RunService/SetTags": [None, None, "lose", (503, "unavailable")]}
        self.assertIn("unavailable", _sync.sync()[0].kept)
        self.assertIsNone(_sync.sync()[0].kept)
        self.assertEqual([point[1:4] for point in self.door.points], [(1, "loss", step) for step in range(1, 5)])
        self.assertNotIn(run._session, self.door.batches)
        self.assertEqual(self.door.count("FinishRun"), 0)

    def test_a_torn_and_damaged_file_gives_what_is_whole(self):
        run = self.offline()
        with mock.patch.object(_backlog, "METRICS_POINTS_MAX", 10):
            for step in range(500):
                run.log({"loss": 1.0}, step=step)
            self.close(run)
        path = os.path.join(self.spool, self.files()[0])
        with open(path, "r+b") as file:
            size = os.path.getsize(path)
            file.seek(size // 2)
            file.write(b"\xff" * 10)
            file.truncate(size - 3)
        result = _sync.sync()[0]
        self.assertGreater(result.damaged_bytes, 0)
        self.assertGreaterEqual(len(self.door.points), 500 - 2 * 10)
        self.assertEqual(len({point[3] for point in self.door.points}), len(self.door.points))
        self.assertTrue(self.files()[0].endswith(".spool.sent"), "kept for a person to look at")

    def test_a_file_of_another_kind_is_left_alone(self):
        os.makedirs(self.spool)
        with open(os.path.join(self.spool, "x.spool"), "wb") as file:
            file.write(b"hello")
        self.assertIn("no header", _sync.sync()[0].kept)
        with open(os.path.join(self.spool, "y.spool"), "wb") as file:
            file.write(_frames.pack(b"{}"))
        self.assertEqual(len(self.files()), 2)

    def test_the_command_says_what_it_did(self):
        run = self.offline()
        run.log({"loss": 1.0})
        self.close(run)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(command.main(["sync"]), 0)
            self.assertEqual(command.main(["sync"]), 0)
        self.assertIn("done", out.getvalue())
        self.assertIn("nothing to send", out.getvalue())
        del os.environ["FOOTPLATE_ADDR"]
        with mock.patch.dict(os.environ, {"HOME": self.folder, "XDG_CONFIG_HOME": self.folder}), contextlib.redirect_stderr(out):
            self.assertEqual(command.main(["sync"]), 5)
        self.assertIn("FOOTPLATE_ADDR", out.getvalue())


class Reading(WithDoor):
    def test_runs_come_from_all_pages_with_typed_params(self):
        for at in range(5):
            self.door.CreateRun({"runId": "{:032x}".format(at), "name": "推荐 {}".format(at), "experiment": "e", "tags": {"k": "v"}, "params": {"lr": "0.1"}})
        found = footplate.runs(experiment="e")
        self.assertEqual([run.id for run in found], ["{:032x}".format(at) for at in range(5)])
        self.assertEqual((found[1].name, found[1].params, found[1].state, found[1].outcome), ("推荐 1", {"lr": 0.1}, "running", None))
        self.assertEqual(len(footplate.runs(limit=2)), 2)

    def test_history_is_complete_and_keeps_nan(self):
        run = self.run_()
        for step in range(10):
            run.log({"val/acc": float("nan") if step == 3 else step}, step=step)
        run.flush(10)
        points = footplate.history(RUN, "val/acc")
        self.assertEqual([point.step for point in points], list(range(10)))
        self.assertTrue(math.isnan(points[3].value))
        self.assertEqual([point.step for point in footplate.history(run, "val/acc")], list(range(10)))
        self.assertEqual(footplate.history(run, "none"), [])

    def test_the_read_side_raises(self):
        self.assertRaises(footplate.NotFound, footplate.history, "f" * 32, "x")
        self.assertRaises(footplate.Refused, footplate.runs, "bad(")
        self.door.close()
        self.doors.clear()
        self.assertRaises(footplate.Unavailable, footplate.runs)
        with mock.patch.dict(os.environ, {"FOOTPLATE_ADDR": "", "XDG_CONFIG_HOME": self.folder}):
            self.assertRaises(footplate.Unavailable, footplate.runs)


class Places(unittest.TestCase):
    def test_the_command_lines_context_is_found_and_the_environment_wins(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "footplate"))
            with open(os.path.join(folder, "footplate", "config.toml"), "w") as file:
                file.write('current = "lab"  # which\n[contexts.lab]\naddr = "10.0.0.1:7070"\ntoken = \'t"x\'\nproject = "vision"\n[contexts.other]\naddr = "x"\n')
            keep = {key: value for key, value in os.environ.items() if not key.startswith("FOOTPLATE_")}
            with mock.patch.dict(os.environ, dict(keep, XDG_CONFIG_HOME=folder), clear=True):
                self.assertEqual(_places.place(), _places.Place("http://10.0.0.1:7070", "vision", 't"x'))
                self.assertEqual(_places.place("mine").project, "mine")
                os.environ["FOOTPLATE_ADDR"] = "10.0.0.1:7070"
                self.assertEqual(_places.place().token, 't"x')
                os.environ["FOOTPLATE_ADDR"] = "https://fp.example/base/"
                self.assertEqual(_places.place(), _places.Place("https://fp.example/base", "vision", None))
                os.environ.update(FOOTPLATE_TOKEN="t-2", FOOTPLATE_CA="/etc/ca.pem")
                self.assertEqual(_places.place(), _places.Place("https://fp.example/base", "vision", "t-2", "/etc/ca.pem"))

    def test_a_context_names_its_authorities(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "footplate"))
            with open(os.path.join(folder, "footplate", "config.toml"), "w") as file:
                file.write('current = "lab"\n[contexts."lab"]\naddr = "https://lab:7450"\ntoken = "t"\nca = "/srv/lab-ca.pem"\n')
            keep = {key: value for key, value in os.environ.items() if not key.startswith("FOOTPLATE_")}
            with mock.patch.dict(os.environ, dict(keep, XDG_CONFIG_HOME=folder), clear=True):
                self.assertEqual(_places.place(), _places.Place("https://lab:7450", "default", "t", "/srv/lab-ca.pem"))


if __name__ == "__main__":
    unittest.main()
