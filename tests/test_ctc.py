"""The CTC loss beside torch: shapes of its arguments, losses, gradients, what cannot be, errors."""

import numpy as np
import pytest

import ampc


def both(call, dtype="float64"):
    """The loss and the gradient of what log_softmax is given, in torch and in ampc."""
    torch = pytest.importorskip("torch")
    results = []
    for lib in (torch, ampc):
        x = lib.tensor(np.random.default_rng(2).standard_normal((9, 3, 5)) * 2, dtype=getattr(lib, dtype)).requires_grad_()
        loss = call(lib, lib.nn.functional, x, x.log_softmax(2))
        loss.sum().backward()
        results.append([np.array(t.tolist()) for t in (loss, x.grad)])
    return zip(*results)


CALLS = [
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([[1, 2, 2], [3, 4, 1], [4, 4, 4]]), (9, 7, 8), (3, 1, 2)),
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([1, 2, 2, 3, 4, 4]), lib.tensor([9, 7, 8]), lib.tensor([3, 1, 2]), reduction="none"),
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([[1, 0], [3, 3], [0, 0]]), (9, 9, 9), (2, 2, 0), blank=2, reduction="sum"),
    lambda lib, F, x, p: F.ctc_loss(p[:, 0], lib.tensor([1, 1, 3]), (9,), (3,), reduction="none"),
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([[1, 1], [3, 1], [2, 2]]), (2, 9, 3), (2, 2, 2), reduction="none", zero_infinity=True),  # 1, 1 needs three steps
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([[1, 2, 2], [3, 4, 1], [4, 4, 4]]), (9, 7, 8), (0, 0, 0)),
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([[1.0, 2.0], [3.7, 0.0], [1.0, 1.0]]), (9, 7, 8), (2, 1, 2)),
    lambda lib, F, x, p: F.ctc_loss(p, lib.tensor([1, 2, 3, 1, 1], dtype=lib.int16), (9, 7, 8), (2, 1, 2), reduction="none"),
    lambda lib, F, x, p: lib.nn.CTCLoss(blank=4, reduction="sum")(p, lib.tensor([[1, 2], [3, 0], [1, 1]]), (9, 7, 8), (2, 1, 2)),
]


@pytest.mark.parametrize("call", CALLS)
def test_losses_and_gradients(call):
    for theirs, ours in both(call):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
    for theirs, ours in both(call, "float32"):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_log_probabilities_is_torchs():
    """Which counts on log_softmax before it."""
    torch = pytest.importorskip("torch")
    grads = []
    for lib in (torch, ampc):
        p = lib.tensor(np.random.default_rng(4).standard_normal((6, 2, 4)), dtype=lib.float64).log_softmax(2).detach().requires_grad_()
        lib.nn.functional.ctc_loss(p, lib.tensor([[1, 2], [3, 3]]), (6, 4), (2, 2)).backward()
        grads.append(np.array(p.grad.tolist()))
    np.testing.assert_allclose(grads[1], grads[0], rtol=1e-9, atol=1e-12)


def test_labels_that_do_not_fit():
    p = ampc.zeros(2, 1, 3).log_softmax(2)
    assert float(ampc.nn.functional.ctc_loss(p, ampc.tensor([[1, 1]]), (2,), (2,))) == float("inf")
    assert float(ampc.nn.functional.ctc_loss(p, ampc.tensor([[1, 1]]), (2,), (2,), zero_infinity=True)) == 0.0


@pytest.mark.parametrize("wrong", [
    lambda F, p: F.ctc_loss(p, ampc.tensor([[1]]), (5,), (1,)), lambda F, p: F.ctc_loss(p, ampc.tensor([[1]]), (4,), (2,)), lambda F, p: F.ctc_loss(p, ampc.tensor([[1]]), (4, 4), (1,)),
    lambda F, p: F.ctc_loss(p, ampc.tensor([[[1]]]), (4,), (1,)), lambda F, p: F.ctc_loss(p, ampc.tensor([[1]]), (4,), (1,), blank=3), lambda F, p: F.ctc_loss(p.long(), ampc.tensor([[1]]), (4,), (1,)),
    lambda F, p: F.ctc_loss(p, ampc.tensor([1, 2]), (4,), (1,)), lambda F, p: F.ctc_loss(p, ampc.tensor([[1]]), ampc.tensor([4.0]), (1,))])
def test_errors(wrong):
    with pytest.raises(RuntimeError, match="ctc_loss"):
        wrong(ampc.nn.functional, ampc.zeros(4, 1, 3))


def test_a_loss_with_a_layer_of_its_own():
    torch = pytest.importorskip("torch")
    x, target = np.random.default_rng(1).standard_normal((4, 6)), np.array([[0, 2], [1, 1], [2, 0], [1, 2]])
    theirs, ours = (lib.nn.LinearCrossEntropyLoss(6, 3, out_features=(2,), bias=True, label_smoothing=0.1, weight=lib.tensor([1.0, 2.0, 0.5])).double() for lib in (torch, ampc))
    ours.load_state_dict({name: ampc.tensor(t.numpy(force=True)) for name, t in theirs.state_dict().items()})
    a, b = theirs(torch.tensor(x), torch.tensor(target)), ours(ampc.tensor(x), ampc.tensor(target))
    a.backward(), b.backward()
    assert float(b) == pytest.approx(float(a), rel=1e-12)
    np.testing.assert_allclose(ours.linear.weight.grad.numpy(force=True), theirs.linear.weight.grad.numpy(force=True), rtol=1e-10)
