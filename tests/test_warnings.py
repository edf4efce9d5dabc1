"""Warnings are about the script's line: whoever reads one sees the call to change, not a line of ampc."""

import ast
import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
from where import ON_GPU

import ampc

HOME = Path(ampc.__file__).parent
SETUP = """
import numpy as np
import ampc
from ampc import nn
F = nn.functional
x, net = ampc.ones(2, 3), nn.Linear(3, 3)
opt = ampc.optim.SGD(net.parameters(), lr=0.1)
"""
# where the warning is written, what it says, and a script; the line to change ends with #!
CASES = [
    ("optim/_schedule.py", "came before the first optimizer.step", "s = ampc.optim.lr_scheduler.StepLR(opt, 1)\ns.step() #!"),
    ("optim/_schedule.py", "came before the first optimizer.step", "s = ampc.amp.GradScaler('cpu').gate(ampc.optim.lr_scheduler.StepLR(opt, 1))\ns.step() #!"),
    ("nn/_module_hooks.py", "an always_call hook raised", """
def fails(*args):
    raise KeyError("first")
net.register_forward_pre_hook(lambda m, a: None)
net.register_forward_hook(lambda m, a, r: fails())
net.register_forward_hook(lambda m, a, r: 1 / 0, always_call=True)
try:
    nn.Sequential(net)(x) #!
except KeyError:
    pass"""),
    ("optim/_schedule.py", "its epoch is deprecated", "s = ampc.optim.lr_scheduler.StepLR(opt, 1)\nopt.step()\ns.step(2) #!"),
    ("autograd/grad_mode.py", "to decorate a class is deprecated", "ampc.no_grad()(type('Own', (), {})) #!"),
    ("nn/init.py", "kaiming_uniform_: a tensor", "nn.init.kaiming_uniform_(ampc.empty(0, 2)) #!"),
    ("nn/init.py", "kaiming_normal_: a tensor", "nn.init.kaiming_normal_(ampc.empty(0, 2)) #!"),
    ("nn/init.py", "is the older name of nn.init.uniform_", "nn.init.uniform(x) #!"),
    ("nn/attention/bias.py", "the first 2 queries see no key", "from ampc.nn.attention import bias\nbias.causal_lower_right(3, 1) #!"),
    ("nn/modules/activation.py", "is an old name of `min_val`", "nn.Hardtanh(min_value=0.0) #!"),
    ("_messages/once.py", "as it is: ampc", "ampc._messages.once._said.clear()\nmodel = ampc.compile(net) #!\nmodel = ampc.compile(net)"),
    ("_messages/once.py", "as it is: ampc", "ampc._messages.once._said.clear()\nmodel = ampc.jit.script(net) #!\nmodel = ampc.jit.trace(net, x)"),
    ("_messages/once.py", "as it is: ampc", "ampc._messages.once._said.clear()\nnet.compile() #!"),
    ("profiler/__init__.py", "those of queueing them", """
count = ampc._C._cuda_count
ampc._C._cuda_count = lambda: 1
p = ampc.profiler.profile(activities=[ampc.profiler.ProfilerActivity.CPU, ampc.profiler.ProfilerActivity.CUDA]) #!
ampc._C._cuda_count = count"""),
    ("distributed/_backends.py", "means MPI here", """
ampc.distributed._backends._told.clear()
try:
    ampc.distributed.init_process_group("gloo", store=1) #!
except ValueError:
    pass"""),
    ("nn/parallel/distributed.py", "`broadcast_buffers` is deprecated", """
try:
    nn.parallel.DistributedDataParallel(net, broadcast_buffers=False) #!
except ValueError:
    pass"""),
    ("distributed/collectives.py", "is not in the group", "ampc.distributed.all_reduce(x, group=ampc.distributed.GroupMember.NON_GROUP_MEMBER) #!"),
    ("distributed/groups.py", "has waited 31 s in all_reduce: rank 1 sleeps", """
from types import SimpleNamespace
board = SimpleNamespace(gone=lambda ranks: None, ended_before=lambda *given: None, missing=lambda *given: "rank 1 sleeps")
group = SimpleNamespace(board=board, ranks=[0, 1], number=1, own_rank=0, seconds=60, _advice="", _has_warned=False)
for waited in (29, 31, 32):
    ampc.distributed.ProcessGroup.look_around(group, "all_reduce", 1, waited) #!"""),
    ("", "a tuple of indices", "x[[[0], [1]]] #!"),
    ("", "was resized", "ampc.add(x, x, out=ampc.empty(5)) #!"),
    ("", "was resized", "ampc.norm(x, dim=1, out=ampc.empty(5)) #!"),
    ("_library_functions.py", "is an old name", "F._Reduction.get_enum('elementwise_mean') #!"),
    ("serialization/__init__.py", "has no effect", "import io\nampc.save(x, io.BytesIO(), _use_new_zipfile_serialization=False) #!"),
    ("", "degrees of freedom is <= 0. Of 1 value with a correction of 1", "x[0, 0].std() #!"),
    ("", "var_mean(): degrees of freedom is <= 0. Of 3 values with a correction of 4", "ampc.var_mean(x, 1, correction=4) #!"),
    ("", "cov(): degrees of freedom is <= 0", "ampc.corrcoef(x[:, :1]) #!"),
    ("", "is read as a mask", "x[ampc.tensor([0, 1], dtype=ampc.uint8)] = x[:1] #!"),
    ("_messages/checks.py", "size_average and reduce", "F.l1_loss(x, x, size_average=True) #!"),
    ("_messages/checks.py", "size_average and reduce", "loss = nn.L1Loss(reduce=False) #!"),
    ("nn/functional.py", "give `dim`", "F.softmax(x) #!"),
    ("nn/functional.py", "give `dim`", "F.softmin(x) #!"),
    ("nn/functional.py", "give `dim`", "nn.Softmax()(x) #!"),
    ("nn/functional.py", "give `dim`", "nn.Sequential(nn.Sequential(nn.LogSoftmax()))(x) #!"),
    ("_tensor/creation.py", "range is deprecated", "ampc.range(0, 3) #!"),
    ("_tensor/other_kinds.py", "volatile has no effect", "x.volatile = True #!"),
    ("_tensor/other_kinds.py", "resize is deprecated", "x.resize(3, 2) #!"),
    ("_tensor/other_kinds.py", "resize_as is deprecated", "x.resize_as(ampc.ones(3, 2)) #!"),
    ("nn/modules/container.py", "Container is deprecated", "nn.Container() #!"),
    ("nn/modules/module.py", "is on the device meta", "state = nn.Linear(1, 1, bias=False).state_dict()\nnn.Linear(1, 1, bias=False, device='meta').load_state_dict(state) #!"),
    ("nn/utils/clip_grad.py", "clip_grad_norm is deprecated", "nn.utils.clip_grad_norm(net.parameters(), 1.0) #!"),
    ("nn/functional.py", "`eps` has no effect", "F.gumbel_softmax(x, eps=1e-3) #!"),
    ("nn/_linear_cross_entropy.py", "the logits are whole",
     "F.linear_cross_entropy(x, net.weight, ampc.zeros(2, dtype=ampc.int64), label_smoothing=.1, options=nn.LinearCrossEntropyOptions()) #!"),
    ("autograd/engine.py", "`only_inputs` has no effect", "ampc.autograd.grad(net(x).sum(), net.weight, only_inputs=False) #!"),
    ("autograd/engine.py", "`grad_variables` is an old name", "ampc.autograd.backward(net(x).sum(), grad_variables=ampc.tensor(1.0)) #!"),
    ("nn/functional.py", "will be broadcast", "F.mse_loss(x, x[0]) #!"),
    ("nn/functional.py", "will be broadcast", "nn.MSELoss()(x, x[0]) #!"),
    ("nn/functional.py", "will be broadcast", "F.l1_loss(x, x[0]) #!"),
    ("nn/functional.py", "will be broadcast", "F.smooth_l1_loss(x, x[0]) #!"),
    ("nn/functional.py", "will be broadcast", "nn.HuberLoss()(x, x[0]) #!"),
    ("nn/_backward_hooks.py", "no input of Linear requires gradients", """
hooked = nn.Linear(2, 2)
hooked.register_full_backward_hook(lambda m, i, o: None)
hooked(ampc.ones(1, 2)).sum().backward() #!"""),
    ("nn/_backward_hooks.py", "need a Tensor or a tuple", """
class Named(nn.Module):
    def forward(self, x):
        return {"y": x * 2}
named = Named()
named.register_full_backward_hook(lambda m, i, o: None)
named(x.requires_grad_()) #!"""),
    ("_process/settings.py", "operators run one after another", "ampc.set_num_interop_threads(2) #!"),
    ("distributions/distribution.py", "older name of sample", "ampc.distributions.Normal(0.0, 1.0).sample_n(3) #!"),
    ("distributions/distribution.py", "does not define arg_constraints", "ampc.distributions.Distribution(validate_args=True) #!"),
    ("amp/autocast_mode.py", "not a 16-bit floating point dtype", "region = ampc.autocast('cpu', dtype=ampc.float32) #!"),
    ("amp/autocast_mode.py", "not a 16-bit floating point dtype", "region = ampc.cpu.amp.autocast(dtype=ampc.float32) #!"),
    ("amp/autocast_mode.py", "there is no usable GPU", "region = ampc.autocast('cuda') #!"),
    ("amp/autocast_mode.py", "there is no usable GPU", "scaler = ampc.cuda.amp.GradScaler() #!"),
    ("amp/_host_scale.py", "the loss itself is", """
scaler = ampc.amp.GradScaler("cpu")
scaler.scale((net(x) * float("inf")).sum().abs()).backward()
scaler.step(ampc.optim.SGD(net.parameters(), lr=0.1))
scaler.update() #!
"""),
    ("amp/_host_scale.py", "is nan at a scale of 1", """
scaler = ampc.amp.GradScaler("cpu", init_scale=1.0)
scaler.scale(net(x).sum()).backward()
net.weight.grad.fill_(float("nan"))
scaler.step(opt)
scaler.update() #!"""),
    ("utils/checkpoint.py", "no argument requires gradients", "ampc.utils.checkpoint.checkpoint(net, x, use_reentrant=True) #!"),
    ("training/trainer.py", "has reached max_fp32_fallbacks", """
class Loud(nn.Module):
    def forward(self, x):
        h = net(x) * 1e4
        return h * h if h.dtype is ampc.float16 else h
amp = ampc.training.AMPConfig(max_fp32_fallbacks=1)
trainer = ampc.training.TrainingOptimizer(ampc.training.PerformanceConfig(amp_config=amp))
trainer.start_epoch()
trainer.training_step(Loud(), x, x, nn.MSELoss(), opt) #!"""),
    ("_tensor/other_kinds.py", "is never called", """
class Loud(ampc.Tensor): #!
    def __torch_dispatch__(self, *args):
        pass"""),
    ("autograd/variable.py", "volatile` has no effect", "ampc.autograd.Variable(x, volatile=True) #!"),
    ("nn/utils/stateless.py", "older name of func.functional_call", "nn.utils.stateless.functional_call(net, {}, x) #!"),
    ("testing.py", "torch's older form", "ampc.testing.assert_allclose(x, x) #!"),
    ("testing.py", "equal limits", "ampc.testing.make_tensor(2, dtype=x.dtype, device=x.device, low=1, high=1) #!"),
    ("utils/_tree_specs.py", "was a node of trees before", """
class Own:
    pass
register = ampc.utils._pytree._register_pytree_node
register(Own, lambda own: ([], None), lambda values, context: Own())
register(Own, lambda own: ([], None), lambda values, context: Own()) #!
ampc.utils._pytree._deregister_pytree_node(Own)"""),
    ("multiprocessing/spawn.py", "older name of ProcessContext", "ampc.multiprocessing.SpawnContext([], []) #!"),
    ("multiprocessing/spawn.py", "always starts processes with 'spawn'", "ampc.multiprocessing.spawn(print, nprocs=0, start_method='fork') #!"),
    ("nn/utils/weight_norm.py", "older form of nn.utils.parametrizations", "nn.utils.weight_norm(nn.Linear(2, 2)) #!"),
    ("utils/data/dataloader.py", "`pin_memory_device` is not looked at", "ampc.utils.data.DataLoader([1], pin_memory=True, pin_memory_device='cuda').__iter__() #!"),
    ("utils/data/dataloader.py", "`pin_memory` is for a GPU", "ampc.utils.data.DataLoader([1], pin_memory=True).__iter__() #!"),
    ("utils/data/dataloader.py", "workers are more than the", "ampc.utils.data.DataLoader([1], num_workers=5000) #!"),
    ("utils/data/dataloader.py", "the stream said that it has 1 samples", """
class Stream(ampc.utils.data.IterableDataset):
    def __len__(self):
        return 1
    def __iter__(self):
        return iter([1, 2])
loader = ampc.utils.data.DataLoader(Stream())
assert len(loader) == 1
batches = iter(loader)
next(batches)
next(batches) #!"""),
    ("utils/data/dataset.py", "older spelling of cumulative_sizes", "ampc.utils.data.ConcatDataset([[1]]).cummulative_sizes #!"),
    ("utils/data/dataset.py", "the parts [2] have none", "ampc.utils.data.random_split([1, 2], [0.4, 0.4, 0.2]) #!"),
    ("utils/flop_counter.py", "`mods` has no effect", "ampc.utils.flop_counter.FlopCounterMode(net) #!"),
    ("utils/hooks.py", "saved without its hook", """
class Hooked:
    _backward_hooks = {0: print}
ampc.utils.hooks.warn_if_has_hooks(Hooked()) #!"""),
    ("", "log returned inf", "with ampc.doctor():\n    nn.Sequential(nn.LogSigmoid(), nn.Identity())(x)\n    ampc.zeros(2).log() #!"),
    ("", "[clip-scaled-gradients]", """
scaler = ampc.amp.GradScaler("cpu")
with ampc.autocast("cpu", dtype=ampc.float16):
    loss = net(x).sum()
scaler.scale(loss).backward()
nn.utils.clip_grad_norm_(net.parameters(), 1.0) #!"""),
    ("", "set_num_threads: 256 threads", "n = ampc.get_num_threads()\nampc.set_num_threads(1000) #!\nampc.set_num_threads(n)"),
    ("", "the array is read-only", "a = np.ones(3)\na.flags.writeable = False\nampc.from_numpy(a) #!"),
]


@pytest.fixture
def fresh(monkeypatch):
    from ampc.amp.autocast_mode import _Said

    monkeypatch.setattr(_Said, "cuda_means_cpu", False)


@pytest.mark.parametrize("home, says, script", CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_a_warning_is_about_the_scripts_line(home, says, script, fresh, tmp_path):
    if ON_GPU and says in ("is nan at a scale of 1", "the loss itself is", "there is no usable GPU", "`pin_memory` is for a GPU"):
        pytest.skip("nobody is told on a GPU")
    path = str(tmp_path / "train.py")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile(SETUP + script, path, "exec"), {"__name__": "__main__"})
    told = [w for w in caught if says in str(w.message)]
    line = next(i for i, text in enumerate((SETUP + script).split("\n"), 1) if text.endswith("#!"))
    assert [(w.filename, w.lineno) for w in told] == [(path, line)], [str(w) for w in caught]


def calls(tree, name):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == name]


def test_every_warning_has_a_case():
    """A module warns by ``_messages.callers.warn``, which finds the script's line; each such call has a case above, or shares one's words."""
    places = Counter()
    for path in HOME.rglob("*.py"):
        tree, name = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(HOME).as_posix()
        assert name == "__init__.py" or not calls(tree, "warnings.warn"), f"{name}: _callers.warn tells of the script's line"
        places[name] += len(calls(tree, "warn"))
    cases = Counter(home for home, _ in {(home, says) for home, says, _ in CASES})
    assert {k: n for k, n in places.items() if n} == {k: n for k, n in cases.items() if k}


def test_a_line_is_warned_of_once(tmp_path):
    """As by Python's own filters: each line once, and modules can be filtered by their names."""
    script = tmp_path / "train.py"
    script.write_text(SETUP + "for i in range(3):\n    F.softmax(x)\n")
    run = [sys.executable, *(f"-W{f}" for f in ("default",)), str(script)]
    env = {**os.environ, "PYTHONPATH": str(HOME.parent)}
    said = subprocess.run(run, capture_output=True, text=True, env=env).stderr
    assert said.count("give `dim`") == 1 and f"{script}:9: UserWarning" in said and "F.softmax(x)" in said
    run[1] = "-Wignore::UserWarning:__main__"
    assert subprocess.run(run, capture_output=True, text=True, env=env).stderr == ""


def test_what_is_wrong_at_the_import_is_told_with_its_line(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import os\nimport ampc\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(HOME.parent), "OMP_NUM_THREADS": "abc"})
    assert f"{script}:2: RuntimeWarning: OMP_NUM_THREADS" in done.stderr


def test_warnings_given_once_are_given_each_time_when_a_script_asks():
    assert not ampc.is_warn_always_enabled()
    ampc.compile(ampc.nn.Linear(1, 1))
    try:
        for always in (True, False):
            ampc.set_warn_always(always)
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                ampc.compile(ampc.nn.Linear(1, 1))
            assert len(given) == always == ampc.is_warn_always_enabled()
        with pytest.raises(RuntimeError, match="expected a bool, got int"):
            ampc.set_warn_always(1)
    finally:
        ampc.set_warn_always(False)
