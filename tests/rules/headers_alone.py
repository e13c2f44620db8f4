"""Every public header is in the list of headers that the build compiles alone.

The build itself shows that each compiles, in standard C and C++ and without padding in its structs:
this test depends on those objects. A header that needs a library which may be missing has a test of
its own: that of mpi.h is mpi_header.py.

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
