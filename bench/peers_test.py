"""Tests of the arguments of peers: what is wrong with them is said before anything is installed. They
need nothing but the standard library."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from peer import report  # noqa: E402


class Peers(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = held.name
        bench = os.path.join(self.folder, "build", "bench")
        os.makedirs(bench)
        with open(os.path.join(bench, "heed-bench"), "w", encoding="utf-8"):
            pass

    def run_peers(self, *words):
        """(status, what it said). Where an environment is made, there is one to be seen."""
        env = os.path.join(self.folder, "env")
        options = ["--env", env, "--build", os.path.join(self.folder, "build")]
        done = subprocess.run(
            [sys.executable, os.path.join(HERE, "peers"), *options, *words],
            cwd=self.folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PIP_NO_INDEX": "1"},
        )
        self.assertFalse(os.path.exists(env), f"{words} make an environment: {done.stderr}")
        return done.returncode, done.stdout + done.stderr

    def test_wrong_arguments(self):
        for words, fragment in (
            (["--dtypes", "f33"], "f33"),
            (["--dtypes", "f32,"], "none of f32, bf16, f16"),
            (["--threads", "x"], "'x'"),
            (["--threads", "1,0"], "'0'"),
            (["--rounds", "0"], "'0'"),
            (["--peers", "torch,jax"], "jax"),
            (["--shapes", "("], "regular expression"),
            (["--linear", "--caches"], "--linear"),
            (["--linear", "a.json"], "--linear"),
            (["--report", "r.md", "absent.json"], "absent.json"),
            (["--report", "absent/r.md"], "absent/r.md"),
            (["--out", "absent/o.json"], "absent/o.json"),
            (["--plot", "absent/p.svg"], "absent/p.svg"),
            (["--build", "absent"], "build Heed first"),
            (["--minilm", "--shapes", "s512"], "--shapes does not go with --minilm"),
            (["--minilm", "--backends", "naive"], "--backends does not go with --minilm"),
            (["--minilm", "--dtypes", "f16"], "f32 and bf16"),
            (["--linear", "--plot", "p.svg"], "--plot does not go with --linear"),
            (["--caches", "--dtypes", "f32"], "--dtypes does not go with --caches"),
            (["--caches", "--out", "o.json"], "--out does not go with --caches"),
            (["--ggml", "lib"], "--ggml does not go with attention"),
            (["--threads", "1", "a.json"], "--threads does not go with tables"),
            (["--out", self.folder], f"{self.folder} is a folder"),
            (["--report", self.folder], f"{self.folder} is a folder"),
            (["--plot", self.folder], f"{self.folder} is a folder"),
            (["--out", ""], "--out and --report need the name of a file"),
        ):
            status, text = self.run_peers(*words)
            self.assertEqual(status, 2, (words, text))
            self.assertIn(fragment, text.splitlines()[-1], words)

    def test_reports(self):
        """Tables of earlier runs need no package at all."""
        run = {
            "context": {
                "date": "2026-11-22", "machine": "M", "cpus": 2, "load": [0.5, 0, 0],
                "versions": {"heed": "0.1.0", "torch": "2"},
            },
            "rows": [],
        }
        kept = os.path.join(self.folder, "kept.json")
        page = os.path.join(self.folder, "r.md")
        for content, expected in ((run, 0), ([], 2), ({"rows": 1}, 2), ({**run, "context": "M"}, 2)):
            with open(kept, "w", encoding="utf-8") as file:
                json.dump(content, file)
            status, text = self.run_peers("--report", page, kept)
            self.assertEqual(status, expected, text)
            self.assertNotIn("Traceback", text)
            self.assertIn(page if expected == 0 else f"peers: {kept}: no output of bench/peers", text)
        self.assertTrue(os.path.exists(page))
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(run, file)
        status, text = self.run_peers("--report", "/dev/full", kept)
        self.assertEqual((status, text.count("\n")), (2, 1), text)
        self.assertIn("peers: /dev/full: ", text)

    def test_a_plot_of_nothing(self):
        """Without a peer's figures there is no plot, and none is said to be there."""
        shape = {"name": "bert", "bound": "compute", "flops": 1e9, "kv_elements": 1}
        ours = {"who": "heed", "variant": "prefill", "seconds": [0.01], "error": 1e-7}
        theirs = {"who": "torch", "variant": "sdpa", "cannot": "it has no such type"}
        run = {
            "context": {
                "date": "2026-11-22", "machine": "M", "cpus": 2, "load": [0.5, 0, 0],
                "versions": {"heed": "0.1.0", "torch": "2"},
            },
            "rows": [{"shape": shape, "dtype": "f32", "threads": 1, "results": [ours, theirs]}],
        }
        kept, page, figure = (os.path.join(self.folder, name) for name in ("kept.json", "r.md", "p.svg"))
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(run, file)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = report.write([kept], page, figure)
        self.assertEqual((status, os.path.exists(figure)), (2, False), out.getvalue())
        self.assertIn("no plot: no row has figures of both", out.getvalue())
        self.assertNotIn("plot in", out.getvalue())


if __name__ == "__main__":
    unittest.main()
