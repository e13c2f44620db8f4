"""What programs that fetch something from PyPI share: integrations/ggml/fetch.py, examples/minilm/fetch.py."""

import shutil
import subprocess
import sys


def run(seconds, *command):
    """What went wrong, '' if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"status {done.returncode}"


def download(folder, requirement, options, suffix, seconds):
    """The path of the only file *suffix that pip brings for a line of requirements, or None and a reason."""
    python = sys.executable
    if run(seconds, python, "-m", "pip", "--version"):  # that of a virtual environment then
        python = folder / "env" / "bin" / "python"
        failed = run(seconds, sys.executable, "-m", "venv", folder / "env")
        if failed:
            return None, f"python3 has neither pip nor venv: {failed}"
    wanted = folder / "wanted.txt"
    wanted.write_text(requirement + "\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", *options, "--dest", folder, "-r", wanted]
    failed = run(seconds, python, "-m", "pip", "download", *options)
    found = sorted(folder.glob("*" + suffix))
    return (found[0], "") if found and not failed else (None, f"pip cannot download it: {failed}")


def fetch(target, requirement, unpack, suffix, options=(), seconds=600):
    """Makes the folder `target` by unpack(package, folder), unless it is there, and prints where it is.

    Returns 0, or 77 after saying why the package cannot be had."""
    folder, part = target.parent, target.parent / "part"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        package, reason = download(folder, requirement, options, suffix, seconds)
        if package is None:
            print(f"{requirement.split(' --')[0]}: {reason}", file=sys.stderr)
            return 77
        shutil.rmtree(part, ignore_errors=True)
        unpack(package, part)
        part.rename(target)  # there as a whole, or not at all
        package.unlink()
    print(target)
    return 0


def path_inside(folder, name):
    """Where a package's member goes; a name that would leave the folder is an error."""
    path = folder / name
    if folder.resolve() not in path.resolve().parents:
        raise ValueError(f"{name} leaves the folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
