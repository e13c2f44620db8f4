#!/usr/bin/env python3
"""Fetches the source of llama.cpp and ggml into FOLDER, unless it is there, and prints where it is.

It comes in the source package of llama-cpp-python, by pip: one version, whose hash is checked. Ends with 77
and the reason where it cannot be had.

Usage: fetch.py FOLDER
"""

import pathlib
import shutil
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import pypi  # noqa: E402
import usage  # noqa: E402

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"


def unpack(package, part):
    """llama.cpp alone."""
    with tarfile.open(package) as content:
        for member in content:
            if not member.isfile() or not member.name.startswith(INSIDE):
                continue
            target = pypi.path_inside(part, member.name.removeprefix(INSIDE))
            with content.extractfile(member) as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)
            target.chmod(member.mode & 0o755)


(folder,) = usage.words(__doc__, 1, 1)
sys.exit(
    pypi.fetch(
        pathlib.Path(folder) / "llama.cpp",
        f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}",
        unpack,
        suffix=".tar.gz",
        options=["--require-hashes", "--no-binary", PACKAGE],
    )
)
