"""NumPy arrays in and out: memory is shared where it can be, 16-bit results go through float32."""

import numpy as np

import ampc

rng = np.random.default_rng(0)
x = rng.standard_normal((200, 3)).astype(np.float32)
y = x @ np.array([[1.0], [-2.0], [0.5]], np.float32)

inputs, targets = ampc.from_numpy(x), ampc.from_numpy(y)  # no copy: a write to x is seen
x[0, 0] = 3.0
assert inputs[0, 0].item() == 3.0
y[0] = x[0] @ [1.0, -2.0, 0.5]

model = ampc.nn.Linear(3, 1)
optimizer = ampc.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    optimizer.zero_grad()
    with ampc.autocast(dtype=ampc.bfloat16):
        loss = ampc.nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()

weights = model.weight.detach().numpy()  # of a float32 parameter: its own memory
with ampc.no_grad(), ampc.autocast(dtype=ampc.bfloat16):
    low = model(inputs)
predictions = low.float().numpy()  # NumPy has no bfloat16
print(f"weights {np.round(weights, 2).tolist()}, mean error {np.abs(predictions - y).mean():.4f}")
assert np.allclose(weights, [[1.0, -2.0, 0.5]], atol=0.02) and low.dtype is ampc.bfloat16
