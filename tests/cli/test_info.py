"""heed info, explain, check and help, and backends that crash in their trial.

Usage: test_info.py PLUGIN_FOLDER VERSION HEED...
"""

import json
import os
import re
import subprocess
import sys

import harness
from harness import check, finish, refused, run


def succeeds(*arguments, environment=None):
    status, stdout, stderr = run(*arguments, environment=environment)
    check(status == 0 and stderr == "", f"{' '.join(arguments)}: status {status}, {stderr!r}")
    return stdout


def help_and_version(version):
    check(succeeds("--version") == f"heed {version}\n", "--version")
    top = succeeds("--help")
    check(
        top == succeeds("help") == succeeds("-h")
        and all(c in top for c in ("run", "info", "explain", "check")),
        "heed help names the commands",
    )
    page = succeeds("run", "--help")
    check(page == succeeds("help", "run"), "heed help run is heed run --help")
    refused(["help", "walk"], "no help on walk")
    for word in ("--version", "--help", "-h"):
        refused([word, "info"], f"{word} stands alone, but info follows")
    refused(["help", "run", "info"], "one command")
    for option in (
        "query",
        "key",
        "value",
        "out",
        "layout",
        "scale",
        "softcap",
        "causal",
        "q-offset",
        "kv-len",
        "window",
        "mask",
        "bias",
        "alibi",
        "sinks",
        "lse",
        "weights",
        "scores",
        "dtype",
        "accuracy",
        "threads",
        "backend",
        "heatmap",
    ):
        check(f"--{option}" in page, f"heed run --help lists --{option}")
    refused(["help", "walk"], "walk")
    refused(["info", "--yaml"], "--yaml")


def info():
    text = succeeds("info")
    check("naive" in text and "chosen" in text and "passed" in text, "heed info")
    told = json.loads(succeeds("info", "--json"))
    check("naive" in [b["name"] for b in told["library"]["backends"]], "heed info --json: backends")
    check(
        {"name": "naive", "passed": True, "why": ""} in told["trials"], "heed info --json: trials"
    )
    check(
        told["chosen"]["classes"][0]["backend"] in [b["name"] for b in told["library"]["backends"]],
        "heed info --json: what is chosen",
    )
    told = json.loads(succeeds("info", "--json", environment={"HEED_BACKEND": "naive"}))
    check(
        {c["backend"] for c in told["chosen"]["classes"]} == {"naive"},
        "HEED_BACKEND decides what is chosen",
    )
    told = json.loads(succeeds("info", "--json", environment={"HEED_BACKEND": "nothing"}))
    check(
        told["chosen"] is None and "nothing" in told["why_none"],
        "heed info says why nothing is chosen",
    )
    baseline = json.loads(succeeds("info", "--json", environment={"HEED_MAX_ISA": "baseline"}))
    check(
        not [
            b
            for b in baseline["library"]["backends"]
            if b["name"] in ("avx2", "avx512", "amx") and b["usable"]
        ],
        "HEED_MAX_ISA=baseline leaves no x86 backend usable",
    )
    for b in baseline["library"]["backends"]:
        if b["name"] in ("avx2", "avx512", "amx"):
            check("HEED_MAX_ISA" in b["reason"], f"baseline: the reason of {b['name']} is not all: {b['reason']}")


def texts_that_are_not_utf8():
    """JSON is UTF-8, also where it has names of files, of which sentences may be cut within a character."""
    names = [b"\xffone.so", b"two\xc3.so", b"\xed\xa0\x80.so", b"\xc0\xaf.so", b"\xf4\x90\x80\x80.so",
             "\u00e9\u4e2d\U0001f600.so".encode(), b'quo"te\\\n.so']
    bad = "\ufffd"
    told_as = [f"{bad}one.so", f"two{bad}.so", f"{3 * bad}.so", f"{2 * bad}.so", f"{4 * bad}.so",
               "\u00e9\u4e2d\U0001f600.so", 'quo"te\\\n.so']
    for shift in range(2):
        folder = harness.folder / ("x" * shift + 120 * "\u0436")
        folder.mkdir()
        for name in names:
            (folder / os.fsdecode(name)).write_bytes(b"no plugin")
        environment = {"HEED_PLUGIN_PATH": str(folder)}
        told = json.loads(succeeds("info", "--json", environment=environment))["library"]["backends"]
        others = json.loads(succeeds("explain", "--json", environment=environment))["classes"][0]["others"]
        for listed in [b["name"] for b in told], [other["backend"] for other in others]:
            check(set(told_as) <= set(listed), f"names of files in JSON: {listed}")
    told = json.loads(succeeds("info", "--json", environment={"HEED_BACKEND": os.fsdecode(b'\xff"\xc3\xa9')}))
    check(f"'{bad}\"\u00e9'" in told["why_none"], f"HEED_BACKEND that is no UTF-8: {told['why_none']!r}")


def kernels(dim, *options):
    """The kernel for a few rows of this head dim, for each SIMD backend that this machine can
    run."""
    told = json.loads(succeeds("info", "--json"))["library"]["backends"]
    usable = [b["name"] for b in told if b["usable"] and b["name"] in ("avx2", "avx512")]
    problem = ["--q-len", "10", "--kv-len", "10", "--qk-dim", dim, "--v-dim", dim, *options]
    return [
        c["kernel"]
        for name in usable
        for dtype in ("f32", "bf16")
        for c in json.loads(
            succeeds("explain", "--json", "--backend", name, "--dtype", dtype, *problem)
        )["classes"]
        if c["few_keys"]
    ]


def explain():
    check("naive" in succeeds("explain", "--backend", "naive"), "heed explain")
    codes = ("explain", "--backend", "naive", "--kv-type", "q8_0", "--v-type", "u4")
    check("k of q8_0, v of u4" in succeeds(*codes), "heed explain --kv-type")
    told = json.loads(succeeds(*codes, "--json"))["classes"]
    check({(c["k_type"], c["v_type"]) for c in told} == {("q8_0", "u4")}, "heed explain --kv-type --json")
    one_row = "--batch 2 --q-heads 8 --kv-heads 2 --q-len 1 --kv-len 4096 --qk-dim 192 --v-dim 128"
    options = f"--backend naive --dtype bf16 {one_row} --causal=bottom-right --lens --lse"
    told = json.loads(succeeds("explain", "--json", *options.split()))
    check(
        [(c["query_class"], c["backend"], c["accuracy"]) for c in told["classes"]]
        == [("one", "naive", "bf16")],
        "heed explain: one query row is one class",
    )
    told = json.loads(
        succeeds("explain", "--json", "--q-len", "100", "--accuracy", "exact", "--dtype", "bf16")
    )
    check({c["accuracy"] for c in told["classes"]} == {"exact"}, "heed explain --accuracy")
    few = kernels("8")
    check(few == ["small"] * len(few) and len(few) % 6 == 0, f"heed explain: few keys of few dims: {few}")
    check(not kernels("64"), "heed explain: 64 dims")
    check(not kernels("8", "--mask"), "heed explain: few keys, a mask")


def explain_costs():
    """Costs are never printed without what they are of: a sequence of the class's length, not of the problem's."""
    rows = {"one": "1 row", "few": "8 rows", "several": "12 rows", "many": "256 rows"}
    for lengths in ("--q-len 1", "--q-len 300", "--q-len 7 --kv-len 20"):
        told = json.loads(succeeds("explain", "--json", "--qk-dim", "8", *lengths.split()))
        for c in told["classes"]:
            of = f"one sequence of {rows[c['query_class']]} and {32 if c['few_keys'] else 1024} keys on one core"
            others = [o["reason"] for o in c["others"] if o["can"]]
            # naive runs anything, so where another is chosen it is among the others.
            check(others or c["backend"] == "naive", f"explain {lengths}: {c}")
            for reason in others:
                check(re.search(rf" costs less \({of}: \d+ us, it \d+ us\)$", reason), f"explain {lengths}: {reason}")


def explain_options():
    """The options that describe a problem to heed explain, and those that it refuses."""
    scores = "--softcap 30 --window -1,2 --scale -0.5 --reproducible-chunks"
    succeeds("explain", *"--causal --q-offset --mask --bias=f16 --alibi --sinks --weights --scores biased".split(), *scores.split())
    refused(["explain", "--q-heads", "3", "--kv-heads", "2"], "multiple")
    refused(["explain", "--q-heads", "0"], "q_heads")
    refused(["explain", "--q-len", "-1"], "--q-len")
    refused(["explain", "--dtype", "f64"], "f64")
    refused(["explain", "--bias=f64"], "f64")
    refused(["explain", "--scores", "cooked"], "cooked")
    refused(["explain", "--backend", "nothing"], "nothing")


def faults(plugins, has_check):
    """When a backend crashes in its trial, the command says so and goes on."""
    environment = {"HEED_PLUGIN_PATH": plugins}
    killed = "killed by SIGILL in its trial"
    text = succeeds("info", environment=environment)
    check(killed in text and "naive" in text, f"heed info survives a fault: {text}")
    told = json.loads(succeeds("info", "--json", environment=environment))
    check(
        {"name": "faulting", "passed": False, "why": killed} in told["trials"],
        "heed info --json: the fault",
    )
    check(
        {"name": "leaving", "passed": False, "why": "ended with status 99 in its trial"} in told["trials"],
        f"heed info --json: a backend that ends the process: {told['trials']}",
    )
    check(
        {"name": "stumbling", "passed": True, "why": ""} in told["trials"],
        "heed info --json: the other plugin",
    )
    for name, ends in ((None, None), ("faulting", "killed by SIGILL"), ("leaving", "ended with status 99")):
        crashing = json.loads(
            succeeds("info", "--json", environment={**environment, **({"HEED_BACKEND": name} if name else {})})
        )
        check(
            crashing["chosen"] is None and (ends or " in a backend's trial") in crashing.get("why_none", ""),
            f"heed info: choosing ends a program, HEED_BACKEND {name}: {crashing.get('why_none')!r}",
        )
    for name in ("naive", "stumbling"):
        told_of = json.loads(succeeds("info", "--json", environment={**environment, "HEED_BACKEND": name}))
        check(
            {c["backend"] for c in told_of["chosen"]["classes"]} == {name},
            f"HEED_BACKEND decides what is chosen beside a backend that crashes: {name}",
        )
    nothing = json.loads(succeeds("info", "--json", environment={**environment, "HEED_BACKEND": "nothing"}))
    check(
        nothing["chosen"] is None and "'nothing'" in nothing["why_none"],
        "heed info says why nothing is chosen beside a backend that crashes",
    )
    lying = [trial for trial in told["trials"] if trial["name"] == "lying"][0]
    starts = [part.split(" known-answer trial")[0] for part in lying["why"].split("; and ")]
    check(
        lying["passed"] and starts == ["but for its kernel wrong: its", "nothing of linear layers: its"],
        f"heed info --json: wrong kernels of a backend that goes without them: {lying}",
    )
    check(f"  lying      passed, {lying['why']}\n" in text, f"heed info: a wrong kernel: {text}")
    refused(
        ["explain", "--backend", "stumbling", "--mask"],
        "heed: refused: stumbling: it does not know HEED_HAS_MASK\n",
        3,
        environment,
    )
    if not has_check:
        refused(["check"], "no conformance suite")
        return
    refused(["check", "--backend", "faulting", "--quick"], f"faulting: {killed}", 1, environment)
    status, stdout, stderr = run(
        "check", "--quick", "--brief", "--filter", "plain", environment=environment
    )
    check(
        status == 1 and killed in stderr and "naive: " in stdout and "stumbling: " in stdout,
        f"heed check goes on to the others: {status}, {stdout!r}, {stderr!r}",
    )
    status, stdout, _ = run("check", "--backend", "lying", "--dtype", "f32", "--filter", "feature/plain", environment=environment)
    check(
        status == 1
        and "passed   feature/plain/f32\n" in stdout
        and "FAILED   trial of kernel wrong, which no case can have run since\n" in stdout
        and ", 1 failed\n" in stdout,
        f"heed check: cases that pass on another kernel: {status}, {stdout!r}",
    )
    # A few cases show that the command works. That naive passes all of them is a separate test,
    # which takes a minute with a sanitizer.
    status, stdout, _ = run(
        "check", "--quick", "--brief", "--backend", "naive", "--filter", "feature/*"
    )
    check(
        status == 0 and " 0 failed" in stdout, f"heed check on naive: {status}, {stdout[-300:]!r}"
    )
    status, _, _ = run("check", "--filter", "feature/plain/f32", "--dtype", "f16", "--backend", "naive")
    check(status == 1, "heed check: no case is no success")
    for more in ([], ["--list"]):
        status, _, stderr = run(
            "check", "--backend", "naive", "--filter", "plain/f32", "--filter", "nothing_*", *more
        )
        check(
            status == 2 and "no case has a name like 'nothing_*'" in stderr,
            f"heed check: each filter has to match {more}: {status}, {stderr!r}",
        )
    status, _, stderr = run("check", "--backend", "no_such_backend")
    check(
        status == 2 and stderr.startswith("heed check: there is no backend 'no_such_backend'; there are "),
        f"heed check: an unknown backend is bad usage: {status}, {stderr!r}",
    )
    for arguments, sentence in (
        (["--quick", "--filter"], "--filter needs a value"),
        (["--may-refuse"], "--may-refuse needs a value"),
        (["--quick=3"], "--quick takes no value"),
        (["--quickly"], "what is '--quickly'?"),
        (["--backend", "naive", "--backend", "avx2"], "--backend is given twice"),
        (["--dtype=f32", "--dtype", "bf16"], "--dtype is given twice"),
        (["--seed", "9" * 23], f"--seed takes a number, not '{'9' * 23}'"),
    ):
        status, _, stderr = run("check", "--list", *arguments)
        check(
            status == 2 and stderr == f"heed check: {sentence} (--help lists the options)\n",
            f"heed check {' '.join(arguments)}: {status}, {stderr!r}",
        )
    check(len(succeeds("check", "--list").splitlines()) >= 100, "heed check --list")


def full_disk(has_suite):
    """What cannot be printed is an error, wherever in the text the disk is full."""
    if not os.path.exists("/dev/full"):
        return
    suite = [["check", "--quick", "--backend", "naive", "--filter", "form/*"]] if has_suite else []
    for arguments in ["help"], ["info", "--json"], ["explain"], *suite:
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(
                harness.heed + arguments, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
            )
        check(
            done.returncode == 1 and done.stderr == "heed: stdout cannot be written\n",
            f"{arguments} to a full disk: status {done.returncode}, {done.stderr!r}",
        )


def main():
    plugins, version = sys.argv[1:3]
    harness.heed = sys.argv[3:]
    help_and_version(version)
    info()
    texts_that_are_not_utf8()
    explain()
    explain_costs()
    explain_options()
    status, _, stderr = run("check", "--list")
    has_suite = not (status == 2 and "no conformance suite" in stderr)
    faults(plugins, has_suite)
    full_disk(has_suite)
    finish()


main()
