"""Doxygen has no warning about the public headers: every function, struct and member that an engine
uses is documented, in a form that Doxygen understands. Skipped where there is no Doxygen.

Usage: docs.py DOXYGEN DOXYFILE OUTPUT_FOLDER; DOXYGEN may be empty.
"""
import pathlib
import subprocess
import sys

doxygen, doxyfile, output = sys.argv[1:]
if not doxygen:
    print("there is no doxygen here")
    sys.exit(77)
result = subprocess.run([doxygen, doxyfile], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(result.stdout, end="")
pages = {path.name for path in pathlib.Path(output).glob("*.html")}
# The page of a struct and of a header have to exist: without input Doxygen has no warnings either.
missing = {"structheed__attn__args.html", "attention_8h.html"} - pages
for page in sorted(missing):
    print(f"{page} was not written")
sys.exit(result.returncode != 0 or bool(missing))
