"""Tests of compare.py and of results.py, which reads its files. Run by meson; they need nothing but
the standard library."""

import contextlib
import io
import json
import os
import sys
import tempfile
import unittest
import unittest.mock

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
    def run_main(self, before, after, *options, left_out=""):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, benchmarks in enumerate((before, after)):
                paths.append(os.path.join(folder, f"{i}.json"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    context = {"machine": "M", "commit": str(i), "left_out": left_out if i else ""}
                    json.dump({"context": context, "benchmarks": benchmarks}, file)
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
        self.assertEqual(self.run_main(before, after, "--threshold", "1", "--report-only")[0], 0)

    def test_spread_is_that_of_the_pages(self):
        """+-: to each side of the median, as bench/record.py writes it."""
        self.assertEqual(compare.spread((98, 100, 102)), 2)

    def test_read_bandwidth_comes_before_peak(self):
        before = runs(ROW, [90, 90, 90], "pct_read", pct_peak=10)
        after = runs(ROW, [50, 50, 50], "pct_read", pct_peak=10)
        self.assertEqual(self.run_main(before, after)[0], 1)

    def test_a_ceiling_that_cannot_be_right_decides_nothing(self):
        before = runs(ROW, [90, 90, 90], "pct_read", GBps=20)
        after = runs(ROW, [440, 440, 440], "pct_read", GBps=15)  # it was too low
        status, text = self.run_main(before, after)
        self.assertEqual((status, "GBps" in text), (1, True))

    def test_a_row_that_takes_too_long_now_is_a_regression(self):
        other = ROW.replace("d64", "d128")
        before, after = runs(ROW, [80]) + runs(other, [80]), runs(other, [80])
        self.assertEqual(self.run_main(before, after)[0], 0)
        status, text = self.run_main(before, after, left_out=f"backend amx: none; {ROW}: about 9 s a call")
        self.assertEqual((status, "about 9 s a call" in text), (1, True))

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

    def test_figures_that_cannot_be(self):
        """They are bad input, as beside NaN nothing is slower, and to divide by 0 would end with 1."""
        good = runs(ROW, [1, 1])
        for bad in ({"pct_peak": 0}, {"pct_peak": float("nan")}, {"pct_peak": "1"}, {"real_time": 0},
                    {"real_time": float("inf")}, {"real_time": "1"}, {"pct_peak": True}):
            rows = [{**good[0], **bad}, good[1]]
            for before, after in (rows, good), (good, rows), (rows, rows):
                self.assertEqual(self.run_main(before, after)[0], 2, bad)
        self.assertEqual(self.run_main(good, good, left_out=7)[0], 2)
        self.assertEqual(self.run_main(runs(ROW, [1], bytes_extra=0), runs(ROW, [1], bytes_extra=0))[0], 0)

    def test_filter(self):
        other = ROW.replace("d64", "d128")
        before, after = runs(ROW, [80]) + runs(other, [80]), runs(ROW, [80]) + runs(other, [40])
        self.assertEqual(self.run_main(before, after)[0], 1)
        status, text = self.run_main(before, after, "--filter", "d64")
        self.assertEqual((status, "d128" in text), (0, False))
        self.assertEqual(self.run_main(before, after, "--filter", "d128")[0], 1)
        status, text = self.run_main(before, after, "--filter", "d256")
        self.assertEqual(status, 2)
        self.assertIn("no row of d256", text)
        self.assertEqual(self.run_main(before, after, "--filter", "(")[0], 2)

    def test_wrong_words(self):
        wrong = {"--rounds": ("-1", "0", "x"), "--threshold": ("nan", "inf", "-1", "x"), "--seconds": ("nan",)}
        for option, value in ((option, value) for option, values in wrong.items() for value in values):
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as ended:
                compare.main(["a", "b", f"{option}={value}"])
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(f"{option}: '{value}'", err.getvalue())

    def test_files_are_not_measured(self):
        """What is said of measuring would be ignored."""
        for words in (["--rounds", "12"], ["--seconds=1"], ["--under", "nice"], ["--"], ["--", "--threads=2"]):
            status, text = self.run_main(runs(ROW, [80]), runs(ROW, [80]), *words)
            self.assertEqual((status, f"{words[0].partition('=')[0]} is for two build folders" in text),
                             (2, True), (words, text))

    def test_names(self):
        row = results.Row(results.short_name(ROW + "/process_time/real_time"))
        self.assertEqual((row.backend, row.dtype, row.threads), ("avx2", "f32", 1))
        self.assertEqual(row.shape, "prefill_b1_h8_s512_d64_full")


# Replaces heed-bench: the seconds of a row with the library of a folder are in its file
# `core/seconds`, disturbed by a pattern that differs from call to call; a row without seconds is
# refused.
FAKE = """#!{python} -SE
import json, os, sys
options = dict(w.split("=", 1) for w in sys.argv[1:] if "=" in w)
core = os.environ["LD_LIBRARY_PATH"]
seconds = json.load(open(os.path.join(core, "seconds")))
if "--benchmark_list_tests" in sys.argv:
    print("\\n".join(name + "/real_time" for name in seconds))
    sys.exit()
state = os.path.join(core, "calls")
n = int(open(state).read()) if os.path.exists(state) else 0
open(state, "w").write(str(n + 1))
noise = [0, 0.05, -0.04, 0.01, 0.03, -0.02, -0.05, 0.02][n % 8] * seconds.get("noise", 0)
runs = [
    dict(name=name + "/real_time", run_type="iteration", real_time=1e6 * s * (1 + noise),
         time_unit="us", label="")
    for name, s in seconds.items() if s and "/" in name and name in
    options["--benchmark_filter"].replace("\\\\", "")
    for _ in range(int(options["--benchmark_repetitions"]))
]
refused = [name + ": no such kernel" for name, s in seconds.items() if not s]
context = dict(refused="\\n".join(refused))
json.dump(dict(context=context, benchmarks=runs), open(options["--benchmark_out"], "w"))
"""


class Builds(unittest.TestCase):
    def run_main(self, before, after, *options, shared=("libheed.so.0", "libheed.so.0")):
        with tempfile.TemporaryDirectory() as folder:
            for which, seconds, library in (("old", before, shared[0]), ("new", after, shared[1])):
                os.makedirs(os.path.join(folder, which, "core"))
                with open(os.path.join(folder, which, "core", library), "w", encoding="utf-8"):
                    pass
                with open(os.path.join(folder, which, "core", "seconds"), "w", encoding="utf-8") as file:
                    json.dump(seconds, file)
            os.makedirs(os.path.join(folder, "new", "bench"))
            bench = os.path.join(folder, "new", "bench", "heed-bench")
            with open(bench, "w", encoding="utf-8") as file:
                file.write(FAKE.replace("{python}", sys.executable))
            os.chmod(bench, 0o755)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = compare.main(
                    [os.path.join(folder, "old"), os.path.join(folder, "new"), "--rounds", "6", *options]
                )
            return status, out.getvalue() + err.getvalue()

    def test_slower_is_measured_again_and_fails(self):
        status, text = self.run_main({ROW: 1e-3, "noise": 0.1}, {ROW: 1.05e-3, "noise": 0.1})
        self.assertEqual(status, 1)
        self.assertIn("  again", text)
        self.assertIn("1 rows: 1 slower, 0 faster", text)
        again = self.run_main({ROW: 1e-3}, {ROW: 1.05e-3}, "--report-only")
        self.assertEqual(again[0], 0)

    def test_little_is_not_slower(self):
        status, text = self.run_main({ROW: 1e-3}, {ROW: 1.015e-3})
        self.assertEqual((status, "1 rows: 0 slower, 0 faster, 0 whose" in text), (0, True))
        self.assertEqual(self.run_main({ROW: 1e-3}, {ROW: 1.015e-3}, "--threshold", "1")[0], 1)

    def test_faster(self):
        status, text = self.run_main({ROW: 1e-3}, {ROW: 0.9e-3})
        self.assertEqual((status, "0 slower, 1 faster" in text), (0, True))

    def test_noise_is_told(self):
        status, text = self.run_main({ROW: 1e-3, "noise": 1}, {ROW: 1e-3, "noise": -1})
        self.assertEqual(status, 0, text)
        self.assertIn("1 whose noise could hide 2 %", text)

    def test_a_filter_that_matches_nothing_is_an_error(self):
        status, text = self.run_main({}, {}, "--filter", "d256")
        self.assertEqual(status, 2)
        self.assertIn("no row of d256", text)

    def test_a_refusal_that_is_new_fails(self):
        other = ROW.replace("d64", "d128")
        both = {ROW: 1e-3, other: 1e-3}
        status, text = self.run_main(both, {ROW: 1e-3, other: 0})
        self.assertEqual(status, 1)
        self.assertIn("refused after: no such kernel", text)
        self.assertEqual(self.run_main({ROW: 1e-3, other: 0}, both)[0], 0)

    def test_words_that_heed_bench_is_given_anyway(self):
        """They would be ignored: it takes the last of each."""
        for word in (
            "--benchmark_filter=x", "--benchmark_list_tests", "--benchmark_min_time=1", "--benchmark_out=x",
            "--benchmark_repetitions=1", "--limit=1",
        ):
            status, text = self.run_main({ROW: 1e-3}, {ROW: 1e-3}, "--", "--quick", word)
            said = f"{word.partition('=')[0]} behind -- would be ignored" in text
            self.assertEqual((status, said), (2, True), text)
        self.assertEqual(self.run_main({ROW: 1e-3}, {ROW: 1e-3}, "--", "--quick", "--threads=1")[0], 0)

    def test_folders_without_a_build(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(compare.main([folder, folder]), 2)

    def test_a_folder_beside_none(self):
        with tempfile.TemporaryDirectory() as folder:
            for other in os.path.join(folder, "nope"), __file__:
                for pair in [folder, other], [other, folder]:
                    with contextlib.redirect_stderr(io.StringIO()) as err:
                        self.assertEqual(compare.main(pair), 2)
                    self.assertEqual(err.getvalue(), f"compare.py: {other} is no folder, but {folder} is one: "
                                                     "two builds or two files are needed\n")

    def test_each_library_runs_with_its_plugins(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in ("old", "new")]
            for path in paths:
                for name in ("core/libheed.so.0", "bench/heed-bench"):
                    os.makedirs(os.path.join(path, os.path.dirname(name)))
                    with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                        file.write('#!/bin/sh\necho "${HEED_PLUGIN_PATH-unset}"\n')
                    os.chmod(os.path.join(path, name), 0o755)

            def plugins(**more):
                with unittest.mock.patch.dict(os.environ, more):
                    builds = compare.Builds(paths, "", [])
                    return [builds.run(which).stdout for which in (0, 1)]

            os.environ.pop("HEED_PLUGIN_PATH", None)
            self.assertEqual(plugins(), ["unset\n"] * 2)
            with open(os.path.join(paths[1], "heed_build_tree.txt"), "w", encoding="utf-8") as file:
                file.write("/new/onednn\n")
            self.assertEqual(plugins(), ["\n", "/new/onednn\n"])
            with open(os.path.join(paths[0], "heed_build_tree.txt"), "w", encoding="utf-8") as file:
                file.write("/old/onednn\n")
            self.assertEqual(plugins(), ["/old/onednn\n", "/new/onednn\n"])
            self.assertEqual(plugins(HEED_PLUGIN_PATH="/mine"), ["/mine\n"] * 2)

    def test_builds_without_what_is_compared(self):
        """The loader would take the library that heed-bench was linked with in place of one that is not
        there, and compare it with itself."""
        for shared in (("libheed.a", "libheed.so.0"), ("libheed.so.0", "libheed.so.1"),
                       ("libheed.a", "libheed.a"), ("libheed.so.0.1.0", "libheed.so.0")):
            status, text = self.run_main({ROW: 1e-3}, {ROW: 1e-3}, shared=shared)
            self.assertEqual((status, "libheed.so" in text), (2, True), (shared, text))

    def test_a_program_that_cannot_be_run(self):
        status, text = self.run_main({ROW: 1e-3}, {ROW: 1e-3}, "--under", "no-such-program -f 50")
        self.assertEqual(status, 2)
        self.assertIn("no-such-program", text)

    def test_intervals(self):
        # For 12 values, the third from either end: at most 2 of 12 fall below with probability 79 /
        # 4096.
        self.assertEqual(compare.interval(list(range(12))), (2, 9))
        self.assertEqual(compare.interval(list(range(6))), (0, 5))
        self.assertEqual(compare.interval(list(range(5))), (0, float("inf")))

    def test_groups(self):
        rows = [f"attn/{b}/f32/s{i}/threads:1" for b in ("avx2", "avx512") for i in range(10)]
        self.assertEqual([len(g) for g in compare.groups(rows)], [8, 2, 8, 2])


class Kept(unittest.TestCase):
    def test_the_short_form_says_the_same(self):
        benchmarks = runs(ROW, [80, 81, 90, 82, 70]) + runs("ceiling/read/threads:1", [1, 2])
        with tempfile.TemporaryDirectory() as folder:
            long, short = os.path.join(folder, "a.json"), os.path.join(folder, "b.json")
            context = {"machine": "M", "date": "D", "caches": [1], "refused": f"{ROW}x: why"}
            with open(long, "w", encoding="utf-8") as file:
                json.dump({"context": context, "benchmarks": benchmarks}, file)
            results.keep(short, *results.load(long))
            (_, before), (kept, after) = results.load(long), results.load(short)
            self.assertEqual(list(before), list(after))
            for name, row in before.items():
                self.assertEqual((row.error, row.repetitions), (after[name].error, after[name].repetitions))
                for counter in row.counters():
                    for a, b in zip(row.middle(counter), after[name].middle(counter)):
                        self.assertAlmostEqual(a / b, 1, 3)
            self.assertEqual(kept, {k: v for k, v in context.items() if k != "caches"})
            again = os.path.join(folder, "c.json")
            results.keep(again, kept, after)
            with open(short, encoding="utf-8") as a, open(again, encoding="utf-8") as b:
                self.assertEqual(a.read(), b.read())
            self.assertEqual(after[ROW].middle("pct_peak"), (80, 81, 82))

    def test_a_short_form_that_was_changed(self):
        for counters in ({}, {"seconds": [1]}, {"seconds": [1, 1, 0]}, {"seconds": 1}, {"pct_peak": [1, 1, 1]}):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "a.json")
                row = {"label": "", "repetitions": 1, "error": None, "counters": counters}
                with open(path, "w", encoding="utf-8") as file:
                    json.dump({"context": {}, "rows": {ROW: row}}, file)
                with self.assertRaisesRegex(ValueError, "a.json: no output of heed-bench"):
                    results.load(path)


if __name__ == "__main__":
    unittest.main()
