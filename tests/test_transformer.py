"""Attention of several heads and the transformer's layers, beside torch's."""

import numpy as np
import pytest
from references import R
from test_modules import twins

import ampc
from ampc import nn

N, L, S, E, H = 3, 4, 5, 8, 2
CAUSAL = np.triu(np.ones((L, L), dtype=bool), 1)
PADDING = np.array([[False] * S, [False, False, False, True, True], [False, True, False, False, True]])
HOW = {
    "self": ("MultiheadAttention(8, 2)", "qqq", {}), "cross": ("MultiheadAttention(8, 2, batch_first=True, bias=False)", "qkk", {}), "other widths": ("MultiheadAttention(8, 4, kdim=6, vdim=3, batch_first=True)", "qab", {}),
    "single": ("MultiheadAttention(8, 2)", "111", {}), "causal": ("MultiheadAttention(8, 2, batch_first=True)", "qqq", {"attn_mask": CAUSAL}), "added": ("MultiheadAttention(8, 2, batch_first=True)", "qkk", {"attn_mask": R.standard_normal((L, S))}),
    "by head": ("MultiheadAttention(8, 2, batch_first=True)", "qkk", {"attn_mask": R.standard_normal((N * H, L, S))}), "padding": ("MultiheadAttention(8, 2, batch_first=True)", "qkk", {"key_padding_mask": PADDING}),
    "both masks": ("MultiheadAttention(8, 2)", "qkk", {"key_padding_mask": PADDING, "attn_mask": R.standard_normal((L, S)) < -1.5}),
    "more keys": ("MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)", "qkk", {"key_padding_mask": PADDING}), "padded single": ("MultiheadAttention(8, 2)", "122", {"key_padding_mask": PADDING[1]}),
}


def inputs(which, batch_first):
    """Arrays by letter; the same letter is the same tensor."""
    shapes = {"q": (N, L, E), "k": (N, S, E), "a": (N, S, 6), "b": (N, S, 3), "1": (L, E), "2": (S, E)}
    made = {}
    for c in which:
        x = np.random.default_rng(ord(c)).standard_normal(shapes[c])
        made.setdefault(c, x if batch_first or x.ndim == 2 else x.transpose(1, 0, 2).copy())
    return made


def compare(torch, mine, theirs, arrays, call, rtol=1e-10):
    here, there = ({c: T.tensor(a, requires_grad=True) for c, a in arrays.items()} for T in (ampc, torch))
    got, want = call(mine, here, ampc), call(theirs, there, torch)
    for g, w in zip(got, want):
        assert (g is None) == (w is None)
        if g is not None:
            assert g.shape == tuple(w.shape) and np.allclose(g.numpy(force=True), w.detach().numpy(), rtol=rtol, atol=1e-12)
    weight = R.standard_normal(got[0].shape)
    got[0].backward(ampc.tensor(weight))
    want[0].backward(torch.tensor(weight))
    for a, b in zip([*here.values(), *mine.parameters()], [*there.values(), *theirs.parameters()]):
        assert np.allclose(a.grad.numpy(force=True), b.grad.numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("need", ["weights", "each head's", "nothing"])
@pytest.mark.parametrize("how", HOW)
def test_attention(torch, how, need):
    text, which, masks = HOW[how]
    mine, theirs = twins(torch, text)
    for p, q in zip(mine.parameters(), theirs.parameters()):  # biases begin at 0
        x = R.standard_normal(p.shape)
        p.data.copy_(ampc.tensor(x)), q.data.copy_(torch.tensor(x))

    def call(m, tensors, T):
        options = {k: T.tensor(v) for k, v in masks.items()}
        return m(*[tensors[c] for c in which], need_weights=need != "nothing", average_attn_weights=need == "weights", **options)

    compare(torch, mine, theirs, inputs(which, mine.batch_first), call)
    assert repr(mine).split("(")[0] == "MultiheadAttention" and "out_proj" in repr(mine)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_stacks(torch, batch_first, norm_first, activation):
    options = f"8, 2, dim_feedforward=16, dropout=0.0, activation='{activation}', batch_first={batch_first}, norm_first={norm_first}"
    encoder = f"TransformerEncoder(nn.TransformerEncoderLayer({options}), 2, norm=nn.LayerNorm(8))"
    mine, theirs = twins(torch, encoder)
    compare(torch, mine, theirs, inputs("k", batch_first), lambda m, t, T: (m(t["k"], src_key_padding_mask=T.tensor(PADDING)),), rtol=1e-9)
    decoder = f"TransformerDecoder(nn.TransformerDecoderLayer({options}, bias=False), 2)"
    mine, theirs = twins(torch, decoder)
    compare(torch, mine, theirs, inputs("qk", batch_first),
            lambda m, t, T: (m(t["q"], t["k"], tgt_mask=T.tensor(CAUSAL), memory_key_padding_mask=T.tensor(PADDING)),), rtol=1e-9)
    whole = f"Transformer(8, 2, 1, 1, 16, dropout=0.0, activation='{activation}', batch_first={batch_first}, norm_first={norm_first})"
    mine, theirs = twins(torch, whole)
    compare(torch, mine, theirs, inputs("qk", batch_first),
            lambda m, t, T: (m(t["k"], t["q"], tgt_mask=T.nn.Transformer.generate_square_subsequent_mask(L, dtype=T.float64)),), rtol=1e-9)


def test_copies_of_a_layer_are_their_own():
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3)
    weights = [layer.linear1.weight for layer in stack.layers]
    assert len({id(w) for w in weights}) == 3 and weights[0].equal(weights[1]) and len(list(stack.parameters())) == 36


def test_dropout_is_on_when_training():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5)
    x = ampc.randn(L, N, E)
    assert not layer(x).equal(layer(x))
    layer.eval()
    assert layer(x).equal(layer(x))


@pytest.mark.parametrize("dtype", [ampc.float16, ampc.bfloat16], ids=str)
def test_under_autocast(dtype):
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
    x = ampc.randn(2, 16, 32)
    with ampc.autocast("cuda" if ampc.cuda.is_available() else "cpu", dtype=dtype):
        y = layer(x)
    y.sum().backward()
    assert (y.float() - layer(x)).abs().max().item() < 64 * ampc.finfo(dtype).eps and all(p.grad.dtype is ampc.float32 for p in layer.parameters())


def test_bad_input():
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    x = ampc.randn(N, L, E)
    for call, kind, match in ((lambda: nn.MultiheadAttention(8, 3), AssertionError, "3 heads"), (lambda: nn.MultiheadAttention(0, 1), ValueError, "1 or more"),
                              (lambda: m(x, x[0], x), AssertionError, "dimensions"), (lambda: m(x[..., :4], x, x), AssertionError, "width of 8"),
                              (lambda: m(x, x, x, attn_mask=ampc.zeros(3, 3)), RuntimeError, "attn_mask"), (lambda: m(x, x, x, key_padding_mask=ampc.zeros(2, 4)), AssertionError, "key_padding_mask"),
                              (lambda: m(x, x, x, attn_mask=ampc.zeros(5)), AssertionError, "attn_mask"), (lambda: m(x, x, x, key_padding_mask=ampc.zeros(5)), AssertionError, "key_padding_mask"),
                              (lambda: m(x, x, x, attn_mask=ampc.zeros(L, L, dtype=ampc.int64)), TypeError, "bool"), (lambda: m(x, x, x, is_causal=True), RuntimeError, "is_causal"),
                              (lambda: nn.TransformerEncoderLayer(8, 2, activation="tan"), RuntimeError, "activation"), (lambda: nn.Transformer(8, 2, 1, 1, 8)(x, x[:, :2]), RuntimeError, "batches")):
        with pytest.raises(kind, match=match):
            call()


@pytest.mark.parametrize("given", [
    {}, {"attn_mask": True}, {"key_padding_mask": True, "average_attn_weights": False}, {"need_weights": False, "add_zero_attn": True},
    {"bias": True, "add_zero_attn": True, "attn_mask": True}, {"separate": True}, {"static": True}, {"single": True}])
def test_the_function_equals_torchs(torch, given):
    """With weights that are given, and every parameter that the module does not reach."""
    given, L, S, N, E, H = dict(given), 3, 5, 2, 4, 2
    source = np.random.default_rng(3)
    flags = {name: given.pop(name, False) for name in ("bias", "separate", "static", "single", "attn_mask", "key_padding_mask")}
    arrays = {name: source.standard_normal(shape) for name, shape in {
        "q": (L, N, E), "k": (S, N, E), "v": (S, N, E), "w": (3 * E, E), "b": (3 * E,), "bk": (1, 1, E), "bv": (1, 1, E), "ow": (E, E), "ob": (E,),
        "sk": (N * H, 6, E // H), "sv": (N * H, 6, E // H)}.items()}
    hidden, padding = source.random((L, S)) < 0.3, source.random((N, S)) < 0.3
    hidden[:, 0] = padding[:, 0] = False

    def run(lib):
        t = {name: lib.tensor(a, requires_grad=True) for name, a in arrays.items()}
        inputs = [t[n][:, 0] if flags["single"] else t[n] for n in "qkv"]
        more = {"attn_mask": lib.tensor(hidden)} if flags["attn_mask"] else {}
        more.update({"key_padding_mask": lib.tensor(padding)} if flags["key_padding_mask"] else {})
        more.update({"static_k": t["sk"], "static_v": t["sv"]} if flags["static"] else {})
        if flags["separate"]:
            more.update(use_separate_proj_weight=True, q_proj_weight=t["w"][:E], k_proj_weight=t["w"][E:2 * E], v_proj_weight=t["w"][2 * E:])
        extra = (t["bk"], t["bv"]) if flags["bias"] else (None, None)
        options = {"add_zero_attn": False, **given, **more}
        out, weights = lib.nn.functional.multi_head_attention_forward(
            *inputs, E, H, None if flags["separate"] else t["w"], t["b"], *extra, options.pop("add_zero_attn"), 0.5, t["ow"], t["ob"], False, **options)
        grads = lib.autograd.grad((out * out).sum(), [t["q"], t["w"], t["ow"]])
        return [np.array(x.tolist()) for x in (out, *grads, *(() if weights is None else (weights,)))], tuple(out.stride())

    (theirs, layout), (ours, mine) = run(torch), run(ampc)
    assert len(theirs) == len(ours) and layout == mine
    for x, y in zip(theirs, ours):
        np.testing.assert_allclose(y, x, atol=1e-12)


def test_the_functions_errors_are_torchs(torch):
    def errors(lib):
        x, w, o = lib.ones(3, 2, 4), lib.ones(12, 4), lib.ones(4, 4)
        F = lib.nn.functional.multi_head_attention_forward
        for call in (lambda: F(x, x, x, 6, 2, w, None, None, None, False, 0.0, o, None), lambda: F(x, x, x, 4, 3, w, None, None, None, False, 0.0, o, None),
                     lambda: F(x, x, x[:2], 4, 2, w, None, None, None, False, 0.0, o, None), lambda: F(x, x, x, 4, 2, None, None, None, None, False, 0.0, o, None),
                     lambda: F(x, x, x, 4, 2, w, None, None, None, False, 0.0, o, None, is_causal=True),
                     lambda: F(x, x, x, 4, 2, w, None, None, None, False, 0.0, o, None, static_k=lib.ones(3, 1, 2))):
            with pytest.raises((AssertionError, RuntimeError)) as caught:
                call()
            yield caught.type

    assert list(errors(ampc)) == list(errors(torch))


@pytest.mark.parametrize("batch_first", [True, False])
def test_no_samples_or_no_steps(torch, batch_first):
    """The result has as many steps as the queries, whether there are samples or not."""
    for shape in ((0, 3, 8), (3, 0, 8), (0, 0, 8), (0, 8)):
        sizes = []
        for lib in (ampc, torch):
            x = lib.zeros(shape, requires_grad=True)
            y, weights = lib.nn.MultiheadAttention(8, 2, batch_first=batch_first)(x, x, x)
            y = lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)(y)
            y.sum().backward()
            sizes.append((tuple(y.shape), tuple(weights.shape), tuple(x.grad.shape)))
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (0, 0, 8)], ids=str)
def test_a_batch_or_a_sequence_of_none(torch, shape, batch_first):
    seen = []
    for lib in (ampc, torch):
        x = lib.ones(*shape, requires_grad=True)
        layers = [lib.nn.TransformerEncoder(lib.nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first), 2), lib.nn.MultiheadAttention(8, 2, batch_first=batch_first)]
        mask = lib.zeros(shape[batch_first], shape[batch_first])
        out, (y, w), plain = layers[0](x), layers[1](x, x, x), layers[1](x, x, x, attn_mask=mask, need_weights=False)[0]
        (out.sum() + y.sum() + plain.sum()).backward()
        seen.append([tuple(t.shape) for t in (out, y, w, plain, x.grad)])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("corner", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize("keys", [3, 5])
def test_attention_under_a_causal_bias(torch, corner, keys):
    import torch.nn.attention.bias as theirs

    import ampc.nn.attention.bias as ours
    q, k, v = (R.standard_normal((2, 1, n, 4)).astype("f") for n in (3, keys, keys))
    found, right = (t.nn.functional.scaled_dot_product_attention(*map(t.tensor, (q, k, v)), attn_mask=getattr(bias, corner)(3, keys))
                    for t, bias in ((ampc, ours), (torch, theirs)))
    np.testing.assert_allclose(found.cpu().numpy(), right.numpy(), rtol=1e-5, atol=1e-6)
    assert repr(getattr(ours, corner)(3, keys)).replace(" ", "") == repr(getattr(theirs, corner)(3, keys)).replace(" ", "")


def test_what_a_causal_bias_refuses():
    from ampc.nn.attention.bias import CausalBias, CausalVariant, causal_lower_right, causal_upper_left
    q = ampc.ones(1, 1, 3, 4)
    with pytest.raises(ValueError, match="not both"):
        nn.functional.scaled_dot_product_attention(q, q, q, causal_upper_left(3, 3), is_causal=True)
    with pytest.raises(AssertionError, match="two sizes"):
        causal_upper_left(3)
    with pytest.raises(AssertionError, match="CausalVariant"):
        CausalBias(1, 3, 3)
    with pytest.warns(UserWarning, match="the first 2 queries see no key"):
        assert causal_lower_right(3, 1).variant == CausalVariant.LOWER_RIGHT
    assert type(causal_upper_left(2, 2) | False) is ampc.Tensor
