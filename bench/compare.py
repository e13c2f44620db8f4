#!/usr/bin/env python3
"""Before and after: compare.py before.json after.json, or compare.py BUILD BUILD

Two files, written by heed-bench or kept in bench/results: a row is compared by the figure that the state
of the machine disturbs least. That is % of the read bandwidth or of the arithmetic ceiling, which were
measured right before it, or calls per second where it has neither. A row has changed if its median moved
by more than the threshold and the middle halves of the repetitions do not overlap.

Two build folders are measured here: the second one's heed-bench runs each row with the two libraries in
turns, --rounds times, so that whatever else the machine does slows both. A turn is the median of some short
repetitions, and each round gives a ratio of speeds. A row has changed if the median of the ratios is off by
more than the threshold and their 95 % interval does not hold 1. What seems slower is measured once more,
with twice as many rounds, which decide. "?" marks a row whose interval is too wide to exclude a change of
the threshold's size. Words behind -- go to heed-bench; none of those that compare.py itself gives it.

    bench/compare.py --under 'chrt -f 50 taskset -c 1' old/build build -- --quick

Exit status: 0; 1 if a row became slower, fails or is refused that was not; 2 for bad input.
"""

import argparse
import glob
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile

import results

PAIRED = "(attn|linear)/(avx2|avx512|amx)/"
ROWS_A_TURN = 8  # per process, which first fills memory for its backend and type for a second
REPETITIONS = 5  # of a row in a turn: when the CPU is taken for a moment, it spoils only one
# heed-bench's options that it is given here, the last of which counts.
OWN_WORDS = (
    "--benchmark_filter", "--benchmark_list_tests", "--benchmark_min_time", "--benchmark_out",
    "--benchmark_repetitions", "--limit",
)
OF_BUILDS = {"rounds": 12, "seconds": 0.02, "under": ""}  # options, and what they are if not given


def better(before, after):
    """The counter by which two rows are compared, and its (low, median, high) in both: more is
    better."""
    for counter in ("pct_read", "pct_peak", "GFLOPS", "GBps"):
        if before.has(counter) and after.has(counter):
            return counter, before.middle(counter), after.middle(counter)
    return ("calls/s", *(tuple(1 / s for s in reversed(r.middle("seconds"))) for r in (before, after)))


def spread(range_):
    """Half of the width of the middle half, in % of the median."""
    low, median, high = range_
    return 100 * (high - low) / 2 / median


def verdict(before, after, threshold):
    """ "slower", "faster" or "" for two (low, median, high), where more is better."""
    ratio = after[1] / before[1]
    if ratio < 1 - threshold and after[2] < before[0]:
        return "slower"
    if ratio > 1 + threshold and after[0] > before[2]:
        return "faster"
    return ""


def without_figures(name, a, b, width, left_out=()):
    """Prints the line of a row that one run or both lack. 1 if that is worse than before, 0 if not,
    None if both have the row. left_out: {name: reason} of rows that take too long to be measured after."""
    if b is None and name in left_out:
        print(f"{name:{width}}  left out after: {left_out[name]}")
        return 1
    if a is None or b is None:
        print(f"{name:{width}}  only {'after' if a is None else 'before'}")
        return 0
    if a.error or b.error:
        when = "before" if not b.error else "after" if not a.error else "in both"
        print(f"{name:{width}}  refused {when}: {b.error or a.error}")
        return int(bool(b.error and not a.error))
    return None


def width_of(names):
    return max([len(name) for name in names] + [3])


def left_out_of(context):
    """{name: reason} of the rows that were left out of a run, and not by --filter."""
    lines = (line.partition(": ") for line in context.get("left_out", "").split("; "))
    return {name: reason for name, _, reason in lines if results.NAME.fullmatch(name)}


def compare(before, after, threshold, left_out=()):
    """Prints the table of two {name: Row}. Returns the number of rows that became worse."""
    width = width_of(before | after)
    print(
        f"{'row':{width}}  {'by':8} {'before':>10} {'+-%':>5} {'after':>10} {'+-%':>5} {'ratio':>6}"
    )
    worse = 0
    for name in list(before) + [name for name in after if name not in before]:
        a, b = before.get(name), after.get(name)
        lacks = without_figures(name, a, b, width, left_out)
        if lacks is not None:
            worse += lacks
            continue
        by, x, y = better(a, b)
        word = verdict(x, y, threshold)
        worse += word == "slower"
        print(
            f"{name:{width}}  {by:8} {x[1]:10.4g} {spread(x):5.1f}"
            f" {y[1]:10.4g} {spread(y):5.1f} {y[1] / x[1]:6.3f}  {word}".rstrip()
        )
    return worse


def interval(values):
    """The 95 % interval of the median of the distribution from which values come, by their order
    alone; 0 to infinity for fewer than 6, which are too few."""
    n, tail, outside = len(values), 0, 0
    while True:  # leaving out k values on each side fails if at most k of n fall there
        tail += math.comb(n, outside) / 2**n
        if tail > 0.025 or 2 * outside >= n:
            break
        outside += 1
    if outside == 0:
        return 0, math.inf
    return sorted(values)[outside - 1], sorted(values)[n - outside]


def paired_verdict(ratios, threshold):
    """ "slower", "faster", "?" or "" for ratios of speeds, after over before."""
    median, (low, high) = statistics.median(ratios), interval(ratios)
    if median < 1 - threshold and high < 1:
        return "slower"
    if median > 1 + threshold and low > 1:
        return "faster"
    return "?" if low < 1 - threshold else ""


def plugins_of(folder):
    """The folders of a build's plugins, such as oneDNN's, as the programs of its tree find them; "" if it
    has none."""
    try:
        with open(os.path.join(folder, "heed_build_tree.txt"), encoding="utf-8") as file:
            return file.readline().strip()
    except OSError:
        return ""


class Builds:
    """Runs the heed-bench of the second build with either library."""

    def __init__(self, folders, under, words):
        self.bench = os.path.join(folders[1], "bench", "heed-bench")
        self.libraries = [os.path.abspath(os.path.join(f, "core")) for f in folders]
        self.plugins = [plugins_of(folder) for folder in folders]
        self.under, self.words = shlex.split(under), words
        shared = glob.glob("libheed.so.*", root_dir=self.libraries[1])
        needed = [os.path.join(path, name) for path in self.libraries for name in shared if name.count(".") == 2]
        for path in [self.bench] + self.libraries + needed:
            if not os.path.exists(path):
                raise ValueError(f"there is no {path}: build it first")
        if not needed:  # as in a build of the static library alone
            raise ValueError(f"{self.libraries[1]} has no libheed.so: heed-bench would run its own code twice")
        for word in (word.partition("=")[0] for word in words):
            if word in OWN_WORDS:
                raise ValueError(f"{word} behind -- would be ignored: there are --filter, --rounds, --seconds")

    def run(self, which, *words, backend=None):
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries[which]}
        if any(self.plugins):  # else heed-bench would find those of its own tree with either library
            environment.setdefault("HEED_PLUGIN_PATH", self.plugins[which])
        if backend:
            environment["HEED_BACKEND"] = backend  # spares the time to start the other backends
        return subprocess.run(
            [*self.under, self.bench, *self.words, *words],
            env=environment, capture_output=True, text=True, check=False,
        )

    def names(self, pattern):
        done = self.run(1, f"--benchmark_filter={pattern}", "--benchmark_list_tests")
        found = [results.short_name(w) for w in done.stdout.split() if "/threads:" in w]
        if not found:
            raise ValueError(f"heed-bench has no row of {pattern}\n{done.stderr}")
        return found

    def turn(self, which, names, seconds):
        """Measures these rows with one of the libraries: {name: Row}."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = self.run(
                which,
                "--benchmark_filter=^(" + "|".join(map(re.escape, names)) + ")(/|$)",
                f"--benchmark_out={path}", f"--benchmark_repetitions={REPETITIONS}",
                f"--benchmark_min_time={seconds}", "--limit=1e9",
                backend=results.Row(names[0]).backend,
            )
            if not os.path.exists(path):  # all rows are refused, or it crashed
                return {name: failed(name, done) for name in names}
            rows = results.load(path)[1]
        return {name: rows.get(name) or failed(name, done) for name in names}


def failed(name, done):
    row = results.Row(name)
    found = re.search(rf"refused: {re.escape(name)}: (.*)", done.stderr)
    row.error = found[1] if found else f"heed-bench ended with status {done.returncode}"
    return row


def groups(names):
    """Splits names into lists of at most ROWS_A_TURN with the same backend, type and threads."""
    found = []
    for name in names:
        row = results.Row(name)
        kind = (name.split("/")[0], row.backend, row.dtype, row.threads)
        if not found or found[-1][0] != kind or len(found[-1][1]) == ROWS_A_TURN:
            found.append((kind, []))
        found[-1][1].append(name)
    return [those for _, those in found]


def in_turns(builds, names, rounds, seconds):
    """{name: (seconds before, seconds after, ratios of speeds)} with one ratio for each round; for
    a row without figures {name: (Row, Row)}."""
    pairs = {name: ([], []) for name in names}
    for n in range(rounds):
        for which in (0, 1) if n % 2 == 0 else (1, 0):
            for name, row in builds.turn(which, names, seconds).items():
                pairs[name][which].append(row)
    found = {}
    for name, (before, after) in pairs.items():
        wrong = [next((r for r in rows if r.error), rows[0]) for rows in (before, after)]
        if wrong[0].error or wrong[1].error:
            found[name] = tuple(wrong)
            continue
        x, y = ([row.median("seconds") for row in rows] for rows in (before, after))
        ratios = [a / b for a, b in zip(x, y)]
        found[name] = (statistics.median(x), statistics.median(y), ratios)
    return found


def compare_builds(builds, names, options):
    """Measures and prints the table. Returns the number of rows that became worse."""
    width, threshold = width_of(names), options.threshold / 100
    print(f"{'row':{width}}  {'us before':>10} {'after':>10} {'speed':>6} {'95 %':>13}")
    counts = {"slower": 0, "faster": 0, "?": 0, "": 0}
    worse = 0

    def show(name, found):
        x, y, ratios = found
        word, (low, high) = paired_verdict(ratios, threshold), interval(ratios)
        print(
            f"{name:{width}}  {1e6 * x:10.4g} {1e6 * y:10.4g} {statistics.median(ratios):6.3f}"
            f" {low:6.3f} {high:6.3f}  {word}".rstrip(), flush=True,
        )
        return word

    for those in groups(names):
        for name, found in in_turns(builds, those, options.rounds, options.seconds).items():
            if len(found) == 2:
                worse += without_figures(name, *found, width)
                continue
            word = show(name, found)
            if word == "slower":
                found = in_turns(builds, [name], 2 * options.rounds, options.seconds)[name]
                word = show("  again", found) if len(found) == 3 else "slower"
            counts[word] += 1
    print(
        f"{sum(counts.values())} rows: {counts['slower']} slower, {counts['faster']} faster, "
        f"{counts['?']} whose noise could hide {options.threshold:g} %"
    )
    return worse + counts["slower"]


def matching(rows, pattern, path):
    """The rows whose names the pattern is found in; None: all."""
    try:
        found = {name: row for name, row in rows.items() if re.search(pattern or "", name)}
    except re.error as error:
        raise ValueError(f"--filter {pattern} is no regular expression: {error}") from error
    if pattern and not found:
        raise ValueError(f"{path} has no row of {pattern}")
    return found


def count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)


def finite(text):
    """A type of argument: a number from 0 on. With a threshold of NaN nothing would ever be slower."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a finite number from 0 on")
    return value


def are_builds(before, after):
    """Whether the two are folders of builds; if not they are files."""
    folders = [path for path in (before, after) if os.path.isdir(path)]
    if len(folders) == 1:
        other = after if folders[0] == before else before
        raise ValueError(f"{other} is no folder, but {folders[0]} is one: two builds or two files are needed")
    return bool(folders)


def main(words):
    words, more = (
        (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, None)
    )
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument(
        "--threshold", type=finite, default=2, help="%% that count as noise in any case (2)"
    )
    parser.add_argument("--report-only", action="store_true", help="exit status 0 or 2")
    parser.add_argument("--filter", help=f"a regular expression of rows (of files all, of builds {PAIRED})")
    parser.add_argument("--rounds", type=count, help="turns of each, of builds (12)")
    parser.add_argument("--seconds", type=finite, help="of a repetition, of builds (0.02)")
    parser.add_argument("--under", help="words before heed-bench, of builds, such as chrt -f 50")
    options = parser.parse_args(words)
    given = ["--" + name for name in OF_BUILDS if getattr(options, name) is not None]
    for name, default in OF_BUILDS.items():
        setattr(options, name, default if "--" + name not in given else getattr(options, name))
    try:
        if are_builds(options.before, options.after):
            builds = Builds(
                [options.before, options.after], options.under, ["--quick"] if more is None else more
            )
            worse = compare_builds(builds, builds.names(options.filter or PAIRED), options)
            return int(worse > 0 and not options.report_only)
        if given or more is not None:
            raise ValueError(f"{(given + ['--'])[0]} is for two build folders: files are not measured again")
        (context_a, before), (context_b, after) = results.load(options.before), results.load(
            options.after
        )
        before = matching(before, options.filter, options.before)
        after = matching(after, options.filter, options.after)
    except (ValueError, OSError) as error:  # OSError: what --under names, or heed-bench, cannot be run
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    for key in ("machine", "compiler", "commit"):
        if context_a.get(key) != context_b.get(key):
            print(f"{key}: {context_a.get(key)} | {context_b.get(key)}")
    if not set(before) & set(after):
        print("compare.py: the two files have no row in common", file=sys.stderr)
        return 2
    worse = compare(before, after, options.threshold / 100, left_out_of(context_b))
    if worse:
        print(f"{worse} slower")
    return int(worse > 0 and not options.report_only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
