"""heed-group-cost refuses numbers that it cannot use, by a line that names option and value, and counts only rows that
see keys.

Usage: cost.py HEED_GROUP_COST
"""
import subprocess
import sys

WHOLE = ["nodes", "q", "kv", "batch", "q_heads", "kv_heads", "dim", "bytes", "causal", "rows", "want"]
RATES = ["latency", "gap", "net", "memory", "compute"]
WRONG = [name + value for name in WHOLE + RATES for value in ("=nan", "=inf", "=1e300", "=-1", "=", "=2x")]
WRONG += [name + "=1.5" for name in WHOLE]
WRONG += [name + "=0" for name in WHOLE[:8] + RATES[2:]]
WRONG += ["nodes=257", "batch=65", "q=2147483648", "kv=2147483648", "bytes=1", "bytes=3", "bytes=5", "rows=4",
          "want=3", "causal=2", "q_heads=1048577", "node=4", "nodes", "--tables"]
RIGHT = [[], ["nodes=256", "batch=64"], ["bytes=4", "dim=64"], ["kv=2147483647"], ["q=512", "rows=3"], ["want=2"],
         ["latency=0", "gap=0", "net=0.5"], ["causal=0"]]


def run(words):
    return subprocess.run([sys.argv[1], *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# Each number is one that may be, but bytes would overflow: one line, and no count.
LARGE = ["q=2147483647", "kv=2147483647", "q_heads=1048576", "kv_heads=1048576", "dim=1048576", "batch=64"]
TOGETHER = [LARGE + ["rows=%d" % rows] for rows in range(4)]

bad = 0
for word in WRONG:
    done = run([word])
    if done.returncode != 2 or word not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
        print(f"FAILED: {word}: status {done.returncode}: {done.stderr[:200]}{done.stdout}")
        bad += 1
for words in RIGHT:
    done = run(words)
    if done.returncode != 0 or done.stderr or "nan" in done.stdout or "inf" in done.stdout:
        print(f"FAILED: {words}: status {done.returncode}: {done.stderr}{done.stdout}")
        bad += 1
for words in TOGETHER:
    done = run(words)
    if done.returncode != 1 or "62 bits" not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
        print(f"FAILED: {words}: status {done.returncode}: {done.stderr[:200]}{done.stdout}")
        bad += 1
# The last row stands at the last key: rows before the first key see nothing and cost nothing.
times = [run(["kv=4096", "nodes=1", q]).stdout.splitlines()[-1] for q in ("q=4096", "q=8192")]
if times[0] != times[1]:
    print(f"FAILED: rows that see no key: {times[1]}\nwithout them: {times[0]}")
    bad += 1
print(f"{len(WRONG) + len(RIGHT) + len(TOGETHER) + 2} runs, {bad} bad")
sys.exit(bad != 0)
