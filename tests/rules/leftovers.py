"""The tree has nothing that belongs to one person's machine or to unfinished work: no absolute path
of a home or working folder, no address of a package registry, no mark of unfinished work, and in
build files no flag that would break the numerics contract or portability.

Usage: leftovers.py SOURCE_ROOT
"""
import pathlib
import re
import subprocess
import sys

TEXT = {".c", ".h", ".cc", ".cpp", ".py", ".md", ".build", ".txt", ".in", ".json", ".map", ".sh", ""}
ANYWHERE = [
    (re.compile(r"(?<![\w.])/(home|root|work|Users)/\w"), "a path of one machine"),
    (re.compile(r"https?://[^\s/]*(pypi|deb\.|archive\.|npm|crates|registry|pkg)[^\s]*"),
     "the address of a package registry"),
]
IN_CODE = [(re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"), "a mark of unfinished work")]
IN_BUILD = [(re.compile(r"-ffast-math|-Ofast|-march=native|-funsafe-math"), "an unsafe or unportable flag")]


def files(root):
    """The files of the repository. Without one, or if this is a release inside a folder that
    another repository ignores, all files outside build folders."""
    try:
        listing = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True,
                                 capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listing = ""
    if listing:
        return [root / name for name in listing.split("\0") if name]
    return [path for path in root.rglob("*") if path.is_file()
            and not path.relative_to(root).parts[0].startswith(("build", "."))]


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    bad = seen = 0
    for path in files(root):
        if path.suffix not in TEXT or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        seen += 1
        rules = list(ANYWHERE)
        if path.suffix != ".md":
            rules += IN_CODE
        if path.name == "meson.build":
            rules += IN_BUILD
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in rules:
                if pattern.search(line):
                    print(f"{path.relative_to(root)}:{number}: {what}: {line.strip()[:100]}")
                    bad += 1
    print(f"{seen} files, {bad} leftovers")
    return bad != 0 or seen == 0


sys.exit(main())
