"""Keras' names: a global policy, layers, compile, fit."""

import numpy as np

import ampc as tf
from ampc.keras import layers, models

tf.manual_seed(0)
rng = np.random.default_rng(0)
x = rng.standard_normal((2000, 64)).astype("float32")
y = (x @ rng.standard_normal((64, 10))).argmax(1)

tf.keras.mixed_precision.set_global_policy("mixed_float16")
model = models.Sequential([
    layers.Dense(128, activation="relu", input_shape=(64,)),
    layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, epochs=8, batch_size=64, validation_split=0.1)
model.summary()
print(f"{model.layers[0].compute_dtype} products, {model.layers[0].weight.dtype} variables, loss scale {model.optimizer.loss_scale:g}")
assert history.history["val_accuracy"][-1] > 0.6
