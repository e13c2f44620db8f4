"""Measures Heed and its peers, which take turns, for each shape, type and number of threads."""

import datetime
import gc
import glob
import importlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

from . import heed, problem as problems

TURN = 0.05  # seconds that a turn of short calls lasts at least
BUDGET = 3  # seconds for all turns of a way whose calls are longer; it has one turn at least
ENDLESS = 10  # seconds of a call beyond which it is not repeated
WAITED = 0.05  # share of a turn in which its threads may wait for a CPU; else it is repeated,
AGAIN = 3  # this often at most, if it takes less than half a second


def cpu_name():
    """The name of the CPU with family and model, which show the generation if a hypervisor hides
    the name."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            text = file.read()
        name, family, model = (
            re.search(rf"^{key}\s*: (.*)", text, re.M)[1]
            for key in ("model name", "cpu family", "model")
        )
        return f"{name} (family {family}, model {model})"
    except (OSError, TypeError):
        return platform.processor()


def commit(build):
    """The commit of the sources of the build."""
    done = subprocess.run(
        ["git", "-C", build, "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def waited():
    """The seconds in which threads of this process waited for a CPU; 0 if unknown."""
    total = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            with open(path, encoding="ascii") as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError):  # the thread has ended
            pass
    return 1e-9 * total


class Turn:
    """A way to compute the problem, and its times: seconds per call, one figure for each turn."""

    def __init__(self, who, name, variant, sets):
        self.who, self.name, self.variant, self.sets = who, name, variant, sets
        self.seconds, self.error, self.at, self.calls = [], None, 0, 1
        self.disturbed = 0  # how many of the turns waited for a CPU

    def take(self, calls):
        if hasattr(self.variant, "before"):
            self.variant.before()
        call, at, sets = self.variant.call, self.at, self.sets
        start = time.perf_counter()
        for _ in range(calls):
            call(at)
            at = at + 1 if at + 1 < sets else 0
        self.at = at
        return (time.perf_counter() - start) / calls

    def add_turn(self):
        """Adds a figure: that of the first try that other processes did not disturb, or of the one
        that they disturbed least."""
        tries = []
        for _ in range(AGAIN):
            before = waited()
            seconds = self.take(self.calls)
            tries.append(((waited() - before) / (seconds * self.calls), seconds))
            if tries[-1][0] <= WAITED or seconds * self.calls > 0.5:
                break
        share, seconds = min(tries)
        self.seconds.append(seconds)
        self.disturbed += share > WAITED

    def prepare(self, problem, oracle, rounds):
        """Makes the first call, which may compile, checks its result, and chooses the number of
        calls in a turn."""
        first = self.take(1)
        self.error = problem.error(self.variant.output(), oracle)
        if first >= ENDLESS:
            self.turns, self.seconds = 0, [first]
            return
        if first < 10 * TURN:  # a longer first call is a good enough estimate
            first = self.take(1)
        self.calls = max(1, round(TURN / max(first, 1e-7)))
        self.turns = rounds if first < TURN else max(1, min(rounds, int(BUDGET / first)))


def measure_problem(problem, threads, libraries, rounds):
    """[{who, variant, seconds, error} or {who, variant, cannot}]."""
    turns, results = [], []
    for who, library in libraries:
        try:
            variants = library.variants(problem, threads)
        except Exception as error:  # whatever it raises is the reason why it cannot
            variants = [(who, f"{type(error).__name__}: {error}")]
        for name, variant in variants:
            if isinstance(variant, str):
                results.append(
                    {"who": who, "variant": name, "cannot": variant.strip().splitlines()[0][:200]}
                )
            else:
                turns.append(Turn(who, name, variant, len(problem.k)))
    oracle = problem.oracle(0)
    for turn in list(turns):
        try:
            turn.prepare(problem, oracle, rounds)
        except Exception as error:
            turns.remove(turn)
            results.append(
                {
                    "who": turn.who,
                    "variant": turn.name,
                    "cannot": f"{type(error).__name__}: {error}".splitlines()[0][:200],
                }
            )
    gc.collect()
    gc.disable()
    for done in range(rounds):
        for turn in turns:
            if threads > 1:
                time.sleep(0.02)  # workers of the previous way may still be spinning
            if done < turn.turns:
                turn.add_turn()
    gc.enable()
    for turn in turns:
        results.append(
            {
                "who": turn.who,
                "variant": turn.name,
                "seconds": turn.seconds,
                "disturbed": turn.disturbed,
                "error": turn.error,
            }
        )
        if hasattr(turn.variant, "close"):
            turn.variant.close()
    return results


def show(shape, dtype, threads, results):
    parts = []
    for r in results:
        what = (
            f"cannot: {r['cannot']}"
            if "cannot" in r
            else (
                f"{1e3 * statistics.median(r['seconds']):.4g} ms, error {r['error']:.1e}"
                + (f", {r['disturbed']} turn(s) disturbed" if r["disturbed"] else "")
            )
        )
        parts.append(f"{r['who']} ({r['variant']}): {what}")
    print(f"{shape} {dtype} {threads} thread(s)", *parts, sep="\n    ", flush=True)


def measure(options):
    """Measures everything that options ask for and writes options.out; False if nothing matched."""
    library = heed.Library(options.build, options.backends)
    told = subprocess.run(
        [os.path.join(options.build, "bench", "heed-bench"), "--shapes"],
        capture_output=True,
        text=True,
        check=True,
    )
    shapes = [
        s
        for s in json.loads(told.stdout)
        if not s["simple"] and re.search(options.shapes, s["name"])
    ]
    libraries, missing, versions = (
        [("heed", library)],
        {},
        {"heed": f"{library.version()} ({commit(options.build)})"},
    )
    for name in options.peers.split(","):
        try:
            module = importlib.import_module("." + name, __package__)
            libraries.append((name, module))
            versions[name] = module.version()
        except ImportError as error:
            missing[name] = str(error)
            print(f"{name} is left out: {error}", file=sys.stderr)
    if not shapes:
        print(f"peers: no shape matches {options.shapes}", file=sys.stderr)
        return False
    context = {
        "date": datetime.date.today().isoformat(),
        "machine": cpu_name(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "rounds": options.rounds,
        "versions": versions,
        "missing": missing,
    }
    rows = []
    for shape in shapes:
        for dtype in options.dtypes.split(","):
            try:
                problem = problems.Problem(shape, dtype)
            except MemoryError as error:
                print(f"{shape['name']} {dtype}: {error}", file=sys.stderr)
                continue
            for threads in (int(n) for n in options.threads.split(",")):
                results = measure_problem(problem, threads, libraries, options.rounds)
                rows.append(
                    {"shape": shape, "dtype": dtype, "threads": threads, "results": results}
                )
                show(shape["name"], dtype, threads, results)
                save(options.out, {"context": context, "rows": rows})
            del problem
    return bool(rows)


def save(path, data):
    """Writes the file, after each row, so that stopping a long run keeps its measurements."""
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
    os.replace(path + ".part", path)
