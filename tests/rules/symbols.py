"""What the libraries export to a linker.

shared    exactly the functions that the headers declare HEED_API, which core/heed.map lists too;
          its soname has the API version, it is never unloaded, and it needs nothing but the C
          library, an OpenMP runtime, and the library NAME if that is given
static    every global symbol begins with heed_

The versions in meson.build and in heed/version.h agree.

Usage: symbols.py SOURCE_ROOT VERSION [--shared FILE] [--static FILE] [--needs NAME]
"""
import pathlib
import re
import subprocess
import sys

NEEDED = re.compile(r"lib(c|m|dl|pthread|gomp|omp|iomp5)\.so(\.\d+)?$|ld-linux[-\w]*\.so\.\d+$")
problems = []


def tool(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def expect_same(what, got, want):
    for name in sorted(set(want) - set(got)):
        problems.append(f"{what}: {name} is missing")
    for name in sorted(set(got) - set(want)):
        problems.append(f"{what}: {name} is not in the headers")


def declared(root):
    """The HEED_API functions of the headers, without the one that plugins define."""
    names = set()
    for header in sorted((root / "include" / "heed").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        names |= set(re.findall(r"^HEED_API\b[^;()]*?\b(heed_\w+)\s*\(", text, flags=re.M))
    return names - {"heed_backend_entry"}


def check_version(root, version):
    text = (root / "include" / "heed" / "version.h").read_text()
    parts = [re.search(rf"#define HEED_VERSION_{name} (\d+)", text).group(1)
             for name in ("MAJOR", "MINOR", "PATCH")]
    if ".".join(parts) != version:
        problems.append(f"heed/version.h says {'.'.join(parts)}, meson.build {version}")


def check_shared(library, names, version, also):
    rows = [row.split() for row in tool("nm", "-D", "--defined-only", library).splitlines()]
    functions = [row[2].split("@")[0] for row in rows if row[1] != "A"]
    expect_same("shared library", functions, names)
    dynamic = tool("readelf", "-dW", library)
    soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)
    want = f"libheed.so.{version.split('.')[0]}"
    if not soname or soname.group(1) != want:
        problems.append(f"the soname is {soname and soname.group(1)}, not {want}")
    if not re.search(r"\(FLAGS_1\).*NODELETE", dynamic):
        problems.append("the shared library can be unloaded: link it with -z nodelete")
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if not NEEDED.match(needed) and not (also and needed.startswith(f"lib{also}.so")):
            problems.append(f"the shared library needs {needed}")
    return len(functions)


def check_static(library):
    names = set()
    for row in tool("nm", "-g", "--defined-only", library).splitlines():
        parts = row.split()
        if len(parts) == 3:
            names.add(parts[2])
    for name in sorted(names):
        if not name.startswith("heed_"):
            problems.append(f"static library: {name} does not begin heed_")
    return len(names)


def main():
    root, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    given = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    names = declared(root)
    listed = re.search(r"global:(.*?)local:", (root / "core" / "heed.map").read_text(), re.S).group(1)
    expect_same("core/heed.map", re.findall(r"\w+", listed), names)
    check_version(root, version)
    counted = []
    if "--shared" in given:
        counted.append(f"{check_shared(given['--shared'], names, version, given.get('--needs'))} exported")
    if "--static" in given:
        counted.append(f"{check_static(given['--static'])} global in the static library")
    print(f"{len(names)} public functions,", ", ".join(counted))
    print("\n".join(problems))
    return bool(problems) or not names or not counted


sys.exit(main())
