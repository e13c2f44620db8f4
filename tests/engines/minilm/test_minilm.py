"""The minilm engine on a small random model, compared with sentence-transformers (see make.py).

Usage: test_minilm.py MINILM
"""

import json
import pathlib
import shutil
import struct
import sys
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import engine
from engine import check, folder, refused, works

TINY = HERE / "tiny"
SENTENCES = HERE / "sentences.txt"
minilm = sys.argv[1]


def embed(lines, *options, name="e.npy", environment=None, model=TINY):
    path = folder / name
    path.unlink(missing_ok=True)
    works(minilm, "embed", "--model", model, "--out", path, *options, lines, environment=environment)
    return path


def write(name, content):
    path = folder / name
    path.write_bytes(content)
    return path


def test_tokens():
    lines = write("all.txt", SENTENCES.read_bytes() + (HERE / "strings.txt").read_bytes())
    got = works(minilm, "tokens", "--model", TINY, lines).splitlines()
    want = (HERE / "tiny_ids.txt").read_text().splitlines()
    check(len(got) == len(want) == 400, f"{len(got)} lines of ids for {len(want)}")
    for i, (g, w) in enumerate(zip(got, want)):
        check(g == w, f"ids of line {i + 1}: {g} instead of {w}")
    # A byte that is not valid UTF-8 counts as U+FFFD, which is dropped; so do surrogates and
    # overlong forms.
    broken = write("broken.txt", b"a\xffb \xc3( \xed\xa0\x80x \xf0\x9f\nab ( x\n")
    first, second = works(minilm, "tokens", "--model", TINY, broken).splitlines()
    check(first == second, f"broken UTF-8: {first} instead of {second}")
    ends = works(minilm, "tokens", "--model", TINY, write("ends.txt", b"a\r\n\nb")).splitlines()
    check(len(ends) == 3 and ends[1] == "2 3", f"lines of a file without a last newline: {ends}")
    check(works(minilm, "tokens", "--model", TINY, write("none.txt", b"")) == "", "an empty file")


def test_embeddings():
    got, want = engine.rows(embed(SENTENCES)), engine.rows(HERE / "tiny_embeddings.npy")
    check(len(got) == len(want) == 100, f"{len(got)} embeddings")
    for i, (g, w) in enumerate(zip(got, want)):
        check(engine.cosine(g, w) >= 0.99999, f"line {i + 1}: cosine {engine.cosine(g, w)}")
        check(
            engine.most_difference(g, w) <= 2e-6,
            f"line {i + 1}: max difference {engine.most_difference(g, w)}",
        )
    # bf16 has 8 bits, so a rounding is 2^-9 at most, and there are some dozens of them.
    rough = engine.rows(embed(SENTENCES, "--type", "bf16"))
    check(rough != got, "--type bf16 changes nothing")
    for i, (g, w) in enumerate(zip(rough, want)):
        check(engine.cosine(g, w) >= 0.999, f"line {i + 1} in bf16: {engine.cosine(g, w)}")


def test_same_bits():
    want = embed(SENTENCES, "--threads", "1", name="want.npy").read_bytes()
    for threads in 2, 3, 7:
        got = embed(SENTENCES, "--threads", threads).read_bytes()
        check(got == want, f"the bits change with {threads} threads")
    lines = SENTENCES.read_bytes().split(b"\n")[:-1]
    want = engine.rows(folder / "want.npy")
    back = write("back.txt", b"".join(line + b"\n" for line in reversed(lines)))
    check(engine.rows(embed(back))[::-1] == want, "the bits change with the order of the lines")
    for i in 0, 1, 27, 78:
        for threads in 1, 2:
            alone = engine.rows(embed(write("one.txt", lines[i] + b"\n"), "--threads", threads))
            check(alone == [want[i]], f"line {i + 1} alone, {threads} threads: other bits")


def test_rank():
    out = works(minilm, "rank", "--model", TINY, "--query", "A", SENTENCES).split("\n")[:-1]
    vectors = engine.rows(HERE / "tiny_embeddings.npy")
    lines = SENTENCES.read_bytes().decode().split("\n")[:-1]
    best = sorted((-engine.cosine(vectors[lines.index("A")], v), l) for v, l in zip(vectors, lines))
    check(len(out) == 100 and out[0] == "1.0000  A", f"rank begins with {out[:1]}")
    for line, (similarity, _) in zip(out, best):
        check(abs(float(line.split()[0]) + similarity) < 2e-4, f"rank: {line} for {-similarity:.4f}")
    top = works(minilm, "rank", "--model", TINY, "--query", "A", "--top", 3, SENTENCES)
    check(top.split("\n")[:-1] == out[:3], "rank --top 3 is not the first three")
    nul = works(minilm, "rank", "--model", TINY, "--query", "A", write("nul.txt", b"a\0b c\n"))
    check(nul.endswith("  a\0b c\n"), f"rank cuts a line at its NUL: {nul!r}")


def test_map():
    path, text = folder / "map.svg", "The cat & the <dog>."
    works(minilm, "map", "--model", TINY, "--svg", path, "--layer", 1, text)
    root = xml.etree.ElementTree.parse(path).getroot()
    space = "{http://www.w3.org/2000/svg}"
    labels = [t.text for t in root.iter(space + "text")]
    words = ["[CLS]", "the", "cat", "&", "the", "<"]
    # Each word labels both axes of four panels: the mean and the three heads.
    check([w for w in words if labels.count(w) % 8 or w not in labels] == [], f"map: labels {labels}")
    check([t for t in labels if t.startswith("head ")] == ["head 1", "head 2", "head 3"], f"{labels}")
    # Each row of weights sums to 1, up to the rounding of its cells to two digits.
    tokens = sum(t.get("text-anchor") == "end" for t in root.iter(space + "text")) // 4
    for panel in [g for g in root.iter(space + "g") if g.find(f"{space}rect[@class='frame']") is not None]:
        sums = {}
        for cell in panel.iter(space + "rect"):
            if cell.get("fill-opacity"):
                sums[cell.get("y")] = sums.get(cell.get("y"), 0) + float(cell.get("fill-opacity"))
        check(
            len(sums) == tokens and all(abs(s - 1) <= 0.005 * tokens for s in sums.values()),
            f"map: rows sum to {sums}",
        )


def test_usage():
    model = ["--model", TINY]
    cases = [
        (["embed", SENTENCES], "--model"),
        (["embed", *model], "one FILE"),
        (["embed", *model, "a", "b"], "one FILE"),
        (["embed", *model, folder / "missing.txt"], "cannot be opened"),
        (["embed", *model, folder], "not a file"),
        (["embed", *model, "--threads", "0", SENTENCES], "--threads"),
        (["embed", *model, "--threads", "2x", SENTENCES], "--threads"),
        (["embed", *model, "--type", "f64", SENTENCES], "--type"),
        (["embed", *model, "--top", "2", SENTENCES], "--top"),
        (["embed", *model, "--out"], "--out"),
        (["embed", *model, "--out", folder / "no" / "e.npy", SENTENCES], "cannot be written"),
        (["embed", "--model", folder / "missing", SENTENCES], "config.json cannot be opened"),
        (["rank", *model, SENTENCES], "--query"),
        (["rank", *model, "--query", "x", "--top", "99999999999999999999", SENTENCES], "--top"),
        (["map", *model, "x"], "--svg"),
        (["map", *model, "--svg", folder / "m.svg", "--layer", "3", "x"], "--layer"),
        (["dance"], "no command"),
    ]
    for arguments, fragment in cases:
        refused(minilm, arguments, fragment)
    check(engine.run(minilm)[0] == 2 and engine.run(minilm, "--help")[0] == 0, "usage")


def changed(name, content):
    """A copy of the tiny model with one file changed, or missing if content is None."""
    model = folder / "hostile"
    shutil.rmtree(model, ignore_errors=True)
    shutil.copytree(TINY, model)
    if content is None:
        (model / name).unlink()
    else:
        (model / name).write_bytes(content)
    return model


def test_hostile_config():
    config = json.loads((TINY / "config.json").read_text())

    def refuse(fragment, name="config.json", content=None, **values):
        text = content if content is not None else json.dumps({**config, **values}).encode()
        model = changed(name, text)
        refused(minilm, ["embed", "--model", model, SENTENCES], fragment, f"{name} {text[:60]}")

    for key in "hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size":
        for value in (0, -1, 1.5, 1e300, "36", None, [36], 2**40):
            refuse(key, **{key: value})
    refuse("num_attention_heads", num_attention_heads=5)
    refuse("shape", num_attention_heads=1, hidden_size=35)
    refuse("shape", intermediate_size=65536)
    refuse("embeddings for", vocab_size=967)
    refuse("no tensor encoder.layer.2", num_hidden_layers=3)
    refuse("layer_norm_eps", layer_norm_eps=-1)
    refuse("hidden_act", hidden_act="relu")
    refuse("max_position", max_position_embeddings=1)
    refuse("config.json", content=b"")
    refuse("config.json", content=b"{")
    refuse("hidden_size", content=b"[]")
    refuse("config.json", content=b"\0" * 100)
    refuse("nested too deep", content=b"[" * 100000)
    refuse("nested too deep", content=b'{"a":' * 100000 + b"1" + b"}" * 100000)
    refuse("follows", content=b"{} {}")
    refuse("at most", content=b" " * (9 << 20))
    refuse("max_seq_length", "sentence_bert_config.json", b'{"max_seq_length": 257}')
    refuse("max_seq_length", "sentence_bert_config.json", b'{"max_seq_length": 1}')
    refuse("do_lower_case", "tokenizer_config.json", b'{"do_lower_case": false}')
    refuse("strip_accents", "tokenizer_config.json", b'{"do_lower_case": true, "strip_accents": false}')
    refuse("tokenize_chinese_chars", "tokenizer_config.json", b'{"tokenize_chinese_chars": false}')
    pooling = json.loads((TINY / "1_Pooling/config.json").read_text())
    for mode in "cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken":
        text = json.dumps({**pooling, f"pooling_mode_{mode}": True}).encode()
        refuse(f"pooling_mode_{mode} is true", "1_Pooling/config.json", text)
    refuse("mean_tokens", "1_Pooling/config.json", b'{"pooling_mode_cls_token": true}')
    for name in "config.json", "vocab.txt", "model.safetensors":
        refused(minilm, ["embed", "--model", changed(name, None), SENTENCES], name)
    for name in "tokenizer_config.json", "sentence_bert_config.json", "1_Pooling/config.json", "modules.json":
        works(minilm, "tokens", "--model", changed(name, None), SENTENCES)
    defaults = changed("tokenizer_config.json", b'{"strip_accents": null, "tokenize_chinese_chars": true}')
    works(minilm, "tokens", "--model", defaults, SENTENCES)


def test_variants():
    """Settings, modules and tensors of models that compute something else are refused by name; those
    that say what the engine does anyway change nothing."""
    want = embed(SENTENCES, name="want.npy").read_bytes()

    def same(model, what):
        check(embed(SENTENCES, model=model).read_bytes() == want, f"{what}: other vectors")

    def refuse(fragment, model, what):
        refused(minilm, ["embed", "--model", model, SENTENCES], fragment, what)

    config = json.loads((TINY / "config.json").read_text())

    def model_of(**values):
        return changed("config.json", json.dumps({**config, **values}).encode())

    for key, value in (("model_type", "roberta"), ("model_type", 7), ("is_decoder", True), ("is_decoder", 1),
                       ("add_cross_attention", True), ("position_embedding_type", "relative_key"),
                       ("position_embedding_type", "relative_key_query"), ("hidden_act", "gelu_new")):
        refuse(f"config.json: {key}", model_of(**{key: value}), f"{key} {value}")
    for values in ({"model_type": None}, {"is_decoder": False, "add_cross_attention": None},
                   {"position_embedding_type": "absolute"}, {"position_embedding_type": None}):
        same(model_of(**values), values)

    modules = json.loads((TINY / "modules.json").read_text())
    transformer, pooling, normalize = modules

    def model_with(value):
        return changed("modules.json", json.dumps(value).encode())

    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    for fragment, value in (
        ("module 3 is sentence_transformers.models.Dense", [transformer, pooling, dense, normalize]),
        ("module 4 is", [*modules, dense]),
        ("module 4 is", [*modules, normalize]),
        ("module 1 is", [pooling, transformer]),
        ("module 2 is", [transformer, normalize]),
        ("module 2 is my.Pooling", [transformer, {**pooling, "type": "my.Pooling"}]),
        ("module 3 is", [transformer, pooling, {**normalize, "type": None}]),
        ("module 2 is sentence_transformers.models.Pooling in 3_Pooling", [transformer, {**pooling, "path": "3_Pooling"}]),
        ("module 1 is", [{**transformer, "path": "0_Transformer"}, pooling]),
        ("no module is a Transformer", []),
        ("no module is a Pooling", [transformer]),
        ("is no list", {"type": "sentence_transformers.models.Dense"}),
    ):
        refuse(f"modules.json: {fragment}", model_with(value), f"modules {value}")
    same(model_with([transformer, pooling]), "without Normalize, which the engine always does")
    newer = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
    same(model_with([transformer, {**pooling, "type": newer}]), newer)
    same(changed("modules.json", None), "no modules.json")

    def with_tensor(name):
        return changed("model.safetensors", engine.with_tensor(TINY / "model.safetensors", name))

    for name in ("encoder.layer.1.attention.self.distance_embedding.weight", "encoder.relative_attention_bias.weight",
                 "encoder.layer.0.crossattention.self.query.bias", "embeddings.projection.weight"):
        refuse(f"tensor {name} is not served", with_tensor(name), name)
    for name in "embeddings.position_ids", "pooler.dense.bias", "cls.predictions.bias":
        same(with_tensor(name), name)
    refuse("encoder.layer.1", model_of(num_hidden_layers=1), "a layer too many")


def test_hostile_vocabulary():
    text = (TINY / "vocab.txt").read_bytes()

    def refuse(fragment, content):
        refused(minilm, ["tokens", "--model", changed("vocab.txt", content), SENTENCES], fragment)

    refuse("0 tokens", b"")
    refuse("embeddings for", text + b"one too many\n")
    refuse("no token [CLS]", text.replace(b"[CLS]", b"[ClS]"))
    refuse("no token [UNK]", b"[CLS]\n[SEP]\n")
    refuse("twice: lines 1 and 2", b"\n\n[CLS]\n[SEP]\n[UNK]\n")
    refuse("embeddings for", b"\n" * (1 << 20))
    # A vocabulary may have tokens that cannot occur.
    for odd in (b"\xff\xfe", b"x" * 1000000, b"##", b""):
        odd = text[: text.rindex(b"\n", 0, -1) + 1] + odd + b"\n"
        works(minilm, "tokens", "--model", changed("vocab.txt", odd), SENTENCES)
    short = works(minilm, "tokens", "--model", changed("vocab.txt", b"[CLS]\n[SEP]\n[UNK]\n"), SENTENCES)
    check(set(short.split()) == {"0", "1", "2"}, f"a vocabulary of three: ids {set(short.split())}")


def test_hostile_weights():
    data = (TINY / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    name = "encoder.layer.1.output.dense.bias"
    entry = header[name]

    def pack(value, tail=rest):
        text = value if isinstance(value, bytes) else json.dumps(value).encode()
        return struct.pack("<Q", len(text)) + text + tail

    def refuse(fragment, content):
        model = changed("model.safetensors", content)
        refused(minilm, ["embed", "--model", model, SENTENCES], fragment, fragment)

    def edit(**values):
        return pack({**header, name: {**entry, **values}})

    works(minilm, "tokens", "--model", changed("model.safetensors", pack(header)), SENTENCES)
    for cut in (0, 7, 8, 9, 8 + length - 1, 8 + length, len(data) - 1):
        refuse("model.safetensors", data[:cut])
    refuse("cover", data + b"\0")
    for huge in (2**64 - 1, 2**63, 2**32, len(data) - 7, 2**64 - 8):
        refuse("has a header of", struct.pack("<Q", huge) + data[8:])
    refuse("no valid JSON", pack(b"{" * 100000))
    refuse("nested too deep", pack(b'{"a":' * 2000 + b"1" + b"}" * 2000))
    refuse("no JSON object", pack(b"[]"))
    refuse("follows", pack(b"{}x"))
    refuse("no dtype", edit(dtype="F31"))
    refuse("no dtype", edit(dtype=None))
    refuse("no dtype", pack({**header, name: 7}))
    refuse("none of F32", edit(dtype="I32"))
    refuse("bytes of data for", edit(dtype="F64"))
    refuse("bytes of data for", edit(shape=[37]))
    refuse("no shape", edit(shape=36))
    for shape in ([-36], [36.5], ["36"], [2**32, 2**32, 2**32], [1] * 9, [2**53 + 2], [2**62, 4]):
        refuse("no file can hold", edit(shape=shape))
    refuse("bytes of data for", edit(shape=[2**53, 1]))
    refuse("not of shape", edit(shape=[6, 6]))
    begin, end = entry["data_offsets"]
    past = [len(rest), len(rest) + end - begin]
    for offsets in ([begin], [begin, end, end], [end, begin], [-1, end], "x", [begin, 2**60],
                    [begin, 1e300], [begin + 0.5, end], past):
        refuse("does not lie in", edit(data_offsets=offsets))
    refuse("hole or an overlap", edit(data_offsets=[begin + 4, end + 4]))
    refuse("hole or an overlap", edit(data_offsets=[0, end - begin]))
    without = {key: value for key, value in header.items() if key != name}
    refuse("hole", pack(without))
    # cJSON keeps both of two equal keys. Here both have bytes of their own, so that no range
    # overlaps.
    twice = json.dumps(header)[:-1] + f', "{name}": {json.dumps({**entry, "data_offsets": [len(rest), len(rest) + 144]})}}}'
    refuse("two tensors", pack(twice.encode(), rest + bytes(144)))
    # With a wrong byte anywhere in the header, the model is refused, or computed if the byte does
    # not matter.
    for at in range(0, 8 + length, 41):
        broken = data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1 :]
        model = changed("model.safetensors", broken)
        status, _, err = engine.run(minilm, "tokens", "--model", model, folder / "none.txt")
        check(status == 0 and err == "" or status == 2 and err.count("\n") == 1, f"byte {at}: {status} {err}")


for test in [value for key, value in list(globals().items()) if key.startswith("test_")]:
    test()
engine.finish()
