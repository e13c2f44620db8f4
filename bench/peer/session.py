"""Measures: for each shape, type and number of threads, Heed and its peers take turns."""

import datetime
import gc
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

TURN = 0.05  # seconds that a turn lasts at least, if a call is shorter
LONG, ENDLESS = 3, 10  # seconds of a call: has one turn after its first call; has only that


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return re.search(r"model name\s*:\s*(.*)", file.read())[1]
    except (OSError, TypeError):
        return platform.processor()


def commit():
    done = subprocess.run(
        ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


class Turn:
    """One way of computing the problem, with its times: seconds per call, one figure a turn."""

    def __init__(self, who, name, variant, sets):
        self.who, self.name, self.variant, self.sets = who, name, variant, sets
        self.seconds, self.error, self.at, self.calls = [], None, 0, 1

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

    def prepare(self, problem, oracle, rounds):
        """The first call, which may compile and whose result is checked, and the number of calls
        of a turn."""
        first = self.take(1)
        self.error = problem.error(self.variant.output(), oracle)
        self.turns = rounds if first < LONG else 1 if first < ENDLESS else 0
        if self.turns == 0:
            self.seconds.append(first)
        if first < LONG:
            self.calls = max(1, round(TURN / max(self.take(1), 1e-7)))


def measure_problem(problem, threads, libraries, rounds):
    """[{who, variant, seconds, error} or {who, variant, cannot}]"""
    turns, results = [], []
    for who, library in libraries:
        try:
            variants = library.variants(problem, threads)
        except Exception as error:  # whatever another library throws is what it cannot do
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
                time.sleep(0.02)  # workers of the one before may still be spinning
            if done < turn.turns:
                turn.seconds.append(turn.take(turn.calls))
    gc.enable()
    for turn in turns:
        results.append(
            {"who": turn.who, "variant": turn.name, "seconds": turn.seconds, "error": turn.error}
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
            else (f"{1e3 * statistics.median(r['seconds']):.4g} ms, error {r['error']:.1e}")
        )
        parts.append(f"{r['who']} ({r['variant']}): {what}")
    print(f"{shape} {dtype} {threads} thread(s)", *parts, sep="\n    ", flush=True)


def measure(options):
    """Measures all that was asked for into options.out; False if nothing matched."""
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
        {"heed": f"{library.version()} ({commit()})"},
    )
    for name in options.peers.split(","):
        try:
            module = importlib.import_module("." + name, __package__)
            libraries.append((name, module))
            versions[name] = module.version()
        except ImportError as error:
            missing[name] = str(error)
            print(f"{name} is left out: {error}", file=sys.stderr)
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
            del problem
    if not rows:
        print(f"peers: no shape matches {options.shapes}", file=sys.stderr)
        return False
    context = {
        "date": datetime.date.today().isoformat(),
        "machine": cpu_name(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "versions": versions,
        "missing": missing,
    }
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"context": context, "rows": rows}, file, indent=1)
    return True
