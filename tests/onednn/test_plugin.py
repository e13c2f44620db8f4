"""The oneDNN plugin as a user meets it: the text of heed info about it, the variables that limit
it, and what still works without the plugin or without oneDNN itself.

Usage: test_plugin.py HEED MODULE ONEDNN_VERSION INSTALLED_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HEED, MODULE, VERSION = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
INSTALLED = pathlib.Path(sys.argv[4]) / MODULE.name


def info(folder, **variables):
    """heed info with the plugins of a folder: its lines that mention oneDNN, and all its text."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HEED_", "ONEDNN_", "DNNL_"))}
    env.update(variables, HEED_PLUGIN_PATH=str(folder))
    done = subprocess.run([HEED, "info"], env=env, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "onednn" in line.lower()], done.stdout


def backend_line(lines):
    return next(line for line in lines if line.startswith("backend onednn"))


class Plugin(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        shutil.copy(MODULE, self.folder)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def test_version_and_isa_are_shown(self):
        lines, _ = info(self.folder)
        self.assertIn(f"oneDNN {VERSION}.", backend_line(lines))
        self.assertRegex(backend_line(lines), r"which uses \S+")
        self.assertTrue(any(line.split() == ["onednn", "passed"] for line in lines), lines)

    def test_heed_max_isa_lowers_onednn(self):
        for isa, least in ("baseline", "SSE41"), ("avx2", "AVX2"):
            lines, _ = info(self.folder, HEED_MAX_ISA=isa)
            self.assertRegex(backend_line(lines), rf"which uses {least}(_VNNI(_2)?)?$")

    def test_onednn_max_cpu_isa_is_heeded(self):
        for name in "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA":
            lines, _ = info(self.folder, **{name: "SSE41"})
            self.assertRegex(backend_line(lines), r"which uses SSE41$")

    def test_the_lower_of_both_limits_holds(self):
        lines, _ = info(self.folder, ONEDNN_MAX_CPU_ISA="AVX2", HEED_MAX_ISA="baseline")
        self.assertRegex(backend_line(lines), r"which uses SSE41$")

    def test_onednn_verbose_works(self):
        _, text = info(self.folder, ONEDNN_VERBOSE="1")
        self.assertIn("matmul", text)

    @unittest.skipIf(INSTALLED.exists(), "a module is installed, and found")
    def test_without_the_module(self):
        (self.folder / MODULE.name).unlink()
        lines, text = info(self.folder)
        self.assertEqual(lines, [])
        self.assertIn("chosen for", text)
        self.assertNotIn("nothing:", text)

    def test_without_onednn(self):
        """The plugin needs a missing library: the loader's words are shown, and all else works."""
        module = self.folder / MODULE.name
        data = module.read_bytes()
        name = b"libdnnl.so"
        self.assertIn(name, data)
        module.write_bytes(data.replace(name, b"libgone.so"))
        lines, text = info(self.folder)
        self.assertTrue(any("cannot be loaded" in line and "libgone.so" in line for line in lines), text)
        self.assertNotIn("nothing:", text)


unittest.main(argv=sys.argv[:1])
