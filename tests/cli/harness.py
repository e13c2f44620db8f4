"""Runs the heed command and counts the checks that passed and failed."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import npy

passed = failed = 0
heed = None  # the command, as a list
folder = pathlib.Path(tempfile.mkdtemp(prefix="heed_test_"))
atexit.register(shutil.rmtree, folder, ignore_errors=True)


def check(condition, what):
    global passed, failed
    if condition:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}", flush=True)
    return condition


def run(*arguments, environment=None):
    """(status, stdout, stderr) of the command, which runs without the HEED_* of this process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEED_")}
    env.update(environment or {})
    done = subprocess.run(
        heed + [str(a) for a in arguments],
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env=env,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def one_line(stderr):
    return stderr.startswith("heed: ") and stderr.count("\n") == 1 and stderr.endswith("\n")


def refused(arguments, fragment, status=2, environment=None, what=None):
    """The command has to end with this status, and with one line on stderr that contains
    fragment."""
    got, _, stderr = run(*arguments, environment=environment)
    what = what or " ".join(str(a) for a in arguments)
    return check(
        got == status and one_line(stderr) and fragment in stderr,
        f"{what}: status {got} instead of {status}, or not one line with '{fragment}': {stderr!r}",
    )


def attend(*options, environment=None, keep=("out",), backend="naive"):
    """Runs heed run on naive, with outputs to new files. Returns {name: (Array, code)}, or {} after
    a failure, which it counts. keep names outputs; 'raw', 'softcapped' and 'biased' are scores."""
    paths = {name: folder / f"{name}.npy" for name in keep}
    arguments = ["run", *options]
    if backend:
        arguments += ["--backend", backend]
    for name, path in paths.items():
        path.unlink(missing_ok=True)
        arguments += (
            ["--scores", name, path]
            if name in ("raw", "softcapped", "biased")
            else [f"--{name}", path]
        )
    status, _, stderr = run(*arguments, environment=environment)
    if not check(
        status == 0 and stderr == "", f"{' '.join(map(str, arguments))}: status {status}: {stderr}"
    ):
        return {}
    return {name: npy.load(path) for name, path in paths.items()}


def finish():
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed != 0 or passed == 0)
