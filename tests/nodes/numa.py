"""numa refuses numbers that it cannot use, by a line that names option and value, and says what is missing where
memory is.

Usage: numa.py NUMA
"""
import subprocess
import sys

NAMES = ["nodes", "keys", "heads", "kv_heads", "dim", "calls"]
WRONG = [[name + value] for name in NAMES for value in ("=0", "=nan", "=1e300", "=-1", "=", "=5x", "=1.5", "=2147483648")]
WRONG += [["nodes=65"], ["dim=2147483647", "nodes=2", "keys=1000"], ["key=4"], ["nodes"], ["--table"],
          ["kv_heads=65536", "nodes=1", "heads=65536", "keys=65536", "dim=1073741824", "calls=1"]]
# Each number is one that may be, but no machine has the memory for all of them.
LARGE = ["nodes=2", "keys=2147483647", "heads=4096", "kv_heads=4096", "dim=4096", "calls=1"]


def run(words):
    return subprocess.run([sys.argv[1], *words], text=True, capture_output=True)


bad = 0
for words in WRONG:
    done = run(words)
    if done.returncode != 2 or words[0] not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
        print(f"FAILED: {words}: status {done.returncode}: {done.stderr[:200]}{done.stdout}")
        bad += 1
done = run(LARGE)
if done.returncode != 1 or not done.stderr.rstrip("\n").endswith("no memory for keys and values") or done.stdout:
    print(f"FAILED: {LARGE}: status {done.returncode}: {done.stderr[:200]}{done.stdout}")
    bad += 1
print(f"{len(WRONG) + 1} runs, {bad} bad")
sys.exit(bad != 0)
