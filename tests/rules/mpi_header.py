"""heed/mpi.h compiles alone, as C11 and as C++17, with every MPI on this machine. It calls nothing
that MPI-3.1 lacks, nothing that blocks, nothing that ends the process and nothing of libheed.

Skipped where no mpicc is found; each compiler that is missing is named.

Usage: mpi_header.py SOURCE_ROOT CXX; CXX may be empty
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMPILERS = ["mpicc", "mpicc.openmpi", "mpicc.mpich"]
# The functions of MPI-3.1 that mpi.h may call. MPI's waits, which have no deadline, are not among
# them.
CALLS = {"MPI_" + name for name in """
    Cancel Comm_dup Comm_free Comm_get_attr Comm_get_errhandler Comm_rank Comm_set_errhandler Comm_size
    Comm_test_inter Errhandler_free Error_class Error_string Finalized Get_count Initialized Irecv Isend
    Request_free Test Wtime""".split()}
C_LIBRARY = {"memset", "sched_yield", "select", "snprintf", "strlen"}
PROGRAM = """#include <heed/mpi.h>
#include <heed/mpi.h>
heed_status both(MPI_Comm comm, heed_mpi *mpi, heed_transport *out, heed_error *why);
heed_status both(MPI_Comm comm, heed_mpi *mpi, heed_transport *out, heed_error *why)
{
    const heed_status status = heed_mpi_open(comm, mpi, out, why);
    return status ? status : heed_mpi_close(mpi);
}
"""
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wundef", "-Werror", "-pedantic-errors", "-fno-stack-protector",
            "-U_FORTIFY_SOURCE", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-O1"]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def compiles(command, source, folder, include):
    made = folder / "alone.o"
    result = run([*command, *WARNINGS, "-I", include, "-c", str(source), "-o", str(made)])
    if result.returncode:
        print(result.stdout)
        return None
    return made


def foreign(made):
    """The undefined symbols of the object that it may not have."""
    names = set(re.findall(r"\bU (\w+)", run(["nm", "-u", str(made)]).stdout))
    if not names & CALLS:
        return {"no call of MPI at all: nothing was looked at"}
    # Open MPI implements its constants with these objects.
    names = {name for name in names if not name.startswith(("ompi_mpi_", "ompi_request_null"))}
    return names - CALLS - C_LIBRARY - {"_GLOBAL_OFFSET_TABLE_"}


def main():
    root, cxx = pathlib.Path(sys.argv[1]), sys.argv[2]
    seen = bad = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for suffix in ("c", "cc"):
            (folder / f"alone.{suffix}").write_text(PROGRAM)
        for mpicc in COMPILERS:
            if not shutil.which(mpicc):
                print(f"{mpicc}: SKIPPED, it is not here")
                continue
            flags = [word for word in run([mpicc, "-show"]).stdout.split()[1:] if word.startswith("-I")]
            ways = [("C11", [mpicc, "-std=c11"], "c")]
            if cxx:
                ways.append(("C++17", [cxx, "-std=c++17", *flags], "cc"))
            for what, command, suffix in ways:
                made = compiles(command, folder / f"alone.{suffix}", folder, str(root / "include"))
                strange = foreign(made) if made else {"it does not compile"}
                for one in sorted(strange):
                    print(f"{mpicc} {what}: {one}")
                print(f"{mpicc} {what}: {'bad' if strange else 'good'}")
                bad += len(strange)
                seen += 1
    print(f"{seen} objects, {bad} against the rules")
    if not seen:
        sys.exit(77)
    sys.exit(bad != 0)


main()
