"""When a rank is lost, the calls of the others end within their deadline, with a status and an
error message. See killed.c.

Usage: killed.py LAUNCHER MPIRUN PROGRAM
"""
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS, DEADLINE, PATIENCE = 4, 1.0, 1.0  # seconds; PATIENCE allows for a busy machine
SENTENCES = ("sent nothing within 1 s", "took no message within 1 s", "failed: ")


def judge(folder):
    bad = []
    names = {path.name for path in folder.iterdir()}
    if names != {str(rank) for rank in range(RANKS - 1)}:
        bad.append(f"reports of ranks {sorted(names)}")
    for name in sorted(names):
        status, seconds, sentence = (folder / name).read_text().split("\n")[:3]
        print(f"    rank {name}: {status} after {seconds} s: {sentence}")
        if status != "HEED_ERR_TRANSPORT":
            bad.append(f"rank {name} has {status}")
        if float(seconds) > DEADLINE + PATIENCE:
            bad.append(f"rank {name} took {seconds} s")
        if not any(words in sentence for words in SENTENCES):
            bad.append(f"rank {name} says '{sentence}'")
    return bad


def main():
    launcher, mpirun, program = sys.argv[1:]
    recovers = mpirun.endswith("openmpi")
    bad = []
    if not recovers:
        print("kill: SKIPPED, this mpirun ends all ranks when one is killed, or itself")
    for way in ("kill", "hang") if recovers else ("hang",):
        for scheme in ("split", "ring"):
            with tempfile.TemporaryDirectory() as folder:
                environment = dict(os.environ, LAUNCH_OPTIONS="--enable-recovery" if recovers else
                                   "-disable-auto-cleanup")
                subprocess.run([launcher, mpirun, str(RANKS), program, folder, way, scheme], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                print(f"{way} {scheme}")
                bad += [f"{way} {scheme}: {what}" for what in judge(pathlib.Path(folder))]
    for line in bad:
        print(line)
    sys.exit(bool(bad))


main()
