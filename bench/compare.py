#!/usr/bin/env python3
"""Compares two runs of heed-bench: compare.py before.json after.json

A row is compared by what disturbs it least: % of the read bandwidth or of the arithmetic ceiling
that was measured right before it, calls per second where it has neither. It has changed when its
median moved by more than the threshold and the middle halves of the repetitions do not overlap.

Exit status: 0; 1 if a row became slower, or is refused that was not; 2 for bad input.
"""

import argparse
import statistics
import sys

import results


def measure(before, after):
    """The counter to compare by, and its values in both rows: larger is better."""
    for counter in ("pct_read", "pct_peak", "GFLOPS", "GBps"):
        if counter in before.samples and counter in after.samples:
            return counter, before.samples[counter], after.samples[counter]
    return (
        "calls/s",
        [1 / s for s in before.samples["seconds"]],
        [1 / s for s in after.samples["seconds"]],
    )


def quartiles(values):
    """The range of the middle half; all of them if there are too few to tell."""
    if len(values) < 3:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def spread(values):
    """Width of the middle half in % of the median."""
    low, high = quartiles(values)
    return 100 * (high - low) / statistics.median(values)


def verdict(before, after, threshold):
    """ "slower", "faster" or "" of two lists of values where larger is better."""
    ratio = statistics.median(after) / statistics.median(before)
    (low_before, high_before), (low_after, high_after) = quartiles(before), quartiles(after)
    if ratio < 1 - threshold and high_after < low_before:
        return "slower"
    if ratio > 1 + threshold and low_after > high_before:
        return "faster"
    return ""


def compare(before, after, threshold):
    """Prints the table of two {name: Row}; the number of rows that became worse."""
    width = max([len(name) for name in before | after] + [3])
    print(
        f"{'row':{width}}  {'by':8} {'before':>10} {'+-%':>5} {'after':>10} {'+-%':>5} {'ratio':>6}"
    )
    worse = 0
    for name in list(before) + [name for name in after if name not in before]:
        a, b = before.get(name), after.get(name)
        if a is None or b is None:
            print(f"{name:{width}}  only {'after' if a is None else 'before'}")
        elif a.error or b.error:
            worse += bool(b.error and not a.error)
            when = "before" if not b.error else "after" if not a.error else "in both"
            print(f"{name:{width}}  refused {when}: {b.error or a.error}")
        else:
            by, x, y = measure(a, b)
            word = verdict(x, y, threshold)
            worse += word == "slower"
            print(
                f"{name:{width}}  {by:8} {statistics.median(x):10.4g} {spread(x):5.1f}"
                f" {statistics.median(y):10.4g} {spread(y):5.1f}"
                f" {statistics.median(y) / statistics.median(x):6.3f}  {word}".rstrip()
            )
    return worse


def main(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument(
        "--threshold", type=float, default=3, help="%% that count as noise in any case (3)"
    )
    options = parser.parse_args(words)
    try:
        (context_a, before), (context_b, after) = results.load(options.before), results.load(
            options.after
        )
    except ValueError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    for key in ("machine", "compiler", "commit"):
        if context_a.get(key) != context_b.get(key):
            print(f"{key}: {context_a.get(key)} | {context_b.get(key)}")
    if not set(before) & set(after):
        print("compare.py: the two files have no row in common", file=sys.stderr)
        return 2
    worse = compare(before, after, options.threshold / 100)
    if worse:
        print(f"{worse} slower")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
