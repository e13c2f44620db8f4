"""Tests of the heed-bench program on rows that take no time: heed_bench_test.py HEED-BENCH [FOLDER
of the example plugin]"""

import itertools
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import results  # noqa: E402

BENCH = PLUGINS = None
SMALL = "attn/naive/f32/small_b4_h4_s10_d8/threads:1"


def run(*words, preexec_fn=None, **environment):
    return subprocess.run(
        [BENCH, *words],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
        preexec_fn=preexec_fn,
        check=False,
    )


def measure(pattern, *words, **environment):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        done = run(
            f"--benchmark_filter={pattern}",
            f"--benchmark_out={path}",
            "--benchmark_min_time=0.005",
            "--benchmark_repetitions=3",
            *words,
            **environment,
        )
        if done.returncode:
            raise AssertionError(done.stderr)
        with open(path, encoding="utf-8") as file:
            raw = file.read()
        return json.loads(raw), results.load(path)[1], raw


class HeedBench(unittest.TestCase):
    def test_a_row_has_its_counters_and_its_machine(self):
        data, rows, raw = measure(SMALL)
        self.assertEqual(list(rows), [SMALL])
        row = rows[SMALL]
        self.assertEqual(len(row.samples["GFLOPS"]), 3)
        flops = 4 * 8 * 10 * 10 * 16  # 4 * head_dim * pairs * heads * batch
        kv_bytes = 2 * 8 * 10 * 16 * 4  # K and V * head_dim * keys * heads * batch * size
        for gflops, gbps in zip(row.samples["GFLOPS"], row.samples["GBps"]):
            # Both come from the same time, so their quotient is exact.
            self.assertAlmostEqual(gflops / gbps / (flops / kv_bytes), 1, 9)
        # The clock of the counters starts just before Google Benchmark's and ends just after it, so
        # it never shows less time. It shows much more only if something came between the two, which
        # does not happen in every repetition.
        shares = [
            gflops * 1e9 * seconds / flops
            for gflops, seconds in zip(row.samples["GFLOPS"], row.samples["seconds"])
        ]
        self.assertLess(max(shares), 1 + 1e-9)
        self.assertGreater(max(shares), 0.5)
        self.assertNotIn("pct_peak", row.samples)  # naive has no ceiling to be compared with
        self.assertGreater(row.median("bytes_extra"), 0)
        for key in ("machine", "compiler", "commit", "left_out"):
            self.assertIn(key, data["context"])
        self.assertNotIn("NaN", raw)

    def test_a_refusal_is_a_skip_with_its_reason(self):
        if not PLUGINS:
            self.skipTest("there is no example plugin, and the others may refuse nothing")
        small, refused = (
            f"attn/example/{dtype}/small_b4_h4_s10_d8/threads:1" for dtype in ("f32", "bf16")
        )
        data, rows, _ = measure(
            "example/.*/small_b4_h4_s10_d8/threads:1", HEED_PLUGIN_PATH=PLUGINS
        )
        self.assertFalse([run for run in data["benchmarks"] if run.get("error_occurred")])
        self.assertIsNone(rows[small].error)
        self.assertIn("must be f32", rows[refused].error)
        # With a filter that keeps only refused rows nothing is measured, which is not a failure.
        done = run(f"--benchmark_filter={refused}", HEED_PLUGIN_PATH=PLUGINS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"refused: {refused}: ", done.stderr)
        self.assertNotIn("ERROR", done.stdout + done.stderr)

    def test_an_error_is_an_error(self):
        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))

        words = ["--threads=1", "--benchmark_min_time=0.001", "--benchmark_repetitions=1"]
        done = run(f"--benchmark_filter={SMALL}", *words, preexec_fn=little_memory)
        if done.returncode:
            self.skipTest("the program does not start in 600 MiB of addresses")
        memory = "attn/naive/f32/decode_b1_hq32_hkv8_kv1024_d128/threads:1"  # needs a GiB
        done = run(f"--benchmark_filter={memory}", *words, preexec_fn=little_memory)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ERROR OCCURRED: 'no memory for", done.stdout)

    def test_ceilings_are_finite_or_refused(self):
        _, rows, _ = measure("ceiling/.*/threads:1")
        self.assertGreaterEqual(len(rows), 7)
        for row in rows.values():
            for counter in ("GFLOPS", "GBps"):
                for value in row.samples.get(counter, []):
                    self.assertTrue(math.isfinite(value) and value > 0, row.name)
            self.assertTrue(
                row.error or "GFLOPS" in row.samples or "GBps" in row.samples, row.name
            )

    def test_a_filter_without_rows_fails(self):
        self.assertEqual(run("--benchmark_filter=no_such_row").returncode, 1)

    def test_heed_backend_is_obeyed(self):
        done = run("--quick", "--benchmark_list_tests", HEED_BACKEND="naive")
        self.assertIn(SMALL, done.stdout)
        self.assertNotIn("attn/avx2/", done.stdout)
        for names in ("no_such_one", "naive,no_such_one"):
            none = run("--quick", "--benchmark_list_tests", HEED_BACKEND=names)
            self.assertIn("HEED_BACKEND names 'no_such_one', which is no backend", none.stderr)
            self.assertEqual((none.returncode, none.stdout), (1, ""))

    def test_wrong_options_fail(self):
        for word in (
            "--threads=0",
            "--threads=1,",
            "--threads=9999",
            "--limit=x",
            "--no-such-option",
        ):
            self.assertEqual(run(word).returncode, 2, word)

    def test_a_full_disk_is_no_success(self):
        quickly = [f"--benchmark_filter={SMALL}", "--benchmark_min_time=0.001", "--benchmark_repetitions=1"]
        done = run(*quickly, "--benchmark_out=/dev/full")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("heed-bench: the file of --benchmark_out cannot be written\n", done.stderr)
        for words in ["--shapes"], ["--linear-shapes"], quickly:
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([BENCH, *words], stdout=full, stderr=subprocess.PIPE, timeout=100)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b"heed-bench: stdout cannot be written\n", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.csv")
            done = run(*quickly, f"--benchmark_out={path}", "--benchmark_out_format=csv")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                self.assertIn(f'"{SMALL}', file.read())

    def test_what_takes_too_long_is_named(self):
        done = run(
            "--benchmark_filter=attn/naive/f32/(small_b4_h4_s10_d8/|prefill_b1_h1_s65536)",
            "--benchmark_list_tests",
            "--limit=0.5",
            "--threads=1",
        )
        self.assertIn(SMALL, done.stdout)
        self.assertNotIn("s65536", done.stdout)
        self.assertIn(
            "left out: attn/naive/f32/prefill_b1_h1_s65536_d64_full/threads:1", done.stderr
        )

    def test_a_limit_that_is_given_is_that_of_quick_too(self):
        long = "attn/naive/f32/prefill_b1_h8_s2048_d128_full/threads:1"  # a second on any CPU
        words = ["--quick", f"--benchmark_filter={long}", "--benchmark_list_tests"]
        self.assertIn(f"left out: {long}", run(*words).stderr)
        done = run(*words, "--limit=1e9")
        self.assertIn(long, done.stdout, done.stderr)

    def test_rows_that_the_readme_names_exist(self):
        done = run("--benchmark_list_tests", "--limit=1e9", "--threads=1", HEED_BACKEND="naive")
        names = {results.short_name(line) for line in done.stdout.splitlines()}
        readme = os.path.join(os.path.dirname(os.path.abspath(__file__)), "README.md")
        with open(readme, encoding="utf-8") as file:
            told = re.findall(r"`((?:attn|linear)/(?:<isa>|amx)/[^`]*)`", file.read())
        self.assertGreaterEqual(len(told), 14)
        for pattern in told:
            # naive supports every type without the split accuracy, and has the rows of all other
            # backends.
            pattern = re.sub(r"/(<isa>|amx)/", "/naive/", pattern).replace("f32split", "f32")
            pattern = pattern.replace("threads:(1\\|2)", "threads:1")
            parts = [part.split("\\|") for part in re.split("[()]", pattern)]
            for name in map("".join, itertools.product(*parts)):
                self.assertIn(name, names)

    def test_shapes_are_told(self):
        shapes = {shape["name"]: shape for shape in json.loads(run("--shapes").stdout)}
        self.assertEqual(
            shapes["prefill_b1_h8_s512_d64_causal"]["flops"], 4 * 64 * 8 * 512 * 513 / 2
        )
        self.assertEqual(
            shapes["window512_b1_h8_s4096_d64"]["flops"],
            4 * 64 * 8 * (512 * 513 / 2 + 512 * (4096 - 512)),
        )
        self.assertEqual(
            shapes["spec_q4_b1_hq32_hkv8_kv8192_d128"]["flops"],
            4 * 128 * 32 * (8189 + 8190 + 8191 + 8192),
        )
        self.assertEqual(
            shapes["prefill_b1_h8_s2048_d64_randommask"]["flops"], 4 * 64 * 8 * 2048 * 1536
        )
        self.assertEqual(
            {name: s["score"] for name, s in shapes.items() if s["score"] != "plain"},
            {
                "prefill_b1_h8_s2048_d64_bias": "bias",
                "prefill_b1_h8_s2048_d64_softcap": "softcap",
                "decode_b1_hq32_hkv8_kv8192_d128_softcap": "softcap",
            },
        )
        self.assertEqual(shapes["mla_d576_dv512_kv8192"]["kv_elements"], 8192 * 576)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    PLUGINS = sys.argv.pop(1) if len(sys.argv) > 1 else None
    unittest.main()
