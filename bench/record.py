#!/usr/bin/env python3
"""Keeps what was measured, and makes the pages of it:

bench/record.py amd-zen4            measures here (some minutes) and writes bench/results/amd-zen4.json
bench/record.py amd-zen4 --peers peers.json        the same of what bench/peers measured
bench/record.py                     makes docs/benchmarks*.md and their figures of bench/results
bench/record.py --check             exit status 1 if a page or a figure is not what they give

The first two make pages and figures as well. Figures want matplotlib. A page holds blocks between
<!-- bench/results/FILE --> and <!-- end -->; where there is no such file yet, a block stays as it is.
"""

import argparse
import glob
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

import results

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# For each kind of CPU the figure of heed-bench and that of bench/peers.
KINDS = {
    "amd-zen4": ("speed.svg", "peers.svg"),
    "amd-zen5": ("speed-zen5.svg", "peers-zen5.svg"),
    "intel-avx512": ("speed-intel-avx512.svg", "peers-intel-avx512.svg"),
    "intel-icelake": ("speed-intel-icelake.svg", "peers-intel-icelake.svg"),
    "intel-amx": ("speed-intel.svg", "peers-intel.svg"),
    "intel-amx-16": ("speed-intel-16.svg", "peers-intel-16.svg"),
}
BLOCK = re.compile(r"(<!-- bench/results/(\S+)\.json -->\n)(.*?)(<!-- end -->)", re.S)
# Rows that the pages show although --quick leaves them out: decode in f16, and on all CPUs.
DECODE = r"(decode(tm)?_b1_hq(32|64)_hkv8_kv8192_d128|paged16_kv8192)/"
REPETITIONS = 5


# ---- measuring ----


def measure(build, under):
    """({context}, {name: Row}) of the --quick rows and of decode in f16 and on all CPUs, with a
    process for each backend."""
    bench = [*shlex.split(under), os.path.join(build, "bench", "heed-bench")]

    def run(*words):
        return subprocess.run([*bench, *words], capture_output=True, text=True, check=False)

    listed = run("--quick", "--benchmark_list_tests")
    names = [results.short_name(w) for w in listed.stdout.split() if "/threads:" in w]
    if not names:
        raise ValueError(f"{bench[-1]} lists no rows\n{listed.stderr}")
    backends = list(dict.fromkeys(filter(None, (results.Row(n).backend for n in names))))
    cpus = max(results.Row(results.short_name(n)).threads or 1 for n in run(
        "--benchmark_filter=small_b4_h4_s10_d8/", "--benchmark_list_tests").stdout.split())
    pieces = [["--quick", "--benchmark_filter=^ceiling/"]]
    for backend in backends:
        pieces.append(["--quick", f"--benchmark_filter=^(attn|linear)/{backend}/"])
        if backend != "naive":
            those = f"^attn/{backend}/(f16/{DECODE}threads:1/|[^/]*/{DECODE}threads:{cpus}/)"
            threads = ",".join(str(n) for n in sorted({1, cpus}))
            pieces.append([f"--threads={threads}", f"--benchmark_filter={those}"])
    context, rows, left_out, refused = None, {}, [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "piece.json")
        for words in pieces:
            print("heed-bench", *words, flush=True)
            done = run(*words, f"--benchmark_repetitions={REPETITIONS}", "--benchmark_min_time=0.01",
                       f"--benchmark_out={path}")
            if done.returncode and "the filter matches no row" not in done.stderr:
                raise ValueError(f"heed-bench ended with {done.returncode}\n{done.stderr}")
            if not os.path.exists(path):
                continue  # the backend does not run here, or refuses all of them
            context, more = results.load(path)
            os.remove(path)
            rows.update(more)
            left_out += context["left_out"].split("; ")
            refused += context["refused"].splitlines()
    # The system's version alone: what follows it names a build of it, not the kind of machine.
    context["system"] = re.sub(r"^(\S+ [\d.]+)\S*", r"\1", context.get("system", ""))
    context["left_out"] = "; ".join(dict.fromkeys(filter(None, left_out)))
    context["refused"] = "\n".join(dict.fromkeys(refused))
    return context, rows


def shorten_peers(runs):
    """The measurements of bench/peers, with quartiles in place of turns."""
    for run in runs:
        for row in run["rows"]:
            for result in row["results"]:
                if result.get("seconds"):
                    result["turns"] = len(result["seconds"])
                    result["seconds"] = [
                        float(f"{s:.4g}") for s in results.middle(result["seconds"])
                    ]
                    result["error"] = float(f"{result['error']:.2g}")
    return runs


def write_peers(path, runs):
    lines = []
    for run in runs:
        rows = ",\n".join("  " + json.dumps(row) for row in run["rows"])
        lines.append(' {"context": ' + json.dumps(run["context"]) + ', "rows": [\n' + rows + "\n ]}")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(lines) + "\n]\n")


# ---- pages ----


def cell(row):
    """The unit of a row's speed, and a text with the speed, its % of the ceiling and their
    spread."""
    def told(value, counter):
        low, median, high = row.middle(counter)
        whole = not row.shape.startswith("topk")  # which older files give as if all keys were read
        of_it = f" ({median:.0f} % ±{(high - low) / 2:.1f})" if row.has(counter) and whole else ""
        return f"{value:.4g}{of_it}"

    if row.shape.startswith("small"):
        low, median, high = row.middle("seconds")
        return "us", f"{1e6 * median:.3g} (±{100 * (high - low) / 2 / median:.0f} %)"
    if "pct_read" in row.counters():
        return "GB/s", told(row.median("GBps"), "pct_read")
    speed = row.median("GFLOPS")
    return "GFLOP/s", told(speed, "pct_peak") if "pct_peak" in row.counters() else f"{speed:.4g}"


def heed_block(path):
    """The lines about a run of heed-bench."""
    context, rows = results.load(path)
    rows = {name: row for name, row in rows.items() if row.counters()}
    shown = [row for row in rows.values() if row.backend]
    backends = list(dict.fromkeys(row.backend for row in shown))
    ceilings = []
    for name, row in rows.items():
        if name.startswith("ceiling/"):
            counter, unit = ("GBps", "GB/s") if name.startswith("ceiling/read") else ("GFLOPS", "GFLOP/s")
            form = f" ({row.label})" if row.label else ""
            ceilings.append(f"{name.split('/')[1]} {row.median(counter):.4g} {unit}{form}")
    lines = [
        f"Measured {context['date'][:10]} on {context['machine']} (family/model "
        f"{context['machine_family_model']}), {context['usable_cpus']} CPUs, second cache {context['l2']}, "
        f"third {context['l3']}, load average {context['load_avg'][0]:.1f}; heed {context['heed']} "
        f"({context['commit']}), {context['compiler']}, {context['system']}.",
        "",
        f"Ceilings: {', '.join(ceilings)}.",
        "",
        "Medians of repetitions, in brackets % of the ceiling measured right before each (of reading memory, "
        "where the unit is GB/s, else of the arithmetic that the kernel uses), ± half of the range of "
        f"their middle half. It is left out where not all keys are read (topk), and above {results.MOST_PCT} %, "
        "where something else ran while the ceiling was measured.",
        "",
        "| row | type | threads | unit | " + " | ".join(backends) + " |",
        "|" + "---|" * (4 + len(backends)),
    ]
    table, of = {}, [row.backend for row in shown]
    for row in sorted(shown, key=lambda r: -of.count(r.backend)):  # most rows first
        table.setdefault((row.shape, row.dtype, row.threads), {})[row.backend] = cell(row)
    for (shape, dtype, threads), cells in table.items():
        unit = next(iter(cells.values()))[0]
        told = [cells[b][1] if b in cells else "-" for b in backends]
        lines.append(f"| {shape} | {dtype} | {threads} | {unit} | " + " | ".join(told) + " |")
    return lines


def peers_block(path, figure):
    from peer import report

    with open(path, encoding="utf-8") as file:
        return report.page(json.load(file), figure)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class Pages:
    """The files of docs, below a root, that are made from bench/results."""

    def __init__(self, root):
        self.root = root

    def kept(self, name):
        return os.path.join(self.root, "bench", "results", name + ".json")

    def docs(self, name):
        return os.path.join(self.root, "docs", name)

    def text(self, page):
        """(the text of the page, the text that it should have)."""
        with open(page, encoding="utf-8") as file:
            text = file.read()

        def block(found):
            name = found[2]
            path = self.kept(name)
            if not os.path.exists(path):
                return found[0]
            kind = name.removesuffix(".peers")
            lines = peers_block(path, KINDS[kind][1]) if kind != name else heed_block(path)
            return found[1] + "\n" + "\n".join(lines) + "\n" + found[4]

        return text, BLOCK.sub(block, text)

    def figures(self):
        """[(results, figure)] for all results."""
        found = []
        for path in sorted(glob.glob(self.kept("*"))):
            name = os.path.basename(path).removesuffix(".json")
            kind = name.removesuffix(".peers")
            if kind not in KINDS:
                raise ValueError(f"{path}: record.py knows no kind {kind}: add it to KINDS")
            found.append((path, self.docs(KINDS[kind][kind != name])))
        return found

    def pages(self):
        return sorted(glob.glob(self.docs("benchmarks*.md")))

    def wrong(self):
        """A line for each page or figure that differs from the results."""
        found, told = [], set()
        for page in self.pages():
            there, wanted = self.text(page)
            told |= {self.kept(block[2]) for block in BLOCK.finditer(there)}
            if there != wanted:
                found.append(f"{page} is not what bench/results gives")
        for path, figure in self.figures():
            if path not in told:
                found.append(f"{path} is in no page")
            if not os.path.exists(figure):
                found.append(f"{figure} is missing")
            else:
                with open(figure, encoding="utf-8") as file:
                    if digest(path) not in file.read():
                        found.append(f"{figure} was not drawn from {path} as it is")
        return found

    def make(self):
        """Writes pages and figures. Returns the exit status."""
        for page in self.pages():
            there, wanted = self.text(page)
            if there != wanted:
                with open(page, "w", encoding="utf-8") as file:
                    file.write(wanted)
                print(f"record.py: {page}")
        for path, figure in self.figures():
            if path.endswith(".peers.json"):
                from peer import report

                with open(path, encoding="utf-8") as file:
                    report.plot(*report.rows_and_peers(json.load(file)), figure, digest(path))
            else:
                import plot

                if plot.main([path, figure, "--source", digest(path)]):
                    return 1
            print(f"record.py: {figure}")
        for line in self.wrong():
            print(f"record.py: {line}", file=sys.stderr)
        return bool(self.wrong())


def main(words, root=ROOT):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND")
    parser.add_argument("--peers", nargs="+", default=[], help="what bench/peers wrote")
    parser.add_argument("--build", help="build folder (build)")
    parser.add_argument("--under", help="words before heed-bench, such as 'chrt -f 50 taskset -c 1'")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(words)
    if options.peers and not options.kind:
        parser.error("--peers goes with a KIND")
    if options.check and options.kind:
        parser.error("--check measures and keeps nothing: it stands alone")
    if (options.build or options.under) and (options.peers or not options.kind):
        parser.error("--build and --under go with a KIND that is measured")
    pages = Pages(root)
    try:
        if options.check:
            wrong = pages.wrong()
            for line in wrong:
                print(f"record.py: {line}; bench/record.py makes it", file=sys.stderr)
            return bool(wrong)
        if options.kind:
            os.makedirs(os.path.dirname(pages.kept(options.kind)), exist_ok=True)
        if options.peers:
            from peer import report

            runs = [report.load(path) for path in options.peers]
            write_peers(pages.kept(options.kind + ".peers"), shorten_peers(runs))
        elif options.kind:
            build = options.build or os.path.join(root, "build")
            context, rows = measure(build, options.under or "")
            results.keep(pages.kept(options.kind), context, rows)
        return pages.make()
    except (ValueError, OSError) as error:
        print(f"record.py: {error}", file=sys.stderr)
        return 2
    except ImportError as error:
        print(
            f"record.py: {error}; figures need matplotlib: python3 -m venv .venv; "
            ".venv/bin/pip install matplotlib; .venv/bin/python bench/record.py",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
