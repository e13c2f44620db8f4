"""The minilm engine on the published all-MiniLM-L6-v2, compared with sentence-transformers (see
make.py). The test is skipped (77) if the model cannot be fetched into FOLDER.

Usage: test_published.py FETCH FOLDER MINILM
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import engine

fetch, folder, minilm = sys.argv[1:]
done = subprocess.run([sys.executable, fetch, folder], stdout=subprocess.PIPE, text=True, check=False)
if done.returncode != 0:
    sys.exit(done.returncode)
model = done.stdout.strip()

sentences, out = HERE / "sentences.txt", engine.folder / "e.npy"
ids = engine.works(minilm, "tokens", "--model", model, sentences)
engine.check(ids == (HERE / "sentences_ids.txt").read_text(), "ids of the sentences")
engine.works(minilm, "embed", "--model", model, "--out", out, sentences)
got, want = engine.rows(out), engine.rows(HERE / "embeddings.npy")
engine.check(len(got) == len(want) == 100, f"{len(got)} embeddings")
cosine = min(engine.cosine(g, w) for g, w in zip(got, want))
difference = max(engine.most_difference(g, w) for g, w in zip(got, want))
print(f"least cosine {cosine:.7f}, max difference {difference:.2g}")
engine.check(cosine >= 0.99999, "cosine")
engine.check(difference <= 2e-6, "max difference")

# In bf16 there are some dozens of roundings on the way, each of 2^-9 at most.
engine.works(minilm, "embed", "--type", "bf16", "--model", model, "--out", out, sentences)
rough = min(engine.cosine(g, w) for g, w in zip(engine.rows(out), got))
print(f"least cosine of bf16 and f32 {rough:.7f}")
engine.check(0.9995 <= rough < 1, "cosine of bf16 and f32")
engine.finish()
