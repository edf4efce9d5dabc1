"""CUDA graphs: what is captured, replayed and refused, on a simulated or real GPU. The driver's own refusals are in test_cuda_capture.py."""

import gc
import threading

import pytest
from where import ON_GPU, SIMULATED, simulated, simulator

import ampc
from ampc import nn

pytestmark = pytest.mark.skipif(not ON_GPU, reason="needs a GPU, or the simulated one")
F = ampc.nn.functional


@pytest.fixture(autouse=True)
def no_capture_is_left():
    yield
    assert not ampc.cuda.is_current_stream_capturing() and ampc.cuda.current_stream() == ampc.cuda.default_stream()
    if ON_GPU and ampc._C._cuda_is_simulated():
        assert simulator("captures") == 0


def captured(f, **options):
    """A graph of f(), and its result."""
    g = ampc.cuda.CUDAGraph()
    with ampc.cuda.graph(g, **options):
        result = f()
    return g, result


def make_model():
    ampc.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))


def make_batches(n, size=8):
    ampc.manual_seed(5)
    return [(ampc.randn(size, 12), ampc.randint(0, 4, (size,))) for _ in range(n)]


# -- capture and replay ------------------------------------------------------------------------------------------------------------------


def test_a_replay_runs_the_same_work_on_what_the_inputs_hold_now():
    x = ampc.arange(6.0)
    g, y = captured(lambda: (x * 2).cumsum(0) + 1)
    for values in ([1.0] * 6, [2.0, 0.0, 0.0, 1.0, 0.0, 5.0]):
        x.copy_(ampc.tensor(values))
        g.replay()
        assert y.tolist() == ((x * 2).cumsum(0) + 1).tolist()


@simulated
def test_capturing_runs_nothing_and_a_replay_is_one_call():
    x = ampc.ones(8)
    (x + 1) * 3  # the kernels are found
    ampc.cuda.synchronize()
    work, replays = simulator("launches"), simulator("replays")
    g, y = captured(lambda: (x + 1) * 3)
    assert simulator("launches") > work
    work = simulator("launches")
    g.replay(), g.replay()
    assert simulator("launches") == work and simulator("replays") == replays + 2 and y.tolist() == [6.0] * 8


def test_numbers_of_the_cpu_are_captured_as_they_are():
    x, two = ampc.ones(3), ampc.tensor(2.0, device="cpu")
    g, (a, b) = captured(lambda: (x * two, ampc.where(x > 0, ampc.tensor(7, device="cpu"), x)))
    two.fill_(9)
    g.replay()
    assert a.tolist() == [2.0] * 3 and b.tolist() == [7.0] * 3


def test_random_numbers_go_on_from_replay_to_replay():
    x = ampc.ones(64)
    draws = (lambda: F.dropout(x, 0.5), lambda: ampc.rand(5), lambda: ampc.randn(5), lambda: ampc.randint(0, 1000, (5,)),
             lambda: ampc.randn(5, dtype=ampc.float64))
    ampc.manual_seed(3)
    expected = [[f().tolist() for f in draws] for _ in range(3)]
    after = ampc.rand(2).tolist()
    g, made = captured(lambda: [f() for f in draws])
    ampc.manual_seed(3)
    got = []
    for _ in range(3):
        g.replay()
        got.append([y.tolist() for y in made])
    assert got == expected and got[0] != got[1] and ampc.rand(2).tolist() == after


@simulated
def test_a_replay_waits_for_what_the_capture_wrote():
    """The capture writes where random numbers begin on its own stream. Late, it would overwrite what a replay on another stream has written."""
    x = ampc.ones(64)
    ampc.cuda.synchronize()
    others = simulator("pending")  # of another GPU
    g, y = captured(lambda: F.dropout(x, 0.5))
    before = simulator("pending")
    ampc.manual_seed(3)
    g.replay()
    y.tolist()
    assert before > others == simulator("pending")


def test_a_capture_takes_no_random_numbers():
    ampc.manual_seed(4)
    expected = ampc.rand(3).tolist()
    ampc.manual_seed(4)
    captured(lambda: ampc.rand(100))
    assert ampc.rand(3).tolist() == expected


def test_a_graph_draws_the_numbers_of_another_graphs_dropout_again():
    x = ampc.ones(64, requires_grad=True)
    forward, y = captured(lambda: F.dropout(x, 0.5))
    backward, grad = captured(lambda: ampc.autograd.grad(y.sum(), x)[0])
    for _ in range(3):
        forward.replay(), backward.replay()
        assert grad.tolist() == y.tolist()
    forward.replay()
    assert ampc.autograd.grad(F.dropout(x, 0.5).sum(), x)[0].tolist() != y.tolist()
    loss = y.sum()
    forward.reset()
    with pytest.raises(RuntimeError, match="drew these random numbers does not exist any more"):
        loss.backward()


def test_seeding_within_a_capture_is_refused():
    with pytest.raises(RuntimeError, match="seeded during the capture"):
        captured(lambda: (ampc.manual_seed(1), ampc.rand(2)))


def test_a_generator_of_the_scripts_own_is_not_captured():
    """Each replay would draw the same from it."""
    generator = ampc.Generator("cuda").manual_seed(3)
    for draw in (lambda: ampc.rand(3, generator=generator), lambda: ampc.empty(3).normal_(generator=generator),
                 lambda: ampc.bernoulli(ampc.full((3,), 0.5), generator=generator)):
        with pytest.raises(RuntimeError, match="a Generator of the script's, would be the same at each replay: draw without `generator`"):
            captured(draw)
    assert ampc.rand(3, generator=generator).equal(ampc.rand(3, generator=ampc.Generator("cuda").manual_seed(3)))


def test_what_a_replay_writes_is_known_to_be_written():
    """Copies of weights in 16 bits, and autograd, notice."""
    layer, x = nn.Linear(64, 64), ampc.randn(32, 64)

    def product():
        with ampc.no_grad(), ampc.autocast("cuda"):
            return layer(x).tolist()

    before, version = product(), layer.weight._version
    g, _ = captured(lambda: layer.weight.detach().mul_(2))
    assert product() == before
    g.replay()
    with ampc.no_grad():
        expected = F.linear(x.half(), layer.weight.half(), layer.bias.half()).tolist()
    assert layer.weight._version > version and product() == expected != before


def test_other_streams_take_part_when_they_join():
    x, side = ampc.ones(1000), ampc.cuda.Stream()
    g = ampc.cuda.CUDAGraph()
    with ampc.cuda.graph(g):
        y = x + 1
        side.wait_stream(ampc.cuda.current_stream())
        with ampc.cuda.stream(side):
            z = y * 3
        ampc.cuda.current_stream().wait_stream(side)
        w = z + y
        z.record_stream(ampc.cuda.current_stream())
        del z
    x.fill_(4)
    g.replay()
    assert w.tolist() == [20.0] * 1000


def test_a_stream_that_does_not_join_is_an_error():
    x, side = ampc.ones(10), ampc.cuda.Stream()
    g = ampc.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="UNJOINED"), ampc.cuda.graph(g):
        side.wait_stream(ampc.cuda.current_stream())
        with ampc.cuda.stream(side):
            x * 2
    assert (x * 2).tolist() == [2.0] * 10


# -- refusals ----------------------------------------------------------------------------------------------------------------------------

REFUSED = {"item": lambda x: x.sum().item(), "tolist": lambda x: x.tolist(), "to_device": lambda x: x.cpu(), "nonzero": lambda x: x.nonzero(),
           "nonzero ": lambda x: x[x > 0], "item ": lambda x: bool(x.sum() > 0), "waiting for the GPU": lambda x: ampc.cuda.synchronize(),
           "waiting for a stream": lambda x: ampc.cuda.current_stream().synchronize(), "asking whether a stream is done": lambda x: ampc.cuda.current_stream().query(),
           "a copy from the CPU": lambda x: ampc.ones(3, device="cpu").cuda(), "emptying the cache": lambda x: ampc.cuda.empty_cache(),
           "randperm": lambda x: ampc.randperm(5), "inv": lambda x: ampc.linalg.inv(x.view(2, 2))}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_cannot_be_captured_names_the_line_and_the_operator(what):
    x, g = ampc.ones(4), ampc.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=r"cannot be captured in a CUDA graph") as error, ampc.cuda.graph(g):
        y = x * 2
        REFUSED[what](y)  # this line
    said = str(error.value)
    assert "test_cuda_graphs.py:" in said and f": {what.strip()}" in said
    assert not ampc.cuda.is_current_stream_capturing() and (x * 2).tolist() == [2.0] * 4
    again, y = captured(lambda: x * 3)
    again.replay()
    assert y.tolist() == [3.0] * 4
    with pytest.raises(RuntimeError, match="nothing was captured"):
        g.replay()


def step_of_a_script(x):
    loss = (x * 2).sum()
    return loss.item()


def test_the_line_is_the_innermost_of_the_script():
    x = ampc.ones(4)
    with pytest.raises(RuntimeError) as error:
        captured(lambda: step_of_a_script(x))
    line = step_of_a_script.__code__.co_firstlineno + 2
    assert str(error.value).startswith(f"{__file__}:{line}: `return loss.item()`: item: a copy to the CPU cannot be captured")


def test_an_error_that_the_script_catches_is_not_forgotten():
    x = ampc.ones(4)

    def f():
        with pytest.raises(RuntimeError):
            x.sum().item()

    with pytest.raises(RuntimeError, match="met something that cannot be captured"):
        captured(f)


def test_an_exception_of_the_script_ends_the_capture():
    x, g = ampc.ones(4), ampc.cuda.CUDAGraph()
    with pytest.raises(KeyError, match="own"), ampc.cuda.graph(g):
        x * 2
        raise KeyError("own")
    with ampc.cuda.graph(g):  # it can be captured after all
        y = x * 2
    g.replay()
    assert y.tolist() == [2.0] * 4


def test_wrong_calls():
    x, g = ampc.ones(3), ampc.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="default stream cannot be captured"):
        g.capture_begin()
    with pytest.raises(ValueError, match="`capture_error_mode` must be one of"):
        ampc.cuda.graph(g, capture_error_mode="strict").__enter__()
    for bad in (3, (0, 10**9)):
        with pytest.raises(ValueError, match="pool: expected what graph_pool_handle"):
            g.capture_begin(pool=bad)
    with pytest.raises(TypeError, match="expected a CUDAGraph, got NoneType"):
        ampc.cuda.graph(None)
    for call in (g.replay, g.pool, g.instantiate):
        with pytest.raises(RuntimeError, match="nothing was captured"):
            call()
    with pytest.raises(RuntimeError, match="capturing another CUDA graph"), ampc.cuda.graph(g):
        other = ampc.cuda.CUDAGraph()
        other.capture_begin()
    g, _ = captured(lambda: x + 1)
    with pytest.raises(RuntimeError, match="has been captured already"), ampc.cuda.graph(g):
        pass
    with pytest.raises(RuntimeError, match="the replay of another CUDA graph cannot be captured"):
        captured(g.replay)
    with pytest.raises(RuntimeError, match="was not kept"):
        g.raw_cuda_graph()


def test_a_graph_that_is_kept():
    """It is made ready later: by hand, again, or by the first replay; and it goes with its object."""
    gc.collect()
    x, before = ampc.ones(3), simulator("graphs") if SIMULATED else 0
    for by_hand in (0, 1, 2):
        g = ampc.cuda.CUDAGraph(keep_graph=True)
        for call in (g.raw_cuda_graph, g.raw_cuda_graph_exec, g.instantiate):
            with pytest.raises(RuntimeError, match="nothing was captured"):
                call()
        with ampc.cuda.graph(g):
            y = x * 2
        kept = g.raw_cuda_graph()
        with pytest.raises(RuntimeError, match=r"call instantiate\(\) first"):
            g.raw_cuda_graph_exec()
        with pytest.raises(RuntimeError, match="has been captured already"), ampc.cuda.graph(g):
            pass
        for _ in range(by_hand):
            g.instantiate()
        x.fill_(by_hand + 4.0)
        g.replay()
        assert y.tolist() == [2 * by_hand + 8.0] * 3 and g.raw_cuda_graph() == kept and g.raw_cuda_graph_exec()
        with pytest.raises(RuntimeError, match="making another CUDA graph ready cannot be captured"):
            captured(g.instantiate)
        g.reset()
        with pytest.raises(RuntimeError, match="nothing was captured"):
            g.raw_cuda_graph()
    plain, _ = captured(lambda: x + 1)
    plain.instantiate()
    assert plain.raw_cuda_graph_exec()
    del g, plain
    gc.collect()
    if SIMULATED:
        assert simulator("graphs") == before


# -- memory ------------------------------------------------------------------------------------------------------------------------------


def test_a_graphs_memory_stays_while_it_lives():
    x = ampc.ones(1 << 16)
    g, y = captured(lambda: ((x + 1) * (x + 2)).sum() + 1)
    ampc.cuda.empty_cache()
    others = [ampc.full((1 << 16,), -1.0) for _ in range(8)]  # would lie where the captured temporaries lie
    g.replay()
    assert y.item() == 6 * (1 << 16) + 1 and all(o.sum().item() == -(1 << 16) for o in others)


@simulated
def test_a_graphs_memory_is_everybodys_when_it_is_gone():
    x = ampc.ones(1 << 20)
    ampc.cuda.synchronize(), gc.collect(), ampc.cuda.empty_cache()
    held, graphs = ampc.cuda.memory_reserved(), simulator("graphs")
    g, y = captured(lambda: (x + 1) * 2)
    assert ampc.cuda.memory_reserved() > held and simulator("graphs") == graphs + 1
    g.replay()
    assert y[0].item() == 4
    del g, y
    gc.collect(), ampc.cuda.empty_cache()
    assert ampc.cuda.memory_reserved() <= held + (2 << 20) and simulator("graphs") == graphs


def test_a_capture_gives_cached_memory_back_before_it_asks_for_its_own():
    """Within a capture it is too late for that."""
    x = ampc.ones(10)
    ampc.cuda.synchronize(), gc.collect(), ampc.cuda.empty_cache()
    ampc.cuda.set_per_process_memory_fraction((ampc.cuda.memory_reserved() + (30 << 20)) / ampc.cuda.mem_get_info()[1])
    try:
        ampc.empty(2 << 20)  # leaves 20 MiB in the cache
        for _ in range(2):  # and so does the first graph
            g, y = captured(lambda: (x + 1, ampc.empty(2 << 20)))
            g.replay()
            assert y[0].tolist() == [2.0] * 10
            del g, y
    finally:
        ampc.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_tables_of_a_captured_resampling_stay_while_the_graph_lives(mode):
    x = ampc.rand(1, 1, 6, 6)
    resized = lambda n: ampc.nn.functional.interpolate(x, size=(n, n), mode=mode)  # noqa: E731
    want = resized(5)
    g, y = captured(lambda: resized(5))
    for n in range(10, 150):  # whose tables take the places of others
        resized(n)
    others = [ampc.full((n,), -1.0) for n in range(8, 400)]
    g.replay()
    assert y.equal(want) and others[0].sum().item() == -8


def test_graphs_that_share_a_pool():
    x, pool = ampc.ones(1000), ampc.cuda.graph_pool_handle()
    first, y = captured(lambda: (x + 1) * 2, pool=pool)
    second, z = captured(lambda: (y + 1) * 2, pool=first.pool())
    assert second.pool() == pool and y.data_ptr() != z.data_ptr()
    del pool
    gc.collect()
    first.replay(), second.replay()
    assert z.tolist() == [10.0] * 1000


def test_a_graph_that_dies_within_a_capture():
    x = ampc.ones(10)
    dying, _ = captured(lambda: x + 1)
    dying.replay()

    def f():
        nonlocal dying
        del dying
        gc.collect()
        return x + 2

    g, y = captured(f)
    g.replay()
    assert y.tolist() == [3.0] * 10


def test_other_threads_work_during_a_capture():
    x, done = ampc.ones(1000, device="cuda"), []

    def work():
        s = ampc.cuda.Stream()
        with ampc.cuda.stream(s):
            big = [ampc.full((1 << 18,), float(i), device="cuda") for i in range(4)]  # memory that the driver is asked for
            done.append(sum(big[1:], big[0]))

    def f():
        y = x + 1
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return y * 2

    g, y = captured(f, capture_error_mode="thread_local")
    g.replay()
    ampc.cuda.synchronize()
    assert y.tolist() == [4.0] * 1000 and done[0][0].item() == 6


# -- optimizers --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda p: ampc.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: ampc.optim.NAdam(p, lr=0.01),
                                  lambda p: ampc.optim.AdamW(p, lr=0.01, amsgrad=True)], ids=["SGD", "NAdam", "AdamW"])
def test_a_captured_step_follows_the_learning_rate(make):
    def start():
        ampc.manual_seed(2)
        layer = nn.Linear(5, 3)
        return layer, make(layer.parameters()), ampc.randn(4, 5)

    def step(layer, optimizer, x):
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        optimizer.step()

    eager, graphed = start(), start()
    step(*eager), step(*graphed)
    graphed[1].zero_grad()
    g, _ = captured(lambda: step(*graphed))
    for rate in (0.05, 0.05, 0.2, 0.01):
        for made in (eager, graphed):
            made[1].param_groups[0]["lr"] = rate
        step(*eager), g.replay()
        assert [p.tolist() for p in eager[0].parameters()] == [p.tolist() for p in graphed[0].parameters()]


@pytest.mark.filterwarnings("ignore:\\[scaler-without-fp16\\]")
def test_gradients_of_a_replay_have_no_factor_of_the_step_before():
    """Only forward and backward are captured: the factors of unscaling and clipping, which wait for the gradients, are of one replay."""
    def train(graphed):
        w, x = ampc.ones(4, requires_grad=True), ampc.ones(4)
        optimizer, scaler = ampc.optim.SGD([w], lr=0.125), ampc.amp.GradScaler("cuda", init_scale=4.0)

        def backward():
            scaler.scale((w * x).sum()).backward()

        backward(), optimizer.zero_grad()
        g = captured(backward)[0] if graphed else None
        for value in (5.0, 3.0, 2.0, 7.0):
            x.fill_(value)
            if g is None:
                optimizer.zero_grad(), backward()
            else:
                g.replay()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([w], 8.0)
            scaler.step(optimizer), scaler.update()
        return w.tolist()

    assert train(True) == pytest.approx(train(False), rel=1e-6)


@pytest.mark.parametrize("name", ["ASGD", "Adafactor", "Muon"])
def test_a_step_that_counts_in_python_is_refused_in_a_capture(name):
    w = ampc.ones(3, 3, requires_grad=True)
    w.grad = ampc.ones(3, 3)
    optimizer = getattr(ampc.optim, name)([w], lr=0.1)
    optimizer.step()
    before = w.tolist()
    with pytest.raises(RuntimeError, match=f"{name}.step.*outside"):
        captured(optimizer.step)
    assert w.tolist() == before
    optimizer.step()
    assert w.tolist() != before


def test_stochastic_rounding_draws_anew_at_each_replay():
    def start():
        ampc.manual_seed(2)
        w = ampc.ones(64, dtype=ampc.bfloat16, requires_grad=True)
        w.grad = ampc.full((64,), 1e-3, dtype=ampc.bfloat16)
        return w, ampc.optim.SGD([w], lr=0.5, rounding="stochastic")

    (w, eager), (v, graphed) = start(), start()
    g, _ = captured(graphed.step)
    ampc.manual_seed(7)
    expected = [(eager.step(), w.tolist())[1] for _ in range(6)]
    ampc.manual_seed(7)
    assert [(g.replay(), v.tolist())[1] for _ in range(6)] == expected and len(set(map(tuple, expected))) > 2


# -- captures that never end -----------------------------------------------------------------------------------------------------------------


def begun(s):
    """A graph that captures on stream s, with some work in it, and what that gives."""
    g = ampc.cuda.CUDAGraph()
    with ampc.cuda.stream(s):
        g.capture_begin()
        return g, ampc.rand(1 << 16) + 1


def fail(s):
    _kept = begun(s)
    raise KeyError("between")


def give_up_by_reset(s):
    g, _ = begun(s)
    g.reset()
    with ampc.cuda.stream(s):
        g.capture_begin()  # it can be captured again
        y = ampc.ones(3) * 5
        g.capture_end()
    g.replay()
    assert y.tolist() == [5.0] * 3


def give_up_by_an_exception(s):
    with pytest.raises(KeyError, match="between"):
        fail(s)


@pytest.mark.parametrize("give_up", [lambda s: begun(s) and None, give_up_by_reset, give_up_by_an_exception], ids=["deleted", "reset", "exception"])
def test_a_stream_whose_capture_never_ended_runs_again(give_up):
    s = ampc.cuda.Stream()
    ampc.manual_seed(4)
    expected = ampc.rand(4).tolist()
    ampc.cuda.synchronize(), gc.collect(), ampc.cuda.empty_cache()
    before = ampc.cuda.memory_allocated(), ampc.cuda.memory_reserved()
    ampc.manual_seed(4)
    give_up(s)
    gc.collect()
    assert not ampc.cuda.is_current_stream_capturing()
    with ampc.cuda.stream(s):
        assert ampc.rand(4).tolist() == expected, "on that stream, from where the random stream was"
    ampc.cuda.synchronize(), gc.collect(), ampc.cuda.empty_cache()
    assert (ampc.cuda.memory_allocated(), ampc.cuda.memory_reserved()) == before
    g, y = captured(lambda: ampc.ones(2) + 1)
    g.replay()
    assert y.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("first", ["question", "memory", "list"])
def test_a_capture_that_is_deleted_by_another_thread_ends_where_it_was_begun(first):
    """Whatever the thread asks for first, also within the locks that what the capture kept is given back under."""
    s, made, dropped, seen = ampc.cuda.Stream(), threading.Event(), threading.Event(), []
    p = ampc.ones(3, requires_grad=True)
    p.grad = ampc.ones(3)
    optimizer = ampc.optim.SGD([p], lr=1.0)
    optimizer.step()

    def work():
        held.append(begun(s))
        with ampc.cuda.stream(s):
            optimizer.step()  # the capture keeps a table
            made.set()
            dropped.wait(60)
            if first == "question":
                seen.append(ampc.cuda.is_current_stream_capturing())
            elif first == "list":
                optimizer.step()
            seen.append((ampc.ones(2) + 2).tolist())

    held: list = []
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert made.wait(60)
    held.clear()
    gc.collect()
    dropped.set()
    thread.join(60)
    assert not thread.is_alive() and seen == [False] * (first == "question") + [[3.0, 3.0]]
