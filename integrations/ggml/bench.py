#!/usr/bin/env python3
"""llama-bench with Heed and without, in turns: a table of medians, and a plot where matplotlib is there.

Both runs are of one build with the same flags; HEED_GGML=off leaves everything to ggml. Each row is run
--turns times with each, one after the other, so that what else the machine does meets both.

Usage: bench.py MODEL.gguf [--threads 2] [--turns 5] [--depths 0,4096,16384] [--prompt 512] [--generate 16]
                [--cache f16,q8_0] [--plot FILE.svg]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

RUN = pathlib.Path(__file__).resolve().parent / "run.sh"


def count(text, least=1):
    """A number of threads or turns, of which there has to be one."""
    number = int(text)
    if number < least:
        raise ValueError
    return number


def tokens(text):
    """A number of tokens, of which there may be none."""
    return count(text, 0)


def depths(text):
    """Numbers of tokens with commas between them."""
    return [tokens(part) for part in text.split(",")]


def measure(o, depth, cache, with_heed):
    """Tokens per second of prompt and of generation."""
    command = [RUN, "llama-bench", "-m", o.model, "-fa", "on", "-t", str(o.threads), "-d", str(depth)]
    command += ["-p", str(o.prompt), "-n", str(o.generate), "-r", "1", "-o", "json"]
    command += ["-ctk", cache, "-ctv", cache]
    environment = dict(os.environ)
    if not with_heed:
        environment["HEED_GGML"] = "off"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench.py: llama-bench failed:\n{done.stderr[-2000:]}")
    rows = json.loads(done.stdout)
    if with_heed and not all("Heed" in row["backends"].split(",") for row in rows):
        said = [line for line in done.stderr.splitlines() if line.startswith("heed: ")]
        sys.exit("\n".join(["bench.py: llama-bench ran without Heed", *said]))
    return {"pp" if row["n_prompt"] else "tg": row["avg_ts"] for row in rows}


def compare(o, depth, cache):
    """Per test: medians of both, of their ratio, and the ratio's least and greatest."""
    turns = [(measure(o, depth, cache, True), measure(o, depth, cache, False)) for _ in range(o.turns)]
    for test in turns[0][0]:
        heed, ggml = [t[0][test] for t in turns], [t[1][test] for t in turns]
        ratios = [h / g for h, g in zip(heed, ggml)]
        name = f"{test}{o.prompt if test == 'pp' else o.generate} @ {depth} {cache}"
        yield name, statistics.median(heed), statistics.median(ggml), statistics.median(ratios), ratios


def draw(path, rows):
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        sys.exit("bench.py: --plot needs matplotlib (python3 -m venv .venv; .venv/bin/pip install matplotlib)")
    figure, axes = pyplot.subplots(figsize=(7, 0.6 + 0.35 * len(rows)))
    axes.barh([r[0] for r in rows], [r[3] for r in rows], color="#2166ac")
    axes.axvline(1, color="#888888", linewidth=0.8)
    axes.set_xlabel("tokens per second, times ggml's own")
    axes.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("model")
    options.add_argument("--threads", type=count, default=2)
    options.add_argument("--turns", type=count, default=5)
    options.add_argument("--depths", type=depths, default="0,4096,16384")
    options.add_argument("--prompt", type=tokens, default=512)
    options.add_argument("--generate", type=tokens, default=16)
    options.add_argument("--cache", default="f16")
    options.add_argument("--plot")
    o = options.parse_args()
    if not o.prompt and not o.generate:
        options.error("--prompt 0 and --generate 0 leave nothing to measure")
    if not os.path.isfile(o.model):  # before llama.cpp is fetched and built
        options.error(f"there is no file {o.model}")
    if set(os.environ.get("HEED_GGML", "").split(",")) == {"off"}:
        options.error("HEED_GGML=off leaves both runs to ggml")
    rows = []
    print(f"{'test':28} {'Heed':>9} {'ggml':>9} {'ratio':>6}  least to greatest")
    for cache in o.cache.split(","):
        for depth in o.depths:
            for row in compare(o, depth, cache):
                rows.append(row)
                name, heed, ggml, ratio, all_ratios = row
                spread = f"{min(all_ratios):.2f} to {max(all_ratios):.2f}"
                print(f"{name:28} {heed:9.2f} {ggml:9.2f} {ratio:6.2f}  {spread}", flush=True)
    if o.plot:
        draw(o.plot, rows)


main()
