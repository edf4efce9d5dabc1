"""A function with a backward of its own under autocast: custom_fwd says what it computes in, custom_bwd runs backward alike."""

import ampc as torch
from ampc.amp import custom_bwd, custom_fwd

device = "cuda" if torch.cuda.is_available() else "cpu"


class Product(torch.autograd.Function):
    """a @ b in whatever autocast chooses."""

    @staticmethod
    @custom_fwd(device_type=device)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @custom_bwd(device_type=device)
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad.mm(b.t()), a.t().mm(grad)


class LogCosh(torch.autograd.Function):
    """sum(log(cosh(x))) in float32, even of 16-bit inputs."""

    @staticmethod
    @custom_fwd(device_type=device, cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - 0.6931471805599453).sum()

    @staticmethod
    @custom_bwd(device_type=device)
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.tanh()


torch.manual_seed(0)
a = torch.randn(32, 64, device=device, requires_grad=True)
b = torch.randn(64, 16, device=device, requires_grad=True)
with torch.autocast(device, dtype=torch.bfloat16):
    product = Product.apply(a, b)
    loss = LogCosh.apply(product)
loss.backward()
print(f"product in {product.dtype}, loss in {loss.dtype}, gradients in {a.grad.dtype}")
assert (product.dtype, loss.dtype, a.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
exact = (torch.autograd.grad((a @ b).tanh().detach().mul(a @ b).sum(), a))[0]  # d sum(log cosh(a b)) / d a
assert (a.grad - exact).norm() < 2e-2 * exact.norm()
