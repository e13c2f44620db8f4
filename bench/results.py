"""Reads what heed-bench writes (--benchmark_out=FILE): one Row per benchmark, with its
repetitions."""

import json
import re
import statistics

COUNTERS = (
    "GFLOPS",
    "GBps",
    "peak_GFLOPS",
    "pct_peak",
    "read_GBps",
    "pct_read",
    "bytes_extra",
    "pct_cpu",
)
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
NAME = re.compile(
    r"attn/(?P<backend>[^/]+)/(?P<dtype>[^/]+)/(?P<shape>[^/]+)/threads:(?P<threads>\d+)"
)


class Row:
    """name without Google Benchmark's suffixes; samples[counter] and samples["seconds"] hold a
    value per repetition; error is the reason why there are none, of a refusal or an error, or None."""

    def __init__(self, name):
        self.name, self.samples, self.error, self.label = name, {}, None, ""
        found = NAME.fullmatch(name)
        self.backend, self.dtype, self.shape, self.threads = (
            (found["backend"], found["dtype"], found["shape"], int(found["threads"]))
            if found
            else (None, None, None, None)
        )

    def add(self, run):
        if run.get("error_occurred"):
            self.error = run.get("error_message", "no reason given")
            return
        self.label = run.get("label", "")
        values = {c: run[c] for c in COUNTERS if c in run}
        values["seconds"] = run["real_time"] * SECONDS[run["time_unit"]]
        for counter, value in values.items():
            self.samples.setdefault(counter, []).append(value)

    def median(self, counter):
        return statistics.median(self.samples[counter])


def short_name(name):
    """attn/.../threads:1/process_time/real_time -> attn/.../threads:1"""
    found = re.match(r".*?/threads:\d+", name)
    return found[0] if found else name


def load(path):
    """({context}, {name: Row} in the file's order). Raises ValueError if it is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        rows = {}
        for run in data["benchmarks"]:
            if run.get("run_type", "iteration") == "iteration":
                name = short_name(run["name"])
                rows.setdefault(name, Row(name)).add(run)
        for line in data["context"].get("refused", "").splitlines():
            name, _, reason = line.partition(": ")
            rows.setdefault(name, Row(name)).error = reason
        return data["context"], rows
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: no output of heed-bench ({error!r})") from error
