"""decode_server refuses numbers that it cannot use by one line of rank 0 that names word, value and range, and
prints its usage once.

Usage: server.py LAUNCHER MPIRUN DECODE_SERVER
"""
import subprocess
import sys

launcher, mpirun, program = sys.argv[1:]
# Few, since Open MPI takes seconds to end after a failure; numa.py has more, of the same code.
WRONG = {("slots=2000",): "slots=2000: a whole number from 1 to 64 is required",
         ("count=2", "prompt=3x"): "prompt=3x: a whole number from 1 to 1000000 is required",
         ("--check", "slot=4"): "'slot=4' is no option; see --help"}


def run(*words):
    """The exit status, which the launcher prints, and the lines that are the program's: mpirun adds its own."""
    done = subprocess.run([launcher, mpirun, "2", program, *words], text=True, capture_output=True)
    lines = (done.stdout + done.stderr).split("\n")
    status = next((int(line.split()[-1]) for line in lines if line.startswith(f"{mpirun} -np 2 ")), done.returncode)
    return status, [line for line in lines if line.startswith(("decode_server: ", "usage: "))]


def main():
    bad = 0
    for words, line in WRONG.items():
        done = run(*words)
        if done != (2, ["decode_server: " + line]):
            print(f"FAILED: {words}: {done}, not {line}")
            bad += 1
    status, lines = run("--help")
    if status != 0 or len(lines) != 1 or not lines[0].startswith("usage: mpirun -np N decode_server "):
        print(f"FAILED: --help: {status} {lines}")
        bad += 1
    print(f"{len(WRONG) + 1} runs, {bad} bad")
    sys.exit(bad != 0)


main()
