"""Makes Markdown tables and a plot of ratios from measurements."""

import json
import os
import statistics
import sys

PEERS = {"torch": "PyTorch", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}
DTYPES = ("f32", "bf16", "f16")
COARSER = 8  # times Heed's error: the peer most likely computes in a coarser type than asked for


def speed(row, seconds):
    """The speed, in the unit that is usual for such a problem."""
    shape = row["shape"]
    if shape["bound"] == "latency":
        return f"{seconds * 1e6:.3g} us"
    if shape["bound"] == "memory":
        bytes_per = 4 if row["dtype"] == "f32" else 2
        return f"{shape['kv_elements'] * bytes_per / seconds * 1e-9:.3g} GB/s"
    return f"{shape['flops'] / seconds * 1e-9:.4g} GFLOP/s"


def best(row, who):
    """The fastest way of this library for the row; None if it has none."""
    ways = [r for r in row["results"] if r["who"] == who and r.get("seconds")]
    return min(ways, key=lambda r: statistics.median(r["seconds"]), default=None)


def reasons(row, who):
    return "; ".join(
        f"{r['variant']}: {r['cannot']}"
        for r in row["results"]
        if r["who"] == who and "cannot" in r
    )


def table(rows, peers, notes):
    """The lines of a table. A cell without a figure has the number of its reason, which is added to
    notes."""
    lines = [
        "| shape | type | Heed | kernel | error | "
        + " | ".join(f"{PEERS[p]} | Heed / it | its error" for p in peers)
        + " |",
        "|" + "---|" * (5 + 3 * len(peers)),
    ]
    for row in rows:
        heed = best(row, "heed")
        cells = [row["shape"]["name"], row["dtype"]]
        if heed:
            seconds = statistics.median(heed["seconds"])
            cells += [speed(row, seconds), heed["variant"], f"{heed['error']:.1e}"]
        else:
            cells += [mark(notes, reasons(row, "heed")), "-", "-"]
        for peer in peers:
            way = best(row, peer)
            if way is None:
                cells += ["cannot " + mark(notes, reasons(row, peer) or "not measured"), "-", "-"]
                continue
            its = statistics.median(way["seconds"])
            cells += [
                speed(row, its) + how(notes, peer, way["variant"]),
                f"{its / seconds:.2f}" if heed else "-",
                its_error(way["error"], heed),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def its_error(error, heed):
    coarser = heed and heed["error"] and error > COARSER * heed["error"]
    return f"**{error:.1e}**" if coarser else f"{error:.1e}"


def how(notes, peer, variant):
    return "" if variant == "sdpa" else mark(notes, f"{PEERS[peer]} by {variant}")


def mark(notes, text):
    if text not in notes:
        notes.append(text)
    return f" [{notes.index(text) + 1}]"


def plot(rows, peers, path, source=None):
    """Draws how many times as fast Heed is. Raises ValueError where nothing can be compared."""
    cases = {}
    for row in rows:
        heed = best(row, "heed")
        for peer in peers:
            way = best(row, peer)
            if heed and way:
                ratio = statistics.median(way["seconds"]) / statistics.median(heed["seconds"])
                cases.setdefault((row["dtype"], row["threads"]), {}).setdefault(
                    row["shape"]["name"], {}
                )[peer] = ratio
    if not cases:
        raise ValueError("no row has figures of both Heed and a peer")
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "heed"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    threads = sorted({n for _, n in cases})
    dtypes = [d for d in DTYPES if any(d == of for of, _ in cases)]
    names = list(dict.fromkeys(row["shape"]["name"] for row in rows))
    figure, panels = pyplot.subplots(
        len(threads),
        len(dtypes),
        figsize=(5 * len(dtypes), (1 + 0.22 * len(names)) * len(threads)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for axes, (n_threads, dtype) in zip(
        panels.flat, ((n, dtype) for n in threads for dtype in dtypes)
    ):
        case = cases.get((dtype, n_threads), {})
        for n, (peer, colour) in enumerate(zip(peers, ("#b2182b", "#2166ac", "#e08214"))):
            axes.scatter(
                [case[s][peer] for s in names if peer in case.get(s, {})],
                [i + 0.2 * (n - 1) for i, s in enumerate(names) if peer in case.get(s, {})],
                color=colour,
                s=14,
                label=PEERS[peer],
            )
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        ticks = [0.2, 0.5, 1, 2, 5, 10, 20, 50]
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.minorticks_off()
        axes.set_title(f"{dtype}, {n_threads} thread{'s' if n_threads > 1 else ''}")
        axes.grid(alpha=0.3)
    for axes in panels[-1]:
        axes.set_xlabel("times as fast as ...")
    panels[0][0].set_yticks(range(len(names)), names, fontsize=7)
    panels[0][0].invert_yaxis()
    panels[0][0].legend(fontsize=8)
    figure.tight_layout()
    metadata = {"Date": None, "Source": source} if path.endswith(".svg") else None
    figure.savefig(path, metadata=metadata)


def disturbances(rows):
    results = [r for row in rows for r in row["results"] if r.get("seconds")]
    turns = sum(r.get("turns", len(r["seconds"])) for r in results)
    disturbed = sum(r.get("disturbed", 0) for r in results)
    if not disturbed:
        return ""
    return (
        f"Of {turns} turns {disturbed} waited for a CPU for more than 5 % of their time, repeatedly "
        "where they were short: other processes ran. "
    )


def rows_and_peers(runs):
    """The rows of some runs, in order, where those of a later run replace an earlier one's; and the
    peers in them."""
    rows = {(r["shape"]["name"], r["dtype"], r["threads"]): r for run in runs for r in run["rows"]}
    names = list(dict.fromkeys(name for name, _, _ in rows))
    rows = sorted(
        rows.values(), key=lambda r: (names.index(r["shape"]["name"]), DTYPES.index(r["dtype"]))
    )
    return rows, [p for p in PEERS if any(p in run["context"]["versions"] for run in runs)]


def page(runs, picture):
    """The lines about the measurements; the page has a heading above them."""
    rows, peers = rows_and_peers(runs)
    context = runs[0]["context"]
    versions = {}
    for run in runs:
        for name, version in run["context"]["versions"].items():
            versions.setdefault(name, []).append(version)
    dates = sorted({run["context"]["date"] for run in runs})
    loads = [run["context"]["load"][0] for run in runs]
    rounds = [run["context"].get("rounds", 5) for run in runs]
    lines = (
        [f"![how many times as fast Heed is]({os.path.basename(picture)})", ""] if picture else []
    )
    lines += [
        f"Measured {' to '.join(sorted({dates[0], dates[-1]}))} on {context['machine']}, "
        f"{max(run['context']['cpus'] for run in runs)} CPUs; "
        + ", ".join(
            f"{PEERS.get(name, 'Heed')} {' and '.join(dict.fromkeys(those))}"
            for name, those in versions.items()
        )
        + f". Load average {min(loads):.1f} to {max(loads):.1f}.",
        "",
        'Medians of turns taken one after another in one process. "Heed / it" is how many times as '
        "fast Heed is. An error is the relative L2 distance from a float64 oracle; a bold one is "
        f"more than {COARSER} times Heed's, as where a library computes f16 in bf16. Each peer has its "
        "inputs in the layout that it wants, and is quoted by the fastest of its ways that can "
        "express the problem. A way has "
        + " to ".join(str(n) for n in dict.fromkeys((min(rounds), max(rounds))))
        + " turns of 50 ms; if its calls are longer, as many as fit in 3 s, at least one, and the "
        "first call alone if that took 10 s. "
        + disturbances(rows)
        + "Keys in pages and packed sequences of different lengths (`paged16`, `ragged` of heed-bench) "
        "are not asked of the others. `bench/peers` made this page.",
        "",
    ]
    missing = {
        name: why
        for run in runs
        for name, why in run["context"].get("missing", {}).items()
        if name not in versions
    }
    lines += [f"Not measured: {PEERS.get(name, name)} ({why})." for name, why in missing.items()]
    notes = []
    for threads in sorted({r["threads"] for r in rows}):
        lines += ["", f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += table([r for r in rows if r["threads"] == threads], peers, notes)
    lines += [""] + [f"[{i}] {note}  " for i, note in enumerate(notes, 1)]
    return lines


def load(path):
    """What bench/peers wrote. Raises ValueError for any other file."""
    try:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        page([run], "")
        return run
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{path}: no output of bench/peers ({error!r})") from error


def write(files, markdown, picture):
    """Writes the page and the picture. Returns the exit status."""
    try:
        runs = [load(path) for path in files]
    except ValueError as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    lines = ["# Heed beside PyTorch, ONNX Runtime and OpenVINO", ""] + page(runs, picture)
    try:
        with open(markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        print(f"peers: {markdown}: {error}", file=sys.stderr)
        return 2
    print(f"peers: tables in {markdown}")
    if picture:
        try:
            plot(*rows_and_peers(runs), picture)
        except (ImportError, ValueError, OSError) as error:  # no matplotlib; nothing to draw; no such format or file
            print(f"peers: no plot: {error}", file=sys.stderr)
            return 2
        print(f"peers: plot in {picture}")
    return 0
