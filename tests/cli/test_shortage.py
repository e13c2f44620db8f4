"""When memory runs out, at any moment, the command ends with a status and a sentence that says so, or
with all that it always writes.

Usage: test_shortage.py SHORTAGE_LIBRARY INSTALLED_PLUGINS HEED..."""

import pathlib
import sys

import harness
import npy
from harness import check, finish, folder, run


def starve(*arguments, files=(), most=None):
    """Runs the command with each of its allocations failing in turn, until there are no more, or as
    far as the one with the number `most`: a child process goes on counting where its parent was."""
    what = " ".join(str(a) for a in arguments)
    # An empty folder takes the place of the plugins of the build tree: oneDNN does not survive it.
    environment = {"HEED_NUM_THREADS": "1", "HEED_PLUGIN_PATH": str(folder)}
    status, _, stderr = run(*arguments, environment=environment)
    check(status == 0, f"{what}: status {status}: {stderr}")
    written = [path.read_bytes() for path in files]
    environment["LD_PRELOAD"] = sys.argv[1]
    for n in range(1, (most or 500) + 1):
        for path in files:
            path.unlink(missing_ok=True)
        environment["SHORTAGE_AT"] = str(n)
        status, _, stderr = run(*arguments, environment=environment)
        stderr, enough, _ = stderr.partition("enough memory\n")
        if enough and not most:
            check(n > 10, f"{what}: enough memory for {n} allocations")
            return
        lines = stderr.splitlines()  # of a child process and of its parent
        told = lines and all(s.startswith("heed: ") and not s.endswith(": ") for s in lines)
        if not check(
            (status == 0 and [path.read_bytes() for path in files] == written)
            or (status in (1, 2, 3) and told),
            f"{what}: allocation {n} fails: status {status}, stderr {stderr!r}",
        ):
            return
    check(most, f"{what}: never enough memory")


def main():
    if any(pathlib.Path(sys.argv[2]).glob("*.so")):
        print(f"skipped: there are plugins in {sys.argv[2]}, which need not survive it")
        sys.exit(77)
    harness.heed = sys.argv[3:]
    tensor, out, lse = (folder / f"{name}.npy" for name in ("tensor", "out", "lse"))
    npy.save(tensor, npy.Array((1, 2, 3, 4), [0.5] * 24), "f4")
    tensors = ["--query", tensor, "--key", tensor, "--value", tensor]
    outputs = ["--out", out, "--lse", lse]
    starve("run", *tensors, *outputs, "--kv-type", "i8", "--explain", files=[out, lse])
    starve("explain", "--json")
    starve("info", most=40)
    finish()


main()
