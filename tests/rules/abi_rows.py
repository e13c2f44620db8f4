"""Every struct of the public headers, and every member of it, has a row in abi_layout.inc, so that
abi.c sees it change.

Usage: abi_rows.py SOURCE_ROOT
"""
import pathlib
import re
import sys

# Their functions are inlined into whoever includes them, and with them their structs.
INLINED = {"kit", "mpi"}


def members(body):
    """The names that a struct's body declares. Anonymous unions are passed through."""
    body = re.sub(r"\b(union|struct)\s*\{|\}", " ", body)
    for declaration in filter(str.strip, body.split(";")):
        function = re.search(r"\(\*(\w+)\)\s*\(", declaration)
        if function:
            yield function[1]
        else:
            for part in declaration.split(","):
                yield re.search(r"(\w+)\s*(\[[^]]*\]\s*)*$", part)[1]


root = pathlib.Path(sys.argv[1])
rows = (root / "tests" / "rules" / "abi_layout.inc").read_text()
sizes = set(re.findall(r"^SIZE\((\w+),", rows, re.M))
offsets = set(re.findall(r"^MEMBER\((\w+), (\w+)", rows, re.M))
structs, missing = set(), []
for header in sorted((root / "include" / "heed").glob("*.h")):
    if header.stem in INLINED:
        continue
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.S)
    for tag, body, name in re.findall(r"^(?:typedef )?struct(?: (\w+))? \{(.*?)^\}\s*(\w*);", text, re.M | re.S):
        struct = name or tag
        structs.add(struct)
        missing += [] if struct in sizes else [f"{header.name}: no SIZE of {struct}"]
        missing += [f"{header.name}: no MEMBER {member} of {struct}" for member in members(body)
                    if (struct, member) not in offsets]
print(*missing, f"{len(structs)} structs", sep="\n")
sys.exit(bool(missing) or not structs)
