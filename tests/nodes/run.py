"""heed-mpi-run writes the results of heed run, to rounding, with 1 to 5 ranks, every scheme and
every choice of ranks that want the result. Wrong options and shapes fail with a line that says why.

Usage: run.py LAUNCHER HEED MPIRUN HEED_MPI_RUN
"""
import array
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

launcher, heed, mpirun, program = sys.argv[1:]
BOUND = {"f32": 3e-6, "f16": 4e-3, "bf16": 3e-2}  # rounding of inputs and out


def save(path, shape, seed, code="f4"):
    """Writes random numbers; of u2 the high halves of their f32, which are those of bf16."""
    random.seed(seed)
    count = 1
    for length in shape:
        count *= length
    header = f"{{'descr': '<{code}', 'fortran_order': False, 'shape': {shape!r}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    data = array.array("f", [random.gauss(0, 1) for _ in range(count)])
    if code == "u2":
        data = array.array("H", data.tobytes())[1::2]
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data.tobytes())


def load(path):
    data = path.read_bytes()
    length = 10 + struct.unpack("<H", data[8:10])[0]
    return data[:length], [x[0] for x in struct.iter_unpack("<e" if b"<f2" in data[:length] else "<f", data[length:])]


def main():
    bad = runs = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, shape, seed in (("q", (2, 6, 50, 32), 1), ("k", (2, 2, 70, 32), 2), ("v", (2, 2, 70, 16), 3),
                                  ("short", (2, 2, 69, 16), 3)):
            save(folder / f"{file}.npy", shape, seed)
        save(folder / "u2.npy", (2, 2, 70, 16), 3, "u2")
        save(folder / "i4.npy", (2, 2, 70, 16), 3, "i4")  # bits that nothing reads
        save(folder / "flat.npy", (4, 70, 16), 3)
        bits = (folder / "v.npy").read_bytes()
        (folder / "big.npy").write_bytes(bits.replace(b"'<f4'", b"'>f4'", 1))
        (folder / "fortran.npy").write_bytes(bits.replace(b"False, 's", b"True,  's", 1))
        # 2^32 more than a dim of 16, which 32 bits do not tell apart.
        (folder / "wide.npy").write_bytes(bits.replace(b"16), }        ", b"4294967312), }", 1))
        files = ["--query", folder / "q.npy", "--key", folder / "k.npy", "--value", folder / "v.npy", "--out"]
        want, got = folder / "want.npy", folder / "got.npy"
        for mask, dtype in ((["--causal=bottom-right"], "f32"), (["--window", "20,3", "--q-offset", "9"], "f16"),
                            (["--softcap", "2"], "bf16")):
            subprocess.run([heed, "run", *files, want, *mask, "--dtype", dtype], check=True)
            ways = [(2, []), (3, ["--scheme", "ring"]), (4, ["--scheme", "rows"])]
            if dtype == "f32":
                ways += [(1, []), (1, ["--scheme", "rows"]), (3, ["--scheme", "auto"]), (5, ["--want", "root"]), (3, ["--want", "heads"])]
            for ranks, how in ways:
                got.unlink(missing_ok=True)
                subprocess.run([launcher, mpirun, str(ranks), program, *files, got, *mask, *how, "--dtype", dtype])
                runs += 1
                same = got.exists() and load(got)[0] == load(want)[0]
                off = max(abs(a - b) for a, b in zip(load(got)[1], load(want)[1])) if same else None
                if off is None or not off <= BOUND[dtype] or len(load(got)[1]) != len(load(want)[1]):
                    print(f"{ranks} ranks {mask} {how} {dtype}: off by {off}")
                    bad += 1
        # The bits of bf16 in u2.
        bits = [*files[:4], "--value", folder / "u2.npy", "--out"]
        subprocess.run([heed, "run", *bits, want, "--dtype", "bf16"], check=True)
        got.unlink(missing_ok=True)
        subprocess.run([launcher, mpirun, "2", program, *bits, got, "--dtype", "bf16"])
        runs += 1
        if not got.exists() or max(abs(a - b) for a, b in zip(load(got)[1], load(want)[1])) > BOUND["bf16"]:
            print("the bits of bf16 in u2 are other numbers than to heed run")
            bad += 1
        # A batch of none.
        for file, shape in (("q", (0, 6, 50, 32)), ("k", (0, 2, 70, 32)), ("v", (0, 2, 70, 16))):
            save(folder / f"none_{file}.npy", shape, 4)
        none = ["--query", folder / "none_q.npy", "--key", folder / "none_k.npy", "--value", folder / "none_v.npy",
                "--out"]
        subprocess.run([heed, "run", *none, want], check=True)
        for scheme in ("split", "ring", "rows", "auto"):
            got.unlink(missing_ok=True)
            subprocess.run([launcher, mpirun, "5", program, *none, got, "--scheme", scheme])
            runs += 1
            if not got.exists() or got.read_bytes() != want.read_bytes():
                print(f"a batch of none, {scheme}: another file than heed run writes, or none")
                bad += 1
        for wrong, said in ((["--scheme", "star"], "--scheme star"), (["--scheme", "ring", "--want", "root"], "--want"),
                            (["--nonsense"], "heed: unknown option --nonsense; see heed-mpi-run --help\n"),
                            (["--value", folder / "short.npy"], "heed: --value has 69 rows where --key has 70\n"), (["--value", folder / "u2.npy"], "--value holds u2"),
                            (["--timeout", "0"], "--timeout 0"),
                            (["--value", folder / "nope.npy"], f"--value {folder}/nope.npy: cannot be opened: No such"),
                            (["--value", folder / "i4.npy"], f"--value {folder}/i4.npy: holds i4: f2, f4, f8 or u2 is"),
                            (["--value", folder / "flat.npy"], f"--value {folder}/flat.npy: has shape [4, 70, 16]: four"),
                            (["--value", folder / "wide.npy"],
                             f"--value {folder}/wide.npy: has shape [2, 2, 70, 4294967312]: a length is above 2^31 - 1"),
                            (["--value", folder / "big.npy"], f"--value {folder}/big.npy: is in the other byte order"),
                            (["--value", folder / "fortran.npy"], f"--value {folder}/fortran.npy: is in Fortran order: C")):
            words = files[:4] + (["--value", folder / "v.npy"] if "--value" not in wrong else [])
            result = subprocess.run([launcher, mpirun, "2", program, *words, "--out", got, *wrong], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            runs += 1
            if result.returncode == 0 or "heed: " not in result.stdout or said not in result.stdout:
                print(f"{wrong}: {result.returncode} {result.stdout}")
                bad += 1
    print(f"{runs} runs, {bad} bad")
    sys.exit(bad != 0 or runs == 0)


main()
