"""The files of golden.tar are the golden vectors that golden.json describes: none is missing, none
is extra, and each has the SHA-256 that is listed.

Usage: files.py FOLDER
"""

import hashlib
import json
import pathlib
import sys
import tarfile


def main():
    folder = pathlib.Path(sys.argv[1])
    named, wrong = set(), 0
    with tarfile.open(folder / "golden.tar") as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        for name, entry in {**case["inputs"], **case["expected"]}.items():
            if "file" not in entry:
                continue
            named.add(entry["file"])
            if hashlib.sha256(files.get(entry["file"], b"")).hexdigest() != entry["sha256"]:
                print(f"{case['name']}: {name} is missing or not what it was")
                wrong += 1
    for path in files.keys() - named:
        print(f"{path}: in no case")
        wrong += 1
    print(f"{len(named)} files, {wrong} wrong")
    return wrong != 0 or not named


sys.exit(main())
