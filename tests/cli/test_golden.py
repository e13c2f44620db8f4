"""heed run on the golden vectors and the worked examples, from files, with every option they use.

Usage: test_golden.py GOLDEN_FOLDER HEED...
"""

import json
import math
import pathlib
import sys
import tarfile

import harness
import npy
from attention import worst
from harness import attend, check, finish, folder

FLAGS = {
    "mask": "--mask",
    "bias": "--bias",
    "alibi_slope": "--alibi",
    "sink": "--sinks",
    "kv_len": "--kv-len",
    "q_offset": "--q-offset",
}


def options_of(case, vectors):
    """The command-line arguments of a case."""
    entries, options = case["inputs"], case["options"]
    arguments = []
    for name, flag in (("q", "--query"), ("k", "--key"), ("v", "--value")):
        if "file" in entries[name]:
            arguments += [flag, vectors / entries[name]["file"]]
        else:  # a view of some columns of k, which get a file of their own
            k, code = npy.load(vectors / entries["k"]["file"])
            first, end = entries[name]["columns"]
            width = k.shape[3]
            rows = (k.data[at + first : at + end] for at in range(0, len(k.data), width))
            part = npy.Array(k.shape[:3] + (end - first,), [x for row in rows for x in row])
            arguments += [flag, npy.save(folder / "view.npy", part, code)]
    for name, flag in FLAGS.items():
        if name in entries:
            arguments += [flag, vectors / entries[name]["file"]]
    if case["dtype"] == "bf16":
        arguments += ["--dtype", "bf16"]
    for name in ("scale", "softcap"):
        if name in options:
            arguments += [f"--{name}", repr(options[name])]
    if options.get("causal"):
        arguments.append("--causal")
    if "window_left" in options or "window_right" in options:
        arguments += [
            "--window",
            f"{options.get('window_left', -1)},{options.get('window_right', -1)}",
        ]
    return arguments


def unit_of(name, case, vectors, lse):
    """What the rounding of an output is relative to: |v| for out, the size of scores for the
    others."""
    if name != "out":
        return max([1.0] + [abs(x) for x in lse.data if math.isfinite(x)])
    entry = case["inputs"]["v"]
    data = npy.load(vectors / (entry if "file" in entry else case["inputs"]["k"])["file"])[0].data
    if case["dtype"] == "bf16":
        data = map(npy.of_bf16_bits, data)
    return max([1.0] + [abs(x) for x in data if math.isfinite(x) and abs(x) < 1e4])


def golden_cases(vectors):
    cases = json.loads((vectors / "golden.json").read_text())["cases"]
    with tarfile.open(vectors / "golden.tar") as archive:
        archive.extractall(folder / "golden")
    vectors = folder / "golden"
    check(len(cases) == 61, f"{len(cases)} golden cases instead of 61")
    codes = {"f32": "f4", "f16": "f2", "bf16": "f4"}
    for case in cases:
        arguments = options_of(case, vectors)
        expected = {
            name: npy.load(vectors / entry["file"])[0] for name, entry in case["expected"].items()
        }
        stages = [name for name in expected if name in ("raw", "softcapped", "biased")]
        plain = [name for name in expected if name not in stages]
        for keep in [plain] + [[stage] for stage in stages]:
            for name, (got, code) in attend(*arguments, keep=keep).items():
                rounding = case["dtype"] if name == "out" and case["dtype"] != "f32" else "f4"
                error = worst(
                    got,
                    expected[name],
                    {"f16": "f2"}.get(rounding, rounding),
                    unit_of(name, case, vectors, expected["lse"]),
                )
                check(
                    error <= 1,
                    f"{case['name']}: {name} is off by {error:.3g} times what is allowed",
                )
                check(
                    code == (codes[case["dtype"]] if name == "out" else "f4"),
                    f"{case['name']}: {name} is {code}",
                )
        if case["dtype"] == "bf16":
            out, _ = attend(*arguments, keep=["out"])["out"]
            check(all(npy.bf16(x) == x for x in out.data), f"{case['name']}: out holds bf16 values")


def worked_examples(path):
    """The command has no projections, so they are computed here, in float64."""

    def product(x, w):
        return (
            [[sum(a * b for a, b in zip(row, column)) for column in zip(*w)] for row in x]
            if w
            else x
        )

    def saved(name, matrix):
        array = npy.Array((1, 1, len(matrix), len(matrix[0])), [x for row in matrix for x in row])
        return npy.save(folder / f"{name}.npy", array, "f8")

    for example in json.loads(path.read_text()):
        x = example["x"]
        arguments = []
        for flag, weights in (("query", "w_query"), ("key", "w_key"), ("value", "w_value")):
            arguments += [f"--{flag}", saved(flag, product(x, example[weights]))]
        got = attend(*arguments, "--scale", repr(example["scale"]), keep=["out", "weights"])
        out = [y for row in example["published_output"] for y in row]
        weights = [w for row in example["expected_weights"] for w in row]
        one_hot = all(npy.f32(w) in (0, 1) for w in weights)
        check(
            got
            and max(abs(a - b) for a, b in zip(got["out"][0].data, out))
            <= (0 if one_hot else 1e-6),
            f"{example['name']}: out",
        )
        check(
            got
            and max(abs(a - npy.f32(b)) for a, b in zip(got["weights"][0].data, weights))
            <= (0 if one_hot else 1e-6),
            f"{example['name']}: weights",
        )


def main():
    golden = pathlib.Path(sys.argv[1])
    harness.heed = sys.argv[2:]
    golden_cases(golden / "golden_attention")
    worked_examples(golden / "worked_examples.json")
    finish()


main()
