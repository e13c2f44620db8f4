"""A small program says how it is called, refuses other words, and does not take a full disk for success.

Usage: programs_test.py PROGRAM WORD...      WORDs make a short run of the program
"""

import os
import subprocess
import sys


def run(words, stdout=subprocess.PIPE, **environment):
    env = {**os.environ, **environment}
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=100, env=env)


def main(words):
    name = os.path.basename(words[0])
    bad = []
    asked = run([words[0], "--help"])
    if asked.returncode != 0 or not asked.stdout.startswith(f"usage: {name} ") or asked.stderr:
        bad.append(asked)
    # a number is the whole word, and 2^64 + 32 is not 32
    wrong_ones = {
        "heed-ceiling": [["100000"], ["1", "15"], ["1x"], ["1", "16x"], ["1", str(2**64 + 16)], ["1", "16", "1"]],
        "heed-append": [["32x"], ["32", "32", "0", "1x"], [str(2**64 + 32), "32", "0", "1"], ["32", "32", "", "1"]],
    }
    for wrong in ["x"], *wrong_ones.get(name, []):
        refused = run([words[0], *wrong])
        if refused.returncode != 2 or refused.stdout or name not in refused.stderr:
            bad.append(refused)
    if name == "heed-append":
        for variable, value in ("HEED_BACKEND", "nothing"), ("HEED_BACKEND", "naive,avx"), ("HEED_MAX_ISA", "x"):
            refused = run(words, **{variable: value})
            if refused.returncode != 1 or refused.stdout or variable not in refused.stderr:
                bad.append(refused)
        if run(words, HEED_BACKEND="naive,").returncode != 0:
            bad.append("HEED_BACKEND=naive,")
    if os.path.exists("/dev/full"):
        for arguments in ["--help"], words[1:]:
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = run([words[0], *arguments], full)
            if done.returncode != 1 or "stdout cannot be written" not in done.stderr:
                bad.append(done)
    for done in bad:
        print(f"FAILED: {done}")
    return bad != []


sys.exit(main(sys.argv[1:]))
