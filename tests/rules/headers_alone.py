"""Every public header is in the list of those that the build compiles alone.

That each does compile, in the language's standard and without padding in its structs, is shown by
the build itself: this test depends on those objects. Those that need a library which may not be here have
a test of their own: mpi.h that of mpi_header.py.

Usage: headers_alone.py SOURCE_ROOT HEADER...
"""
import pathlib
import sys

ELSEWHERE = {"mpi"}
there = {path.stem for path in pathlib.Path(sys.argv[1], "include", "heed").glob("*.h")} - ELSEWHERE
listed = set(sys.argv[2:])
for name in sorted(there ^ listed):
    print(f"include/heed/{name}.h {'is not compiled alone' if name in there else 'does not exist'}:"
          " see tests/rules/meson.build")
print(f"{len(there & listed)} headers")
sys.exit(there != listed or not there)
