"""ampc.keras: policies, layers, fit; against NumPy and the same model written in nn."""

import warnings

import numpy as np
import pytest
from where import DEVICE, ON_GPU

import ampc
from ampc import keras
from ampc.keras import layers, losses, mixed_precision, models

KIND = "cuda" if ON_GPU else "cpu"
LOW = {"mixed_float16": (ampc.float16, 2e-3), "mixed_bfloat16": (ampc.bfloat16, 1.6e-2)}


@pytest.fixture(autouse=True)
def fresh():
    ampc.manual_seed(0)
    ampc.set_default_device(DEVICE)
    yield
    mixed_precision.set_global_policy("float32")
    ampc.set_default_device("cpu")


def a_task(n=400, inputs=20, classes=4):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, inputs)).astype(np.float32)
    return x, (x @ rng.standard_normal((inputs, classes))).argmax(1)


def host(t):
    return t.detach().float().numpy(force=True)


def test_policies():
    p = ampc.Policy("mixed_float16")
    assert (p.name, p.compute_dtype, p.variable_dtype) == ("mixed_float16", "float16", "float32") and p == ampc.Policy("mixed_float16")
    assert (ampc.Policy("bfloat16").compute_dtype, ampc.Policy("bfloat16").variable_dtype) == ("bfloat16", "bfloat16")
    assert mixed_precision.Policy.from_config(p.get_config()) == p and repr(p) == '<Policy "mixed_float16">' and "float16" in p._repr_html_()
    assert ampc.global_policy().name == "float32"
    ampc.set_global_policy("mixed_bfloat16")
    assert ampc.nn.Linear(2, 2)(ampc.ones(1, 2)).dtype is ampc.float32 and "ampc.nn" in ampc.set_global_policy.__doc__  # for keras' layers alone
    assert ampc.global_policy() is keras.mixed_precision.global_policy() and layers.Dense(2).compute_dtype == "bfloat16"
    ampc.set_global_policy(p)
    assert layers.Dense(2).dtype_policy is p and layers.Dense(2, dtype="float32").compute_dtype == "float32"
    with pytest.raises(ValueError, match="no policy 'mixed_float8'; expected one of 'mixed_float16'"):
        ampc.Policy("mixed_float8")
    with pytest.raises(TypeError, match="must be a string"):
        ampc.Policy(16)


@pytest.mark.parametrize("policy", list(LOW))
def test_layers_compute_in_the_compute_dtype_with_float32_variables(policy):
    dtype, tolerance = LOW[policy]
    x = ampc.randn(6, 8)
    dense = layers.Dense(5, activation="relu", dtype=policy, input_shape=(8,))
    y = dense(x)
    kernel, bias = dense.get_weights()
    assert kernel.shape == (8, 5) and y.dtype is dtype and dense.weight.dtype is dense.bias.dtype is ampc.float32
    np.testing.assert_allclose(host(y), np.maximum(host(x) @ kernel + bias, 0), atol=8 * tolerance)
    y.float().sum().backward()
    assert dense.weight.grad.dtype is ampc.float32 and not ampc.is_autocast_enabled()
    soft = layers.Dense(5, activation="softmax", dtype=policy)
    assert soft(x).dtype is ampc.float32 and np.allclose(host(soft(x)).sum(1), 1, atol=1e-6)
    assert layers.LayerNormalization(dtype=policy)(x).dtype is layers.Dropout(0.5, dtype=policy)(x).dtype is dtype
    assert layers.Embedding(4, 3, dtype=policy)(ampc.tensor([[0, 3]], device=DEVICE)).dtype is dtype
    with ampc.autocast(KIND, dtype=ampc.bfloat16):
        plain = layers.Dense(3, dtype="float32", input_shape=(8,))
        np.testing.assert_allclose(host(plain(x)), host(x) @ plain.get_weights()[0], atol=1e-5)  # the layer's policy, whatever the region


def test_conv2d_is_channels_last_with_keras_padding():
    x = ampc.randn(2, 7, 8, 3)
    for size, strides in ((3, 1), (4, 2), ((2, 5), (3, 1))):
        conv = layers.Conv2D(4, size, strides=strides, padding="same", input_shape=(7, 8, 3))
        (kh, kw), (sh, sw) = conv._kernel, conv._strides
        kernel, bias = conv.get_weights()
        assert kernel.shape == (kh, kw, 3, 4)
        oh, ow = -(-7 // sh), -(-8 // sw)
        ph, pw = max((oh - 1) * sh + kh - 7, 0), max((ow - 1) * sw + kw - 8, 0)
        wide = np.pad(host(x).astype(np.float64), ((0, 0), (ph // 2, ph - ph // 2), (pw // 2, pw - pw // 2), (0, 0)))
        want = np.array([[[np.einsum("hwc,hwco->o", wide[b, i * sh:i * sh + kh, j * sw:j * sw + kw], kernel) for j in range(ow)] for i in range(oh)]
                         for b in range(2)]) + bias
        np.testing.assert_allclose(host(conv(x)), want, atol=1e-5)
    assert layers.Conv2D(4, 3)(x).shape == (2, 5, 6, 4) and layers.Flatten()(x).shape == (2, 7 * 8 * 3)


@pytest.mark.parametrize("policy", ["float32", *LOW])
def test_fit_trains_as_a_loop_does(policy):
    """The same numbers as nn and optim give in the same order of batches; in 16 bits about so."""
    x, y = a_task()
    ampc.set_global_policy(policy)
    model = models.Sequential([layers.Input((20,)), layers.Dense(32, activation="relu"), layers.Dense(4, activation="softmax")])
    net = ampc.nn.Sequential(ampc.nn.Linear(20, 32), ampc.nn.ReLU(), ampc.nn.Linear(32, 4))
    with ampc.no_grad():
        for mine, its in zip(net.parameters(), model.parameters()):
            mine.copy_(its)
    model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=50, epochs=3, shuffle=False, verbose=0)
    assert isinstance(model.optimizer, mixed_precision.LossScaleOptimizer) == (policy == "mixed_float16")
    opt, want = ampc.optim.Adam(net.parameters(), lr=0.01, eps=1e-7), []
    for _ in range(3):
        total = 0.0
        for at in range(0, 400, 50):
            loss = ampc.nn.functional.cross_entropy(net(ampc.tensor(x[at:at + 50], device=DEVICE)), ampc.tensor(y[at:at + 50], device=DEVICE))
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * 50 / 400
        want.append(total)
    assert history.epoch == [0, 1, 2]
    np.testing.assert_allclose(history.history["loss"], want, rtol=1e-5 if policy == "float32" else 3 * LOW[policy][1])
    assert history.history["accuracy"][-1] > 0.8 > 0.5 > history.history["accuracy"][0]
    loss, share = model.evaluate(x, y, verbose=0)
    made = model.predict(x, verbose=0)
    assert made.dtype == np.float32 and made.shape == (400, 4) and share == pytest.approx((made.argmax(1) == y).mean(), abs=0.006)
    assert loss == pytest.approx(-np.log(made[np.arange(400), y]).mean(), rel=2e-2)


def test_overflow_under_mixed_float16_skips_the_step_and_halves_the_scale():
    model = models.Sequential([layers.Dense(1, dtype="mixed_float16", input_shape=(4,))])
    model.compile("sgd", "mse")
    before = model.get_weights() if hasattr(model, "get_weights") else model.layers[0].get_weights()
    x, y = np.full((8, 4), 3e4, np.float32), np.zeros((8, 1), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y, verbose=0)
    assert model.optimizer.loss_scale == 2.0**14 and model.optimizer.scaler.last_step.skipped
    assert all((a == b).all() for a, b in zip(before, model.layers[0].get_weights()))


def test_validation_history_callbacks_and_verbosity(capsys):
    x, y = a_task(100)
    seen = []

    class Stops:
        model = None

        def on_epoch_end(self, epoch, logs):
            seen.append((epoch, set(logs)))
            self.model.stop_training = epoch == 1
    model = models.Sequential([layers.Dense(4)])
    model.compile("adamw", losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = model.fit(x, y, epochs=5, validation_split=0.2, callbacks=[Stops()])
    assert seen == [(e, {"loss", "accuracy", "val_loss", "val_accuracy"}) for e in (0, 1)] and len(history.history["val_loss"]) == 2
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2 and out[1].startswith("epoch 2/5 - ") and "val_accuracy: " in out[1]
    rows = ampc.utils.data.DataLoader(ampc.utils.data.TensorDataset(ampc.tensor(x), ampc.tensor(y)), batch_size=30)
    model.fit(rows, epochs=1, verbose=0, validation_data=(x, y))
    assert model.evaluate(rows, verbose=0, return_dict=True)["loss"] == pytest.approx(model.evaluate(x, y, verbose=0)[0], rel=1e-5)
    model.summary()
    assert "84 parameters" in capsys.readouterr().out


@pytest.mark.parametrize("kind, activation", [(losses.SparseCategoricalCrossentropy, "softmax"), (losses.CategoricalCrossentropy, "softmax"),
                                              (losses.BinaryCrossentropy, "sigmoid")])
def test_losses_of_probabilities_and_of_logits_agree(kind, activation):
    logits = ampc.randn(7, 5)
    labels = ampc.arange(7) % 5 if kind is losses.SparseCategoricalCrossentropy else ampc.nn.functional.one_hot(ampc.arange(7) % 5, 5)
    p = logits.softmax(-1) if activation == "softmax" else logits.sigmoid()
    z, q, n = host(logits).astype(np.float64), host(p).astype(np.float64), np.arange(7)
    want = -np.log(q[n, n % 5]).mean()
    if activation == "sigmoid":
        one = np.eye(5)[n % 5]
        want = (np.maximum(z, 0) - z * one + np.log1p(np.exp(-abs(z)))).mean()
    assert kind()(labels, p).item() == pytest.approx(want, rel=1e-5)
    assert kind(from_logits=True)(labels, logits).item() == pytest.approx(want, rel=1e-5)


def test_saturated_probabilities_keep_their_gradient():
    """The last softmax's logits go into the loss, so a wrong answer at probability 0 is still learned from."""
    model = models.Sequential([layers.Dense(2, activation="softmax", use_bias=False, kernel_initializer="zeros", input_shape=(1,))])
    with ampc.no_grad():
        model.layers[0].weight.copy_(ampc.tensor([[200.0], [-200.0]]))
    model.compile(keras.optimizers.SGD(learning_rate=1.0), "sparse_categorical_crossentropy")
    model.fit(np.ones((4, 1), np.float32), np.ones(4, int), verbose=0)
    assert np.allclose(model.layers[0].get_weights()[0], [[199.0, -199.0]])


def test_loss_scale_optimizer():
    w = ampc.nn.Parameter(ampc.ones(3))
    opt = mixed_precision.LossScaleOptimizer(ampc.optim.SGD([w], lr=0.5), initial_scale=8.0, dynamic_growth_steps=2)
    grads = ampc.autograd.grad(opt.get_scaled_loss((w * 2).sum()), [w])
    assert grads[0].tolist() == [16.0] * 3
    assert opt.apply_gradients(zip(opt.get_unscaled_gradients(grads), [w])) and w.tolist() == [0.0] * 3
    assert (opt.loss_scale, opt.dynamic_counter) == (8.0, 1)
    assert opt.apply_gradients([(ampc.zeros(3), w)]) and (opt.loss_scale, opt.dynamic_counter) == (16.0, 0)
    assert not opt.apply_gradients([(ampc.tensor([0.0, float("inf"), 0.0]), w)]) and (opt.loss_scale, w.tolist()) == (8.0, [0.0] * 3)
    assert [s.skipped for s in opt.scaler.ledger] == [False, False, True]
    other = ampc.nn.Parameter(ampc.ones(1))
    both = mixed_precision.LossScaleOptimizer(ampc.optim.SGD([w, other], lr=1.0))
    other.grad = ampc.full((1,), 1e3)  # what a scaled backward has left
    assert both.apply_gradients([(ampc.zeros(3), w)]) and other.item() == 1.0
    with pytest.raises(AssertionError, match="gradient"):
        both.apply_gradients([])
    opt.learning_rate = 0.25
    assert opt.learning_rate == opt.param_groups[0]["lr"] == 0.25
    fixed = mixed_precision.LossScaleOptimizer(ampc.optim.SGD([w], lr=0.5), dynamic=False, initial_scale=4.0)
    fixed.minimize((w * float("inf")).sum())
    assert fixed.loss_scale == 4.0 and w.tolist() == [0.0] * 3
    with pytest.raises(TypeError, match="inner_optimizer"):
        mixed_precision.LossScaleOptimizer("adam")


def test_bad_calls():
    with pytest.raises(ValueError, match="activation 'rulu' is not known; expected one of linear, relu"):
        layers.Dense(2, activation="rulu")
    for units in (0, "10", 2.5):
        with pytest.raises(ValueError, match="`units` must be a whole number of 1 or more, got"):
            layers.Dense(units)
    with pytest.raises(ValueError, match=r"Dense: expected an x of 2 dimensions or more, the batch first, got shape \[3\]"):
        layers.Dense(2)(ampc.ones(3))
    with pytest.raises(ValueError, match="Conv2D: expected an x of 4 dimensions"):
        layers.Conv2D(2, 3)(ampc.ones(5, 5, 3))
    with pytest.raises(ValueError, match="the model has no layers"):
        models.Sequential().fit(np.zeros((4, 3)), np.zeros(4), verbose=0)
    with pytest.raises(TypeError, match="expected layers, got str"):
        models.Sequential(["dense"])
    model = models.Sequential([layers.Dense(2, input_shape=(3,))])
    with pytest.raises(RuntimeError, match=r"call compile\(optimizer, loss\) first"):
        model.fit(np.zeros((4, 3)), np.zeros(4), verbose=0)
    for name, options in (("adams", {}), ("optimizer", {})):
        with pytest.raises(ValueError, match="optimizer .* is not known"):
            model.compile(name, "mse", **options)
    with pytest.raises(ValueError, match="loss 'msee' is not known"):
        model.compile("adam", "msee")
    with pytest.raises(TypeError, match="Adam: no option 'lr'"):
        keras.optimizers.Adam(lr=1)
    with pytest.raises(TypeError, match="SGD: no option 'beta_1'; expected some of learning_rate, weight_decay, momentum, nesterov"):
        keras.optimizers.SGD(beta_1=0.5)
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="x has 4 samples and y 3"):
        model.fit(np.zeros((4, 3)), np.zeros(3), verbose=0)
    with pytest.raises(ValueError, match="no samples"):
        model.fit([], epochs=1, verbose=0)
    with pytest.raises(ValueError, match="validation_split"):
        model.fit(np.zeros((4, 3)), np.zeros(4), validation_split=1.0)
