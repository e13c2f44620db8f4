/* The docstrings of the module's functions and types: signature, shapes, types, errors, example. */
#ifndef HEED_PY_DOCS_H
#define HEED_PY_DOCS_H

#define DOC_ATTENTION                                                                              \
    "attention(q, k, v, *, mask=None, bias=None, causal=False, window=None, "                      \
    "scale=None, softcap=None, alibi=None, sinks=None, q_lens=None, kv_lens=None, "                \
    "position='end', ranges=None, key_blocks=None, mask_from=None, layout='bhsd', "                \
    "accuracy=None, out=None, return_lse=False, return_weights=False, dtype=None)\n"               \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "softmax(scale * q k^T + ...) v, each row over the keys that it may see.\n"                    \
    "\n"                                                                                           \
    "q               [batch, q_heads, q_len, dim] of f32, f16 or bf16, any strides\n"              \
    "k, v            [batch, kv_heads, kv_len, dim] and [..., v_dim]; q_heads is a "               \
    "multiple of kv_heads\n"                                                                       \
    "mask            bool, broadcast to [batch, q_heads, q_len, kv_len] as numpy "                 \
    "does; true: attend\n"                                                                         \
    "bias            f32, f16 or bf16 of that shape, added to the scores; -inf masks\n"            \
    "causal          a row sees no key behind its position\n"                                      \
    "window          (left, right): keys seen before and behind a row's position, "                \
    "None or -1: all; n: (n, n)\n"                                                                 \
    "scale           1 / sqrt(dim) if not given\n"                                                 \
    "softcap         scores become softcap * tanh(scores / softcap)\n"                             \
    "alibi           [q_heads] slopes: adds slope * (key - position)\n"                            \
    "sinks           [q_heads] logits that take part in the softmax's sum alone\n"                 \
    "q_lens, kv_lens [batch] rows and keys of each sequence; rows past them are 0 in "             \
    "a new out\n"                                                                                  \
    "position        where row 0 stands among the keys: \"start\" (0), \"end\" (the "              \
    "last row at the last key) or an\n"                                                            \
    "                int or [batch] ints; causal, window and alibi go by it\n"                     \
    "ranges          int32 [batch, heads, rows, n, 2]: row i sees only keys of its "               \
    "intervals (heed.masks)\n"                                                                     \
    "key_blocks      what heed.masks.blocks gives; its blocks cover the rows and keys, no "        \
    "fewer and no more\n"                                                                          \
    "mask_from       [batch] key that column 0 of mask and bias is; keys before it "               \
    "are visible to them\n"                                                                        \
    "layout          order of the axes of q, k, v and out: \"bhsd\", \"bshd\", "                   \
    "\"hsd\", \"sd\", ...\n"                                                                       \
    "accuracy        \"exact\", \"bf16\", \"split\" or, where keys are codes (plans and caches), " \
    "\"int8\"; what they\n"                                                                        \
    "                mean is in heed/attention.h\n"                                                \
    "out             is written and returned; f32, f16 or bf16; may lie among the inputs, but "    \
    "shares "                                                                                      \
    "no element with\n"                                                                            \
    "                one; a tensor that requires a gradient only within torch.no_grad()\n"         \
    "return_lse      the log of the softmax's sum too, f32 [batch, q_heads, q_len]\n"              \
    "return_weights  and the softmax itself, f32 [batch, q_heads, q_len, kv_len]\n"                \
    "dtype           \"bf16\": arrays of uint16 hold its bits; another type: one of the arrays "   \
    "has it, "                                                                                     \
    "else ValueError\n"                                                                            \
    "\n"                                                                                           \
    "Returns out [batch, q_heads, q_len, v_dim] of q's type and q's kind of array, "               \
    "or a tuple (out, lse),\n"                                                                     \
    "(out, weights) or (out, lse, weights). A row that sees no key is 0, its lse "                 \
    "-inf.\n"                                                                                      \
    "\n"                                                                                           \
    "Errors: ValueError with a sentence that says what was required; "                             \
    "NotImplementedError where no backend\n"                                                       \
    "serves what is asked; MemoryError.\n"                                                         \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> q = np.ones((1, 2, 3, 4), np.float32)\n"                                                  \
    ">>> v = np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2)\n"                                 \
    ">>> out, lse = heed.attention(q, q[:, :1], v, causal=True, return_lse=True)\n"                \
    ">>> out[0, 1]\n"                                                                              \
    "array([[0., 1.],\n"                                                                           \
    "       [1., 2.],\n"                                                                           \
    "       [2., 3.]], dtype=float32)\n"                                                           \
    ">>> lse.shape\n"                                                                              \
    "(1, 2, 3)"

#define DOC_VARLEN                                                                                 \
    "varlen(q, k, v, cu_q, cu_k, *, mask=None, bias=None, causal=False, window=None, "             \
    "scale=None, softcap=None, alibi=None, sinks=None, position='end', ranges=None, "              \
    "key_blocks=None, mask_from=None, accuracy=None, out=None, return_lse=False, "                 \
    "return_weights=False, dtype=None)\n"                                                          \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Attention of sequences that lie behind each other.\n"                                         \
    "\n"                                                                                           \
    "q               [tokens, q_heads, dim]\n"                                                     \
    "k, v            [keys, kv_heads, dim] and [keys, kv_heads, v_dim]\n"                          \
    "cu_q, cu_k      [batch + 1] ints: sequence b is rows cu_q[b] to cu_q[b + 1] - 1 "             \
    "of q\n"                                                                                       \
    "mask, bias, ranges, weights   as in heed.attention, with the longest sequence's "             \
    "rows and keys\n"                                                                              \
    "\n"                                                                                           \
    "Returns out [tokens, q_heads, v_dim], lse [q_heads, tokens]; rows of no "                     \
    "sequence are 0 and -inf. The rest\n"                                                          \
    "and the errors are those of heed.attention.\n"                                                \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> x = np.arange(5, dtype=np.float32).reshape(5, 1, 1)\n"                                    \
    ">>> heed.varlen(0 * x, x, x, [0, 2, 5], [0, 2, 5]).ravel()\n"                                 \
    "array([0.5, 0.5, 3. , 3. , 3. ], dtype=float32)"

#define DOC_MERGE                                                                                  \
    "merge(a, a_lse, b, b_lse, *, layout='bhsd', dtype=None, out=None)\n"                          \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "The result over the union of two disjoint sets of keys, of the results over "                 \
    "each.\n"                                                                                      \
    "\n"                                                                                           \
    "a, b            f32 [batch, heads, rows, dim], in the order that layout says\n"               \
    "a_lse, b_lse    f32 [batch, heads, rows], as return_lse gives them\n"                         \
    "dtype           the type of out: \"f32\" (default), \"f16\" or \"bf16\" (of numpy "           \
    "arrays: uint16 that holds its bits)\n"                                                        \
    "out             is written; may be a or b, element for element, else shares none with an "    \
    "input\n"                                                                                      \
    "\n"                                                                                           \
    "Returns (out, lse). A part with lse -inf has no influence. A sink belongs to "                \
    "one part.\n"                                                                                  \
    "Errors: ValueError.\n"                                                                        \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> rng = np.random.default_rng(0)\n"                                                         \
    ">>> q, k, v = (rng.standard_normal((1, 2, 6, 4)).astype(np.float32) for _ in "                \
    "range(3))\n"                                                                                  \
    ">>> a = heed.attention(q, k[:, :, :2], v[:, :, :2], return_lse=True)\n"                       \
    ">>> b = heed.attention(q, k[:, :, 2:], v[:, :, 2:], return_lse=True)\n"                       \
    ">>> np.allclose(heed.merge(*a, *b)[0], heed.attention(q, k, v), atol=1e-6)\n"                 \
    "True"

#define DOC_ROTARY                                                                                 \
    "rotary(x, *, offsets=None, positions=None, lens=None, style='half', dims=None, "              \
    "base=10000.0, scale=1.0, mscale=1.0, freq=None, layout='bhsd', out=None, "                    \
    "dtype=None)\n"                                                                                \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Rotary position embedding: pair i of a row at position p is turned by p / scale "             \
    "* base^(-2 i / dims).\n"                                                                      \
    "\n"                                                                                           \
    "x               [batch, heads, rows, dim] of f32, f16 or bf16, in the order "                 \
    "that layout says\n"                                                                           \
    "offsets         int or [batch] ints: position of row 0; 0 if not given\n"                     \
    "positions       int32 [batch, rows]: the position of each row instead\n"                      \
    "lens            [batch] rows of each sequence; rows past them are 0 in a new out\n"           \
    "style           \"half\" turns elements i and i + dims / 2 together, "                        \
    "\"interleaved\" 2 i and 2 i + 1\n"                                                            \
    "dims            only the first so many elements of a row are turned; all if not "             \
    "given\n"                                                                                      \
    "mscale          what turned elements are multiplied by\n"                                     \
    "freq            [dims / 2] instead of base^(-2 i / dims)\n"                                   \
    "out             is written and returned; may be x, element for element, else shares none "    \
    "with it\n"                                                                                    \
    "\n"                                                                                           \
    "Returns an array like x. Errors: ValueError.\n"                                               \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> x = np.ones((1, 1, 2, 2), np.float32)\n"                                                  \
    ">>> heed.rotary(x)[0, 0].round(3)\n"                                                          \
    "array([[ 1.   ,  1.   ],\n"                                                                   \
    "       [-0.301,  1.382]], dtype=float32)"

#define DOC_THREADS                                                                                \
    "threads(n, /)\n"                                                                              \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "with heed.threads(n): calls of this thread use at most n threads of their own.\n"             \
    "\n"                                                                                           \
    "A setting is the thread's that enters it, and of all tasks of asyncio that take turns on "    \
    "it.\n"                                                                                        \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> x = np.ones((1, 1, 4, 4), np.float32)\n"                                                  \
    ">>> with heed.threads(1):\n"                                                                  \
    "...     out = heed.attention(x, x, x)"

#define DOC_BACKEND                                                                                \
    "backend(names, /)\n"                                                                          \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "with heed.backend(\"avx2\"): calls of this thread use that backend, or of "                   \
    "several with commas the first that\n"                                                         \
    "serves the problem. heed.info() lists them.\n"                                                \
    "\n"                                                                                           \
    "Errors: ValueError where a name is unknown or cannot run here.\n"                             \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> x = np.ones((1, 1, 4, 4), np.float32)\n"                                                  \
    ">>> with heed.backend(\"naive\"):\n"                                                          \
    "...     out = heed.attention(x, x, x)"

#define DOC_PLAN                                                                                   \
    "Plan(*, q_heads, kv_heads=None, dim, v_dim=None, dtype='f32', kv_dtype=None, "                \
    "page_len=None, causal=False, window=None, scale=None, softcap=None, "                         \
    "position='end', accuracy=None, layout='bhsd', max_batch=None, max_q_len=None, "               \
    "max_kv_len=None)\n"                                                                           \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "What is the same in many calls, checked once; run it with arrays.\n"                          \
    "\n"                                                                                           \
    "kv_heads, v_dim, kv_dtype   q_heads, dim and dtype if not given\n"                            \
    "kv_dtype        may be a type of codes: \"i8\" (int8 arrays), \"u8\" (uint8), or bytes of "   \
    "\"u4\", \"f8_e4m3\",\n"                                                                       \
    "                \"q8_0\", \"q4_0\", \"q4_1\", \"q5_0\", \"q5_1\" and \"iq4_nl\"; f8_e4m3 as " \
    "E4M3 arrays too\n"                                                                            \
    "page_len        keys of a page: k and v are [n_pages, kv_heads, page_len, dim] "              \
    "and run takes a block_table\n"                                                                \
    "max_q_len, max_kv_len, max_batch   a run stays within them; the first two go together, "      \
    "max_batch is then 1 if not\n"                                                                 \
    "                given; none given: each run sizes itself\n"                                   \
    "The rest        as in heed.attention\n"                                                       \
    "\n"                                                                                           \
    "Errors: ValueError, NotImplementedError (no backend serves it), MemoryError.\n"               \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> plan = heed.plan(q_heads=2, kv_heads=1, dim=4, causal=True)\n"                            \
    ">>> q = np.ones((1, 2, 3, 4), np.float32)\n"                                                  \
    ">>> plan.run(q, q[:, :1], q[:, :1]).shape\n"                                                  \
    "(1, 2, 3, 4)\n"                                                                               \
    ">>> plan.workspace(2) > 0\n"                                                                  \
    "True"

#define DOC_PLAN_RUN                                                                               \
    "run($self, q, k, v, *, mask=None, bias=None, alibi=None, sinks=None, "                        \
    "q_lens=None, kv_lens=None, position=None, ranges=None, key_blocks=None, "                     \
    "mask_from=None, block_table=None, out=None, return_lse=False, "                               \
    "return_weights=False, k_scale=None, k_zero=None, v_scale=None, v_zero=None, "                 \
    "k_key_group=None, v_key_group=None)\n"                                                        \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "heed.attention of what the plan is for.\n"                                                    \
    "\n"                                                                                           \
    "block_table     int32 [batch, pages]: with page_len, the pages of each sequence "             \
    "in order\n"                                                                                   \
    "kv_lens         [batch] keys of each sequence\n"                                              \
    "k_scale, k_zero, v_scale, v_zero   of codes: f32 [batch or pages, kv_heads, keys or "         \
    "groups of keys, groups of\n"                                                                  \
    "                dims], axes of 1 repeat\n"                                                    \
    "k_key_group, v_key_group   adjacent keys that share a scale, the last group having what is "  \
    "left; needed where\n"                                                                         \
    "                groups of several sizes would have as many scales\n"                          \
    "\n"                                                                                           \
    "Returns and errors as heed.attention.\n"                                                      \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> pages = np.arange(6, dtype=np.float32).reshape(3, 1, 2, 1)\n"                             \
    ">>> plan = heed.plan(q_heads=1, dim=1, page_len=2)\n"                                         \
    ">>> plan.run(np.zeros((1, 1, 1, 1), np.float32), pages, pages,\n"                             \
    "...          block_table=np.array([[2, 0]], np.int32), kv_lens=[3]).item()\n"                 \
    "3.0"

#define DOC_PLAN_EXPLAIN                                                                           \
    "explain($self, *, json=False)\n"                                                              \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Which backend and kernel each query class uses, and why not others; text, or "                \
    "JSON as text."

#define DOC_PLAN_WORKSPACE                                                                         \
    "workspace($self, n=1)\n"                                                                      \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Bytes of workspace of a run on n threads (for 512 rows and 4096 keys where the "              \
    "plan has no maxima)."

#define DOC_KVCACHE                                                                                \
    "KVCache(*, batch, capacity, kv_heads, dim, v_dim=None, k_dtype='f32', "                       \
    "v_dtype=None, page_len=None)\n"                                                               \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Keys and values of sequences that grow, in memory of Heed's.\n"                               \
    "\n"                                                                                           \
    "capacity        the most keys of a sequence\n"                                                \
    "k_dtype, v_dtype   \"f32\", \"f16\", \"bf16\", or codes such as \"q8_0\": what "              \
    "is appended is rounded to them\n"                                                             \
    "page_len        keys of a page; memory is then handed out page by page through "              \
    "a block table\n"                                                                              \
    "\n"                                                                                           \
    "Threads: calls that read a cache run side by side. One that writes to it (append, "           \
    "clear, a layer's\n"                                                                           \
    "call that appends) runs alone: RuntimeError where it meets another, and that call "           \
    "does nothing.\n"                                                                              \
    "\n"                                                                                           \
    "Errors: ValueError, NotImplementedError (no backend reads such keys), "                       \
    "MemoryError.\n"                                                                               \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> cache = heed.KVCache(batch=1, capacity=8, kv_heads=1, dim=4)\n"                           \
    ">>> x = np.ones((1, 1, 3, 4), np.float32)\n"                                                  \
    ">>> cache.append(x, x)\n"                                                                     \
    ">>> cache.lens\n"                                                                             \
    "[3]\n"                                                                                        \
    ">>> cache.attention(x[:, :, :1]).shape\n"                                                     \
    "(1, 1, 1, 4)"

#define DOC_CACHE_APPEND                                                                           \
    "append($self, k, v, lens=None, *, layout='bhsd', dtype=None)\n"                               \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Appends rows behind the keys that are there.\n"                                               \
    "\n"                                                                                           \
    "k, v            [batch, kv_heads, rows, dim] and [..., v_dim] of f32, f16 or "                \
    "bf16\n"                                                                                       \
    "lens            [batch]: only the first so many rows of each sequence\n"                      \
    "\n"                                                                                           \
    "Errors: ValueError, such as where a sequence would exceed the capacity; nothing "             \
    "is appended then."

#define DOC_CACHE_ATTENTION                                                                        \
    "attention($self, q, causal=True, *, mask=None, bias=None, window=None, "                      \
    "scale=None, softcap=None, alibi=None, sinks=None, q_lens=None, position='end', "              \
    "ranges=None, key_blocks=None, mask_from=None, layout='bhsd', accuracy=None, "                 \
    "out=None, return_lse=False, return_weights=False, dtype=None)\n"                              \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "heed.attention over the cached keys and values; the rows stand at the end of "                \
    "each sequence.\n"                                                                             \
    "\n"                                                                                           \
    "Masks have as many columns as the longest sequence has keys. Returns and errors "             \
    "as heed.attention."

#define DOC_CACHE_DECODED                                                                          \
    "decoded($self)\n"                                                                             \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "(k, v) as f32 [batch, kv_heads, capacity, dim]: what the cached numbers or "                  \
    "codes stand for, 0 past lens."

#define DOC_CACHE_CLEAR                                                                            \
    "clear($self)\n"                                                                               \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Forgets all keys."

#define DOC_LINEAR                                                                                 \
    "Linear(weight, bias=None, *, layout='out_in', activation=None, residual=False, "              \
    "accuracy=None, dtype=None, x_dtype=None, y_dtype=None)\n"                                     \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "A linear layer: act(x @ W + bias) + residual. The weights are copied into the "               \
    "form that is read fastest.\n"                                                                 \
    "\n"                                                                                           \
    "weight          [out, in] as torch's nn.Linear has it, or layout=\"in_out\" "                 \
    "[in, out]; with a third axis in\n"                                                            \
    "                front a matrix for each head, their outputs side by side\n"                   \
    "bias            [out]\n"                                                                      \
    "activation      \"gelu\", \"gelu_tanh\" or \"silu\"\n"                                        \
    "residual        the layer is called with one\n"                                               \
    "accuracy        \"exact\", \"bf16\" or \"split\"\n"                                           \
    "dtype           the weight's type; \"bf16\": one of uint16 holds its bits\n"                  \
    "x_dtype, y_dtype   types of x and of the result; the weight's, and x's, if not "              \
    "given; a bf16 result for\n"                                                                   \
    "                an x of numpy's own types is uint16 that holds its bits\n"                    \
    "\n"                                                                                           \
    "Called with x [..., in], and residual [..., out] if it has one, and out=. "                   \
    "Returns [..., out].\n"                                                                        \
    "out shares no element with x; it may be residual, element for element.\n"                     \
    "The layer keeps the setting of heed.threads and heed.backend that it was made "               \
    "in.\n"                                                                                        \
    "Errors: ValueError, NotImplementedError, MemoryError.\n"                                      \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> linear = heed.Linear(np.array([[1, 2], [3, 4], [5, 6]], np.float32), "                    \
    "np.ones(3, np.float32))\n"                                                                    \
    ">>> linear(np.ones((1, 2), np.float32))\n"                                                    \
    "array([[ 4.,  8., 12.]], dtype=float32)"

#define DOC_LINEAR_EXPLAIN                                                                         \
    "explain($self, *, json=False)\n"                                                              \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Which backend and kernel the layer uses, and why not others; text, or JSON as "               \
    "text."

#define DOC_MHA                                                                                    \
    "MultiHeadAttention(q_heads, wq, wk, wv, wo=None, *, bq=None, bk=None, bv=None, "              \
    "bo=None, kv_heads=None, layout='out_in', cross=False, causal=False, "                         \
    "window=None, scale=None, softcap=None, position='end', rotary=None, "                         \
    "accuracy=None, dtype=None)\n"                                                                 \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "An attention layer: projections, rotary positions, cache, attention and output "              \
    "projection in one call.\n"                                                                    \
    "\n"                                                                                           \
    "wq, wk, wv      [q_heads * dim, d_model], [kv_heads * dim, d_kv], [kv_heads * "               \
    "v_dim, d_kv], or transposed\n"                                                                \
    "                with layout=\"in_out\"; copied\n"                                             \
    "wo              [any, q_heads * v_dim]; without it the heads are returned side "              \
    "by side\n"                                                                                    \
    "bq, bk, bv, bo  their biases\n"                                                               \
    "cross           keys and values come from x_kv\n"                                             \
    "rotary          True, or a dict with style, dims, base, scale, mscale, freq as "              \
    "heed.rotary takes them; rows\n"                                                               \
    "                are turned by their position, key j by j\n"                                   \
    "dtype           the type of x and all between, the weights' if not given; with "              \
    "\"bf16\" arrays of uint16 hold its bits\n"                                                    \
    "The rest        as in heed.attention\n"                                                       \
    "\n"                                                                                           \
    "Called with x [batch, rows, d_model] and\n"                                                   \
    "x_kv            [batch, keys, d_kv] with cross (with a cache None: it has all "               \
    "keys)\n"                                                                                      \
    "cache           a KVCache that new keys and values are appended to; rows stand "              \
    "at its end\n"                                                                                 \
    "mask, bias, alibi, sinks, position, ranges, key_blocks, mask_from, return_lse,\n"             \
    "return_weights  as in heed.attention; keys of a cache are counted to its capacity\n"          \
    "positions       int32 [batch, rows]: with rotary, what rows are turned by, and their keys\n"  \
    "                unless the layer is a cross-attention; which keys they see stays\n"           \
    "q_lens, kv_lens [batch] rows of x and of x_kv\n"                                              \
    "out             is written and returned; with wo it may be x or x_kv, element for element, "  \
    "else shares none\n"                                                                           \
    "                with them; without wo none with mask and bias either\n"                       \
    "\n"                                                                                           \
    "Returns [batch, rows, out]. The layer keeps the setting of heed.threads and "                 \
    "heed.backend that it was made\n"                                                              \
    "in. Errors: ValueError, NotImplementedError, MemoryError.\n"                                  \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> w = np.eye(8, dtype=np.float32)\n"                                                        \
    ">>> layer = heed.MultiHeadAttention(2, w, w, w, w, causal=True)\n"                            \
    ">>> x = np.ones((1, 3, 8), np.float32)\n"                                                     \
    ">>> layer(x).shape\n"                                                                         \
    "(1, 3, 8)"

#define DOC_SEGMENTS                                                                               \
    "segments(ids, q_len=None)\n"                                                                  \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Ranges of sequences packed in one: a position sees those of its own segment.\n"               \
    "\n"                                                                                           \
    "ids             int [batch, kv_len] or [kv_len]; less than 0 is padding, which "              \
    "sees and is seen by none\n"                                                                   \
    "q_len           the rows are the last so many positions; all if not given\n"                  \
    "\n"                                                                                           \
    "Returns int32 [batch, 1, rows, n, 2]; n is more than 1 where a segment comes in "             \
    "pieces, at most 8.\n"                                                                         \
    "Errors: ValueError.\n"                                                                        \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> heed.masks.segments(np.array([[0, 0, 1]]))[0, 0, :, 0].tolist()\n"                        \
    "[[0, 2], [0, 2], [2, 3]]"

#define DOC_CHUNKS                                                                                 \
    "chunks(kv_len, length, q_len=None)\n"                                                         \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Ranges of chunked attention: a position sees those of its own chunk of so many.\n"            \
    "\n"                                                                                           \
    "Returns int32 [1, 1, rows, 1, 2]. Errors: ValueError.\n"                                      \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> np.asarray(heed.masks.chunks(5, 2))[0, 0, :, 0].tolist()\n"                               \
    "[[0, 2], [0, 2], [2, 4], [2, 4], [4, 5]]"

#define DOC_PREFIX                                                                                 \
    "prefix(kv_len, prefix_len, q_len=None)\n"                                                     \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Ranges of a prefix language model: a position sees the prefix and what is not "               \
    "behind it.\n"                                                                                 \
    "\n"                                                                                           \
    "prefix_len      int, or [batch] ints\n"                                                       \
    "\n"                                                                                           \
    "Returns int32 [1 or batch, 1, rows, 1, 2]. Errors: ValueError.\n"                             \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> np.asarray(heed.masks.prefix(4, 2))[0, 0, :, 0].tolist()\n"                               \
    "[[0, 2], [0, 2], [0, 3], [0, 4]]"

#define DOC_TREE                                                                                   \
    "tree(parents, prefix=0)\n"                                                                    \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Ranges of a tree of tokens: a token sees itself, those above it, and all "                    \
    "positions of a prefix before the\n"                                                           \
    "tree, such as the keys that a cache holds.\n"                                                 \
    "\n"                                                                                           \
    "parents         int [nodes] or [batch, nodes]: the node that is each one's "                  \
    "parent, before it; -1: none\n"                                                                \
    "\n"                                                                                           \
    "Returns int32 [1 or batch, 1, nodes, n, 2]; n is the most pieces that a path "                \
    "lies in, at most 8.\n"                                                                        \
    "Errors: ValueError.\n"                                                                        \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> np.asarray(heed.masks.tree([-1, 0, 0, 2]))[0, 0].tolist()\n"                              \
    "[[[0, 1], [1, 1]], [[0, 2], [2, 2]], [[0, 1], [2, 3]], [[0, 1], [2, 4]]]"

#define DOC_BLOCKS                                                                                 \
    "blocks(bits, *, block_rows, block_keys)\n"                                                    \
    "--\n"                                                                                         \
    "\n"                                                                                           \
    "Key blocks: row i sees key j only where bits[b, h, i // block_rows, j // "                    \
    "block_keys] is true.\n"                                                                       \
    "\n"                                                                                           \
    "bits            bool [batch, heads, row_blocks, key_blocks], any of the first "               \
    "two 1\n"                                                                                      \
    "\n"                                                                                           \
    "Returns what key_blocks= of heed.attention takes: (uint64 words, block_rows, "                \
    "block_keys, key_blocks).\n"                                                                   \
    "Errors: ValueError.\n"                                                                        \
    "\n"                                                                                           \
    ">>> import heed, numpy as np\n"                                                               \
    ">>> words, rows, keys, n = heed.masks.blocks(np.array([[[[1, 0, 1]]]], bool), "               \
    "block_rows=4, block_keys=2)\n"                                                                \
    ">>> np.asarray(words).item(), rows, keys, n\n"                                                \
    "(5, 4, 2, 3)"

#endif
