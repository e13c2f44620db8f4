"""Many calls leave no memory behind, threads do not disturb each other, forks compute, and the import is
light. CALLS in the environment takes the place of the number of calls."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import oracle
import pytest

import heed

RNG = np.random.default_rng(15)
CALLS = int(os.environ.get("CALLS", "100000"))


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


BOUND = 2**18  # an object of 100 bytes lost in each of 100 000 calls would be 10 MB


def growth(call, calls):
    """Bytes that the process grew by over so many calls, behind a warm-up: the least of up to three rounds, for
    what is lost in each call is lost in each round, and what a library fills once is not."""
    for _ in range(calls // 20):
        call()
    rounds = []
    while len(rounds) < 3 and not (rounds and rounds[-1] < BOUND):
        gc.collect()
        before = resident()
        for _ in range(calls):
            call()
        gc.collect()
        rounds.append(resident() - before)
    return min(rounds)


def kinds():
    x = oracle.normal(RNG, 2, 2, 6, 8)
    yield "numpy", x
    yield "memoryview", memoryview(x)
    try:
        import torch

        yield "torch", torch.from_numpy(x)
    except ImportError:
        pass


@pytest.mark.parametrize("kind", ["numpy", "memoryview", "torch"])
def test_no_growth(kind):
    x = dict(kinds()).get(kind)
    if x is None:
        pytest.skip("torch is not installed")
    held = np.asarray(x)
    mask = np.ones((6, 6), bool)

    def call():
        heed.attention(x, x, x, mask=mask, kv_lens=[6, 3], sinks=[1.0, 2.0], return_lse=True, return_weights=True)

    count = sys.getrefcount(x), sys.getrefcount(mask), sys.getrefcount(held)
    assert growth(call, CALLS) < BOUND
    assert (sys.getrefcount(x), sys.getrefcount(mask), sys.getrefcount(held)) == count


def test_no_growth_of_the_rest():
    x = oracle.normal(RNG, 1, 2, 4, 8)
    w = oracle.normal(RNG, 16, 16)
    rows = oracle.normal(RNG, 1, 4, 16)
    out, lse = heed.attention(x, x, x, return_lse=True)

    def call():
        cache = heed.KVCache(batch=1, capacity=8, kv_heads=2, dim=8, page_len=4)
        cache.append(x, x)
        cache.attention(x)
        cache.decoded()
        heed.merge(out, lse, out, lse)
        heed.rotary(x, offsets=3)
        heed.masks.segments(np.zeros((1, 4), np.int32))
        heed.masks.blocks(np.ones((1, 1, 1, 1), bool), block_rows=1, block_keys=1)
        heed.plan(q_heads=2, dim=8).run(x, x, x)
        layer = heed.MultiHeadAttention(2, w, w, w, w)
        layer(rows)
        heed.varlen(x[0], x[0], x[0], [0, 2], [0, 2])
        with heed.threads(1):
            pass

    assert growth(call, CALLS // 10) < BOUND


def test_no_growth_of_errors():
    x = oracle.normal(RNG, 1, 2, 4, 8)
    calls = [lambda: heed.attention(x, x, x[:, :1]), lambda: heed.attention(x, x, x, mask=np.ones((3, 3), bool)),
             lambda: heed.attention(x, x, x, out=x[0]), lambda: heed.KVCache(batch=1, capacity=1, kv_heads=1, dim=0),
             lambda: heed.Linear(x), lambda: heed.plan(q_heads=3, kv_heads=2, dim=1), lambda: heed.rotary(x, dims=3),
             lambda: heed.masks.tree([3])]

    def call():
        for one in calls:
            with pytest.raises(ValueError):
                one()

    count = sys.getrefcount(x)
    assert growth(call, CALLS // 50) < BOUND
    assert sys.getrefcount(x) == count


def test_no_growth_of_unknown_backends():
    names = iter(range(10**9))

    def call():
        with pytest.raises(ValueError, match="unknown"):
            heed.backend(f"none{next(names)}")

    assert growth(call, min(CALLS // 50, 2000)) < BOUND


def test_backends_that_cannot_run():
    """As the environment, so that there are some on every machine."""
    said = subprocess.run([sys.executable, "-c", """import heed
names = [b["name"] for b in heed.info()["backends"] if not b["usable"]]
for name in names + [f"naive,{name}" for name in names]:
    try:
        heed.backend(name)
    except ValueError as error:
        print("cannot run here" in str(error))
print(len(names), heed.backend("naive") is not None)
"""], capture_output=True, text=True, check=True, env={**os.environ, "HEED_MAX_ISA": "baseline"}).stdout.split("\n")
    *refusals, last, _ = said
    n = int(last.split()[0])
    assert refusals == ["True"] * 2 * n and last == f"{n} True"
    if not n:
        pytest.skip("every backend runs here")


def test_eight_threads():
    q, k, v = (oracle.normal(RNG, 2, 4, 33, 16) for _ in range(3))
    want = [heed.attention(q, k, v, causal=causal) for causal in (False, True)]
    plan = heed.plan(q_heads=4, dim=16, causal=True)
    wrong = []

    def work(n):
        with heed.threads(1 + n % 3):
            for i in range(300):
                causal = (i + n) % 2
                out = heed.attention(q, k, v, causal=bool(causal))
                if not (out == want[causal]).all() or not (plan.run(q, k, v) == want[1]).all():
                    wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_setting_is_its_threads_own():
    x = oracle.normal(RNG, 1, 1, 2, 4)
    found = []
    with heed.backend("naive"):
        thread = threading.Thread(target=lambda: found.append(heed.explain(x, x, x).splitlines()[0]))
        thread.start()
        thread.join()
        assert "naive" in heed.explain(x, x, x).splitlines()[0]
    assert found[0] == heed.explain(x, x, x).splitlines()[0]


def backend_now():
    x = np.ones((1, 1, 2, 4), np.float32)
    return heed.explain(x, x, x).splitlines()[0]


def test_one_setting_in_two_threads():
    """Each thread gets back what it had itself, whoever leaves first."""
    usual, one, turn, found = backend_now(), heed.threads(1), threading.Barrier(2), {}
    if "naive" in usual:
        pytest.skip("this machine runs naive alone")

    def work(name, first):
        if first:
            with one:
                turn.wait()  # 1: the first one is inside
                turn.wait()  # 2: the second one too
            found[name] = backend_now()  # it has left
            turn.wait()  # 3
        else:
            turn.wait()
            with heed.backend("naive"), one:
                turn.wait()
                turn.wait()
                found["inside"] = backend_now()
            found[name] = backend_now()

    threads = [threading.Thread(target=work, args=args) for args in (("first", True), ("second", False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["first"] == found["second"] == usual and "naive" in found["inside"]


def test_settings_are_left_in_any_order():
    """As tasks of asyncio do, which take turns on a thread."""
    usual, naive, one = backend_now(), heed.backend("naive"), heed.threads(1)
    naive.__enter__(), one.__enter__(), naive.__exit__(None, None, None)
    assert backend_now() == usual
    one.__exit__(None, None, None)
    assert backend_now() == usual
    with naive, naive:
        with naive:
            pass
        assert "naive" in backend_now()
    for left in (naive, one):
        with pytest.raises(RuntimeError, match="this thread has not entered the setting"):
            left.__exit__(None, None, None)
    entered = []
    thread = threading.Thread(target=lambda: entered.append(naive.__enter__()))  # and never leaves it
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="this thread has not entered the setting"):
        entered[0].__exit__(None, None, None)
    assert backend_now() == usual


def test_settings_of_many_tasks():
    usual, x = backend_now(), np.ones((1, 1, 2, 4), np.float32)

    async def task(n):
        with heed.backend("naive") if n % 2 else heed.threads(1 + n % 3):
            await asyncio.sleep(0.01 * (n % 3))
            return heed.attention(x, x, x).sum()

    async def all_at_once():
        return await asyncio.gather(*(task(n) for n in range(1000)))

    assert asyncio.run(all_at_once()) == [8] * 1000
    assert backend_now() == usual


def test_the_gil_is_released():
    """While one thread computes for a while, another one counts."""
    q = oracle.normal(RNG, 1, 4, 1500, 64)
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1

    with heed.threads(1), heed.backend("naive"):
        thread = threading.Thread(target=count)
        thread.start()
        before = counted[0]
        heed.attention(q, q, q)
        during = counted[0] - before
        ended.set()
        thread.join()
    assert during > 1000


def test_fork():
    q = oracle.normal(RNG, 1, 4, 64, 64)
    want = heed.attention(q, q, q)
    child = os.fork()
    if child == 0:
        os._exit(0 if (heed.attention(q, q, q) == want).all() else 1)
    assert os.waitpid(child, 0)[1] == 0


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_texts_that_are_not_utf8(tmp_path):
    """Names of plugins are bytes; sentences may be cut within a character."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    shutil.copytree(os.path.dirname(heed.__file__), folder + "/heed", ignore=shutil.ignore_patterns("__pycache__"))
    os.makedirs(folder + "/heed/backends", exist_ok=True)
    for name in (b"/\xfeone.so", b"/heed/backends/\xfetwo.so"):
        with open(os.fsencode(folder) + name, "wb") as file:
            file.write(b"no plugin")
    code = """import heed
print(ascii([b["name"] for b in heed.info()["backends"]]))
print(heed.explain(q_heads=1, dim=8).isascii())
heed.backend("naive")
try:
    heed.backend("none")
except ValueError as error:
    print(str(error).isascii(), "one.so" in str(error))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "HEED_PLUGIN_PATH": folder, "PYTHONPATH": folder}).stdout.split("\n")
    assert {"\ufffdone.so", "\ufffdtwo.so"} <= set(eval(said[0])), said
    assert said[1] == "True" and said[2].startswith("True")
    for n in range(1, 128):
        with pytest.raises(ValueError, match="is unknown"):
            heed.backend("x" * (n % 2) + "\xe9" * n)


def test_the_import_is_light():
    """No library of arrays comes with it, and it takes less than 15 ms (the best of five processes)."""
    code = ("import sys, time; t = time.perf_counter(); import heed; t = time.perf_counter() - t; "
            "assert not {'numpy', 'torch', 'json', 'typing'} & (set(sys.modules) - {MODULES}); print(t)")
    before = python("import sys; print(set(sys.modules))").strip()
    times = [float(python(code.replace("{MODULES}", before))) for _ in range(5)]
    assert min(times) < 0.015, times


@pytest.mark.parametrize("options, name, deleter", [("", b"dltensor", 56), ("max_version=(1, 0)", b"dltensor_versioned", 16)])
def test_tensors_deleted_after_python(options, name, deleter):
    """C++ deletes its global objects at the end of the process, when Python has ended: as __cxa_atexit does here."""
    assert python(f"""
import ctypes, heed
part = memoryview(bytes(24)).cast("f", (1, 1, 2, 3)), memoryview(bytes(8)).cast("f", (1, 1, 2))
capsule = heed.merge(*part, *part)[0].__dlpack__({options})
api, pointer = ctypes.PyDLL(None), ctypes.c_void_p
taken = ctypes.c_char_p(b"used_" + {name})
api.PyCapsule_GetPointer.restype = pointer
tensor = api.PyCapsule_GetPointer(ctypes.py_object(capsule), {name})
api.PyCapsule_SetName(ctypes.py_object(capsule), taken)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(taken))
ctypes.CDLL(None).__cxa_atexit(pointer(pointer.from_address(tensor + {deleter}).value), pointer(tensor), None)
print("the end")
""") == "the end\n"


def test_objects_that_are_not_made_hold_nothing():
    """An object keeps the positions that it was given, and gives back only what it took."""
    np = pytest.importorskip("numpy")
    position = [7]
    before = sys.getrefcount(position)
    w = np.ones((8, 8), np.float32)
    for _ in range(20):
        with pytest.raises((ValueError, TypeError)):
            heed.MultiHeadAttention(2, w, w, w, position=position, scale="no number")
        with pytest.raises((ValueError, TypeError)):
            heed.plan(q_heads=2, dim=4, position=position, scale="no number")
        with pytest.raises(ValueError):
            heed.plan(q_heads=0, dim=4, position=position)
    assert sys.getrefcount(position) == before


@pytest.mark.parametrize("key", [1, b"v_dim", None, 2.5, (1,), np.int64(5), object], ids=repr)
def test_keywords_are_strings(key):
    """Types are called with a dict that Python has not looked at, as it has for functions."""
    w, x = np.ones((8, 8), np.float32), np.ones((1, 2, 8), np.float32)
    for call, args, named in ((heed.KVCache, (), {"batch": 1, "capacity": 1, "kv_heads": 1, "dim": 1}),
                              (heed.plan, (), {"q_heads": 1, "dim": 1}), (heed.Linear, (w,), {}), (heed.Linear(w), (w,), {}),
                              (heed.MultiHeadAttention, (1, w, w, w), {}), (heed.MultiHeadAttention(1, w, w, w), (x,), {}),
                              (heed.attention, (x, x, x), {"layout": "hsd"})):
        with pytest.raises(TypeError, match="keywords must be strings"):
            call(*args, **named, **{key: 1})
