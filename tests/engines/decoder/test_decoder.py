"""The decoder engine on a small random model, compared with transformers (see make.py).

Usage: test_decoder.py DECODER
"""

import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import engine
from engine import check, folder, refused, works

TINY, PROMPTS = HERE / "tiny", HERE / "prompts.txt"
TOKENS = (HERE / "tokens.txt").read_text()
decoder = sys.argv[1]


def generate(*options, prompts=PROMPTS, environment=None, what=""):
    """Runs the engine; (stdout, the bytes of the logits)."""
    path = folder / "logits.npy"
    path.unlink(missing_ok=True)
    out = works(decoder, "generate", "--model", TINY, "--logits", path, *options, prompts, environment=environment)
    return out, path.read_bytes()


def near(path, what):
    got, want = engine.rows(path), engine.rows(HERE / "logits.npy")
    worst = max(map(engine.most_difference, got, want)) if len(got) == len(want) else float("inf")
    print(f"{what}: max difference of the logits {worst:.2g}")
    check(worst <= 1e-4, f"{what}: max difference {worst}")


def test_logits():
    for options in [], ["--chunk", "4"], ["--batch", "1"], ["--chunks", "same", "--page", "5"]:
        tokens, _ = generate(*options)
        near(folder / "logits.npy", f"logits {' '.join(options)}")
        check(tokens == TOKENS, f"{options}: other tokens than transformers chose")
    for backend in "naive", "avx2":
        status, _, err = engine.run(decoder, "generate", "--model", TINY, "--count", 1, PROMPTS,
                                    environment={"HEED_BACKEND": backend})
        # 3: this machine cannot run the backend; or the build has none of this name.
        if status != 3 and f"'{backend}' of HEED_BACKEND is unknown" not in err:
            generate(environment={"HEED_BACKEND": backend})
            near(folder / "logits.npy", f"logits by {backend}")
    # Without --logits only the last rows go through the head; the tokens have to be the same.
    check(works(decoder, "generate", "--model", TINY, PROMPTS) == TOKENS, "tokens without --logits")


def test_same_bits():
    """A sequence has the same bits with any number of threads and whatever else is in the batch:
    nothing, other sequences, or older ones."""
    _, want = generate("--threads", 1)
    for options in (["--threads", 2], ["--threads", 5], ["--batch", 1], ["--batch", 2, "--threads", 3]):
        check(generate(*options)[1] == want, f"{options}: other bits")
    rows = engine.rows(folder / "logits.npy")
    lines = PROMPTS.read_text().splitlines()
    company = [lines[1], lines[2], lines[2], lines[0], lines[1]]
    prompts = folder / "company.txt"
    prompts.write_text("\n".join(company) + "\n")
    generate("--batch", 3, prompts=prompts)  # when one ends, the next joins older ones
    got, at = engine.rows(folder / "logits.npy"), 0
    starts = {}
    for line in lines:
        starts[line] = (sum(n for _, n in starts.values()), len(line.split()) + 63)
    for line in company:
        first, n = starts[line]
        check(got[at : at + n] == rows[first : first + n], f"in company: other bits of {line[:20]}")
        at += n


def test_chunks():
    """With --chunks same the bits depend neither on how prompts are cut into steps nor on pages."""
    tokens, want = generate("--chunks", "same")
    for options in (["--chunk", 1], ["--chunk", 7], ["--chunk", 16, "--batch", 2], ["--page", 3],
                    ["--page", 1000, "--chunk", 29, "--threads", 2]):
        check(generate("--chunks", "same", *options) == (tokens, want), f"{options}: other bits")


def against_prompts(least, what):
    """The logits of the prompts are close to the expected ones, but not equal to them."""
    got, want = engine.rows(folder / "logits.npy"), engine.rows(HERE / "logits.npy")
    want = want[:9] + want[72:73] + want[136:166]
    check(len(got) == len(want) == 40, f"{what}: {len(got)} rows of logits for {len(want)}")
    cosines = [engine.cosine(g, w) for g, w in zip(got, want)]
    print(f"{what}: cosines of the logits from {min(cosines):.5f}")
    check(min(cosines) >= least, f"{what}: cosine {min(cosines)}")
    check(min(cosines) < 1 - 1e-9, f"{what}: nothing was rounded")


def test_bf16():
    generate("--type", "bf16", "--count", 1)
    against_prompts(0.999, "bf16")


def test_kv_types():
    """A cache of fewer bits changes the logits only as much as its type may, and the same whatever
    shares the batch."""
    for kind, least in ("bf16", 0.9995), ("i8", 0.999), ("u8", 0.999), ("f8_e4m3", 0.98), ("u4", 0.75):
        bits = generate("--count", 1, "--kv-type", kind)[1]
        against_prompts(least, f"--kv-type {kind}")
        other = generate("--count", 1, "--kv-type", kind, "--threads", 3, "--batch", 1, "--page", 64)[1]
        check(bits == other, f"--kv-type {kind}: other bits with other threads and batches")
    status, _, err = engine.run(decoder, "generate", "--model", TINY, "--kv-type", "q8_0", PROMPTS)
    check(status == 3 and "is 12, a multiple of 32 is required" in err, f"heads of 12 in blocks of 32: {status}, {err}")


def test_usage():
    model = ["generate", "--model", TINY]

    def prompts(text):
        path = folder / "odd.txt"
        path.write_bytes(text)
        return path

    check(works(decoder, *model, prompts(b"")) == "", "no prompts")
    check(works(decoder, *model, prompts(TOKENS.encode()[:0] + b" 1\t2 \r\n"), "--count", 2).count(" ") == 1, "spaces")
    cases = [
        (["generate", PROMPTS], "--model"),
        ([*model], "one FILE"),
        ([*model, folder / "missing.txt"], "cannot be opened"),
        ([*model, "--count", "0", PROMPTS], "--count"),
        ([*model, "--chunk", "x", PROMPTS], "--chunk"),
        ([*model, "--chunks", "x", PROMPTS], "--chunks"),
        ([*model, "--page", "-1", PROMPTS], "--page"),
        ([*model, "--type", "f16", PROMPTS], "--type"),
        ([*model, "--kv-type", "q3", PROMPTS], "--kv-type"),
        ([*model, "--logits", folder / "no" / "l.npy", PROMPTS], "cannot be written"),
        ([*model, prompts(b"1 2\n\n3\n")], "prompt 2"),
        ([*model, folder / "company.txt", "--count", "500"], "512 positions"),
        (["dance"], "no command"),
    ]
    for arguments, fragment in cases:
        refused(decoder, arguments, fragment)
    for text in (b"128\n", b"-1\n", b"1 x\n", b"1 2\0 3\n", b"99999999999999999999\n", b"1.5\n", b"1+2 3\n", b"1 " * 513):
        refused(decoder, [*model, prompts(text)], "prompt 1", repr(text[:20]))
    check(engine.run(decoder)[0] == 2 and engine.run(decoder, "--help")[0] == 0, "usage")


def changed(name, content):
    """A copy of the tiny model with one file changed."""
    model = folder / "hostile"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(TINY, model)
    (model / name).write_bytes(content)
    return model


def test_variants():
    """Settings and tensors of models that compute something else are refused by name; those that say
    what the engine does anyway change nothing."""
    config = json.loads((TINY / "config.json").read_text())
    rope = config["rope_parameters"]

    def model_of(**values):
        return ["generate", "--model", changed("config.json", json.dumps({**config, **values}).encode()), PROMPTS]

    for fragment, values in (
        ("model_type", {"model_type": "qwen2"}),
        ("model_type", {"model_type": 7}),
        ("sliding_window", {"sliding_window": 4}),
        ("sliding_window", {"sliding_window": 4, "use_sliding_window": True}),
        ("partial_rotary_factor", {"partial_rotary_factor": 0.5}),
        ("partial_rotary_factor", {"rope_parameters": {**rope, "partial_rotary_factor": 0.5}}),
        ("scaled", {"rope_parameters": {**rope, "rope_type": None, "type": "linear"}}),
        ("scaled", {"rope_scaling": {"factor": 2.0}}),
        ("embedding_multiplier", {"embedding_multiplier": 12.0}),
        ("residual_multiplier", {"residual_multiplier": "1"}),
        ("logits_scaling", {"logits_scaling": 8}),
        ("1024 heads of 128 dims", {"num_attention_heads": 1024, "head_dim": 128}),
    ):
        refused(decoder, model_of(**values), fragment, f"{values}")
    for values in (
        {"model_type": None},
        {"sliding_window": None},
        {"sliding_window": 4, "use_sliding_window": False},
        {"partial_rotary_factor": 1.0, "logits_scaling": 1, "attention_multiplier": None},
        {"rope_scaling": {"rope_type": "default"}},
        {"rope_scaling": {"type": "default"}},
        {"rope_parameters": None, "rope_theta": 500.0},
    ):
        check(works(decoder, *model_of(**values)) == TOKENS, f"{values}: other tokens")
    # Without head_dim a head has hidden_size / num_attention_heads dims, here 8.
    refused(decoder, model_of(head_dim=None), "q_proj.weight is not of shape [48, 48]", "head_dim null")

    def with_tensor(name):
        content = engine.with_tensor(TINY / "model.safetensors", name)
        return ["generate", "--model", changed("model.safetensors", content), PROMPTS]

    for name in ("model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.k_norm.weight",
                 "model.layers.2.mlp.gate.weight", "model.layers.1.rotary_emb.inv_freq.weight"):
        refused(decoder, with_tensor(name), name)
    for name in "model.layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq":
        check(works(decoder, *with_tensor(name)) == TOKENS, f"{name}: other tokens")


def test_hostile():
    config = json.loads((TINY / "config.json").read_text())

    def refuse(fragment, content=None, **values):
        text = content if content is not None else json.dumps({**config, **values}).encode()
        model = changed("config.json", text)
        refused(decoder, ["generate", "--model", model, PROMPTS], fragment, f"config.json {text[:60]}")

    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "num_attention_heads",
                "num_key_value_heads", "max_position_embeddings", "head_dim"):
        for value in (0, -1, 1.5, 1e300, "36", [36], 2**40):
            refuse(key, **{key: value})
    refuse("no multiple", num_key_value_heads=4)
    refuse("even number", head_dim=11)
    refuse("not of shape", head_dim=16)
    refuse("not of shape", hidden_size=24)
    refuse("not of shape", intermediate_size=65536)
    refuse("no tensor model.layers.2", num_hidden_layers=3)
    refuse("rms_norm_eps", rms_norm_eps=-1)
    refuse("rope_theta", rope_parameters={"rope_type": "default"})
    refuse("rope_theta", rope_parameters={"rope_theta": 0})
    refuse("rope_theta", rope_parameters=7)
    refuse("scaled", rope_parameters={"rope_theta": 500.0, "rope_type": "llama3"})
    refuse("scaled", rope_scaling={"type": "linear", "factor": 2.0})
    refuse("hidden_act", hidden_act="gelu")
    refuse("attention_bias", attention_bias=True)
    refuse("mlp_bias", mlp_bias=True)
    refuse("config.json", b"")
    refuse("nested too deep", b"[" * 100000)
    old = {k: v for k, v in config.items() if k != "rope_parameters"}
    model = changed("config.json", json.dumps({**old, "rope_theta": 500.0}).encode())
    check(works(decoder, "generate", "--model", model, PROMPTS) == TOKENS, "rope_theta of older files")
    # With the embedding as head the tokens are others, and no lm_head is needed.
    model = changed("config.json", json.dumps({**config, "tie_word_embeddings": True}).encode())
    check(works(decoder, "generate", "--model", model, PROMPTS) != TOKENS, "a tied head")
    data = (TINY / "model.safetensors").read_bytes()
    for content in (b"", data[:7], data[:100], data[:-1], data + b"\0", b"\xff" * 8 + data[8:]):
        model = changed("model.safetensors", content)
        refused(decoder, ["generate", "--model", model, PROMPTS], "model.safetensors", f"{len(content)} bytes")


for test in [value for key, value in list(globals().items()) if key.startswith("test_")]:
    test()
engine.finish()
