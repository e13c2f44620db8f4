"""The program in the README is examples/embed.c, which is compiled and run as a test, and the files
and folders that the documents name exist.

Usage: readme.py SOURCE_ROOT
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
bad = []
shown = re.findall(r"```c\n(.*?)```", (root / "README.md").read_text(), re.S)
if (root / "examples" / "embed.c").read_text() not in shown:
    bad.append("README.md does not show examples/embed.c as it is")
links = 0
for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
    text = (root / name).read_text()
    named = re.findall(r"\]\(([^):]+)\)", text)
    named += re.findall(r"`((?:core|tests|tools|bench|examples|include|backends)/[\w./]+)`", text)
    for path in named:
        links += 1
        if not (root / path).exists():
            bad.append(f"{name} names {path}, which does not exist")
print("\n".join(bad))
print(f"{links} paths, {len(bad)} wrong")
sys.exit(bool(bad) or not links)
