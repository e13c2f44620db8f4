"""The man page and the completions agree with the command's help, and bash completes by them.

Usage: test_manual.py TOOLS_FOLDER HEED...
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import harness
from harness import check, finish

SHELL = """
. "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_heed
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(script, *words):
    done = subprocess.run(["bash", "-c", SHELL, "-", script, *words], capture_output=True, text=True)
    check(done.returncode == 0 and not done.stderr, f"completing {words}: {done.stderr}")
    return done.stdout.splitlines()


def completed_values(script):
    """What follows an option; readline hands over a '=' as a word."""
    for name in ("a file.npy", "a folder/", "another.npy"):
        path = harness.folder / name
        path.mkdir() if name.endswith("/") else path.touch()
    start, files = str(harness.folder / "a"), [str(harness.folder / name) for name in ("a file.npy", "a folder")]
    nothing = [""]
    for words, expected in (
        (("run", "--query", start + " "), files),
        (("run", "--query", "=", start + " "), files),
        (("run", "--scores", "raw", start + " "), files),
        (("run", "--scores", "=", "raw", start + " "), files),
        (("run", "--scores", "r"), ["raw"]),
        (("run", "--scores", "=", "r"), ["raw"]),
        (("run", "--scores", "raw", start, "--expl"), ["--explain"]),
        (("run", "--layout", "="), ["bhsd", "bshd"]),
        (("run", "--layout", "=", "bh"), ["bhsd"]),
        (("run", "--causal", "="), ["bottom-right"]),
        (("run", "--causal", "--expl"), ["--explain"]),
        (("run", "--causal", "=", "bottom-right", "--expl"), ["--explain"]),
        (("explain", "--bias", "=", "b"), ["bf16"]),
        (("explain", "--bias", "--js"), ["--json"]),
        (("run", "--scale", ""), nothing),
        (("run", "--heatmap", "="), nothing),
        (("check", "--plugin-path", start + " "), files[1:]),
        (("help", "ex"), ["explain"]),
    ):
        got = completed(script, "heed", *words)
        check(sorted(got) == expected, f"completing {words}: {got}")


def from_elsewhere(program):
    return os.path.relpath(program, os.path.realpath(harness.folder))


def programs(tools):
    """They say how they are called, also from another folder, and take no option for the name of one."""
    scripts = ["examples/minilm/fetch.py", "integrations/ggml/fetch.py"]
    scripts += ["tools/" + name for name in ("make_manual.py", "demo_arrays.py", "demo_text.py")]
    for name in ["tools/package", "tools/bare", *scripts]:
        program = [sys.executable] * (name in scripts) + [from_elsewhere(tools.parent / name)]
        for words, status in ((["--help"], 0), ([], 2), (["--no-such-option"], 2)):
            if status and name not in scripts:
                continue
            asked = subprocess.run(program + words, capture_output=True, text=True, cwd=harness.folder)
            told = asked.stderr if status else asked.stdout
            check(
                asked.returncode == status and "Usage: " in told and "Traceback" not in told,
                f"{name} {words}: {asked}",
            )
    asked = subprocess.run(
        [from_elsewhere(tools / "demo"), "FILE"], capture_output=True, text=True, cwd=harness.folder
    )
    check(
        asked.returncode == 2 and asked.stderr.startswith("Usage: tools/demo ") and not asked.stdout,
        f"tools/demo with a file and no text: {asked}",
    )
    asked = subprocess.run(
        [from_elsewhere(tools / "demo"), "none.txt", "a text"], capture_output=True, text=True, cwd=harness.folder
    )
    check(
        asked.returncode == 2 and asked.stderr == "tools/demo: none.txt cannot be read\n" and not asked.stdout,
        f"tools/demo with a file that is not there: {asked}",
    )
    # Without a path to any program but sed it cannot have installed or built anything.
    folder = pathlib.Path(harness.folder) / "sed alone"
    folder.mkdir()
    (folder / "sed").symlink_to(shutil.which("sed"))
    for word in ("--help", "-h"):
        asked = subprocess.run(
            [shutil.which("bash"), from_elsewhere(tools / "demo"), word],
            capture_output=True,
            text=True,
            cwd=harness.folder,
            env={"PATH": str(folder)},
        )
        check(
            asked.returncode == 0 and asked.stdout.startswith("Usage: tools/demo ") and not asked.stderr,
            f"tools/demo {word}: {asked}",
        )


def main():
    tools = pathlib.Path(sys.argv[1])
    harness.heed = sys.argv[2:]
    script = str(tools / "manual" / "heed.bash")
    done = subprocess.run(
        [sys.executable, tools / "make_manual.py", "--check", harness.heed[-1], tools / "manual"],
        capture_output=True,
        text=True,
    )
    check(done.returncode == 0, f"manual: {done.stdout}{done.stderr}")
    check(completed(script, "heed", "ex") == ["explain"], "a command")
    check(completed(script, "heed", "run", "--soft") == ["--softcap"], "an option")
    check(completed(script, "heed", "run", "--dtype", "b") == ["bf16"], "a value")
    for option in ("--kv-type", "--k-type", "--v-type"):  # the longest list, whole to its last name
        check(completed(script, "heed", "run", option, "iq") == ["iq4_nl"], f"a value of {option}")
    zsh = (tools / "manual" / "_heed").read_text()
    check("    'help:" in zsh and "  help) " in zsh, "zsh completes help and what follows it")
    check("--quick" in completed(script, "heed", "check", "--q"), "an option of another command")
    check(completed(script, "heed", "info", "--soft") == [""], "an option that the command lacks")
    completed_values(script)
    status, shown, _ = harness.run("run", "--help")
    check(status == 0, "heed run --help")
    text = (tools / "manual" / "heed.1").read_text()
    for name in re.findall(r"^  --([a-z-]+)", shown, re.M):
        # Its text is in the line after its title: no title has lost it to the width of the column.
        title = re.escape("\\fB\\-\\-" + name.replace("-", "\\-") + "\\fR")
        check(re.search(title + r".*\n[^.\n]", text), f"--{name} has a text in the man page")
    # The synopsis is the usage of each command, which names the options that it cannot do without.
    synopsis = re.search(r"^\.SH SYNOPSIS\n(.*?)^\.SH ", text, re.M | re.S)[1]
    synopsis = re.sub(r"\\f[BIR]|\\(?=-)|^\.B ", "", synopsis, flags=re.M).split("\n.br\n")
    commands = re.findall(r"^  (\w+) ", harness.run("help")[1].partition("Environment")[0], re.M)
    check(len(commands) >= 4, f"commands {commands}")
    for name in commands:
        usage = harness.run(name, "--help")[1].partition("\n")[0].removeprefix("usage: ")
        check(usage in [line.replace("\n", " ") for line in synopsis], f"the synopsis has {usage}: {synopsis}")
    programs(tools)
    if shutil.which("man"):
        page = tools / "manual" / "heed.1"
        shown = subprocess.run(
            ["man", "--warnings", "-l", page],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"},
        )
        check(shown.returncode == 0 and not shown.stderr, f"man: {shown.stderr}")
        check("--reproducible-chunks" in shown.stdout, "the page has the options of heed explain")
    return finish()


sys.exit(main())
