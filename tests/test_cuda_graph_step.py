"""``cuda.graph_step`` and ``make_graphed_callables``: training steps and parts of a model as CUDA graphs, beside the same without, on a simulated
or real GPU."""

import pytest
from test_cuda_graphs import captured, make_batches, make_model, no_capture_is_left  # noqa: F401
from where import FEWER, ON_GPU

import ampc
from ampc import nn

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs a GPU, or the simulated one")
F = ampc.nn.functional


def eager_step(model, optimizer, scaler, x, y, limit, parts=1):
    optimizer.zero_grad()
    losses = []
    for micro_x, micro_y in zip(x.chunk(parts), y.chunk(parts)):
        with ampc.autocast("cuda", dtype=ampc.float16):
            losses.append(F.cross_entropy(model(micro_x), micro_y) / parts)
        scaler.scale(losses[-1]).backward()
    if limit is not None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    return sum(losses)


def train(make_optimizer, limit, steps, graphed, batches=None, parts=1):
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    scaler = ampc.amp.GradScaler("cuda", init_scale=2.0**19, growth_interval=4)
    scheduler = ampc.optim.lr_scheduler.StepLR(optimizer, 7, 0.9)
    step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, scaler, max_norm=limit, micro_batches=parts) if graphed else None
    ampc.manual_seed(9)
    seen = []
    for i, (x, y) in enumerate(make_batches(steps) if batches is None else batches):
        if i == steps // 2 and limit is not None:
            limit = limit / 2
            if graphed:
                step.max_norm = limit
        loss = step(x, y) if graphed else eager_step(model, optimizer, scaler, x, y, limit, parts)
        scheduler.step()
        seen.append([loss.item(), scaler.get_scale(), scaler.last_step.skipped])
        if i % 10 == 0 or scaler.last_step.skipped:
            last = scaler.last_step
            seen[-1] += [last.loss, last.scale, last.lr, last.grad_norm, last.amax, last.infs, [v.tolist() for v in model.state_dict().values()],
                         [p.grad.tolist() for p in model.parameters()]]
    return seen, [s.skipped for s in scaler.ledger], repr(optimizer.state_dict())


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote", "ignore:.*scheduler-after-skip")
@pytest.mark.parametrize("limit", [0.5, None], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("make", [lambda p: ampc.optim.AdamW(p, lr=1e-2), lambda p: ampc.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)], ids=["AdamW", "SGD"])
def test_a_graphed_step_is_the_eager_step_bit_for_bit(make, limit):
    steps = 200
    eager, graphed = (train(make, limit, steps, each) for each in (False, True))
    for i, (a, b) in enumerate(zip(eager[0], graphed[0])):
        assert repr(a) == repr(b), f"step {i}"  # nan is equal to itself there
    assert eager == graphed or repr(eager) == repr(graphed)
    scales = [scale for _, scale, *_ in eager[0]]
    assert {-1, 1} == {(b > a) - (b < a) for a, b in zip(scales, scales[1:])} - {0} and 1 < sum(eager[1]) < steps / 2, "it should grow and shrink"


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote", "ignore:.*scheduler-after-skip")
@pytest.mark.parametrize(("parts", "limit"), [(2, 0.5), (4, None)])
def test_micro_batches_accumulate_as_the_eager_loop_bit_for_bit(parts, limit):
    steps = 60
    batches = [b for pair in zip(make_batches(steps // 2), make_batches(steps // 2, size=16)) for b in pair]
    eager, graphed = (train(lambda p: ampc.optim.AdamW(p, lr=1e-2), limit, steps, each, batches, parts) for each in (False, True))
    for i, (a, b) in enumerate(zip(eager[0], graphed[0])):
        assert repr(a) == repr(b), f"step {i}"
    assert repr(eager) == repr(graphed) and 1 < sum(eager[1]) < steps / 2, "it should skip, and go on"


def test_micro_batches_have_the_gradient_of_the_whole_batch():
    seen = []
    for parts in (1, 4):
        model = nn.Linear(12, 4)
        model.load_state_dict(make_model()[4].state_dict() | {"weight": ampc.linspace(-1, 1, 48).reshape(4, 12)})
        step = ampc.cuda.graph_step(model, F.cross_entropy, ampc.optim.SGD(model.parameters(), lr=0.0), dtype=ampc.float32, warmup=1, micro_batches=parts)
        x, y = make_batches(1)[0]
        seen += [[step(x, y), *(p.grad.clone() for p in model.parameters())] for _ in range(3)]
    for found in seen[1:]:
        ampc.testing.assert_close(found, seen[0], rtol=8 * 2.0**-23, atol=8 * 2.0**-23)


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_batches_of_other_shapes_and_the_other_mode_are_captured_by_themselves():
    batches = [b for pair in zip(make_batches(12), make_batches(12, size=5)) for b in pair]
    make = lambda p: ampc.optim.AdamW(p, lr=1e-2)  # noqa: E731
    eager, graphed = (train(make, 1.0, len(batches), each, batches) for each in (False, True))
    assert repr(eager) == repr(graphed)
    model = make_model()
    step = ampc.cuda.graph_step(model, F.cross_entropy, ampc.optim.SGD(model.parameters(), lr=0.0), dtype=ampc.float32, warmup=1)
    x, y = make_batches(1)[0]
    noisy = [step(x, y).item() for _ in range(4)]
    model.eval()
    assert len(set(noisy)) == 4 and len({step(x, y).item() for _ in range(4)}) == 1


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_state_that_is_loaded_is_not_passed_by():
    def train(graphed):
        model, x, y = make_model(), *make_batches(1)[0]
        optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=1e-2), ampc.amp.GradScaler("cuda", init_scale=2.0**12, growth_interval=3)
        step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, scaler) if graphed else lambda x, y: eager_step(model, optimizer, scaler, x, y, None)
        seen = []
        for i in range(12):
            if i == 4:
                saved = [{k: v.clone() for k, v in model.state_dict().items()}, optimizer.state_dict(), scaler.state_dict()]
                saved[1] = {**saved[1], "state": {n: {k: v.clone() for k, v in s.items()} for n, s in saved[1]["state"].items()}}
            if i == 7:
                model.load_state_dict(saved[0]), optimizer.load_state_dict(saved[1]), scaler.load_state_dict(saved[2])
            seen.append((step(x, y).item(), scaler.get_scale(), [p.tolist() for p in model.parameters()]))
        return seen

    assert train(True) == train(False)


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote", "ignore:.*scheduler-after-skip")
def test_the_capture_waits_for_a_step_that_is_not_skipped():
    def train(graphed):
        model, x, y = make_model(), *make_batches(1)[0]
        optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=1e-2), ampc.amp.GradScaler("cuda", init_scale=2.0**22, growth_interval=3)
        step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, scaler) if graphed else lambda x, y: eager_step(model, optimizer, scaler, x, y, None)
        return [(step(x, y).item(), scaler.get_scale(), [p.tolist() for p in model.parameters()]) for _ in range(16)], [s.skipped for s in scaler.ledger]

    eager = train(False)
    assert eager[1][:3] == [True] * 3 and train(True) == eager


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_scale_that_starts_too_high_is_lowered_before_a_step_is_captured():
    def train(graphed):
        model = make_model()
        optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=1e-2), ampc.amp.GradScaler("cuda", init_scale=2.0**26)
        step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, scaler) if graphed else lambda x, y: eager_step(model, optimizer, scaler, x, y, None)
        seen = [[step(x, y).item(), scaler.get_scale()] for x, y in make_batches(20)]
        return seen, [s.skipped for s in scaler.ledger]

    eager = train(False)
    assert eager[1][:3] == [True] * 3 and not eager[1][-1], "it should skip more steps than the warm-up has"
    assert train(True) == eager


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_after_a_batch_that_does_not_fit_the_next_step_is_as_usual():
    model = make_model()
    scaler = ampc.amp.GradScaler("cuda")
    step = ampc.cuda.graph_step(model, F.cross_entropy, ampc.optim.AdamW(model.parameters()), scaler, max_norm=1.0)
    x, y = make_batches(1)[0]
    for _ in range(2):  # the second one without a graph, and the fourth while it is captured
        step(x, y)
        with pytest.raises(ValueError, match="names classes of 1 samples"):
            step(x, y[:1])
    assert len(scaler.ledger) == 2 and not ampc.isnan(step(x, y))


def test_a_dtype_that_no_region_computes_in_is_refused():
    model = make_model()
    with pytest.raises(ValueError, match="`dtype` must be float16, bfloat16 or float32, got ampc.int32"):
        ampc.cuda.graph_step(model, F.cross_entropy, ampc.optim.SGD(model.parameters()), dtype=ampc.int32)


@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_step_that_cannot_be_captured_names_the_line_and_goes_on_without_a_graph():
    model = make_model()
    optimizer, scaler = ampc.optim.SGD(model.parameters(), lr=0.1), ampc.amp.GradScaler("cuda")
    losses = []

    def loss_fn(out, y):
        loss = F.cross_entropy(out, y)
        losses.append(loss.item())
        return loss

    step = ampc.cuda.graph_step(model, loss_fn, optimizer, scaler, warmup=1)
    x, y = make_batches(1)[0]
    step(x, y)
    with pytest.raises(RuntimeError, match=r"test_cuda_graph_step.py:\d+: `losses.append\(loss.item\(\)\)`: item: a copy to the CPU cannot be captured"):
        step(x, y)
    eager_step(model, optimizer, scaler, x, y, None)
    assert len(scaler.ledger) == 2


@pytest.mark.parametrize("make", [lambda p: ampc.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: ampc.optim.AdamW(p, lr=0.01)], ids=["SGD", "AdamW"])
@pytest.mark.filterwarnings("ignore:.*scaler-without-fp16")
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
def test_the_step_that_makes_the_optimizers_state_is_not_captured(make, scaled):
    w = ampc.nn.Parameter(ampc.ones(3))
    optimizer, scaler = make([w]), ampc.amp.GradScaler("cuda", enabled=scaled)

    def step():
        optimizer.zero_grad()
        scaler.scale((w * w).sum()).backward()
        scaler.step(optimizer)

    with pytest.raises(RuntimeError, match=r"step: a CUDA graph cannot capture the step that makes the optimizer's state"):
        captured(step)
    assert not optimizer.state


def test_the_step_says_what_it_needs(request):
    model = make_model()
    optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="LBFGS is computed in Python"):
        ampc.cuda.graph_step(model, F.cross_entropy, ampc.optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match="`scaler` must be a GradScaler or None, got int"):
        ampc.cuda.graph_step(model, F.cross_entropy, optimizer, 3)
    with pytest.raises(ValueError, match="`warmup` must be at least 1"):
        ampc.cuda.graph_step(model, F.cross_entropy, optimizer, warmup=0)
    with pytest.raises(ValueError, match="`micro_batches` must be at least 1, got 0"):
        ampc.cuda.graph_step(model, F.cross_entropy, optimizer, micro_batches=0)
    for x, y in ((ampc.ones(7, 12), ampc.zeros(7)), (ampc.ones(8, 12), ampc.zeros(4)), (ampc.ones(8, 12), ampc.tensor(1.0))):
        with pytest.raises(ValueError, match=r"cut into 2 micro-batches, so the first dimension .* must be the same multiple of 2; got \[\["):
            ampc.cuda.graph_step(model, F.cross_entropy, optimizer, micro_batches=2)(x, y)
    step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, dtype=ampc.float32, max_norm=1.0, warmup=1)
    with pytest.raises(TypeError, match="inputs and targets must be Tensors, got list"):
        step([1.0], ampc.ones(1))
    x, y = make_batches(1)[0]
    step(x, y), step(x, y)
    with pytest.raises(RuntimeError, match="a limit can be changed, but not added or removed"):
        step.max_norm = None
    step.max_norm = 2.0
    assert step.max_norm == 2.0


# -- parts of a model ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 2])
def test_graphed_callables_train_as_without(accumulate):
    def train(graphed):
        model = make_model()
        x = ampc.randn(8, 12, requires_grad=True)
        if graphed:
            model = ampc.cuda.make_graphed_callables(model, (x.detach().clone().requires_grad_(),))
            model.load_state_dict(make_model().state_dict())
        optimizer, seen = ampc.optim.SGD(model.parameters(), lr=0.05), []
        ampc.manual_seed(6)
        for i, (x, y) in enumerate(make_batches(max(20 // FEWER, 6))):
            x.requires_grad_()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            seen.append((loss.item(), x.grad.tolist(), [p.grad.tolist() for p in model.parameters()]))
            if i % accumulate == accumulate - 1:
                optimizer.step(), optimizer.zero_grad()
        model.eval()
        return seen, model(x).tolist()

    graphed, eager = train(True), train(False)
    if accumulate == 1:
        assert graphed == eager
    else:  # a product without a graph adds to the gradient before it rounds
        for (loss, *found), (other, *expected) in zip(graphed[0], eager[0]):
            assert loss == pytest.approx(other, abs=1e-5)
            for a, b in zip([found[0], *found[1]], [expected[0], *expected[1]]):
                ampc.testing.assert_close(ampc.tensor(a), ampc.tensor(b), rtol=1e-4, atol=1e-5)


def test_several_graphed_callables_and_functions():
    layer, x = nn.Linear(6, 6), ampc.randn(4, 6)
    first, second = ampc.cuda.make_graphed_callables((layer, lambda a, b: (a * b, a.detach())), ((x,), (ampc.ones(4, 6, requires_grad=True), x)))
    product, plain = second(first(x), x)
    assert plain.requires_grad is False and product.tolist() == (F.linear(x, layer.weight, layer.bias) * x).tolist()
    product.sum().backward()
    expected = ampc.autograd.grad((F.linear(x, layer.weight, layer.bias) * x).sum(), [layer.weight, layer.bias])
    assert [layer.weight.grad.tolist(), layer.bias.grad.tolist()] == [g.tolist() for g in expected]
    with pytest.raises(TypeError, match="takes the 2 arguments"):
        second(x)
    with pytest.raises(RuntimeError, match=r"captured with an argument of \[4, 6\]"):
        second(x[:2], x)
    with pytest.raises(RuntimeError, match="must be tuples of Tensors on a GPU"):
        ampc.cuda.make_graphed_callables(layer, (x.cpu(),))
    layer.register_forward_hook(lambda *args: None)
    with pytest.raises(RuntimeError, match="must not have hooks"):
        ampc.cuda.make_graphed_callables(layer, (x,))


def test_a_graphed_callable_takes_and_gives_what_is_nested():
    x, other = ampc.randn(4, 6), ampc.ones(4)
    f = ampc.cuda.make_graphed_callables(lambda a, bs: {"sum": a["x"] + bs[0], "more": [bs[1] * 2]}, ({"x": x.clone().requires_grad_()}, [x.clone(), other.clone()]))
    leaf = x.clone().requires_grad_()
    found = f({"x": leaf}, [x * 3, other * 5])
    found["sum"].sum().backward()
    assert found["sum"].tolist() == (leaf + x * 3).tolist() and found["more"][0].tolist() == [10.0] * 4 and leaf.grad.tolist() == [[1.0] * 6] * 4
    with pytest.raises(TypeError, match="takes the 3 arguments that it was captured with, nested as they were"):
        f({"y": leaf}, [x, other])


two_gpus = pytest.mark.skipif(not ON_GPU or ampc.cuda.device_count() < 2, reason="needs two GPUs")


@two_gpus
@pytest.mark.filterwarnings("ignore::ampc.doctor.PerformanceNote")
def test_a_model_on_another_gpu_than_the_current_one_is_captured_there():
    def train(graphed):
        model = make_model().to("cuda:1")
        optimizer, scaler = ampc.optim.AdamW(model.parameters(), lr=0.01), ampc.amp.GradScaler("cuda:1")
        step = ampc.cuda.graph_step(model, F.cross_entropy, optimizer, scaler, max_norm=0.5)
        ampc.manual_seed(9)
        batches = [(x.to("cuda:1"), y.to("cuda:1")) for x, y in make_batches(8)]
        return [(step(x, y) if graphed else eager_step(model, optimizer, scaler, x, y, 0.5)).item() for x, y in batches]

    losses = train(True)
    assert losses == train(False) and len(set(losses)) == 8
    f = ampc.cuda.make_graphed_callables(lambda x: x * 2, (ampc.ones(3, device="cuda:1"),))
    assert f(ampc.full((3,), 4.0, device="cuda:1")).tolist() == [8.0] * 3


@two_gpus
@pytest.mark.parametrize("draw", [lambda x: ampc.rand(3, device="cuda:1"), lambda x: F.dropout(x), lambda x: F.scaled_dot_product_attention(
    x.half(), x.half(), x.half(), dropout_p=0.5)], ids=["rand", "dropout", "attention"])
def test_random_numbers_of_a_gpu_that_is_not_captured_are_refused(draw):
    """A replay decides them on the GPU of the graph, whose memory another one's kernels do not reach."""
    x = ampc.ones(1, 8, 8, device="cuda:1")
    with pytest.raises(RuntimeError, match=r"cuda:1 are drawn while a CUDA graph of cuda:0 is captured"), ampc.cuda.graph(ampc.cuda.CUDAGraph()):
        draw(x)


@two_gpus
def test_a_step_on_a_gpu_that_is_not_captured_is_made_at_once():
    p = ampc.ones(3, device="cuda:1", requires_grad=True)
    p.grad = ampc.ones(3, device="cuda:1")
    optimizer = ampc.optim.SGD([p], lr=0.5)
    _, _ = captured(optimizer.step)
    assert p.tolist() == [0.5] * 3
