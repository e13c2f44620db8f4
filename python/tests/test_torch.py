"""heed.torch: PyTorch's samples under Heed with PyTorch's tolerances, and every reason to step aside."""

import gc
import weakref

import numpy as np
import oracle
import pytest

torch = pytest.importorskip("torch")
import heed  # noqa: E402
import heed.torch  # noqa: E402

F = torch.nn.functional
THEIRS = torch.nn.functional.scaled_dot_product_attention
TYPES = [torch.float32, torch.float16, torch.bfloat16]


def by_heed(call):
    """The result, and whether Heed computed it."""
    before = heed.torch.computed()
    out = call()
    return out, heed.torch.computed() - before


def qkv(*shape, dtype=torch.float32, **options):
    return [torch.randn(*shape, dtype=dtype, **options) for _ in range(3)]


def test_import_changes_nothing():
    assert F.scaled_dot_product_attention is THEIRS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_opinfo_samples(dtype):
    """PyTorch's own samples. Heed computes all but those that drop or are of f64: wherever PyTorch's flash
    kernel would be reached, and more.

    f32 is held against PyTorch with the tolerance that OpInfo states for this function. In 16 bits PyTorch's
    plain kernel rounds weights, and is off the true result by up to ten times its own tolerance: there the
    same samples in f64 are what is to be met, with torch.testing's tolerances of the type."""
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    assert len(samples) >= 25
    close = {"atol": 5e-5, "rtol": 5e-6} if dtype is torch.float32 else {}
    wide = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    served = 0
    for sample in samples:
        call = lambda: info.op(sample.input, *sample.args, **sample.kwargs)  # seeds before it drops
        want = call()
        with heed.torch.enabled():
            got, n = by_heed(call)
        assert n == (sample.kwargs["dropout_p"] == 0 and dtype is not torch.float64), sample
        served += n
        if dtype in (torch.float16, torch.bfloat16) and n:
            want = info.op(wide(sample.input), *map(wide, sample.args), **{k: wide(x) for k, x in sample.kwargs.items()})
            want = want.to(dtype)
        torch.testing.assert_close(got, want, **close)
    assert served == (0 if dtype is torch.float64 else sum(s.kwargs["dropout_p"] == 0 for s in samples))


@pytest.mark.parametrize("dtype", TYPES)
def test_flash_samples(dtype):
    """The samples of PyTorch's CPU flash kernel, and that it would have been taken."""
    pytest.importorskip("expecttest")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.testing._internal.common_methods_invocations import (
        sample_inputs_scaled_dot_product_flash_attention_for_cpu as samples_of)

    for sample in samples_of(None, "cpu", dtype, False):
        options = {"is_causal": sample.kwargs["is_causal"]}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            want = THEIRS(sample.input, *sample.args, **options)
        with heed.torch.enabled():
            got, n = by_heed(lambda: F.scaled_dot_product_attention(sample.input, *sample.args, **options))
        assert n == 1 and got.stride() == want.stride()
        if dtype is not torch.float32:
            want = THEIRS(sample.input.double(), *(x.double() for x in sample.args), **options).to(dtype)
        torch.testing.assert_close(got, want, **({"atol": 5e-5, "rtol": 5e-6} if dtype is torch.float32 else {}))


def test_the_result_lies_as_the_query_does():
    for order in ((0, 1, 2, 3), (0, 2, 1, 3)):
        x = torch.randn(2, 5, 3, 8).permute(order)
        assert heed.torch.sdpa(x, x, x).stride() == THEIRS(x, x, x).stride()


SHAPES = {
    "two axes": ((5, 8), (7, 8)),
    "three": ((3, 5, 8), (3, 7, 8)),
    "five": ((2, 3, 4, 5, 8), (2, 3, 4, 7, 8)),
    "batch of one": ((1, 4, 5, 8), (3, 4, 7, 8)),
    "one head for all": ((2, 4, 5, 8), (2, 1, 7, 8)),
    "heads of the keys": ((2, 1, 5, 8), (2, 4, 7, 8)),
    "fewer axes": ((4, 5, 8), (2, 4, 7, 8)),
    "more rows than keys": ((1, 2, 9, 8), (1, 2, 3, 8)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_broadcast_shapes(name):
    q, kv = SHAPES[name]
    q, k, v = torch.randn(q), torch.randn(kv), torch.randn(*kv[:-1], 12)
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.rand(q.shape[-2], k.shape[-2]) < 0.7},
                    {"attn_mask": torch.randn(q.shape[-2], k.shape[-2])}, {"scale": 0.2}):
        got, n = by_heed(lambda: heed.torch.sdpa(q, k, v, **options))
        assert n == 1
        torch.testing.assert_close(got, THEIRS(q, k, v, **options), atol=5e-6, rtol=5e-6)


def test_masks_of_every_shape():
    q, k, v = qkv(2, 3, 5, 4, 8)
    for shape in ((4, 4), (1, 4), (4, 1), (5, 4, 4), (1, 4, 4), (3, 1, 4, 4), (2, 3, 5, 4, 4), (2, 1, 1, 4, 4)):
        for mask in (torch.rand(shape) < 0.7, torch.randn(shape)):
            got, n = by_heed(lambda: heed.torch.sdpa(q, k, v, mask))
            assert n == 1
            torch.testing.assert_close(got, THEIRS(q, k, v, mask), atol=5e-6, rtol=5e-6)


@pytest.mark.parametrize("dtype", TYPES)
def test_gqa(dtype):
    q, (k, v, _) = torch.randn(2, 6, 5, 16, dtype=dtype), qkv(2, 2, 7, 16, dtype=dtype)
    for causal in (False, True):
        got, n = by_heed(lambda: heed.torch.sdpa(q, k, v, is_causal=causal, enable_gqa=True))
        want = THEIRS(q.double(), k.double(), v.double(), is_causal=causal, enable_gqa=True)
        assert n == 1
        torch.testing.assert_close(got, want.to(dtype))
    three = heed.torch.sdpa(q[0], k[0], v[0], enable_gqa=True)
    assert torch.equal(three, heed.torch.sdpa(q, k, v, enable_gqa=True)[0])


def test_causality_is_top_left():
    q, k, v = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8), torch.randn(1, 2, 7, 8)
    want = oracle.attention(q, k, v, causal=True, position="start")[0]
    oracle.check(heed.torch.sdpa(q, k, v, is_causal=True), want)


def test_a_row_that_sees_nothing():
    q, k, v = qkv(1, 2, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    for given in (mask, torch.where(mask, 0.0, -torch.inf)):
        out, n = by_heed(lambda: heed.torch.sdpa(q, k, v, given))
        assert n == 1 and (out[:, :, 1] == 0).all()
        torch.testing.assert_close(out, THEIRS(q, k, v, given), atol=5e-6, rtol=5e-6)


def steps_aside():
    q, k, v = qkv(2, 3, 5, 8)
    yield "a gradient", lambda f: f(q.clone().requires_grad_(), k, v)
    yield "a gradient of the mask", lambda f: f(q, k, v, torch.zeros(5, 5, requires_grad=True))
    yield "f64", lambda f: f(q.double(), k.double(), v.double())
    yield "dropping", lambda f: (torch.manual_seed(1), f(q, k, v, dropout_p=0.5))[1]
    yield "meta", lambda f: f(q.to("meta"), k.to("meta"), v.to("meta"))
    yield "empty", lambda f: f(q[:0], k[:0], v[:0])
    yield "vmap", lambda f: torch.vmap(lambda a, b, c: f(a, b, c))(q, k, v)
    yield "forward gradients", lambda f: forward_gradient(f, q, k, v)
    yield "a subclass", lambda f: f(q.as_subclass(Own), k, v)
    yield "a lazy sign", lambda f: f(torch._neg_view(q), k, v)
    yield "nested", lambda f: nested(f, torch.strided)
    yield "jagged", lambda f: nested(f, torch.jagged)


def forward_gradient(f, q, k, v):
    """PyTorch's flash kernel has none; its plain one does, and a step aside is what reaches it."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.func.jvp(lambda a: f(a, k, v), (q,), (q,))[1]


def nested(f, layout):
    """Sequences of 3 and 5 rows; PyTorch has functions for tensors of them."""
    torch.manual_seed(1)
    x = torch.nested.nested_tensor([torch.randn(3, 2, 8), torch.randn(5, 2, 8)], layout=layout).transpose(1, 2)
    x = x.contiguous() if layout is torch.strided else x
    return torch.cat([one.flatten() for one in f(x, x, x).unbind()])


class Own(torch.Tensor):
    pass


@pytest.mark.parametrize("name, call", list(steps_aside()), ids=[name for name, _ in steps_aside()])
def test_steps_aside(name, call):
    want = call(THEIRS)
    got, n = by_heed(lambda: call(heed.torch.sdpa))
    assert n == 0 and got.shape == want.shape and got.dtype == want.dtype
    if not got.is_meta:
        torch.testing.assert_close(got, want)


def test_tensors_without_memory_are_given_back():
    """Outputs that a mode of PyTorch's makes without memory hold the mode."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    q, modes = torch.ones(1, 2, 3, 4), []
    for _ in range(3):
        with FakeTensorMode() as mode, pytest.raises(ValueError, match="an output has no memory"):
            modes.append(weakref.ref(mode))
            heed.attention(q, q, q)
    del mode
    gc.collect()
    assert [one() for one in modes] == [None] * 3


def test_errors_are_theirs():
    q, k, v = qkv(1, 2, 4, 8)
    for call in (lambda f: f(q, k[..., :4], v), lambda f: f(q, k, v.half()), lambda f: f(q, k, v, torch.ones(4, 4, dtype=torch.int32)),
                 lambda f: f(q, k, v, torch.ones(4, 4, dtype=torch.bool), is_causal=True), lambda f: f(q[0, 0, 0], k, v),
                 lambda f: f(q, k, v, torch.ones(3, 4, dtype=torch.bool)),
                 lambda f: f(q[0, 0], k[0, 0], v[0, 0], torch.ones(1, 4, 4, dtype=torch.bool))):
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            call(THEIRS)
        with pytest.raises((RuntimeError, ValueError, IndexError)):
            call(heed.torch.sdpa)


def test_training():
    """The same gradients, bit for bit: they are PyTorch's. Evaluation of the same layer is Heed's."""
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    x = torch.randn(2, 5, 16)

    def gradients():
        layer.zero_grad()
        layer.train()(x).square().sum().backward()
        return [p.grad.clone() for p in layer.parameters()]

    want = gradients()
    with heed.torch.enabled():
        got, n = by_heed(gradients)
        assert n == 0 and all(torch.equal(a, b) for a, b in zip(got, want))
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.no_grad():
                out, n = by_heed(lambda: layer.eval()(x))
        finally:
            torch.backends.mha.set_fastpath_enabled(True)
        assert n == 1
    torch.testing.assert_close(out, layer.train()(x).detach(), atol=5e-6, rtol=5e-6)
    weights = torch.nn.Parameter(torch.randn(1, 1, 3, 4))
    with torch.no_grad():  # a leaf that needs one elsewhere
        assert by_heed(lambda: heed.torch.sdpa(weights, weights, weights))[1] == 1
    with torch.inference_mode():
        assert by_heed(lambda: heed.torch.sdpa(*qkv(1, 1, 3, 4)))[1] == 1


def test_enable_and_disable():
    q, k, v = qkv(1, 2, 4, 8)
    heed.torch.enable()
    try:
        assert by_heed(lambda: F.scaled_dot_product_attention(q, k, v))[1] == 1
        with heed.torch.enabled():
            pass
        assert F.scaled_dot_product_attention is heed.torch.sdpa  # as it was before
    finally:
        heed.torch.disable()
    assert F.scaled_dot_product_attention is THEIRS
    with pytest.raises(ZeroDivisionError), heed.torch.enabled():
        1 / 0
    assert F.scaled_dot_product_attention is THEIRS


def test_enabled_in_any_order():
    """As threads and tasks of asyncio are inside, that take turns."""
    first, second = heed.torch.enabled(), heed.torch.enabled()
    first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
    assert F.scaled_dot_product_attention is heed.torch.sdpa
    second.__exit__(None, None, None)
    assert F.scaled_dot_product_attention is THEIRS


def test_opcheck():
    q, (k, v, _) = torch.randn(2, 4, 5, 8), qkv(2, 2, 7, 8)
    for arguments in ((q, k, v, None, False, None, True), (q, k, v, None, True, 0.3, True),
                      (q, k, v, torch.rand(5, 7) < 0.7, False, None, True), (*qkv(1, 2, 3, 4), torch.randn(3, 3))):
        torch.library.opcheck(torch.ops.heed.sdpa.default, arguments)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_keeps_one_graph(dynamic):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    def step(q, k, v):
        return F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1

    arguments = qkv(2, 4, 16, 8)
    want = step(*arguments)
    with heed.torch.enabled():
        compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
        out, n = by_heed(lambda: compiled(*arguments))
        assert n == 1 and len(graphs) == 1
        assert any(node.target is torch.ops.heed.sdpa for node in graphs[0].graph.nodes) or "heed" in str(graphs[0].graph)
        torch.testing.assert_close(out, want, atol=5e-6, rtol=5e-6)
        training = [x.clone().requires_grad_() for x in arguments]
        out, n = by_heed(lambda: torch.compile(step, fullgraph=True, backend="eager")(*training))
        assert n == 0 and out.requires_grad
    torch._dynamo.reset()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_autocast_is_theirs(mask, compiled):
    """Under autocast the result's type is PyTorch's choice, and afterwards Heed computes again."""
    q, k, v = qkv(2, 4, 16, 8)
    options = {"attn_mask": torch.rand(16, 16) < 0.7} if mask else {"is_causal": True}

    def step(q, k, v):
        return heed.torch.sdpa(q, k, v, **options)

    call = torch.compile(step, fullgraph=True, backend="eager") if compiled else step
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            want = THEIRS(q, k, v, **options)
            got, n = by_heed(lambda: call(q, k, v))
        assert n == 0 and got.dtype is want.dtype is dtype and torch.equal(got, want)
    with torch.autocast("cpu", enabled=False):
        _, n = by_heed(lambda: call(q, k, v))
        assert n == 1
    got, n = by_heed(lambda: call(q, k, v))
    assert n == 1 and got.dtype is torch.float32
    torch._dynamo.reset()


def test_threads_are_theirs():
    q, k, v = qkv(1, 8, 128, 64)
    before = torch.get_num_threads()
    want = heed.torch.sdpa(q, k, v)
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            assert torch.equal(heed.torch.sdpa(q, k, v), want)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", TYPES)
def test_against_float64(dtype):
    name = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    q, k, v = qkv(2, 4, 70, 64, dtype=dtype)
    with heed.torch.enabled():
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    oracle.check(out.float(), oracle.attention(*(x.float() for x in (q, k, v)), causal=True)[0], name)
    assert np.isfinite(out.float().numpy()).all()


# ---- linear layers -------------------------------------------------------------------------------------


def layer(ins=24, outs=40, bias=True, dtype=torch.float32):
    one = torch.nn.Linear(ins, outs, bias=bias).to(dtype).eval()
    assert heed.torch.use_linear(one) == 1
    return one


def by_f64(one, x):
    w, b = one.weight.detach().double(), one.bias
    return F.linear(x.detach().double(), w, None if b is None else b.detach().double())


def assert_served(one, x, served=True):
    """As f64 has it, by Heed or else by PyTorch. A product of 24 terms is off by less than 24 roundings."""
    got, n = by_heed(lambda: one(x))
    assert n == served
    want = by_f64(one, x)
    scale = F.linear(x.detach().double().abs(), one.weight.detach().double().abs()).max() + 1
    assert got.shape == want.shape and got.dtype is x.dtype
    assert (got.detach().double() - want).abs().max() <= 24 * torch.finfo(x.dtype).eps * scale
    return got


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_layers(dtype, bias):
    one = layer(bias=bias, dtype=dtype)
    x = torch.randn(6, 5, 48, dtype=dtype)
    with torch.inference_mode():
        for view in (x[..., :24], x[0, 0, ::2], x[:, 2, 24:], x.transpose(0, 1)[..., ::2], x[:1, :1, 3:27]):
            assert_served(one, view)
        assert one(x[:0, :, :24]).shape == (0, 5, 40)


def test_linear_layers_of_a_model():
    model = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2, enable_nested_tensor=False).eval()
    kept = type(model.layers[0].self_attn.out_proj)  # a subclass of torch.nn.Linear, which stays
    names, keys = [n for n, _ in model.named_modules()], list(model.state_dict())
    assert heed.torch.use_linear(model) == 4
    assert type(model.layers[0].self_attn.out_proj) is kept and type(model.layers[0].linear1) is heed.torch.Linear
    assert isinstance(model.layers[0].linear1, torch.nn.Linear)
    assert [n for n, _ in model.named_modules()] == names and list(model.state_dict()) == keys
    assert heed.torch.use_linear(model, False) == 4 and type(model.layers[0].linear1) is torch.nn.Linear
    assert heed.torch.use_linear(model, False) == 0


def test_linear_layers_step_aside():
    one, x = layer(), torch.randn(3, 24)
    assert_served(one, x, False)  # the weights need a gradient
    got, n = by_heed(lambda: torch.func.vmap(one)(x))
    assert n == 0
    with torch.no_grad():
        assert_served(one, x)
        assert_served(one, x.clone().requires_grad_())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got, n = by_heed(lambda: one(x))
            assert n == 0 and got.dtype is torch.bfloat16
        _, n = by_heed(lambda: torch.func.vmap(one)(x))
        assert n == 0
        for bad in (x[:, :23], x.double(), torch.randn(())):
            with pytest.raises(RuntimeError):
                one(bad)
        assert_served(layer(dtype=torch.float64), x.double(), False)
    with torch.inference_mode():
        assert_served(layer(bias=False), x, False)  # made here
        parametrized = layer()
        torch.nn.utils.parametrizations.weight_norm(parametrized)
        got, n = by_heed(lambda: parametrized(x))
        assert n == 0
    grown = layer()
    x.requires_grad_()
    grown(x).sum().backward()
    assert x.grad is not None and grown.weight.grad is not None


def test_linear_layers_notice_changes():
    one, x = layer(), torch.randn(3, 24)
    changes = [
        lambda: one.weight.mul_(2),
        lambda: one.bias.add_(1),
        lambda: one.load_state_dict(torch.nn.Linear(24, 40).state_dict()),
        lambda: setattr(one, "weight", torch.nn.Parameter(torch.randn(40, 24))),
        lambda: setattr(one, "weight", torch.nn.Parameter(torch.randn(40, 24))),
        lambda: setattr(one, "weight", torch.nn.Parameter(torch.randn(24, 40).t())),
        lambda: setattr(one.weight, "data", torch.randn(40, 24)),
        lambda: setattr(one, "bias", None),
        lambda: setattr(one, "bias", torch.nn.Parameter(torch.randn(40))),
        lambda: (one.weight.data.mul_(2), heed.torch.use_linear(one)),
        lambda: torch.set_num_threads(1),
    ]
    threads = torch.get_num_threads()
    try:
        with torch.no_grad():
            assert_served(one, x)
            packed = one._heed_packed
            assert_served(one, x)
            assert one._heed_packed is packed  # made once
            for change in changes:
                change()
                assert_served(one, x)
                assert one._heed_packed is not packed or threads == 1
                packed = one._heed_packed
            square = layer(24, 24)
            assert_served(square, x)
            square.weight.data = square.weight.data.t()
            assert_served(square, x)
        with torch.inference_mode():
            one.weight.mul_(2)
            assert_served(one, x)
        one = one.half()
        with torch.no_grad():
            assert_served(one, x.half())
    finally:
        torch.set_num_threads(threads)


def test_linear_layers_follow_settings():
    """Those of the call, whichever the first call had."""
    one, x = layer(), torch.randn(3, 24)
    with torch.no_grad():
        for setting, other in ((heed.backend("naive"), heed.threads(1)), (heed.threads(1), heed.backend("naive"))):
            assert_served(one, x)
            outside = one._heed_packed
            with setting:
                assert_served(one, x)
                inside = one._heed_packed
                assert inside is not outside
                with other:
                    assert_served(one, x)
                    assert "naive" in one._heed_packed.linear.explain().splitlines()[0]
            assert_served(one, x)
            assert one._heed_packed is not inside


def test_linear_layers_copied_and_saved(tmp_path):
    import copy

    one, x = layer(), torch.randn(3, 24)
    with torch.no_grad():
        want = one(x)
        torch.save(one, tmp_path / "one.pt")
        for other in (copy.deepcopy(one), torch.load(tmp_path / "one.pt", weights_only=False)):
            assert type(other) is heed.torch.Linear and other._heed_packed is None
            assert torch.equal(other(x), want)


def test_linear_layers_accuracy():
    one, x = torch.nn.Linear(256, 256).eval(), torch.randn(64, 256)
    with pytest.raises(ValueError, match="accuracy is 'int3'"):
        heed.torch.use_linear(one, accuracy="int3")
    with torch.no_grad():
        heed.torch.use_linear(one)
        exact = one(x)
        heed.torch.use_linear(one, accuracy="split")
        try:
            close = one(x)
        except NotImplementedError:
            pytest.skip("no backend here splits")
        torch.testing.assert_close(close, exact, atol=1e-3, rtol=1e-3)
        heed.torch.use_linear(one)
        assert torch.equal(one(x), exact)


def test_linear_layers_compiled():
    """A graph holds PyTorch's own product."""
    torch._dynamo.reset()
    one, x = layer(), torch.randn(3, 24)
    with torch.no_grad():
        compiled = torch.compile(one, backend="eager", fullgraph=True)
        got, n = by_heed(lambda: compiled(x))
    assert n == 0
    torch.testing.assert_close(got.double(), by_f64(one, x), atol=1e-5, rtol=1e-5)
