#!/usr/bin/env python3
"""Writes the sentences of Markdown files, one on each line, as the text that tools/demo searches.

Usage: demo_text.py OUT FILE...
"""

import pathlib
import re

import usage


def sentences(markdown):
    """The sentences of the prose: without code, tables and headings, and with the text of links."""
    markdown = re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-#|] )", markdown):
        if re.match(r"\s{4}|#|\||!\[", paragraph):
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph.strip().removeprefix("- "))
        text = re.sub(r"\s+", " ", text.replace("`", "").replace("**", ""))
        yield from (s for s in re.split(r"(?<=[.:!?]) (?=[A-Z])", text) if len(s.split()) > 3)


out, *files = map(pathlib.Path, usage.words(__doc__, 2))
found = [s for file in files for s in sentences(file.read_text(encoding="utf-8"))]
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text("".join(s + "\n" for s in found), encoding="utf-8")
print(f"{len(found)} sentences of {', '.join(map(str, files))}")
