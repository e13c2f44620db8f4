"""The golden vectors are the files that golden.json describes: every one is there, none is too
many, and each has the SHA-256 that it was written with.

Usage: files.py FOLDER
"""

import hashlib
import json
import pathlib
import sys


def main():
    folder = pathlib.Path(sys.argv[1])
    named, wrong = set(), 0
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        for name, entry in {**case["inputs"], **case["expected"]}.items():
            if "file" not in entry:
                continue
            path = folder / entry["file"]
            named.add(path)
            if (
                not path.is_file()
                or hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]
            ):
                print(f"{case['name']}: {name} is missing or not what it was")
                wrong += 1
    for path in set(folder.rglob("*.npy")) - named:
        print(f"{path.relative_to(folder)}: in no case")
        wrong += 1
    print(f"{len(named)} files, {wrong} wrong")
    return wrong != 0 or not named


sys.exit(main())
