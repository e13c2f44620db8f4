"""Examples in the documentation run and print what they say, signatures are right, and types are complete."""

import doctest
import importlib.util
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import heed
import heed.masks

np = pytest.importorskip("numpy")
PACKAGE = pathlib.Path(heed.__file__).parent


def documented():
    yield "heed", heed
    for space in (heed, heed.masks):
        for name in space.__all__:
            thing = getattr(space, name)
            if inspect.ismodule(thing) or isinstance(thing, str):
                continue
            yield f"{space.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    if not method.startswith("_") and callable(value):
                        yield f"{space.__name__}.{name}.{method}", value


DOCUMENTED = dict(documented())
# one line says all; the class's own example uses them
NO_EXAMPLE = {"heed.Array", "heed.Setting", "heed.Array.tolist", "heed.Plan.explain", "heed.Plan.workspace", "heed.KVCache.append",
              "heed.KVCache.attention", "heed.KVCache.decoded", "heed.KVCache.clear", "heed.Linear.explain"}


@pytest.mark.parametrize("name", [n for n in DOCUMENTED if n.replace("heed.plan", "heed.Plan") not in NO_EXAMPLE])
def test_example(name):
    text = DOCUMENTED[name].__doc__
    assert text and ">>>" in text, f"{name} has no example"
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), {}, name, None, None)
    result = doctest.DocTestRunner(verbose=False).run(test)
    assert result.attempted and not result.failed


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented(name):
    assert (DOCUMENTED[name].__doc__ or "").strip(), name


def test_signatures_are_what_is_taken():
    """Every keyword of the signature is known to the call, which says so by not calling it unexpected."""
    for name in ("attention", "varlen", "merge", "rotary"):
        function = getattr(heed, name)
        for parameter in inspect.signature(function).parameters:
            with pytest.raises((TypeError, ValueError)) as raised:
                function(**{parameter: None})
            assert "unexpected" not in str(raised.value), (name, parameter)
        with pytest.raises(TypeError, match="unexpected"):
            function(nonsense=None)


def test_every_accuracy_is_documented():
    """The refusal of a word lists those that there are."""
    x = np.ones((1, 1, 2, 4), np.float32)
    with pytest.raises(ValueError, match="accuracy is 'none'; known are ") as raised:
        heed.attention(x, x, x, accuracy="none")
    words = set(re.findall(r'"\w+"', str(raised.value))) - {'"default"'}
    assert len(words) == 4
    for word in words:
        assert word in heed.attention.__doc__, word


def test_mypy(tmp_path):
    pytest.importorskip("mypy")
    where = pathlib.Path(__file__).with_name("typed_use.py")
    package = tmp_path / "heed"  # mypy takes no path in site-packages
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "__pycache__", "backends"))
    files = [where, *(package / name for name in ("__init__.py", "_heed.pyi", "masks.py"))]
    for library in ("torch", "transformers"):  # their types are needed where ours are made of them
        if importlib.util.find_spec("torch") and importlib.util.find_spec(library):
            files.append(package / f"{library}.py")
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull,
                            *map(str, files)], capture_output=True, text=True,
                           env={**os.environ, "MYPYPATH": str(tmp_path)})
    assert found.returncode == 0, found.stdout + found.stderr


def with_options(stub, body):
    """What is declared in a part of the stub, with the keywords of the classes that it unpacks."""
    names = set(re.findall(r"Unpack\[(\w+)\]", body))
    while names:
        name = names.pop()
        bases, fields = re.search(rf"^class {name}\(([^)]*)\):\n((?:    .*\n)+)", stub, re.M).groups()
        names |= set(re.findall(r"_\w+", bases))
        body += fields
    return body


def test_stubs_have_what_the_module_has():
    stub = (PACKAGE / "_heed.pyi").read_text()
    from heed import _heed

    for name in dir(_heed):
        if not name.startswith("__"):
            assert re.search(rf"^(def|class) {name}\b|^{name}:", stub, re.M), name
    for name in re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", stub, re.M):
        assert hasattr(_heed, name), name
    for cls in ("Plan", "KVCache", "Linear", "MultiHeadAttention", "Array"):
        body = with_options(stub, stub.split(f"class {cls}")[1].split("\nclass ")[0])
        for name in vars(getattr(_heed, cls)):
            if not name.startswith("_"):
                assert f" {name}" in body, (cls, name)
        for name in inspect.signature(getattr(_heed, cls)).parameters if cls != "Array" else ():
            assert f" {name}" in body, (cls, name)
    functions = [(_heed, name) for name in ("attention", "varlen", "merge", "rotary")]
    for space, function in functions + [(_heed.Plan, "run"), (_heed.KVCache, "attention")]:
        body, indent = (stub, "") if space is _heed else (stub.split(f"class {space.__name__}")[1].split("\nclass ")[0], "    ")
        # the last of several overloads, to its end
        body = with_options(stub, re.findall(rf"^{indent}def {function}\((.*?)\) -> ", body, re.M | re.S)[-1])
        for name in inspect.signature(getattr(space, function)).parameters:
            assert name == "self" or re.search(rf"\b{name}:", body), (function, name)


def test_mypy_refuses_unknown_keywords(tmp_path):
    """Each call takes the keywords of its own class of options, and no others."""
    pytest.importorskip("mypy")
    shutil.copytree(PACKAGE, tmp_path / "heed", ignore=shutil.ignore_patterns("*.so", "__pycache__", "backends"))
    wrong = ["heed.attention(x, x, x, block_table=x)", "heed.varlen(x, x, x, [0], [0], q_lens=[1])", "heed.attention(x, x, x, scale='1')",
             "heed.plan(q_heads=1, dim=8).run(x, x, x, causal=True)", "cache.attention(x, kv_lens=[1])", "layer(x, layout='bhsd')"]
    right = ["heed.attention(x, x, x, q_lens=[1], causal=True, dtype='f32')", "heed.varlen(x, x, x, [0], [0], causal=True)",
             "heed.plan(q_heads=1, dim=8).run(x, x, x, k_key_group=4)", "cache.attention(x, True, layout='bhsd')", "layer(x, cache=cache)"]
    file = tmp_path / "use.py"
    file.write_text("import array\nimport heed\nx = array.array('f')\ncache = heed.KVCache(batch=1, capacity=4, kv_heads=1, dim=8)\n"
                    "layer = heed.MultiHeadAttention(1, x, x, x)\n" + "\n".join([*right, *wrong]) + "\n")
    found = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull, str(file)],
                           capture_output=True, text=True, env={**os.environ, "MYPYPATH": str(tmp_path)}).stdout
    lines = {int(n) for n in re.findall(r"use.py:(\d+): error", found)}
    assert lines == set(range(6 + len(right), 6 + len(right) + len(wrong))), found
