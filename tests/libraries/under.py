"""`python under.py torch FOLDER script.py ARGS...` runs the script with the torch in FOLDER, which holds installed packages. `ampc` in
torch's place runs it by `ampc run`. The environment whose Python this is has its packages first."""

import runpy
import sys

library, folder, path, *args = sys.argv[1:]
sys.path.append(folder)
sys.path[0] = path.rpartition("/")[0] or "."
if library == "torch":
    import torch

    # PyPI's torchvision is compiled for CUDA: its operators do not load beside torch for CPUs, and its import wants these two declared.
    declared = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        declared.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    sys.argv[:] = [path, *args]
    runpy.run_path(path, run_name="__main__")
else:
    sys.argv[:] = ["ampc", "run", path, *args]
    runpy.run_module("ampc", run_name="__main__")
