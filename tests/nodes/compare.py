"""Groups give the same bytes over threads, over each MPI and from run to run: families.c writes a
hash of each result, and this script compares the lists of hashes, for 1 to 8 ranks. That results are
right is seen over threads, where families.c holds them against the oracle.

Usage: compare.py LAUNCHER FAMILIES_THREADS [MPIRUN FAMILIES_MPI]...
"""
import pathlib
import subprocess
import sys
import tempfile

RANKS = range(1, 9)


def lists(folder):
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def run(name, command, folder):
    folder.mkdir()
    words = [word.replace("FOLDER", str(folder)) for word in command]
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        print(f"{name}: status {result.returncode}")
        print(result.stdout[-4000:])
        return {}
    return lists(folder)


def first_difference(a, b):
    for name in sorted(a.keys() | b.keys()):
        ours, theirs = a.get(name, "").splitlines(), b.get(name, "").splitlines()
        for one, other in zip(ours, theirs):
            if one != other:
                return f"{name}: {one} | {other}"
        if len(ours) != len(theirs):
            return f"{name}: {len(ours)} lines | {len(theirs)}"
    return None


def main():
    launcher, threads, *rest = sys.argv[1:]
    sizes = list(map(str, RANKS))
    ways = [(f"threads {turn}", [threads, "FOLDER", *sizes]) for turn in (1, 2)]
    ways += [(f"{pathlib.Path(mpirun).name} {turn}", [launcher, mpirun, " ".join(sizes), program, "FOLDER"])
             for mpirun, program in zip(rest[::2], rest[1::2]) for turn in (1, 2)]
    found, bad = {}, 0
    with tempfile.TemporaryDirectory() as top:
        for name, command in ways:
            found[name] = run(name, command, pathlib.Path(top, name))
            bad += not found[name]
    first = next(iter(found))
    lines = sum(text.count("\n") for text in found[first].values())
    for name, got in found.items():
        different = first_difference(found[first], got)
        if different:
            print(f"{first} | {name}: {different}")
            bad += 1
    print(f"{len(found)} ways, {lines} results each, {bad} different or failed")
    want = sum(RANKS)
    sys.exit(bad != 0 or len(found[first]) != want or lines < 100 * want)


main()
