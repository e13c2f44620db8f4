#!/usr/bin/env python3
"""Plots a run of heed-bench: plot.py heed.json heed.svg   (or .png; needs matplotlib)

Three panels of one number of threads: % of the arithmetic ceiling per shape and backend, speed of
prefill over the sequence length, and bytes of the cache per second of decode over the context
length.
"""

import argparse
import re
import sys

import results

MARKS = {
    "naive": "#888888",
    "avx2": "#1b7837",
    "avx512": "#2166ac",
    "amx": "#b2182b",
    "onednn": "#e08214",
}
STYLES = {"f32": "-", "f16": ":", "bf16": "--", "f32split": "-.", "f16split": "-."}


def colour(backend):
    return MARKS.get(backend, "#762a83")


def plot_peak(axes, rows):
    """Bars in groups, one for each shape by which all backends are compared."""
    rows = [
        r
        for r in rows
        if "pct_peak" in r.counters()
        and "pct_read" not in r.counters()  # those are bound by memory
        and not r.shape.startswith(("small", "topk"))
    ]
    shapes = list(dict.fromkeys(r.shape for r in rows))
    series = list(dict.fromkeys((r.backend, r.dtype) for r in rows))
    width = 0.8 / max(len(series), 1)
    for n, (backend, dtype) in enumerate(series):
        of = {
            r.shape: r.median("pct_peak") for r in rows if (r.backend, r.dtype) == (backend, dtype)
        }
        axes.barh(
            [y + (n - (len(series) - 1) / 2) * width for y, s in enumerate(shapes) if s in of],
            [of[s] for s in shapes if s in of],
            width,
            color=colour(backend),
            alpha={"f32": 1, "f16": 0.6, "bf16": 0.4}.get(dtype, 0.2),
            label=f"{backend} {dtype}",
        )
    axes.set_yticks(range(len(shapes)), [s.removeprefix("prefill_") for s in shapes], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of the ceiling of its instructions")
    axes.set_title("Prefill")


def plot_lines(axes, rows, pattern, counter, xlabel, ylabel, title):
    """A line for each backend and type, over the matching shapes; group 1 of the pattern is x."""
    lines = {}
    for row in rows:
        found = re.fullmatch(pattern, row.shape)
        if found and counter in row.counters():
            lines.setdefault((row.backend, row.dtype), []).append(
                (int(found[1]), row.median(counter))
            )
    for (backend, dtype), points in lines.items():
        axes.plot(
            *zip(*sorted(points)),
            STYLES[dtype],
            marker="o",
            markersize=3,
            color=colour(backend),
            label=f"{backend} {dtype}",
        )
    ticks = sorted({x for points in lines.values() for x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [str(x) for x in ticks])
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(alpha=0.3)


def metadata(path, source):
    """The metadata of the file: without a date, so that the same figures give the same file."""
    return {"Date": None, "Source": source} if path.endswith(".svg") else None


def read_options(words):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--source", help="what the figure is drawn from, for its metadata")
    return parser.parse_args(words)


def draw(pyplot, context, rows, threads):
    """Draws the three panels: peak, prefill and decode."""
    figure, (peak, speed, decode) = pyplot.subplots(
        1, 3, figsize=(15, 6), width_ratios=[1.3, 1, 1]
    )
    plot_peak(peak, rows)
    plot_lines(
        speed,
        rows,
        r"prefill_b1_h8_s(\d+)_d64_full",
        "GFLOPS",
        "queries and keys",
        "GFLOP/s",
        "Prefill, head dim 64, 8 heads",
    )
    plot_lines(
        decode,
        rows,
        r"decode_b1_hq32_hkv8_kv(\d+)_d128",
        "GBps",
        "keys",
        "GB/s of K and V",
        "Decode, 32 heads on 8, head dim 128",
    )
    found = [
        label for axes in (peak, speed, decode) for label in zip(*axes.get_legend_handles_labels())
    ]
    handles = {label: handle for handle, label in reversed(found)}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=8, fontsize=8)
    figure.suptitle(
        f"{context.get('machine', '')}, {threads} thread"
        f"{'s' if threads > 1 else ''}, heed {context.get('commit', '')}",
        fontsize=10,
    )
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    return figure


def drawn(rows, threads):
    """The rows of a figure: attention over numbers. Those over caches of codes are too few for a
    line, and are in tables."""
    return [
        r
        for r in rows
        if r.name.startswith("attn/")
        and r.counters()
        and r.threads == threads
        and r.dtype in STYLES
    ]


def main(words):
    options = read_options(words)
    try:
        context, rows = results.load(options.input)
    except ValueError as error:
        print(f"plot.py: {error}", file=sys.stderr)
        return 2
    rows = drawn(rows.values(), options.threads)
    if not rows:
        print(
            f"plot.py: {options.input} has no row with {options.threads} threads", file=sys.stderr
        )
        return 2
    try:
        import matplotlib
    except ImportError:
        print(
            "plot.py: needs matplotlib (python3 -m venv .venv; .venv/bin/pip install matplotlib)",
            file=sys.stderr,
        )
        return 2
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "heed"  # makes the bytes reproducible
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure = draw(pyplot, context, rows, options.threads)
    try:
        figure.savefig(options.output, metadata=metadata(options.output, options.source))
    except (OSError, ValueError) as error:  # no such folder, no such format
        print(f"plot.py: {options.output}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
