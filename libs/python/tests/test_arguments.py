"""What may be logged: stored exactly, or refused at the call with key, field and value."""

import math
import unittest
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath

from footplate import _arguments


class Scalar:
    """As NumPy and Torch have it: a 0-d array, or one of more numbers."""

    def __init__(self, *values, shape=()):
        self.values, self.shape = values, shape

    def item(self):
        if len(self.values) != 1:
            raise ValueError("can only convert an array of size 1")
        return self.values[0]


class Numbers(unittest.TestCase):
    def test_numbers_and_scalars_are_kept_exactly(self):
        for value, kept in [(1, 1.0), (0.1, 0.1), (Scalar(0.25), 0.25), (Scalar(3), 3.0), (Decimal("0.5"), 0.5), (Fraction(1, 4), 0.25), (2 ** 53, 2.0 ** 53)]:
            self.assertEqual(_arguments.number("loss", value), kept)

    def test_nan_and_infinities_are_values(self):
        self.assertTrue(math.isnan(_arguments.number("loss", float("nan"))))
        self.assertEqual(_arguments.number("loss", Scalar(float("-inf"))), float("-inf"))
        self.assertEqual([_arguments.wire_number(value) for value in (float("nan"), float("inf"), float("-inf"), 0.5)], ["NaN", "Infinity", "-Infinity", 0.5])

    def test_what_is_no_number_is_refused_with_key_and_value(self):
        for value in (True, "0.5", b"1", None, 1j, [1.0], {"a": 1}, Scalar(True), object()):
            with self.assertRaises(TypeError) as refused:
                _arguments.number("val/acc", value)
            self.assertIn("val/acc", str(refused.exception))
        for value in (Scalar(1.0, 2.0, shape=(2,)), 2 ** 53 + 1, 10 ** 400):
            with self.assertRaises(ValueError) as refused:
                _arguments.number("val/acc", value)
            self.assertIn("val/acc", str(refused.exception))

    def test_a_step_is_whole(self):
        for value, kept in [(50, 50), (50.0, 50), (Scalar(7), 7), (Scalar(7.0), 7), (-1, -1), (2 ** 63 - 1, 2 ** 63 - 1)]:
            self.assertEqual(_arguments.step(value), kept)
        for value in ("50", True, None, Scalar(True), b"5"):
            self.assertRaises(TypeError, _arguments.step, value)
        for value in (50.5, float("nan"), float("inf"), 2 ** 63, Scalar(1, 2, shape=(2,))):
            self.assertRaises(ValueError, _arguments.step, value)

    def test_numpy_scalars_where_numpy_is(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("no numpy")
        for value in (np.float32(0.5), np.float64(0.5), np.float16(0.5), np.longdouble(0.5), np.array(0.5), np.array([0.5])):
            self.assertEqual(_arguments.number("x", value), 0.5)
        self.assertEqual(_arguments.step(np.int64(5)), 5)
        self.assertRaises(TypeError, _arguments.number, "x", np.bool_(True))
        self.assertRaises(ValueError, _arguments.number, "x", np.zeros(3))
        self.assertEqual(_arguments.jsonable("x", {"a": np.arange(3), "b": np.float32(0.5), "c": np.bool_(True)}), {"a": [0, 1, 2], "b": 0.5, "c": True})


class Texts(unittest.TestCase):
    def test_names_are_any_unicode(self):
        for text in ("val/acc", "推荐模型", "é", "e\u0301", "a b", "x" * 250, "🚂"):
            self.assertEqual(_arguments.name("metric", text), text)

    def test_bad_names_are_refused(self):
        for text in ("", " a", "a ", "a\nb", "x" * 251, "\ud800", "a\x7f"):
            self.assertRaises(ValueError, _arguments.name, "metric", text)
        self.assertRaises(TypeError, _arguments.name, "metric", 5)

    def test_artifact_names_stay_inside_the_run(self):
        for text in ("图/轴.png", "a%b.txt", "x#1.bin", "t:0", "p q+r", ".hidden", "a/.b/c"):
            self.assertEqual(_arguments.artifact_name(text), text)
        for text in ("", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", "a\0b", "x" * 1025):
            self.assertRaises(ValueError, _arguments.artifact_name, text)

    def test_params_keep_their_type(self):
        value = {"lr": 1e-4, "whole": 3.0, "n": 3, "on": True, "none": None, "list": [1, 2.0, "x"], "deep": {"a": {"b": 1}}}
        kept = _arguments.json_object("param", value)
        self.assertEqual(kept, value)
        self.assertEqual([type(kept[key]) for key in ("whole", "n", "on")], [float, int, bool])

    def test_what_json_has_not_becomes_text(self):
        kept = _arguments.json_object("param", {"p": PurePosixPath("/a"), "nan": float("nan"), "t": (1, 2), "k": {1: 2}, "s": "\ud800"})
        self.assertEqual(kept, {"p": "/a", "nan": "NaN", "t": [1, 2], "k": {"1": 2}, "s": "\\ud800"})

    def test_params_over_the_limits_are_refused(self):
        loop = {}
        loop["again"] = loop
        for value in ({"a": "x" * 131_071}, {"a": loop}, {"": 1}):
            self.assertRaises(ValueError, _arguments.json_object, "param", value)
        self.assertRaises(TypeError, _arguments.json_object, "param", [1])

    def test_tags_are_text(self):
        self.assertEqual(_arguments.tags({"a": "x", "b": 1, "c": True, "d": None, "e": 0.5}), {"a": "x", "b": "1", "c": "true", "d": "null", "e": "0.5"})
        self.assertRaises(TypeError, _arguments.tags, {"a": {}})

    def test_texts_have_limits_that_are_told(self):
        self.assertEqual(len(_arguments.text("note", "图" * 4_000)), 4_000)
        for over in (lambda: _arguments.text("note", "x" * 4_001), lambda: _arguments.tags({"a": "x" * 8_001}), lambda: _arguments.metadata({"a": "x" * 65_536})):
            with self.assertRaises(ValueError) as refused:
                over()
            self.assertIn("at most", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
