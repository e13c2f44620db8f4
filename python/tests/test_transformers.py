"""heed.transformers: models with tiny random weights give with "heed" what they give with "eager".

2e-5 is the bar for logits in f32; tiny models have logits of about one. Rows of padding are nobody's and not
compared: with "eager" they see an average of everything, with Heed nothing.
"""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers import (  # noqa: E402
    AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM, masking_utils)

import heed.torch  # noqa: E402
import heed.transformers  # noqa: E402

heed.transformers.register()
NEAR = 2e-5
SMALL = dict(vocab_size=60, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None)
GROUPED = dict(SMALL, num_key_value_heads=2)
MLA = dict(SMALL, num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8,
           v_head_dim=6, head_dim=4, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=8,
           n_shared_experts=1, first_k_dense_replace=1)

# name of the model type: what its config is given; grouped by what of attention they use
DECODERS = {
    # plain, and grouped heads
    "gpt2": dict(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=None),
    "gpt_neox": SMALL,
    "opt": dict(SMALL, ffn_dim=40, word_embed_proj_dim=32),
    "phi": GROUPED,
    "llama": GROUPED,
    "qwen2": GROUPED,
    "qwen3": dict(GROUPED, head_dim=8),
    "gemma": dict(GROUPED, head_dim=8),
    "phi3": GROUPED,
    "olmo": GROUPED,
    "olmo2": GROUPED,
    "cohere": GROUPED,
    "granite": GROUPED,
    "stablelm": GROUPED,
    "glm": dict(GROUPED, head_dim=8),
    "helium": dict(GROUPED, head_dim=8),
    "nemotron": GROUPED,
    "smollm3": GROUPED,
    "biogpt": SMALL,
    "mixtral": dict(GROUPED, num_local_experts=2),
    # a sliding window
    "mistral": dict(GROUPED, sliding_window=4),
    "starcoder2": dict(GROUPED, sliding_window=4),
    "cohere2": dict(GROUPED, sliding_window=4),
    "gemma3_text": dict(GROUPED, head_dim=8, sliding_window=4, layer_types=["sliding_attention", "full_attention"]),
    # a soft cap
    "gemma2": dict(GROUPED, head_dim=8, sliding_window=4, attn_logit_softcapping=1.0, query_pre_attn_scalar=8),
    # sinks
    "gpt_oss": dict(GROUPED, head_dim=8, sliding_window=4, num_local_experts=2, num_experts_per_tok=1),
    # chunks
    "llama4_text": dict(GROUPED, head_dim=8, attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=40,
                        moe_layers=[], no_rope_layers=[1, 0]),
    # compressed keys, values narrower than keys
    "deepseek_v2": MLA,
    "deepseek_v3": MLA,
}
ENCODERS = {
    "bert": SMALL,
    "roberta": dict(SMALL, max_position_embeddings=66),
    "xlm-roberta": dict(SMALL, max_position_embeddings=66),
    "electra": dict(SMALL, embedding_size=32),
    "distilbert": dict(vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=40, max_position_embeddings=64),
    "albert": dict(SMALL, embedding_size=16),
    "modernbert": dict(SMALL, local_attention=4, global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2),
    "eurobert": GROUPED,
}
BOTH = dict(vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=64, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None)
ENCODER_DECODERS = {
    "bart": BOTH,
    "mbart": BOTH,
    "pegasus": BOTH,
    "marian": BOTH,
    "m2m_100": BOTH,
    "t5": dict(vocab_size=60, d_model=32, d_kv=8, d_ff=40, num_layers=2, num_heads=4, pad_token_id=0, eos_token_id=1,
               decoder_start_token_id=0),
}


def made(kind, name, options):
    """The model in evaluation, and a switch of its attention."""
    torch.manual_seed(1)
    config = AutoConfig.for_model(name, **copy.deepcopy(options))
    model = kind.from_config(config).eval().requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():  # tiny models have almost flat weights otherwise
            if parameter.dim() > 1:
                parameter.mul_(4)
            elif "sinks" in [n for n, p in model.named_parameters() if p is parameter][0]:
                parameter.normal_()
    return model


def both(model, call):
    """What a call gives with "eager" and with "heed", the second computed by Heed."""
    model.set_attn_implementation("eager")
    want = call(model)
    model.set_attn_implementation("heed")
    before = heed.transformers.computed()
    got = call(model)
    assert heed.transformers.computed() > before, "Heed computed nothing"
    return want, got


def near(want, got, where=None):
    assert want.shape == got.shape and torch.isfinite(got[where] if where is not None else got).all()
    gap = (want - got).abs()
    gap = (gap if where is None else gap[where]).max().item()
    # what f32 itself loses on logits greater than one
    scale = max(1.0, (want if where is None else want[where]).abs().max().item())
    assert gap <= NEAR * scale, gap


def paddings(batch=3, rows=11):
    right = torch.ones(batch, rows, dtype=torch.long)
    right[0, 6:] = 0
    right[1, 9:] = 0
    yield None
    yield right
    yield right.flip(1)


def tokens(rows=11):
    torch.manual_seed(2)
    return torch.randint(3, 60, (3, rows))


@pytest.mark.parametrize("name", DECODERS)
def test_decoder(name):
    model = made(AutoModelForCausalLM, name, DECODERS[name])
    ids = tokens()
    for mask in paddings():
        want, got = both(model, lambda m: m(ids, attention_mask=mask, use_cache=False).logits)
        near(want, got, None if mask is None else mask.bool())


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_token_by_token(name):
    """A prompt at once, then tokens through the cache, without padding and padded on the left."""
    model = made(AutoModelForCausalLM, name, DECODERS[name])
    ids = tokens()

    def steps(m, mask):
        out = m(ids[:, :6], attention_mask=None if mask is None else mask[:, :6], use_cache=True)
        logits = [out.logits[:, -1]]
        for i in range(6, 11):
            out = m(ids[:, i:i + 1], attention_mask=None if mask is None else mask[:, :i + 1],
                    past_key_values=out.past_key_values, use_cache=True)
            logits.append(out.logits[:, -1])
        return torch.stack(logits)

    left = torch.ones(3, 11, dtype=torch.long)
    left[0, :3] = 0
    for mask in (None, left):
        near(*both(model, lambda m: steps(m, mask)))


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name):
    model = made(AutoModel, name, ENCODERS[name])
    ids = tokens()
    for mask in paddings():
        want, got = both(model, lambda m: m(ids, attention_mask=mask).last_hidden_state)
        near(want, got, None if mask is None else mask.bool())


@pytest.mark.parametrize("name", ["llama", "gemma2", "deepseek_v3", "bert", "modernbert"])
def test_linear_layers(name):
    """Attention and linear layers by Heed, against a model with neither."""
    kind, options = (AutoModel, ENCODERS[name]) if name in ENCODERS else (AutoModelForCausalLM, DECODERS[name])
    model, ids = made(kind, name, options), tokens()
    call = lambda m: m(ids)[0]
    layers = sum(type(m) is torch.nn.Linear for m in model.modules())
    model.set_attn_implementation("eager")
    want = call(model)
    assert heed.torch.use_linear(model) == layers > 0
    model.set_attn_implementation("heed")
    before = heed.torch.computed()
    got = call(model)
    assert heed.torch.computed() >= before + layers // 2, "Heed computed few of them"
    near(want, got)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_encoder_decoder(name):
    model = made(AutoModelForSeq2SeqLM, name, ENCODER_DECODERS[name])
    ids, decoder = tokens(), tokens(7)
    for mask in paddings():
        near(*both(model, lambda m: m(ids, attention_mask=mask, decoder_input_ids=decoder, use_cache=False).logits))
    generate = lambda m: m.generate(ids, attention_mask=mask, max_new_tokens=6, min_new_tokens=6, do_sample=False, num_beams=1)
    want, got = both(model, generate)
    assert torch.equal(want, got)


def test_vision():
    torch.manual_seed(3)
    picture = torch.randn(2, 3, 16, 16)
    for name in ("vit", "dinov2"):
        model = made(AutoModel, name, dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
                                           image_size=16, patch_size=4))
        near(*both(model, lambda m: m(picture).last_hidden_state))


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
def test_generate(name):
    model = made(AutoModelForCausalLM, name, DECODERS[name])
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, :4] = 0
    for cache in ("dynamic", "static"):
        want, got = both(model, lambda m: m.generate(
            tokens(), attention_mask=mask, max_new_tokens=8, do_sample=False, cache_implementation=cache,
            disable_compile=True))
        assert torch.equal(want, got), cache


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma3_text"])
def test_packed(name):
    """Several sequences in one row, told by their positions."""
    model = made(AutoModelForCausalLM, name, DECODERS[name])
    ids = tokens()
    at = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]] * 3)
    near(*both(model, lambda m: m(ids, position_ids=at, use_cache=False).logits))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types(dtype):
    model = made(AutoModelForCausalLM, "llama", DECODERS["llama"])
    ids = tokens()
    model.set_attn_implementation("eager")
    want = model(ids, use_cache=False).logits
    model = model.to(dtype)
    theirs, ours = both(model, lambda m: m(ids, use_cache=False).logits)
    # of the model in 16 bits Heed is as near to f32 as eager is, which rounds more often: a quarter for luck
    assert (ours - want).norm() <= 1.25 * (theirs - want).norm()


def test_weights():
    model = made(AutoModel, "bert", ENCODERS["bert"])
    ids = tokens()
    layer = model.encoder.layer[0].attention.self
    x = torch.randn(3, 4, 11, 8)
    want = torch.softmax(x @ x.transpose(2, 3) / 8**0.5, -1)
    out, weights = heed.transformers._forward(layer, x, x, x, None, is_causal=False, output_attentions=True)
    assert (weights - want).abs().max() < 1e-6
    assert (out - (want @ x).transpose(1, 2)).abs().max() < 1e-5
    assert model(ids) is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_theirs(dtype):
    """A layer under autocast gets the type that it gets with "sdpa", and the same numbers but for rounding."""
    layer = torch.nn.Module()
    torch.manual_seed(3)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8).to(dtype), torch.randn(2, 2, 5, 8)
    layer.num_key_value_groups = 2
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        out = heed.transformers._forward(layer, q, k, v, None)[0]
        want = transformers.integrations.sdpa_attention.sdpa_attention_forward(layer, q, k, v, None)[0]
    assert out.dtype == want.dtype == dtype
    exact = torch.nn.functional.scaled_dot_product_attention(
        *(x.to(dtype).double() for x in (q, k, v)), is_causal=True, enable_gqa=True).transpose(1, 2)
    assert (out - exact).abs().max() <= torch.finfo(dtype).eps / 2 * exact.abs().max()
    assert (want - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()


# ---- masks ---------------------------------------------------------------------------------------------


def mask_functions():
    m = masking_utils

    def packed(function):
        return m.and_masks(m.remap_positions_for_packed_sequence(function, at), m.packed_sequence_mask_function(segments))

    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1, 1, 1, 1]])
    at = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1], [0, 1, 0, 1, 2, 3, 4, 5, 6]])
    yield "causal", m.causal_mask_function
    yield "bidirectional", m.bidirectional_mask_function
    yield "sliding", m.sliding_window_causal_mask_function(3)
    yield "both ways", m.sliding_window_bidirectional_mask_function(2)
    yield "chunks", m.chunked_causal_mask_function(4, torch.tensor([2, 0]))
    yield "packed", packed(m.causal_mask_function)
    yield "packed and sliding", packed(m.sliding_window_causal_mask_function(2))
    yield "packed chunks", packed(m.chunked_causal_mask_function(2, torch.zeros(2, dtype=torch.long)))
    yield "blocks", m.or_masks(m.causal_mask_function, m.blockwise_overlay(segments))
    yield "a function of the user's", m.and_masks(m.causal_mask_function, lambda b, h, q, k: (k + q) % 3 > 0)


STRUCTURED = {"causal", "bidirectional", "sliding", "both ways"}
RANGES = {"chunks", "packed", "packed and sliding"}


@pytest.mark.parametrize("name, function", list(mask_functions()), ids=[name for name, _ in mask_functions()])
@pytest.mark.parametrize("padding", ["none", "right", "left", "holes"])
@pytest.mark.parametrize("sizes", [(9, 9, 0, 0), (2, 9, 7, 0), (1, 9, 8, 0), (3, 6, 6, 3)], ids=str)
def test_structured_masks_say_what_dense_ones_do(name, function, padding, sizes):
    """Attention by lengths, windows and ranges against PyTorch's with the dense mask that sdpa gets."""
    rows, keys, q_offset, kv_offset = sizes
    if "packed" in name and sizes != (9, 9, 0, 0):
        pytest.skip("packed sequences have no cache")
    mask = torch.ones(2, keys + kv_offset, dtype=torch.bool)
    if padding == "right":
        mask[0, 7:] = False
    elif padding == "left":
        mask[0, :2] = False
    elif padding == "holes":
        mask[1, 3::2] = False
    given = dict(batch_size=2, q_length=rows, kv_length=keys, q_offset=q_offset, kv_offset=kv_offset, mask_function=function,
                 attention_mask=None if padding == "none" else mask)
    dense = masking_utils.sdpa_mask(**given, allow_is_causal_skip=False)
    ours = heed.transformers._mask(**given)
    if name in STRUCTURED or (name in RANGES and heed.transformers._ranges()):
        assert isinstance(ours, heed.transformers.StructuredMask)
    if isinstance(ours, heed.transformers.StructuredMask):
        assert ours.shape == dense.shape and torch.equal(ours & True, dense) and torch.equal(ours[..., 1:], dense[..., 1:])
        assert ours.dtype == torch.bool and ours.ndim == 4
    q, k, v = torch.randn(2, 4, rows, 8), torch.randn(2, 2, keys, 8), torch.randn(2, 2, keys, 8)
    ours = heed.transformers._mask(**given)  # one that is not in memory
    out, _ = heed.transformers._forward(torch.nn.Module(), q, k, v, ours)
    want = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), dense, enable_gqa=True)
    assert (out.transpose(1, 2) - want).abs().max() < 1e-5


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", [
    lambda mask: mask.__setitem__((..., 3), True), lambda mask: mask.fill_(True), lambda mask: mask[:, :, 0].fill_(True),
    lambda mask: mask.logical_or_(torch.eye(4, dtype=torch.bool).flip(0))], ids=["item", "all", "view", "or"])
def test_a_mask_that_was_written_to(write, inference):
    """A model may open the mask it was given before it passes it on."""
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    with torch.inference_mode(inference):
        ours = heed.transformers._mask(batch_size=1, q_length=4, kv_length=4)
        dense = ours & True
        write(ours)
        write(dense)
        assert isinstance(ours, heed.transformers.StructuredMask) and not torch.equal(dense, ours.new_ones(4, 4).tril())
        out, _ = heed.transformers._forward(torch.nn.Module(), q, k, v, ours)
        want = torch.nn.functional.scaled_dot_product_attention(q, k, v, dense)
    assert (out.transpose(1, 2) - want).abs().max() < 1e-5


def test_ranges_are_served_or_said_not_to_be():
    if not heed.transformers._ranges():
        pytest.skip("the library refuses ranges: chunked and packed masks are dense")


def test_refusals():
    x = torch.randn(1, 2, 3, 8)
    layer = torch.nn.Module()
    layer.is_causal = True
    forward = heed.transformers._forward
    for name in ("cache", "indices", "block_indices"):
        with pytest.raises(NotImplementedError, match=name):
            forward(layer, x, x, x, None, **{name: object()})
    with pytest.raises(NotImplementedError, match="float64"):
        forward(layer, x.double(), x.double(), x.double(), None)
    with pytest.raises(NotImplementedError, match="axes"):
        forward(layer, x, x, x, torch.ones(1, 3, dtype=torch.bool))
    grad = x.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="softcap"):
        forward(layer, grad, x, x, None, softcap=3.0)
    with pytest.raises(ValueError, match="broadcast"):  # a mask for other keys
        forward(layer, x, x, x, torch.ones(1, 1, 3, 9, dtype=torch.bool))


def test_training_is_theirs():
    config = AutoConfig.for_model("llama", **GROUPED)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="heed").train()
    ids, mask = tokens(), list(paddings())[2]

    def gradients(implementation):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        model(ids, attention_mask=mask, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    want, before = gradients("sdpa"), heed.transformers.computed()
    got = gradients("heed")
    assert heed.transformers.computed() == before
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(want, got))
