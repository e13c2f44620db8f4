"""A plugin needs no symbol of libheed, since it would then fail to load in a host that links
libheed statically or opened it with RTLD_LOCAL. And it exports just the one symbol that the loader
asks for.

Usage: unresolved.py PLUGIN
"""
import subprocess
import sys


def names(*options):
    lines = subprocess.run(["nm", "-D", *options, sys.argv[1]], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return [line.split()[-1].split("@")[0] for line in lines]


missing = [name for name in names("--undefined-only") if name.startswith("heed_")]
shown = names("--defined-only")
if missing:
    print("needs of libheed:", *missing)
if shown != ["heed_backend_entry"]:
    print("shows:", *shown)
sys.exit(bool(missing) or shown != ["heed_backend_entry"])
