"""Builds consumer.c outside the project, with an installation of this build, and runs it.

Usage: build_outside.py KIND SOURCE_ROOT BUILD_ROOT COMPILER...

    pkg-config         with the shared library, found by pkg-config
    pkg-config-static  with the static library, found by pkg-config
    cmake              with both, found by find_package
    subproject         with Heed as a Meson subproject: compiles the library once more, with the
                       AVX2 kernels alone, in a project that has its subprojects' files put together
    subproject-static  the same with the static library, without kernels to save time
    folders            with an installation of another build, which has its headers outside of the
                       prefix, and the heed command deep in it; found by find_package
    moved              none: the heed command of an installation that was moved knows its plugin, once
    options            other builds, by options that have to go together: the shared library alone with
                       oneDNN inside, for tests that look inside; programs over MPI without the tool;
                       the benchmarks without a C++ compiler, which are refused

Without the tool that a kind needs, the test is skipped (status 77).
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


# With the library path of the test suite, a consumer would find the library even if its own path is
# wrong.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
WITHOUT_PLUGINS = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("HEED_")}


def run(*command, env=None):
    print("$", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, env={**ENVIRONMENT, **(env or {})},
                   stdin=subprocess.DEVNULL)


def output(*command, env):
    print("$", *command, flush=True)
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env={**ENVIRONMENT, **env}).stdout.split()


def install(build, to):
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", to)
    package = next(to.rglob("heed.pc"))
    return package.parent.parent  # the library folder


def check_static(program):
    if any("libheed" in word for word in output("readelf", "-d", str(program), env={})):
        sys.exit("the static consumer needs libheed.so")


def pkg_config(compiler, build, temp, static):
    libraries = install(build, temp / "root")
    env = {"PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": str(temp / "root")}
    words = output("pkg-config", "--cflags", "--libs", *(["--static"] if static else []), "heed", env=env)
    if static:  # both kinds are installed, and with -lheed a linker takes the shared one
        words = ["-l:libheed.a" if word == "-lheed" else word for word in words]
    program = temp / "consumer"
    run(*compiler, "-std=c11", HERE / "consumer.c", "-o", program, *words, "-lm")
    if static:
        check_static(program)
    run(program, env={} if static else {"LD_LIBRARY_PATH": str(libraries)})


def cmake(compiler, libraries, temp):
    shutil.copytree(HERE, temp / "source")
    run("cmake", "-S", temp / "source" / "cmake", "-B", temp / "build", f"-Dheed_DIR={libraries}/cmake/heed",
        env={"CC": " ".join(compiler)})
    run("cmake", "--build", temp / "build")
    for program in ("with_heed", "with_heed_static"):
        run(temp / "build" / program)


COMPONENTS = """cmake_minimum_required(VERSION 3.16)
project(components NONE)
find_package(heed CONFIG COMPONENTS kernels OPTIONAL_COMPONENTS extras)
if(heed_FOUND OR TARGET heed::heed OR NOT heed_NOT_FOUND_MESSAGE MATCHES "no components, .*: kernels\\\\. ")
  message(FATAL_ERROR "a required component: ${heed_FOUND} ${heed_NOT_FOUND_MESSAGE}")
endif()
find_package(heed REQUIRED CONFIG OPTIONAL_COMPONENTS extras)
if(heed_extras_FOUND OR NOT (TARGET heed::heed OR TARGET heed::heed_static))
  message(FATAL_ERROR "an optional component: ${heed_extras_FOUND}")
endif()
"""


def components(libraries, temp):
    """Heed has none: it is not found where one is required, and found where one is optional."""
    (temp / "components").mkdir()
    (temp / "components" / "CMakeLists.txt").write_text(COMPONENTS, encoding="utf-8")
    run("cmake", "-S", temp / "components", "-B", temp / "none", f"-Dheed_DIR={libraries}/cmake/heed")


# The kernels of one instruction set are enough to show that kernels get their compiler flags. Without
# any optimisation, which is the default of a project, compiling them takes six times as long.
FEWER = ["-Dheed:avx512=disabled", "-Dheed:amx=disabled", "--unity=subprojects", "-Doptimization=g"]
KERNELS = ("avx2", "avx512", "amx", "onednn")
UNOPTIMISED = "-Doptimization=0"  # these builds are hardly run
STATIC = ["-Dheed:default_library=static", *(f"-Dheed:{backend}=disabled" for backend in KERNELS)]


def subproject(compiler, source, temp, static):
    project = temp / "project"
    shutil.copytree(HERE / "subproject", project)
    shutil.copy(HERE / "consumer.c", project)
    (project / "subprojects").mkdir()
    (project / "subprojects" / "heed").symlink_to(source)
    run("meson", "setup", temp / "build", project, *(STATIC if static else FEWER), env={"CC": " ".join(compiler)})
    run("meson", "compile", "-C", temp / "build")
    if static:
        check_static(temp / "build" / "consumer")
    run(temp / "build" / "consumer")


def folders(compiler, source, temp):
    places = [f"--prefix={temp}/prefix", f"--includedir={temp}/headers", "--bindir=libexec/heed"]
    without = [f"-D{name}=disabled" for name in (*KERNELS, "tests", "bench", "examples")]
    run("meson", "setup", temp / "made", source, *places, *without, UNOPTIMISED,
        env={"CC": " ".join(compiler)})
    run("meson", "compile", "-C", temp / "made")
    run("meson", "install", "-C", temp / "made", "--no-rebuild", "--quiet")
    prefix = temp / "prefix"
    run(prefix / "libexec" / "heed" / "heed", "--version")
    if shutil.which("cmake"):
        cmake(compiler, next(prefix.rglob("heed.pc")).parent.parent, temp)


def options(source, temp, has_onednn):
    without = [f"-D{name}=disabled" for name in (*KERNELS[:3], "bench", "examples", "tools")]
    refused = subprocess.run(["meson", "setup", temp / "no-cpp", source, *without, "-Dtests=disabled",
                              "-Donednn=disabled", "-Dbench=enabled"], env={**ENVIRONMENT, "CXX": "false"},
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if refused.returncode == 0 or "-Dbench=enabled needs a C++ compiler" not in refused.stdout:
        sys.exit(f"benchmarks without a C++ compiler: {refused.stdout[-500:]}")
    if has_onednn:
        run("meson", "setup", temp / "inside", source, *without, UNOPTIMISED, "-Ddefault_library=shared",
            "-Donednn=builtin")
        run("ninja", "-C", temp / "inside", "tests/unit/unit_failure")
        run(temp / "inside" / "tests" / "unit" / "unit_failure")
    if shutil.which("mpicc") and shutil.which("mpirun"):
        run("meson", "setup", temp / "mpi", source, *without, "-Donednn=disabled", "-Dmpi=mpicc")


def moved(libraries, temp):
    heed, plugins = next(temp.rglob("bin/heed")), libraries / "heed" / "backends"
    for env in {}, {"HEED_PLUGIN_PATH": str(plugins)}:
        listed = json.loads(subprocess.run([heed, "info", "--json"], check=True, stdout=subprocess.PIPE,
                                           env={**WITHOUT_PLUGINS, **env}).stdout)["library"]["backends"]
        listed = [backend["name"] for backend in listed if "onednn" in backend["name"]]
        if listed != ["onednn"]:
            sys.exit(f"of {plugins} it lists {listed}, with {env}")


def main():
    kind, source, build, *compiler = sys.argv[1:]
    other = [tool for tool in ("cmake", "pkg-config") if kind.startswith(tool)]
    for tool in ["meson", *other]:
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            return 77
    with tempfile.TemporaryDirectory(prefix="heed-consumer-") as name:
        temp = pathlib.Path(name)
        if kind == "cmake":
            libraries = install(build, temp / "root")
            cmake(compiler, libraries, temp)
            components(libraries, temp)
        elif kind == "folders":
            folders(compiler, source, temp)
        elif kind == "moved":
            moved(install(build, temp / "root"), temp)
        elif kind == "options":
            options(source, temp, "onednn" in compiler)
        elif kind.startswith("subproject"):
            subproject(compiler, pathlib.Path(source), temp, kind == "subproject-static")
        else:
            pkg_config(compiler, build, temp, kind == "pkg-config-static")
    return 0


sys.exit(main())
