"""Reads the files of heed-bench (--benchmark_out=FILE) and their short form, which is kept in
bench/results: a Row for each benchmark."""

import json
import math
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
# More than this % of a ceiling is a sign that the ceiling was measured while something else ran.
MOST_PCT = 105
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
NAME = re.compile(
    r"(?:attn|linear)/(?P<backend>[^/]+)/(?P<dtype>[^/]+)/(?P<shape>[^/]+)/threads:(?P<threads>\d+)"
)
# The parts of Google Benchmark's context that a kept file has.
CONTEXT = (
    "date",
    "machine",
    "machine_family_model",
    "system",
    "usable_cpus",
    "l2",
    "l3",
    "rotation",
    "huge_pages",
    "heed",
    "compiler",
    "commit",
    "load_avg",
    "left_out",
    "refused",
)


def figure(counter, value):
    """The value, if it is one that heed-bench can have written: else ValueError. Figures are divided by
    each other, and beside NaN nothing would ever be slower."""
    least = 0 if counter in ("bytes_extra", "pct_cpu") else math.ulp(0)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise ValueError(f"{counter} is {value!r}")
    return value


def middle(values):
    """(low, median, high), where low to high is the middle half, or everything for fewer than 3."""
    if len(values) < 3:
        return min(values), statistics.median(values), max(values)
    return tuple(statistics.quantiles(values, n=4, method="inclusive"))


class Row:
    """A row: its name is without Google Benchmark's suffixes. samples[counter] and
    samples["seconds"] have a value for each repetition; kept[counter] is (low, median, high), which
    the short form has instead. error is None, or the reason of a refusal or an error, if there are
    no figures."""

    def __init__(self, name):
        self.name, self.samples, self.kept, self.error, self.label = name, {}, {}, None, ""
        self.repetitions = 0
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
        self.repetitions += 1
        values = {c: run[c] for c in COUNTERS if c in run}
        values["seconds"] = run["real_time"] * SECONDS[run["time_unit"]]
        for counter, value in values.items():
            self.samples.setdefault(counter, []).append(figure(counter, value))

    def keep(self, counters):
        """Takes the counters of the short form."""
        for counter, values in counters.items():
            low, median, high = (figure(counter, value) for value in values)
            self.kept[counter] = low, median, high
        if not self.error and "seconds" not in self.kept:
            raise ValueError(f"{self.name} has no seconds")

    def counters(self):
        return list(self.samples or self.kept)

    def middle(self, counter):
        return middle(self.samples[counter]) if self.samples else self.kept[counter]

    def median(self, counter):
        return self.middle(counter)[1]

    def has(self, counter):
        """Whether the row has the counter; of a ceiling, whether its % can be true."""
        return counter in self.counters() and not (
            counter.startswith("pct_") and counter != "pct_cpu" and self.median(counter) > MOST_PCT
        )


def short_name(name):
    """Shortens attn/.../threads:1/process_time/real_time to attn/.../threads:1."""
    found = re.match(r".*?/threads:\d+", name)
    return found[0] if found else name


def load(path):
    """({context}, {name: Row} in the order of the file). Raises ValueError for any other file."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        rows = {}
        for name, kept in data.get("rows", {}).items():
            row = rows[name] = Row(name)
            row.label, row.repetitions, row.error = kept["label"], kept["repetitions"], kept["error"]
            row.keep(kept["counters"])
        for run in [] if "rows" in data else data["benchmarks"]:
            if run.get("run_type", "iteration") == "iteration":
                name = short_name(run["name"])
                rows.setdefault(name, Row(name)).add(run)
        for line in data["context"].get("refused", "").splitlines():
            name, _, reason = line.partition(": ")
            rows.setdefault(name, Row(name)).error = reason
        data["context"].get("left_out", "").split("; ")  # is text, as those who read it expect
        return data["context"], rows
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no output of heed-bench ({error!r})") from error


def keep(path, context, rows):
    """Writes the short form, with a line for each row that was measured."""
    context = {key: context[key] for key in CONTEXT if key in context}
    lines = []
    for row in rows.values():
        if row.error and not row.counters():
            if row.name + ": " in context.get("refused", ""):
                continue
        kept = {
            "label": row.label,
            "repetitions": row.repetitions,
            "error": row.error,
            "counters": {c: [float(f"{v:.4g}") for v in row.middle(c)] for c in row.counters()},
        }
        lines.append(f"  {json.dumps(row.name)}: {json.dumps(kept)}")
    with open(path, "w", encoding="utf-8") as file:
        file.write('{\n "context": ' + json.dumps(context, indent=2).replace("\n", "\n ") + ",\n")
        file.write(' "rows": {\n' + ",\n".join(lines) + "\n }\n}\n")
