"""The whole encoding of texts by all-MiniLM-L6-v2: the engine in examples/minilm compared with
transformers and ONNX Runtime, in turns, on the same token ids (which the engine also makes from the
text).
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

CASES = [(32, 128), (1, 16)]
TURN, PAUSE = 0.1, 0.3  # seconds: the least of a turn; before it, as workers still spin
WORDS = "the cat sat on a mat and the dogs did not mind it at all while we had tea".split()


class Engine:
    def __init__(self, build, model, path, dtype, threads):
        command = [os.path.join(build, "examples/minilm/minilm")]
        options = ["--model", model, "--type", dtype, "--threads", str(threads)]
        out = path + ".npy"
        subprocess.run(command + ["embed", *options, "--out", out, path], check=True, stdout=subprocess.DEVNULL)
        self.vectors = np.load(out)
        self.process = subprocess.Popen(
            command + ["bench", *options, path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )

    def call(self):
        self.process.stdin.write("\n")
        return 1e-3 * float(self.process.stdout.readline())

    def close(self):
        self.process.communicate()


class Transformers:
    def __init__(self, model, tokens, dtype, threads):
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        self.model = transformers.AutoModel.from_pretrained(model, dtype=kind, add_pooling_layer=False).eval()
        self.tokens, self.threads = tokens, threads

    @torch.inference_mode()
    def call(self):
        torch.set_num_threads(self.threads)
        start = time.perf_counter()
        hidden = self.model(**self.tokens).last_hidden_state
        mask = self.tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        self.vectors = torch.nn.functional.normalize(mean, dim=1)
        took = time.perf_counter() - start
        self.vectors = self.vectors.float().numpy()
        return took

    def close(self):
        pass


class OnnxRuntime:
    """The model of transformers, exported to ONNX."""

    def __init__(self, model, tokens, threads, folder):
        import onnxruntime

        path = os.path.join(folder, "model.onnx")
        ids, mask = tokens["input_ids"], tokens["attention_mask"]
        if not os.path.exists(path):
            inner = transformers.AutoModel.from_pretrained(model, add_pooling_layer=False).eval()

            class Hidden(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = inner

                def forward(self, ids, mask):
                    return self.inner(input_ids=ids, attention_mask=mask).last_hidden_state

            size = {0: "texts", 1: "tokens"}
            torch.onnx.export(
                Hidden(), (torch.ones(2, 16, dtype=torch.int64), torch.ones(2, 16, dtype=torch.int64)), path,
                input_names=["ids", "mask"], output_names=["hidden"], dynamo=True, verbose=False,
                dynamic_shapes={"ids": size, "mask": size},
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.feed = {"ids": ids.numpy(), "mask": mask.numpy()}

    def call(self):
        start = time.perf_counter()
        hidden = self.session.run(None, self.feed)[0]
        mask = self.feed["mask"][..., None]
        mean = (hidden * mask).sum(1) / mask.sum(1)
        self.vectors = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return time.perf_counter() - start

    def close(self):
        pass


def measure(ways, rounds):
    """{name: median seconds}; in each round every way has a turn."""
    seconds = {name: [] for name in ways}
    calls = {name: max(1, round(TURN / min(way.call(), way.call()))) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            time.sleep(PAUSE)
            way.call()
            seconds[name] += [way.call() for _ in range(calls[name])]
    return {name: statistics.median(s) for name, s in seconds.items()}


def texts_of(model, n, tokens):
    """n texts with this number of tokens, and the output of the tokenizer for them."""
    text = " ".join(WORDS[i % len(WORDS)] for i in range(tokens - 2))
    found = transformers.AutoTokenizer.from_pretrained(model)([text] * n, padding=True, return_tensors="pt")
    assert tuple(found["input_ids"].shape) == (n, tokens), found["input_ids"].shape
    return text, found


def report(options, here):
    """Measures and writes a Markdown table. Returns the exit status."""
    fetch = os.path.join(here, os.pardir, "examples", "minilm", "fetch.py")
    done = subprocess.run(
        [sys.executable, fetch, os.path.join(options.build, "minilm-model")],
        stdout=subprocess.PIPE, text=True, check=False,
    )
    if done.returncode != 0:
        return 1
    model = done.stdout.strip()
    lines = [
        f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
        "",
        "| texts x tokens | type | threads | Heed | transformers | Heed / it | ONNX Runtime | Heed / it | max difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for n, tokens in CASES:
            text, found = texts_of(model, n, tokens)
            path = os.path.join(folder, "texts.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write((text + "\n") * n)
            for dtype in (t for t in options.dtypes.split(",") if t in ("f32", "bf16")):
                for threads in map(int, options.threads.split(",")):
                    ways = {
                        "heed": Engine(options.build, model, path, dtype, threads),
                        "transformers": Transformers(model, found, dtype, threads),
                    }
                    if dtype == "f32":
                        try:
                            ways["onnx"] = OnnxRuntime(model, found, threads, folder)
                        except Exception as error:  # other libraries may raise anything
                            print(f"peers: ONNX Runtime is left out: {error}", file=sys.stderr)
                    medians = measure(ways, options.rounds)
                    heed, its, onnx = (medians.get(w) for w in ("heed", "transformers", "onnx"))
                    far = np.abs(ways["heed"].vectors - ways["transformers"].vectors).max()
                    for way in ways.values():
                        way.close()
                    cells = [f"{n} x {tokens}", dtype, f"{threads}", f"{1e3 * heed:.2f} ms"]
                    cells += [f"{1e3 * its:.2f} ms", f"{its / heed:.2f}"]
                    cells += [f"{1e3 * onnx:.2f} ms", f"{onnx / heed:.2f}"] if onnx else ["-", "-"]
                    lines.append("| " + " | ".join(cells + [f"{far:.1e}"]) + " |")
                    print(lines[-1], flush=True)
    with open(options.report, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(f"peers: table in {options.report}")
    return 0
