"""docs/json.md has every key of the JSON that the library and the heed command print, and no other: those in
the sources, and those that the command prints here.

Usage: json_keys.py SOURCE_ROOT [HEED]
"""
import json
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
page = (root / "docs" / "json.md").read_text()
documented = {}
for section in page.split("\n## ")[1:]:
    documented[section.split("\n")[0]] = set(re.findall(r"^\| `(\w+)` \|", section, re.M))

INFO, BACKENDS, ATTN, LINEAR, MHA, OTHERS = (
    "heed info --json", "heed_context_backends", "heed_attn_explain", "heed_linear_explain", "heed_mha_explain",
    "others")
SOURCES = {
    "tools/info.c": [INFO],
    "core/runtime/explain.c": [BACKENDS, OTHERS],
    "core/attention/explain.c": [ATTN],
    "core/linear/explain.c": [LINEAR],
    "core/layer/explain.c": [MHA],
}
# Where a format string has %s for a key, the names are arguments of its function.
NAMES = {"core/runtime/explain.c": r'put_isa\(b, json, (?:json \? )?"(\w+)"|", linear \? "(\w+)" : "(\w+)"\);',
         "core/layer/explain.c": r'\{"(\w+_proj)", d->'}

bad = checks = 0
said = {name: set() for name in documented}


def saw(key, sections, where):
    global bad, checks
    checks += 1
    found = [section for section in sections if key in documented.get(section, ())]
    for section in found:
        said[section].add(key)
    if not found:
        print(f"{where}: docs/json.md has no {key} under {' or '.join(sections)}")
        bad += 1


def walk(value, section, where):
    """The keys of printed JSON. Below some keys the objects are those of another section."""
    below = {"library": BACKENDS, "chosen": ATTN, "others": OTHERS}
    if isinstance(value, list):
        for one in value:
            walk(one, section, where)
    elif isinstance(value, dict):
        for key, one in value.items():
            saw(key, [section], where)
            walk(one, below.get(key, section), where)


for name, sections in SOURCES.items():
    text = (root / name).read_text()
    keys = set(re.findall(r'\\"(\w+)\\":', text))
    for groups in re.findall(NAMES.get(name, "(?!)"), text):
        keys |= set(groups if isinstance(groups, tuple) else [groups]) - {""}
    if len(keys) < 3:
        print(f"{name}: {len(keys)} keys")
        bad += 1
    for key in sorted(keys):
        saw(key, sections, name)
if len(sys.argv) > 2:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEED_")}
    for words, section, backend in ((["info", "--json"], INFO, ""), (["info", "--json"], INFO, "none"),
                                    (["explain", "--json"], ATTN, "")):
        env = {**environment, "HEED_BACKEND": backend} if backend else environment
        done = subprocess.run([*sys.argv[2:], *words], capture_output=True, text=True, check=True, env=env)
        walk(json.loads(done.stdout), section, " ".join(words))
for section, keys in documented.items():
    for key in sorted(keys - said[section]):
        print(f"docs/json.md: nothing prints {key} of {section}")
        bad += 1
print(f"{checks} keys seen, {sum(map(len, documented.values()))} documented, {bad} bad")
sys.exit(bad != 0)
