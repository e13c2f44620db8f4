#!/usr/bin/env python3
"""Fetches the source of llama.cpp and ggml into FOLDER, unless it is there, and prints where it is.

It comes in the source package of llama-cpp-python, by pip: one version, whose hash is checked. Ends with 77
and the reason where it cannot be had.

Usage: fetch.py FOLDER
"""

import pathlib
import shutil
import subprocess
import sys
import tarfile

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = f"llama_cpp_python-{VERSION}/vendor/llama.cpp/"


def run(*command):
    """What went wrong, '' if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"status {done.returncode}"


def download(folder):
    """The package's path, or a reason."""
    python = sys.executable
    if run(python, "-m", "pip", "--version"):
        python = folder / "env" / "bin" / "python"
        failed = run(sys.executable, "-m", "venv", folder / "env")
        if failed:
            return None, f"python3 has neither pip nor venv: {failed}"
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--require-hashes", "--no-binary", PACKAGE]
    failed = run(python, "-m", "pip", "download", *options, "--dest", folder, "-r", wanted)
    found = sorted(folder.glob("*.tar.gz"))
    return (found[0], "") if found and not failed else (None, f"pip cannot download it: {failed}")


def unpack(package, part):
    """llama.cpp alone."""
    with tarfile.open(package) as content:
        for member in content:
            target = part / member.name.removeprefix(INSIDE)
            if not member.isfile() or not member.name.startswith(INSIDE):
                continue
            if part.resolve() not in target.resolve().parents:
                raise ValueError(f"{member.name} leaves the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            with content.extractfile(member) as source, open(target, "wb") as copy:
                shutil.copyfileobj(source, copy)
            target.chmod(member.mode & 0o755)


def main():
    folder = pathlib.Path(sys.argv[1])
    source, part = folder / "llama.cpp", folder / "part"
    if not source.exists():
        folder.mkdir(parents=True, exist_ok=True)
        package, reason = download(folder)
        if package is None:
            print(f"{PACKAGE} {VERSION}: {reason}", file=sys.stderr)
            return 77
        shutil.rmtree(part, ignore_errors=True)
        unpack(package, part)
        part.rename(source)  # there as a whole, or not at all
        package.unlink()
    print(source)
    return 0


sys.exit(main())
