"""A continuous batch over keys and values in pages: sequences come and go, and each step is one
call. The q, k and v are random; the bookkeeping is that of a real engine. Run pip install . before
this file.
"""

import numpy as np

import heed

HEADS, KV_HEADS, DIM, PAGE, PAGES, SLOTS = 8, 2, 64, 16, 64, 4
rng = np.random.default_rng(0)
plan = heed.plan(q_heads=HEADS, kv_heads=KV_HEADS, dim=DIM, page_len=PAGE, causal=True)
k_pages = np.zeros((PAGES, KV_HEADS, PAGE, DIM), np.float32)
v_pages = np.zeros_like(k_pages)
free = list(range(PAGES))
waiting = [int(n) for n in rng.integers(20, 90, 10)]  # the final lengths of the requests
running: list[dict] = []
done = step = 0

while waiting or running:
    while waiting and len(running) < SLOTS:  # a request starts as soon as a slot is free
        running.append({"end": waiting.pop(0), "len": 0, "pages": []})
    table = np.zeros((len(running), max(len(r["pages"]) for r in running) + 1), np.int32)
    for b, request in enumerate(running):  # makes room for the keys and values of a token
        if request["len"] % PAGE == 0:
            request["pages"].append(free.pop())
        page, row = request["pages"][-1], request["len"] % PAGE
        k_pages[page, :, row] = rng.standard_normal((KV_HEADS, DIM))
        v_pages[page, :, row] = rng.standard_normal((KV_HEADS, DIM))
        request["len"] += 1
        table[b, : len(request["pages"])] = request["pages"]
    q = rng.standard_normal((len(running), HEADS, 1, DIM), dtype=np.float32)
    out = plan.run(q, k_pages, v_pages, block_table=table, kv_lens=[r["len"] for r in running])
    assert np.isfinite(out).all()
    for request in [r for r in running if r["len"] == r["end"]]:
        free += request["pages"]
        running.remove(request)
        done += 1
    step += 1

print(f"{done} sequences in {step} steps, at most {SLOTS} at once; {len(free)} of {PAGES} pages are free")
