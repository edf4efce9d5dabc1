"""nvcc's PTX of the kernels, run without a GPU: translated to C++, with checks of every access."""
