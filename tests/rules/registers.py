"""Code that is compiled for the baseline CPU uses no registers or encodings of AVX.

Disassembles the objects of the library, the tool and the kit, without those compiled with the flags
of an instruction set: they run only after a backend's open. Each of their global symbols must have
the name of the instruction set in it, so that the linker cannot pick a helper of theirs for
baseline code.

Usage: registers.py BUILD_ROOT
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ISA_FLAG = re.compile(r"-m(avx|fma|f16c|amx|bmi|sse[34]|ssse|popcnt|arch)")
ISA_NAME = re.compile(r"_(avx2|avx512|amx)\w*$")
# Wide registers, masks and tiles, and the VEX forms of SSE instructions, which start with v.
WIDE = re.compile(r"%[yz]mm\d|%tmm\d|%k[0-7]\b|\tv(?!err|erw|m)[a-z0-9]+ ")
FOLDERS = ("core/", "tools/", "tests/kit/", "backends/")


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wide_lines(path):
    function = "?"
    for line in tool("objdump", "-d", "--no-show-raw-insn", str(path)).splitlines():
        if line.endswith(">:"):
            function = line.split("<")[1][:-2]
        elif WIDE.search(line):
            yield function, line.strip()


def main():
    if not shutil.which("objdump"):
        print("no objdump")
        return 77
    build = pathlib.Path(sys.argv[1])
    baseline = wide = isa = bad = 0
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = build / entry["output"]
        if not entry["output"].startswith(FOLDERS) or not path.exists():
            continue
        if any(ISA_FLAG.match(word) for word in shlex.split(entry["command"])):
            isa += 1
            for row in tool("nm", "-g", "--defined-only", str(path)).splitlines():
                name = row.split()[-1]
                if not ISA_NAME.search(name):
                    print(f"{entry['output']}: {name} is global, but not named after its ISA")
                    bad += 1
            wide += any(True for _ in wide_lines(path))
        else:
            baseline += 1
            for function, line in wide_lines(path):
                print(f"{entry['output']}: {function}: {line}")
                bad += 1
                break
    print(f"{baseline} baseline objects, {isa} of an ISA ({wide} with wide registers), {bad} bad")
    # If no object of an instruction set has wide registers, this test does not recognise them.
    return bad != 0 or baseline == 0 or (isa != 0 and wide == 0)


sys.exit(main())
