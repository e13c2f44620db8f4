"""The heed command of a build tree finds the plugins of the tree; a copy of it elsewhere does not.

Usage: test_tree.py BUILD_ROOT INSTALLED_PLUGINS BACKEND HEED...

Where the backend is installed too, the library knows it anyway. Then there is only one of it, and which
folders are searched is not tested.
"""

import json
import os
import pathlib
import shutil
import sys

import harness
from harness import check, finish, run

MARKER = "heed_build_tree.txt"


def knows(backend, environment=None):
    """Whether heed info lists the backend, and chooses it when it is named."""
    environment = dict(environment or {}, HEED_BACKEND=backend)
    status, stdout, stderr = run("info", "--json", environment=environment)
    check(status == 0 and stderr == "", f"heed info: status {status}, {stderr!r}")
    told = json.loads(stdout)
    names = [b["name"] for b in told["library"]["backends"]]
    check(not [name for name in names if ".so" in name], f"a plugin is listed as a failure: {names}")
    listed = backend in names
    unknown = told["chosen"] is None and "is unknown" in told["why_none"]
    check(listed != unknown, f"{backend} is listed and unknown, or neither: {stdout}")
    return listed


def main():
    root, installed, backend = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    harness.heed = sys.argv[4:]
    program = pathlib.Path(harness.heed[-1])
    library = {"LD_LIBRARY_PATH": str(root / "core")}
    check((root / MARKER).is_file(), f"{MARKER} is not in {root}")
    check(knows(backend), f"the tree's own {backend} is not found")
    if (installed / f"heed_{backend}.so").exists():
        print(f"{backend} is installed in {installed}: not tested without it")
        return finish()
    check(not knows(backend, {"HEED_PLUGIN_PATH": ""}), "an empty HEED_PLUGIN_PATH has plugins")
    check(
        not knows(backend, {"HEED_PLUGIN_PATH": str(harness.folder)}),
        "HEED_PLUGIN_PATH is not all that is searched",
    )
    code = program.read_bytes()
    if b".debug_info" not in code and b".gcda" not in code:  # those contain paths anyway
        check(str(root).encode() not in code, "the program holds the tree's path")

    # First as if it were installed, then next to a file that somebody else could have put there.
    other = harness.folder / "other"
    (other / "bin").mkdir(parents=True)
    shutil.copy(program, other / "bin" / "heed")
    harness.heed = sys.argv[4:-1] + [str(other / "bin" / "heed")]
    check(not knows(backend, library), "a program outside the tree finds the tree's plugins")
    shutil.copy(root / MARKER, other)
    check(knows(backend, library), "the file beside the program's folder is not read")
    if os.geteuid() == 0:
        os.chown(other / MARKER, 65534, 65534)
        check(not knows(backend, library), "a file of somebody else's is believed")
    (other / MARKER).unlink()
    (other / MARKER).symlink_to(root / MARKER)
    check(not knows(backend, library), "a link in place of the file is followed")
    return finish()


sys.exit(main())
