"""Context managers over state: whatever arrives between two of Python's instructions, and whatever memory lacks, the state is as it was
when the statement is over."""

import copy
import gc
import os
import random
import signal
import sys
import threading

import pytest

import ampc
from ampc import _C, policy
from ampc._events import announce
from ampc._tensor.device import current
from ampc.doctor import guard
from ampc.doctor.fp32_shadow import Shadow
from ampc.nn.utils import parametrize
from ampc.utils import checkpoint

TRIES = 10_000
CAREFUL = policy.default.changed("careful", operators={"softmax": "float32"}, modules={"head.*": "float32"})


def state():
    """All that the scopes below change."""
    return (ampc.is_grad_enabled(), ampc.is_inference_mode_enabled(), _C._autocast_active(), _C._is_autocast_enabled("cpu"),
            _C.get_autocast_dtype("cpu"), _C.is_autocast_cache_enabled(), _C._autocast_nest(0), _C._region_policy(), policy.state.chosen,
            policy.state.by_module, _C._watcher(), _C._pack_saved(ampc.ones(1)) is None, ampc.get_default_device(), current.index, _C._rng_state(),
            parametrize._cache, checkpoint._stop_early, guard._State.mode, [each for each in announce._listeners if not each.over])


class Twice(ampc.autocast):
    """A user's own, which counts."""

    entered = 0

    def __enter__(self):
        self.entered += 1
        return super().__enter__()


generator, explanation = ampc.Generator(), ampc.explain()
SCOPES = {
    "autocast": lambda: ampc.autocast("cpu"),
    "autocast with a policy": lambda: ampc.autocast("cpu", policy=CAREFUL),
    "no_grad": ampc.no_grad,
    "enable_grad": ampc.enable_grad,
    "inference_mode": ampc.inference_mode,
    "policy.using": lambda: policy.using(CAREFUL),
    "saved_tensors_hooks": lambda: ampc.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "shadow": Shadow,
    "doctor": ampc.doctor,
    "explain": lambda: explanation,
    "device": lambda: ampc.device("cpu"),
    "cuda.device": lambda: ampc.cuda.device(None),
    "fork_rng": ampc.random.fork_rng,
    "generator": lambda: generator,
    "parametrize.cached": parametrize.cached,
    "early stop": lambda: checkpoint.set_checkpoint_early_stop(False),
    "checkpoint": checkpoint._State(True).again,
}


@pytest.fixture(autouse=True)
def no_reports():
    left = _C._regions_to_observe(0)
    yield
    _C._regions_to_observe(left)


def enter_often(make, times):
    for _ in range(times):
        with make():
            pass


def is_of_ampc(traceback):
    while traceback is not None:
        if os.path.dirname(ampc.__file__) in traceback.tb_frame.f_code.co_filename:
            return True
        traceback = traceback.tb_next
    return False


def interrupted(make, tries):
    """How many times the state was another after an interrupt, and how many interrupts there were. Python prints what is raised in a
    finalizer and goes on. So an interrupt counts, too, that came while garbage of other tests was finalized; in one of ampc's it doesn't."""
    signals, wrong, happened = random.Random(0), 0, 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    def lost_in_finalizer(unraisable):
        nonlocal happened
        if unraisable.exc_type is KeyboardInterrupt and not is_of_ampc(unraisable.exc_traceback):
            happened += 1
        else:
            told(unraisable)

    gc.collect()
    before, observers, told = state(), gc.callbacks[:], sys.unraisablehook
    gc.callbacks.clear()  # what they raise is lost
    handler, sys.unraisablehook = signal.signal(signal.SIGALRM, interrupt), lost_in_finalizer
    try:
        for done in range(tries):
            try:
                signal.setitimer(signal.ITIMER_REAL, signals.uniform(5e-6, 60e-6))
                for _ in range(1000):
                    if happened > done:
                        break
                    enter_often(make, 100)
            except KeyboardInterrupt:
                happened += 1
            wrong += state() != before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        gc.callbacks[:], sys.unraisablehook = observers, told
    return wrong, happened


class SlowToEnd:
    def __del__(self):
        for _ in range(3000):
            pass


def of_slow_ends():
    SlowToEnd()
    return ampc.no_grad()


def test_interrupts_of_finalizers_count():
    assert interrupted(of_slow_ends, 100) == (0, 100)


@pytest.mark.parametrize("name", SCOPES)
def test_interrupts_leave_the_state(name):
    assert interrupted(SCOPES[name], TRIES if name in ("autocast", "no_grad") else TRIES // 10) == (0, TRIES if name in ("autocast", "no_grad") else TRIES // 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCOPES)
def test_ten_thousand_interrupts_leave_the_state(name):
    assert interrupted(SCOPES[name], TRIES) == (0, TRIES)


@pytest.mark.parametrize("lasting", [False, True], ids=["one", "all from there on"])
@pytest.mark.parametrize("name", SCOPES)
def test_missing_memory_leaves_the_state(name, lasting):
    """At whatever allocation of entering, the body and leaving it is missing."""
    testcapi = pytest.importorskip("_testcapi")
    make, before, body, left = SCOPES[name], state(), [], False
    enter_often(make, 1)

    def run(n):
        testcapi.set_nomemory(n, 0 if lasting else n + 1)
        try:
            with make():
                body.append(1)
        finally:
            testcapi.remove_mem_hooks()

    for n in range(1, 800):
        try:
            run(n)
            left = True
            break
        except MemoryError:
            pass
        assert state() == before, n
    assert left and n > 1 and state() == before


@pytest.mark.parametrize("name", [name for name in SCOPES if name not in ("shadow", "doctor", "explain")])  # Python's own work comes after those
def test_leaving_asks_for_no_memory(name):
    testcapi = pytest.importorskip("_testcapi")
    before, scope = state(), SCOPES[name]()
    leave = scope.__exit__
    scope.__enter__()
    testcapi.set_nomemory(0)
    try:
        leave(None, None, None)
    finally:
        testcapi.remove_mem_hooks()
    assert state() == before


# -- use ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCOPES)
def test_one_object_nests_in_itself(name):
    before, scope = state(), SCOPES[name]()
    with scope:
        with scope:
            pass
        with pytest.raises(ZeroDivisionError), scope:
            1 / 0
    assert state() == before
    with pytest.raises(RuntimeError, match="was not entered"):
        scope.__exit__(None, None, None)


def test_scopes_of_generators_end_in_any_order():
    def body():
        with ampc.no_grad():
            yield ampc.is_grad_enabled()
        yield ampc.is_grad_enabled()

    values = body()
    assert next(values) is False
    with ampc.enable_grad():
        assert next(values) is True
        assert ampc.is_grad_enabled()
    assert not ampc.is_grad_enabled()  # as it was when the inner region began
    ampc.set_grad_enabled(True)


def test_threads_share_an_object():
    region, errors = ampc.autocast("cpu"), []

    def work():
        for _ in range(2000):
            with region:
                if not ampc.is_autocast_enabled("cpu"):
                    errors.append(1)
            if ampc.is_autocast_enabled("cpu"):
                errors.append(2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def scope_fields(scope):
    """What a region has in the core."""
    return [getattr(scope, name, None) for name in ("device", "fast_dtype", "_enabled", "_cache_enabled", "_policy")]


def test_subclasses_decorators_and_copies():
    with Twice("cpu") as region:
        assert isinstance(region, ampc.autocast) and region.entered == 1 and ampc.is_autocast_enabled("cpu")

    @region
    def inside():
        return ampc.is_autocast_enabled("cpu")

    assert inside() and region.entered == 2 and not ampc.is_autocast_enabled("cpu")
    for scope in (ampc.autocast("cpu", dtype=ampc.float16), ampc.no_grad(), ampc.inference_mode()):
        again = copy.deepcopy(scope)
        assert type(again) is type(scope) and vars(again) == vars(scope)
        assert scope_fields(again) == scope_fields(scope)
    with ampc.set_grad_enabled(False), ampc.set_grad_enabled(True):
        assert ampc.is_grad_enabled()
    assert ampc.is_grad_enabled()
    with ampc.inference_mode(), ampc.inference_mode(False):
        assert ampc.is_grad_enabled() and not ampc.is_inference_mode_enabled()


@ampc.random.fork_rng()
def drawn():
    return ampc.rand(3).tolist()


def test_forked_random_numbers():
    assert drawn() == drawn()
    with ampc.random.fork_rng(enabled=False):
        first = ampc.rand(3).tolist()
    assert drawn() != first


class Scope(_C.Scope):
    def __init__(self, *changes):
        self.changes = changes

    def _changes(self):
        return self.changes


def test_changes_are_undone_last_first_whatever_fails():
    done = []

    def change(name, begin_fails=False, end_fails=False):
        def say(what, fails):
            done.append(name + what)
            if fails:
                raise KeyError(name)
        return say, ("+", begin_fails), say, ("-", end_fails)

    with Scope(change("a"), change("b"), (None, (), None, ())):
        done.append("body")
    assert done == ["a+", "b+", "body", "b-", "a-"]
    done.clear()
    with pytest.raises(KeyError, match="b"), Scope(change("a"), change("b", begin_fails=True), change("c")):
        done.append("body")
    assert done == ["a+", "b+", "a-"]
    done.clear()
    with pytest.raises(KeyError, match="c"), Scope(change("a", end_fails=True), change("b"), change("c", end_fails=True)):
        pass
    assert done == ["a+", "b+", "c+", "c-", "b-", "a-"]
    for wrong in ((1,), ((None, (), None),), ((None, [], None, ()),)):
        with pytest.raises(TypeError, match="_changes"), Scope(*wrong):
            pass
