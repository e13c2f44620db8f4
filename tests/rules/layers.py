"""Which part of the repository may include which headers.

    include/heed    its own and those of the C library
    core            heed/* and its own (rooms.py has the rules within core)
    backends/X      heed/* and its own; those with x86 kernels also backends/simd
    backends/simd   heed/* and its own
    examples        heed/* alone, since an example shows what an outsider can do
    tools, bench    heed/*, their own, and tests/kit (the conformance suite is installed with the
                    tool)
    tests/kit       heed/* and its own; the float64 reference in it shares no code with the library
                    and may not even include heed/kit.h

Usage: layers.py SOURCE_ROOT
"""
import pathlib
import re
import sys

X86 = {"avx2", "avx512", "amx", "onednn"}
FIRST = ["backends", "bench", "core", "examples", "include", "tools", "tests/kit"]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def layer_of(path):
    """The layer of a file by its path in the repository, such as ('backends', 'naive') or
    ('core',)."""
    parts = path.parts
    if parts[0] == "backends":
        return parts[:2]
    if parts[:2] == ("tests", "kit"):
        return parts[:2]
    return parts[:1]


def allowed(layer, target):
    if layer == target:
        return True
    if target == ("include",):
        return True
    if layer[0] == "include":
        return False
    if layer[0] == "backends":
        return target == ("backends", "simd") and layer[1] in X86
    if layer[0] in ("tools", "bench"):
        return target == ("tests", "kit")
    return False


def find(root, including, kind, name):
    """The relative path of the file that an include names; None if it is not in the repository."""
    places = [root / "include", root / "core", root / "tests/kit", root]
    if kind == '"':
        places.insert(0, (root / including).parent)
    for place in places:
        path = (place / name).resolve()
        if path.is_file() and root in path.parents:
            return path.relative_to(root)
    return None


def build_file(folder):
    path = folder / "meson.build"
    return path.read_text() if path.is_file() else ""


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    bad, seen = 0, 0
    for first in FIRST:
        for file in sorted((root / first).rglob("*")):
            if file.suffix not in (".c", ".h", ".cc", ".cpp", ".hpp", ".inc"):
                continue
            path = file.relative_to(root)
            layer = layer_of(path)
            text = file.read_text()
            for match in INCLUDE.finditer(text):
                kind, name = match.groups()
                seen += 1
                target = find(root, path, kind, name)
                line = text.count("\n", 0, match.start(2)) + 1
                if target is None:
                    # A header of the system, or one that the build generates here or one folder up.
                    ours = name.startswith("heed/") or kind == '"'
                    made = build_file(file.parent) + build_file(file.parent.parent)
                    if ours and name not in made:
                        print(f"{path}:{line}: {name} does not exist here")
                        bad += 1
                elif not allowed(layer, layer_of(target)):
                    print(f"{path}:{line}: {'/'.join(layer)} must not include {target}")
                    bad += 1
                elif path.name.startswith("reference_f64") and target.name in ("kit.h", "backend.h"):
                    print(f"{path}:{line}: the reference shares no code with the library")
                    bad += 1
    print(f"{seen} includes, {bad} against the rules")
    return bad != 0 or seen == 0


sys.exit(main())
