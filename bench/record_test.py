"""Tests of record.py: it makes pages and figures from bench/results, and notices when they
differ."""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import plot  # noqa: E402
import record  # noqa: E402
import results  # noqa: E402

NAME = "attn/avx2/{}/{}/threads:1"
CONTEXT = {
    "date": "2026-11-22T01:02:03+00:00",
    "machine": "M",
    "machine_family_model": "1/2",
    "system": "S",
    "usable_cpus": "2",
    "l2": "1 MiB",
    "l3": "32 MiB",
    "heed": "0.1.0",
    "compiler": "gcc",
    "commit": "abc",
    "load_avg": [0.5, 1, 2],
    "left_out": "",
    "refused": "",
}


def run(name, seconds, **counters):
    return {
        "name": name, "run_type": "iteration", "real_time": seconds, "time_unit": "s", **counters
    }


MEASURED = [
    *(run("ceiling/fma_avx2/threads:1", 1, GFLOPS=g) for g in (100, 110, 120)),
    *(
        run(NAME.format("f32", "bert"), 1, GFLOPS=g, GBps=1, pct_peak=g, peak_GFLOPS=100)
        for g in (80, 82, 84)
    ),
    *(
        run(NAME.format("bf16", "decode"), 1, GFLOPS=1, GBps=g, pct_peak=1, pct_read=2 * g)
        for g in (20, 21, 22)
    ),
    *(run(NAME.format("f32", "small_s1"), s, GFLOPS=1, GBps=1) for s in (1e-6, 2e-6, 3e-6)),
]

PEERS = [
    {
        "context": {
            "date": "2026-11-22", "machine": "M", "cpus": 2, "load": [0.5, 0, 0],
            "versions": {"heed": "0.1.0", "torch": "2"},
        },
        "rows": [
            {
                "shape": {"name": "bert", "bound": "compute", "flops": 1e9, "kv_elements": 1},
                "dtype": "f32",
                "threads": 1,
                "results": [
                    {"who": "heed", "variant": "prefill", "seconds": [0.01, 0.02, 0.04], "error": 1e-7},
                    {"who": "torch", "variant": "sdpa", "seconds": [0.03, 0.03, 0.05], "error": 1e-7},
                ],
            }
        ],
    }
]


class Project:
    """A folder with a page and results, like those of the repository."""

    def __enter__(self):
        self.root = tempfile.mkdtemp()
        for folder in ("docs", "bench/results"):
            os.makedirs(os.path.join(self.root, folder))
        with open(self.path("run.json"), "w", encoding="utf-8") as file:
            json.dump({"context": CONTEXT, "benchmarks": MEASURED}, file)
        results.keep(self.path("bench/results/amd-zen4.json"), *results.load(self.path("run.json")))
        record.write_peers(
            self.path("bench/results/amd-zen4.peers.json"),
            record.shorten_peers(json.loads(json.dumps(PEERS))),
        )
        with open(self.path("docs/benchmarks.md"), "w", encoding="utf-8") as file:
            file.write("# Title\n")
            for name in ("amd-zen4.peers", "amd-zen4", "intel-amx"):
                file.write(f"\n<!-- bench/results/{name}.json -->\nold\n<!-- end -->\n")
            file.write("\nThe rest.\n")
        self.pages = record.Pages(self.root)
        for path, figure in self.pages.figures():
            with open(figure, "w", encoding="utf-8") as file:
                file.write(record.digest(path))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root)

    def path(self, name):
        return os.path.join(self.root, name)

    def write_page(self):
        text = self.pages.text(self.path("docs/benchmarks.md"))[1]
        with open(self.path("docs/benchmarks.md"), "w", encoding="utf-8") as file:
            file.write(text)
        return text

    def check(self):
        err = io.StringIO()
        with contextlib.redirect_stderr(err):
            return record.main(["--check"], self.root), err.getvalue()


class Record(unittest.TestCase):
    def test_pages_and_figures_are_what_the_results_give(self):
        self.assertEqual(record.Pages(record.ROOT).wrong(), [])
        self.assertTrue(record.Pages(record.ROOT).pages())

    def test_kept_files_are_short(self):
        for path, _ in record.Pages(record.ROOT).figures():
            self.assertLess(os.path.getsize(path), 300_000, path)

    def test_a_page(self):
        with Project() as project:
            status, text = project.check()
            self.assertEqual((status, "benchmarks.md is not what" in text), (1, True))
            page = project.write_page()
            self.assertEqual(project.check(), (0, ""))
            for line in (
                "Measured 2026-11-22 on M (family/model 1/2), 2 CPUs",
                "heed 0.1.0 (abc), gcc, S.",
                "Ceilings: fma_avx2 110 GFLOP/s.",
                "| bert | f32 | 1 | GFLOP/s | 82 (82 % ±1.0) |",
                "| decode | bf16 | 1 | GB/s | 21 (42 % ±1.0) |",
                "| small_s1 | f32 | 1 | us | 2 (±25 %) |",
                "| bert | f32 | 50 GFLOP/s | prefill | 1.0e-07 | 33.33 GFLOP/s | 1.50 | 1.0e-07 |",
                "<!-- bench/results/intel-amx.json -->\nold\n<!-- end -->",
                "The rest.",
            ):
                self.assertIn(line, page)

    def test_what_is_out_of_date_is_named(self):
        with Project() as project:
            project.write_page()
            path = project.path("bench/results/amd-zen4.json")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("82.0", "83.0"))
            status, said = project.check()
            self.assertEqual(status, 1)
            self.assertIn("benchmarks.md is not what", said)
            self.assertIn("speed.svg was not drawn from", said)
            self.assertNotIn("peers.svg", said)

    def test_results_without_a_page_are_named(self):
        with Project() as project:
            with open(project.path("docs/benchmarks.md"), "w", encoding="utf-8") as file:
                file.write("nothing\n")
            self.assertIn("amd-zen4.json is in no page", project.check()[1])
            shutil.copy(
                project.path("bench/results/amd-zen4.json"), project.path("bench/results/moon.json")
            )
            status, said = project.check()
            self.assertEqual((status, "knows no kind moon" in said), (2, True))

    def test_blocks_end(self):
        for page in record.Pages(record.ROOT).pages():
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertEqual(len(record.BLOCK.findall(text)), text.count("<!-- bench/results/"), page)

    def test_measuring_puts_the_pieces_together(self):
        fake = """#!{python} -SE
import json, re, sys
options = dict(w.split("=", 1) for w in sys.argv[1:] if "=" in w)
quick = [("ceiling/read", 1), ("attn/naive/f32/small_b4_h4_s10_d8", 1), ("attn/avx2/f32/bert", 1)]
decode = "attn/avx2/{}/decode_b1_hq32_hkv8_kv8192_d128"
more = [(decode.format(t), n) for t in ("f32", "f16") for n in (1, 2)]
more += [("attn/naive/f32/small_b4_h4_s10_d8", n) for n in (1, 2)]
names = [f"{name}/threads:{n}" for name, n in (quick if "--quick" in sys.argv else more)]
names = [n for n in names if re.search(options.get("--benchmark_filter", ""), n + "/real_time")]
if "--benchmark_list_tests" in sys.argv:
    print("\\n".join(name + "/real_time" for name in names))
elif names:
    runs = [
        dict(name=n + "/real_time", run_type="iteration", real_time=1, time_unit="s", GFLOPS=1)
        for n in names
    ]
    context = dict(left_out="backend amx: none; " + names[0] + ": long", refused="a/threads:1: no")
    context["system"] = "Linux 6.1.2-local_7 x86_64"
    json.dump(dict(context=context, benchmarks=runs), open(options["--benchmark_out"], "w"))
elif "/naive/" in options["--benchmark_filter"]:
    sys.exit("heed-bench: the filter matches no row") # the others: no file, but success
"""
        with tempfile.TemporaryDirectory() as build, contextlib.redirect_stdout(io.StringIO()):
            os.makedirs(os.path.join(build, "bench"))
            path = os.path.join(build, "bench", "heed-bench")
            with open(path, "w", encoding="utf-8") as file:
                file.write(fake.replace("{python}", sys.executable))
            os.chmod(path, 0o755)
            context, rows = record.measure(build, "env")
        decode = "attn/avx2/{}/decode_b1_hq32_hkv8_kv8192_d128/threads:{}"
        measured = [name for name, row in rows.items() if row.counters()]
        self.assertEqual(
            measured,
            [
                "ceiling/read/threads:1",
                "attn/naive/f32/small_b4_h4_s10_d8/threads:1",
                "attn/avx2/f32/bert/threads:1",
                decode.format("f32", 2),
                decode.format("f16", 1),
                decode.format("f16", 2),
            ],
        )
        self.assertEqual(rows["a/threads:1"].error, "no")
        self.assertEqual(context["refused"], "a/threads:1: no")
        self.assertEqual(context["system"], "Linux 6.1.2 x86_64")
        self.assertEqual(context["left_out"].count("backend amx: none"), 1)
        self.assertEqual(context["left_out"].count(": long"), 4)

    def test_figures_have_numbers_alone(self):
        names = [NAME.format(dtype, "decode_b1_hq32_hkv8_kv8192_d128") for dtype in ("bf16", "q8_0", "i8int8")]
        rows = []
        for name in names:
            row = results.Row(name)
            row.add(run(name, 1, GBps=2))
            rows.append(row)
        self.assertEqual([r.name for r in plot.drawn(rows, 1)], names[:1])
        self.assertEqual(plot.drawn(rows, 2), [])

    def test_a_heed_bench_that_crashes_is_no_backend_left_out(self):
        fake = """#!/bin/sh
case "$*" in
*list_tests*) echo attn/avx2/f32/bert/threads:1/real_time ;;
*avx2*) kill -SEGV $$ ;;
*) echo 'heed-bench: the filter matches no row' >&2; exit 1 ;;
esac
"""
        with tempfile.TemporaryDirectory() as build, contextlib.redirect_stdout(io.StringIO()):
            os.makedirs(os.path.join(build, "bench"))
            path = os.path.join(build, "bench", "heed-bench")
            with open(path, "w", encoding="utf-8") as file:
                file.write(fake)
            os.chmod(path, 0o755)
            with self.assertRaisesRegex(ValueError, "ended with -11"):
                record.measure(build, "env")

    def test_what_cannot_be_measured_is_bad_input(self):
        with Project() as project, contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(record.main(["amd-zen4", "--build", project.path("docs")], project.root), 2)

    def test_what_is_not_of_peers_is_bad_input(self):
        with Project() as project:
            kept = project.path("bench/results/amd-zen4.peers.json")
            before = record.digest(kept)
            for path in (project.path("run.json"), kept, project.path("absent")):
                err = io.StringIO()
                with contextlib.redirect_stderr(err):
                    self.assertEqual(record.main(["amd-zen4", "--peers", path], project.root), 2)
                self.assertIn(f"record.py: {path}: no output of bench/peers", err.getvalue())
            self.assertEqual(record.digest(kept), before)

    def test_words_that_would_be_ignored(self):
        with Project() as project:
            project.write_page()
            for words in (
                ["--peers", "run.json"], ["amd-zen4", "--check"], ["amd-zen4", "--peers", "run.json", "--check"],
                ["--build", "build"], ["--under", "nice"], ["--check", "--under", "nice"],
                ["amd-zen4", "--peers", "run.json", "--build", "build"],
            ):
                with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as ended:
                    record.main(words, project.root)
                self.assertEqual(ended.exception.code, 2, words)


if __name__ == "__main__":
    unittest.main()
