"""Which run a process opens, and the config it sees."""

import copy
import json
import os
import pickle
import tempfile
import unittest
from unittest import mock

import footplate
from footplate import _config, _exit, _faults

from tests.fake_agent import FakeAgent
from tests.fake_door import FakeDoor

RUN = "0" * 31 + "1"


class Opened(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        keep = {key: value for key, value in os.environ.items() if not key.startswith(("FOOTPLATE_", "RANK"))}
        keep.update(FOOTPLATE_SPOOL=os.path.join(self.folder, "spool"), XDG_CONFIG_HOME=self.folder, FOOTPLATE_EXIT_SECONDS="0")
        patched = mock.patch.dict(os.environ, keep, clear=True)
        patched.start()
        self.addCleanup(patched.stop)
        self.addCleanup(self.let_go)
        self.let_go()
        _faults._shown.clear()

    def let_go(self):
        if footplate._run is not None:
            footplate._run._leave("finished", 0.0)
            footplate._run._door.refused = "the test is over"
            footplate._run._backlog.drop_reader()
        _exit._runs.clear()
        footplate._run = _config._current = None

    def config(self, document):
        path = os.path.join(self.folder, "config.json")
        with open(path, "w") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))
        os.environ["FOOTPLATE_CONFIG"] = path

    def door(self):
        door = FakeDoor()
        self.addCleanup(door.close)
        os.environ["FOOTPLATE_ADDR"] = door.address
        return door

    def under_agent(self, **environment):
        agent = FakeAgent(self.folder).start()
        self.addCleanup(agent.kill)
        os.environ.update(FOOTPLATE_SOCKET=agent.path, FOOTPLATE_RUN_ID=RUN, FOOTPLATE_ATTEMPT="3", RANK="2", FOOTPLATE_PROJECT="vision", **environment)
        return agent


class Configs(Opened):
    def test_keys_are_attributes_at_every_depth(self):
        self.config({"optim": {"lr": 1e-4, "steps": [1, {"at": 2}]}, "whole": 3.0, "items": 5})
        config = footplate.config
        self.assertEqual((config.optim.lr, config.optim.steps[1].at, config["items"]), (1e-4, 2, 5))
        self.assertIsInstance(config.whole, float)
        self.assertEqual(json.loads(json.dumps(config)), {"optim": {"lr": 1e-4, "steps": [1, {"at": 2}]}, "whole": 3.0, "items": 5})
        self.assertEqual(dict(**config)["whole"], 3.0)
        self.assertIs(footplate.config, config)

    def test_it_is_read_only_and_copies_are_not(self):
        self.config({"a": {"b": 1}})
        config = footplate.config
        for change in (lambda: setattr(config, "a", 1), lambda: config.update(a=1), lambda: config.a.pop("b"), lambda: config.__setitem__("a", 1),
                       lambda: config.setdefault("c", 1), lambda: config.clear()):
            self.assertRaises(TypeError, change)
        for plain in (config.copy(), copy.deepcopy(config)):
            plain["a"]["b"] = 2
        self.assertEqual(pickle.loads(pickle.dumps(config)).a.b, 1)

    def test_a_missing_key_names_those_there_are(self):
        self.config({"learning_rate": 1})
        with self.assertRaises(AttributeError) as missing:
            footplate.config.lr
        self.assertIn("learning_rate", str(missing.exception))
        self.assertRaises(KeyError, lambda: footplate.config["lr"])

    def test_what_the_platform_set_stands_over_the_scripts_defaults(self):
        self.config({"lr": 0.5, "optim": {"name": "adam"}})
        agent = self.under_agent()
        os.environ["RANK"] = "0"
        footplate.init(config={"lr": 0.1, "epochs": 3, "optim": {"name": "sgd", "momentum": 0.9}})
        self.assertTrue(footplate.flush(10))
        self.assertEqual([op["params"] for op in agent.of_kind("params")], [{"epochs": 3, "optim": {"name": "adam", "momentum": 0.9}}],
                         "what only the script knew is recorded")
        self.assertEqual(footplate.config, {"lr": 0.5, "epochs": 3, "optim": {"name": "adam", "momentum": 0.9}})

    def test_an_unreadable_config_is_an_error_not_an_empty_one(self):
        for document in ("{", "[1]", ""):
            self.config(document)
            _config._current = None
            self.assertRaises(footplate.ConfigUnreadable, lambda: footplate.config)


class Runs(Opened):
    def test_under_an_agent_it_is_the_submitted_run(self):
        agent = self.under_agent()
        run = footplate.init(name="ignored", tags={"k": "v"})
        self.assertEqual((run.id, run.attempt, run.rank, run.project), (RUN, 3, 2, "vision"))
        self.assertIs(footplate.init(), run)
        footplate.log({"loss": 1.0})
        self.assertTrue(footplate.flush(10))
        self.assertEqual(agent.hellos[0]["attempt"], 3)
        self.assertEqual(agent.of_kind("tags")[0]["set"], {"k": "v"})

    def test_logging_opens_the_run_by_itself(self):
        agent = self.under_agent()
        footplate.log({"loss": 1.0})
        self.assertTrue(footplate.flush(10))
        self.assertEqual(len(agent.points()), 1)

    def test_elsewhere_it_is_a_new_run_and_a_second_init_another(self):
        door = self.door()
        first = footplate.init(project="vision", experiment="e", name="一", config={"lr": 0.1}, tags={"k": "v"})
        footplate.log({"loss": 1.0})
        second = footplate.init(name="second")
        footplate.log({"loss": 2.0})
        self.assertTrue(first.flush(10) and second.flush(10))
        self.assertNotEqual(first.id, second.id)
        self.assertEqual(door.runs[first.id]["params"], {"lr": {"json": "0.1"}})
        self.assertEqual((door.runs[first.id]["name"], door.runs[first.id]["experiment"], door.runs[first.id]["outcome"]), ("一", "e", "OUTCOME_SUCCEEDED"))
        self.assertEqual({point[0] for point in door.points}, {first.id, second.id})

    def test_a_run_opened_again_keeps_its_config(self):
        door = self.door()
        door.CreateRun({"runId": RUN, "name": "old", "experiment": "", "tags": {}, "params": {"batch": "16", "opt.lr": "0.1"}})
        run = footplate.init(run=RUN)
        footplate.log({"post/score": 1.0})
        self.assertTrue(run.flush(10))
        self.assertEqual(door.runs[RUN]["params"], {"batch": {"json": "16"}, "opt.lr": {"json": "0.1"}})
        self.assertEqual(door.count("CreateRun"), 0)
        self.let_go()
        footplate.init(run=RUN, config={"batch": 32})
        self.assertTrue(footplate.flush(10))
        self.assertEqual(door.count("LogParams"), 1, "a changed value is recorded as a new value, and the platform keeps the old one")

    def test_as_a_context_it_ends_as_its_block_ended(self):
        door = self.door()
        with footplate.init() as run:
            run.log({"a": 1.0})
        self.assertEqual(door.runs[run.id]["outcome"], "OUTCOME_SUCCEEDED")
        with self.assertRaises(KeyError):
            with footplate.init(name="b") as run:
                raise KeyError
        self.assertEqual(door.runs[run.id]["outcome"], "OUTCOME_FAILED")

    def test_another_rank_without_a_run_records_nothing_and_says_so(self):
        door = self.door()
        os.environ["RANK"] = "1"
        with self.assertLogs("footplate") as logs:
            run = footplate.init()
        self.assertIn("FOOTPLATE_RUN_ID", logs.output[0])
        run.log({"a": 1.0})
        self.assertTrue(run.log_artifact(__file__).wait(1))
        self.assertTrue(run.finish())
        self.assertIsNone(run.latest_checkpoint())
        self.assertEqual(door.calls, [])

    def test_ranks_that_share_a_run_log_into_it(self):
        door = self.door()
        door.CreateRun({"runId": RUN, "name": "", "experiment": "", "tags": {}, "params": {}})
        os.environ.update(RANK="1", FOOTPLATE_RUN_ID=RUN)
        footplate.log({"a": 1.0})
        self.assertTrue(footplate.flush(10))
        self.assertEqual([(run, rank) for run, rank, *_ in door.points], [(RUN, 1)])

    def test_wrong_arguments_are_told_at_the_call(self):
        for wrong in ({"run": "abc"}, {"name": ""}, {"experiment": "x" * 251}):
            self.assertRaises(ValueError, footplate.init, **wrong)
        for wrong in ({"config": [1]}, {"tags": "x"}, {"project": 5}):
            self.assertRaises(TypeError, footplate.init, **wrong)
        self.assertRaises(ValueError, footplate.finish, "done")


if __name__ == "__main__":
    unittest.main()
