"""Whole processes: their signals, forks, exits and memory. Each script runs in a Python of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

from tests.fake_agent import FakeAgent
from tests.fake_door import FakeDoor

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUN = "0" * 31 + "1"


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.spool = os.path.join(self.folder, "spool")
        self.agent = FakeAgent(self.folder)
        self.addCleanup(self.agent.kill)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("FOOTPLATE_", "RANK", "WORLD_SIZE"))}
        self.environment.update(PYTHONPATH=PACKAGE, FOOTPLATE_SOCKET=self.agent.path, FOOTPLATE_RUN_ID=RUN, FOOTPLATE_ATTEMPT="1", FOOTPLATE_PROJECT="p",
                                FOOTPLATE_SPOOL=self.spool, HOME=self.folder, PYTHONUNBUFFERED="1")

    def start(self, script, **environment):
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=dict(self.environment, **environment), cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def run_(self, script, code=0, **environment):
        process = self.start(script, **environment)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, out + err)
        return out, err

    def files(self):
        return [name for name in os.listdir(self.spool) if name.endswith(".spool")] if os.path.isdir(self.spool) else []


class LastWords(Processes):
    """What an exception says is left in the file that the platform looks at, and nothing else changes."""

    def words(self, script, code=1):
        path = os.path.join(self.folder, "errors", "0.json")
        self.agent.start()
        _, err = self.run_(script, code, TORCHELASTIC_ERROR_FILE=path)
        if not os.path.exists(path):
            return None, err
        with open(path, encoding="utf-8") as file:
            return json.load(file)["message"], err

    def test_an_exception_is_told_in_full_though_more_is_written_behind_it(self):
        said, err = self.words("""
            import atexit, footplate, sys
            class OutOfMemoryError(RuntimeError): pass
            footplate.log({"loss": 1.0})
            atexit.register(lambda: print("bye", file=sys.stderr))
            raise OutOfMemoryError("CUDA out of memory")
        """)
        self.assertEqual(said["message"], "OutOfMemoryError: CUDA out of memory")
        self.assertIn("OutOfMemoryError: CUDA out of memory", said["extraInfo"]["py_callstack"])
        self.assertTrue(said["extraInfo"]["timestamp"].isdigit())
        self.assertIn("Traceback", err)

    def test_the_name_is_the_whole_one_as_in_a_traceback(self):
        said, err = self.words("""
            import footplate, json
            footplate.log({"loss": 1.0})
            json.loads("{")
        """)
        self.assertTrue(said["message"].startswith("json.decoder.JSONDecodeError: Expecting property name"), said)
        self.assertIn("json.decoder.JSONDecodeError", err)

    def test_a_hook_of_the_scripts_own_is_called_and_an_exit_is_no_exception(self):
        said, err = self.words("""
            import footplate, sys
            sys.excepthook = lambda *_: print("mine", file=sys.stderr)
            footplate.log({"loss": 1.0})
            raise ValueError("x")
        """)
        self.assertEqual((said["message"], err), ("ValueError: x", "mine\n"))
        os.remove(os.path.join(self.folder, "errors", "0.json"))
        self.assertIsNone(self.words("import footplate, sys; footplate.log({'loss': 1.0}); sys.exit(76)", 76)[0])

    def test_what_torch_has_recorded_stands(self):
        os.makedirs(os.path.join(self.folder, "errors"))
        with open(os.path.join(self.folder, "errors", "0.json"), "w", encoding="utf-8") as file:
            json.dump({"message": {"message": "recorded"}}, file)
        self.assertEqual(self.words("import footplate; footplate.log({'loss': 1.0}); raise ValueError('x')")[0], {"message": "recorded"})


class Signals(Processes):
    def test_term_sets_a_flag_for_a_script_that_asks(self):
        self.agent.start()
        process = self.start("""
            import footplate, sys, time
            footplate.stop_requested()
            print("ready")
            while not footplate.stop_requested():
                time.sleep(0.01)
            print(footplate.stop().cause)
            sys.exit(75)
        """)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        self.assertEqual((process.returncode, out), (75, "signal\n"), err)

    def test_term_still_kills_a_script_that_never_asks(self):
        self.agent.start()
        process = self.start("""
            import footplate, time
            footplate.log({"loss": 1.0})
            print("ready")
            time.sleep(60)
        """)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, -signal.SIGTERM)

    def test_a_handler_of_the_scripts_own_is_left_in_place(self):
        self.agent.start()
        self.run_("""
            import footplate, os, signal
            caught = []
            signal.signal(signal.SIGTERM, lambda *_: caught.append(1))
            footplate.stop_requested()
            os.kill(os.getpid(), signal.SIGTERM)
            assert caught == [1] and not footplate.stop_requested()
        """)

    def test_asking_from_another_thread_takes_over_no_signal(self):
        self.agent.start()
        self.run_("""
            import footplate, signal, threading
            thread = threading.Thread(target=footplate.stop_requested)
            thread.start(); thread.join()
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        """)

    def test_logging_in_a_handler_in_the_middle_of_logging_is_fine(self):
        self.agent.start()
        self.run_("""
            import footplate, signal
            signal.signal(signal.SIGALRM, lambda *_: footplate.log({"alarm": 1.0}))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for step in range(20_000):
                footplate.log({"loss": 1.0}, step=step)
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert footplate.flush(30)
        """)
        self.assertEqual([point[1] for point in self.agent.points("loss")], list(range(20_000)))
        alarms = [point[1] for point in self.agent.points("alarm")]
        self.assertGreater(len(alarms), 5)
        self.assertEqual(sorted(alarms), list(range(len(alarms))))

    def test_an_interrupt_in_the_middle_of_logging_loses_nothing_logged(self):
        self.agent.start()
        process = self.start("""
            import footplate, signal, sys
            # Whoever runs the tests in the background has interrupts ignored, and children inherit that.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            step = 0
            print("ready")
            try:
                while True:
                    footplate.log({"loss": 1.0}, step=step)
                    step += 1
            except KeyboardInterrupt:
                footplate.flush(20)
                print(step)
        """)
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        steps = [point[1] for point in self.agent.points("loss")]
        self.assertEqual(steps, list(range(len(steps))))
        self.assertIn(len(steps), (int(out), int(out) + 1))


class Exits(Processes):
    def test_what_was_logged_last_arrives_without_a_flush(self):
        self.agent.start()
        self.run_("""
            import footplate
            footplate.log({"last": 1.0}, step=7)
        """)
        self.assertEqual([point[1] for point in self.agent.points("last")], [7])
        self.assertEqual(self.agent.of_kind("finish"), [], "the outcome comes from the exit that the agent sees")

    def test_an_exit_waits_for_a_silent_agent_as_long_as_stated_and_keeps_the_rest(self):
        self.agent.silent = True
        self.agent.start()
        began = time.monotonic()
        _, err = self.run_("""
            import footplate
            footplate.log({"last": 1.0})
        """, FOOTPLATE_EXIT_SECONDS="1")
        self.assertTrue(1.0 <= time.monotonic() - began < 8.0)
        self.assertEqual(len(self.files()), 1)
        self.assertIn("footplate sync", err)

    def test_an_exception_of_the_script_is_its_own(self):
        self.agent.start()
        _, err = self.run_("""
            import footplate
            footplate.log({"loss": 1.0})
            raise RuntimeError("my own")
        """, code=1)
        self.assertTrue(err.rstrip().endswith("RuntimeError: my own"), err)
        self.assertEqual(len(self.agent.points()), 1)

    def test_a_notebook_run_ends_as_its_script_ended(self):
        door = FakeDoor()
        self.addCleanup(door.close)
        for script, outcome in (("pass", "OUTCOME_SUCCEEDED"), ("raise ValueError", "OUTCOME_FAILED"), ("footplate.finish('failed')", "OUTCOME_FAILED")):
            door.runs.clear()
            process = self.start("import footplate; footplate.init(name='x', config={'lr': 1}); footplate.log({'a': footplate.config.lr}); " + script,
                                 FOOTPLATE_SOCKET="", FOOTPLATE_RUN_ID="", FOOTPLATE_ADDR=door.address)
            process.communicate(timeout=60)
            self.assertEqual([run["outcome"] for run in door.runs.values()], [outcome])
        self.assertEqual(len(door.points), 3)

    def test_warnings_as_errors_and_a_closed_stderr_kill_nothing(self):
        self.run_("""
            import os, warnings
            warnings.simplefilter("error")
            os.close(2)
            import footplate
            footplate.log({"loss": 1.0})
            footplate.log_artifact("/no/such")
        """, FOOTPLATE_EXIT_SECONDS="0", FOOTPLATE_SPOOL="/proc/nowhere")

    def test_a_config_that_cannot_be_read_stops_the_training(self):
        _, err = self.run_("import footplate; footplate.config.lr", code=1, FOOTPLATE_CONFIG="/no/such.json")
        self.assertIn("/no/such.json", err)

    def test_a_child_that_multiprocessing_ends_flushes_too(self):
        self.agent.start()
        for method in ("fork", "spawn"):
            path = os.path.join(self.folder, method + ".py")
            with open(path, "w") as file:
                file.write(textwrap.dedent("""
                    import footplate, multiprocessing, sys
                    def work():
                        footplate.log({"child/" + sys.argv[1]: 1.0})
                    if __name__ == "__main__":
                        footplate.log({"parent": 1.0})
                        context = multiprocessing.get_context(sys.argv[1])
                        children = [context.Process(target=work) for _ in range(2)]
                        for child in children: child.start()
                        for child in children: child.join(); assert child.exitcode == 0
                """))
            done = subprocess.run([sys.executable, path, method], env=self.environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(self.agent.points("child/" + method)), 2)


class Forks(Processes):
    def test_a_forked_child_has_a_session_of_its_own_and_the_parent_loses_nothing(self):
        self.agent.start()
        self.run_("""
            import footplate, os
            for step in range(500):
                footplate.log({"parent": 1.0}, step=step)
                if step == 250:
                    child = os.fork()
                    if child == 0:
                        for at in range(100):
                            footplate.log({"child": 1.0}, step=at)
                        os._exit(0 if footplate.flush(20) else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert footplate.flush(20)
        """)
        self.assertEqual([point[1] for point in self.agent.points("parent")], list(range(500)))
        self.assertEqual([point[1] for point in self.agent.points("child")], list(range(100)))
        self.assertEqual(len({hello["session"] for hello in self.agent.hellos}), 2)

    def test_a_fork_while_spilling_writes_nothing_twice(self):
        self.run_("""
            import footplate, os
            from footplate import _backlog
            _backlog.INBOX_POINTS_MAX = 1_000
            children = []
            for step in range(5_000):
                footplate.log({"parent": 1.0}, step=step)
                if step % 1_000 == 999:
                    child = os.fork()
                    if child == 0:
                        footplate.log({"child": 1.0}, step=step)
                        footplate._exit.leave()
                        os._exit(0)
                    children.append(child)
            assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        """, FOOTPLATE_EXIT_SECONDS="0")
        self.assertEqual(len(self.files()), 6)
        from footplate import _frames
        steps = []
        for name in self.files():
            _, frames, damaged = _frames.read_file(os.path.join(self.spool, name))
            self.assertEqual(damaged, 0)
            ops = {frame["n"]: frame for frame in frames if "n" in frame}
            steps.extend(point[1] for n in sorted(ops) for point in ops[n].get("points", ()) if point[0] == "parent")
        self.assertEqual(sorted(steps), list(range(5_000)))

    def test_term_kills_a_forked_child_though_its_parent_asks(self):
        self.agent.start()
        self.run_("""
            import footplate, os, signal, time
            footplate.stop_requested()
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            os.kill(child, signal.SIGTERM)
            assert os.waitpid(child, 0)[1] == signal.SIGTERM
            assert not footplate.stop_requested()
        """)


class Costs(Processes):
    def test_a_hundred_thousand_calls_into_a_silent_socket_are_quick_and_small(self):
        self.agent.silent = True
        self.agent.start()
        out, _ = self.run_("""
            import footplate, resource, time
            footplate.log({"loss": 1.0})
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            began, slowest = time.perf_counter(), 0.0
            for step in range(100_000):
                start = time.perf_counter()
                footplate.log({"train/loss": 1.0, "train/acc": 0.5, "lr": 0.1}, step=step)
                slowest = max(slowest, time.perf_counter() - start)
            took = time.perf_counter() - began
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, took * 10, slowest * 1000)
            import os; os._exit(0)
        """)
        grown_kib, mean_us, slowest_ms = map(float, out.split())
        sys.stderr.write("[log into silence: %.0f us a call, slowest %.0f ms, %.0f MiB] " % (mean_us, slowest_ms, grown_kib / 1024))
        self.assertLess(grown_kib, 64 << 10)
        self.assertLess(mean_us, 500)

    def test_a_killed_process_leaves_a_file_that_can_be_sent(self):
        process = self.start("""
            import footplate, os, signal, time
            from footplate import _backlog
            _backlog.INBOX_POINTS_MAX = 2_000
            for step in range(10_000):
                footplate.log({"loss": 1.0}, step=step)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        """)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        door = FakeDoor()
        self.addCleanup(door.close)
        door.CreateRun({"runId": RUN, "name": "", "experiment": "", "tags": {}, "params": {}})
        self.run_("import footplate; assert [result.kept for result in footplate.sync()] == [None]", FOOTPLATE_ADDR=door.address)
        steps = [point[3] for point in door.points]
        self.assertEqual(steps, list(range(len(steps))))
        self.assertGreaterEqual(len(steps), 8_000)

    def test_importing_is_quick_and_starts_nothing(self):
        out, _ = self.run_("""
            import time; began = time.perf_counter()
            import footplate, threading, sys
            print(time.perf_counter() - began, threading.active_count(), [name for name in ("numpy", "torch", "asyncio") if name in sys.modules])
        """)
        self.assertTrue(re.match(r"[\d.]+ 1 \[\]$", out.strip()), out)
        self.assertLess(float(out.split()[0]), 2.0)


if __name__ == "__main__":
    unittest.main()
