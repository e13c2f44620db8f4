"""Tests of compare.py and of what it reads: run by meson, needs nothing but the standard
library."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare  # noqa: E402
import results  # noqa: E402

ROW = "attn/avx2/f32/prefill_b1_h8_s512_d64_full/threads:1"


def runs(name, values, counter="pct_peak", **more):
    return [
        {
            "name": name + "/real_time",
            "run_type": "iteration",
            "real_time": 1000 / v,
            "time_unit": "us",
            counter: v,
            **more,
        }
        for v in values
    ]


def aggregate(name):
    return [
        {
            "name": name + "_median",
            "run_type": "aggregate",
            "real_time": 1,
            "time_unit": "us",
            "pct_peak": 1,
        }
    ]


def refused(name):
    return [
        {"name": name, "run_type": "iteration", "error_occurred": True, "error_message": "no AVX2"}
    ]


class Compare(unittest.TestCase):
    def run_main(self, before, after, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, benchmarks in enumerate((before, after)):
                paths.append(os.path.join(folder, f"{i}.json"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    json.dump(
                        {"context": {"machine": "M", "commit": str(i)}, "benchmarks": benchmarks},
                        file,
                    )
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = compare.main(paths + list(options))
            return status, out.getvalue() + err.getvalue()

    def test_slower_beyond_noise(self):
        status, text = self.run_main(
            runs(ROW, [80, 81, 82, 81, 80]), runs(ROW, [70, 71, 72, 71, 70])
        )
        self.assertEqual(status, 1)
        self.assertIn("slower", text)
        self.assertIn("0.877", text)

    def test_faster(self):
        status, text = self.run_main(runs(ROW, [70, 71, 72]), runs(ROW, [80, 81, 82]))
        self.assertEqual(status, 0)
        self.assertIn("faster", text)

    def test_overlapping_repetitions_are_noise(self):
        status, text = self.run_main(
            runs(ROW, [60, 70, 80, 90, 100]), runs(ROW, [55, 65, 75, 85, 95])
        )
        self.assertEqual((status, "slower" in text), (0, False))

    def test_small_steady_change_is_below_the_threshold(self):
        before, after = runs(ROW, [80, 80, 80]), runs(ROW, [78.5, 78.5, 78.5])
        self.assertEqual(self.run_main(before, after)[0], 0)
        self.assertEqual(self.run_main(before, after, "--threshold", "1")[0], 1)

    def test_read_bandwidth_comes_before_peak(self):
        before = runs(ROW, [90, 90, 90], "pct_read", pct_peak=10)
        after = runs(ROW, [50, 50, 50], "pct_read", pct_peak=10)
        self.assertEqual(self.run_main(before, after)[0], 1)

    def test_without_ceilings_time_decides(self):
        before, after = runs(ROW, [10, 10, 10], "bytes_extra"), runs(ROW, [5, 5, 5], "bytes_extra")
        self.assertEqual(self.run_main(before, after)[0], 1)
        self.assertEqual(self.run_main(after, before)[0], 0)

    def test_a_new_refusal_is_a_regression(self):
        self.assertEqual(self.run_main(runs(ROW, [80]), refused(ROW))[0], 1)
        self.assertEqual(self.run_main(refused(ROW), runs(ROW, [80]))[0], 0)
        self.assertEqual(self.run_main(refused(ROW), refused(ROW))[0], 0)

    def test_rows_of_one_file_are_shown(self):
        status, text = self.run_main(
            runs(ROW, [80]) + runs("ceiling/read/threads:1", [1]), runs(ROW, [80])
        )
        self.assertEqual(status, 0)
        self.assertIn("only before", text)

    def test_aggregates_are_not_repetitions(self):
        after = runs(ROW, [80, 80, 80]) + 20 * aggregate(ROW)
        self.assertEqual(self.run_main(runs(ROW, [80, 80, 80]), after)[0], 0)

    def test_bad_input(self):
        self.assertEqual(self.run_main(runs(ROW, [1]), runs("ceiling/read/threads:1", [1]))[0], 2)
        self.assertEqual(self.run_main([{"name": "x"}], runs(ROW, [1]))[0], 2)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(compare.main(["/nowhere/a.json", "/nowhere/b.json"]), 2)

    def test_names(self):
        row = results.Row(results.short_name(ROW + "/process_time/real_time"))
        self.assertEqual((row.backend, row.dtype, row.threads), ("avx2", "f32", 1))
        self.assertEqual(row.shape, "prefill_b1_h8_s512_d64_full")


if __name__ == "__main__":
    unittest.main()
