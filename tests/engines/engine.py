"""Runs an engine's command, whose checks are counted like those of the heed command."""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
import npy
from harness import check, finish, folder  # noqa: F401 (finish and folder are for the tests)


def run(command, *arguments, environment=None):
    """(status, stdout, stderr) of a command, which runs without the HEED_* of this process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEED_")}
    done = subprocess.run(
        [str(command), *map(str, arguments)],
        capture_output=True,
        env={**env, **(environment or {})},
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="backslashreplace")


def works(command, *arguments, environment=None):
    """The stdout of a command that has to succeed."""
    status, out, err = run(command, *arguments, environment=environment)
    check(status == 0, f"{' '.join(map(str, arguments))}: status {status}: {err}")
    return out


def refused(command, arguments, fragment, what=None):
    """The command has to end with status 2, and with one line on stderr that contains fragment."""
    status, out, err = run(command, *arguments)
    name = pathlib.Path(command).name
    line = err.startswith(f"{name}: ") and err.count("\n") == 1 and err.endswith("\n")
    return check(
        status == 2 and line and fragment in err and out == "",
        f"{what or ' '.join(map(str, arguments))}: status {status}, not one line with "
        f"'{fragment}': {err!r}",
    )


def with_tensor(path, name):
    """The bytes of a safetensors file with one more tensor, of 12 numbers."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    place = [len(rest), len(rest) + 48]
    text = json.dumps({**header, name: {"dtype": "F32", "shape": [12], "data_offsets": place}}).encode()
    return struct.pack("<Q", len(text)) + text + rest + struct.pack("<12f", *range(12))


def rows(path):
    """The rows of a .npy file that holds a matrix of floats."""
    array, code = npy.load(path)
    assert code == "f4" and len(array.shape) == 2, (code, array.shape)
    n = array.shape[1]
    return [array.data[i : i + n] for i in range(0, len(array.data), n)]


def cosine(a, b):
    product = math.fsum(x * y for x, y in zip(a, b))
    return product / math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))


def most_difference(a, b):
    """The largest difference between two rows; a NaN counts as infinite."""
    return max(abs(x - y) if x - y == x - y else math.inf for x, y in zip(a, b))
