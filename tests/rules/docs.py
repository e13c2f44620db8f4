"""Doxygen has no warning about the public headers: every function, struct and member that an engine
uses is documented, in a form that Doxygen understands. Skipped where there is no Doxygen.

Usage: docs.py DOXYGEN DOXYFILE OUTPUT_FOLDER; DOXYGEN may be empty.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

doxygen, doxyfile, output = sys.argv[1:]
if not doxygen:
    print("there is no doxygen here")
    sys.exit(77)


def made(doxyfile, output):
    """Whether Doxygen makes the pages without a warning."""
    result = subprocess.run([doxygen, doxyfile], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(result.stdout, end="")
    pages = {path.name for path in pathlib.Path(output).glob("*.html")}
    # The page of a struct and of a header have to exist: without input Doxygen has no warnings either.
    missing = {"structheed__attn__args.html", "attention_8h.html"} - pages
    for page in sorted(missing):
        print(f"{output}: {page} was not written")
    return result.returncode == 0 and not missing


def made_elsewhere(text):
    """The same where the names of folders have spaces: headers, script and pages lie in such a one."""
    with tempfile.TemporaryDirectory(prefix="heed docs ") as folder:
        headers = re.search(r'^INPUT *= "(.*)"$', text, re.M)[1]
        script = re.search(r'^INPUT_FILTER *=.* -f \W*(/.*\.sed)', text, re.M)[1]
        shutil.copytree(headers, folder + "/include/heed")
        shutil.copy(script, folder + "/doxygen.sed")
        for old, new in (headers, "include/heed"), (script, "doxygen.sed"), (output, "html"):
            text = text.replace(old, f"{folder}/{new}")
        elsewhere = pathlib.Path(folder) / "Doxyfile"
        elsewhere.write_text(text, encoding="utf-8")
        return made(elsewhere, folder + "/html")


good = made(doxyfile, output)
sys.exit(not made_elsewhere(pathlib.Path(doxyfile).read_text(encoding="utf-8")) or not good)
