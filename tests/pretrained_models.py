"""Small pretrained models of transformers and timm. `make FOLDER` fills them with numbers and saves them and what they compute; `check FOLDER`
loads what was made and compares, and saves the models again in FOLDER/again, which `check FOLDER/again` reads. Each step runs under torch or
under ampc: `python pretrained_models.py STEP FOLDER LIBRARY [PACKAGES]`, where LIBRARY is `torch` or `ampc`, and PACKAGES the folder that it
is installed in, should the environment lack it."""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import numpy as np

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
TEXT = {"vocab_size": 60, "max_position_embeddings": 32, **SMALL}


def models() -> dict:
    """How to make each model, the inputs that it takes, and how it is saved."""
    import transformers as hf

    ids = {"input_ids": ((2, 9), 60)}
    return {
        "bert": (lambda: hf.BertForSequenceClassification(hf.BertConfig(**TEXT)), ids, {}),
        "gpt2, tied": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=60, n_positions=32, n_embd=32, n_layer=2, n_head=4)), ids, {}),
        "llama, in shards": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(num_key_value_heads=2, **TEXT)), ids, {"max_shard_size": "20KB"}),
        "vit": (lambda: hf.ViTForImageClassification(hf.ViTConfig(image_size=32, patch_size=8, **SMALL)), {"pixel_values": ((2, 3, 32, 32), None)}, {}),
        "t5, tied": (lambda: hf.T5ForConditionalGeneration(hf.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)),
                     {**ids, "decoder_input_ids": ((2, 5), 60)}, {}),
        "bert, by torch.save": (lambda: hf.BertForSequenceClassification(hf.BertConfig(**TEXT)), ids, {"pickled": True}),
    }


IMAGES = ("resnet18", "efficientnet_b0", "vit_tiny_patch16_224")


def image_model(name: str, **how):
    import timm

    size = {"img_size": 48, "depth": 2} if name.startswith("vit") else {}
    return timm.create_model(name, num_classes=5, **size, **how).eval()


def fill(model, seed: int) -> None:
    """Numbers that no library's random state has a part in."""
    import torch

    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for t in model.state_dict().values():
            if t.is_floating_point():
                t.copy_(torch.from_numpy(rng.uniform(0.02, 0.3, size=tuple(t.shape)) * rng.choice([-1, 1, 1], size=tuple(t.shape))))
        for name, t in model.state_dict().items():
            if name.endswith("running_var"):
                t.abs_()


def results(model, inputs: dict) -> np.ndarray:
    import torch

    rng = np.random.default_rng(7)
    made = {k: rng.integers(high, size=size) if high else rng.standard_normal(size).astype(np.float32) for k, (size, high) in inputs.items()}
    with torch.no_grad():
        out = model.eval()(**{k: torch.from_numpy(v) for k, v in made.items()})
    return out.logits.numpy()


def image_results(model) -> np.ndarray:
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(np.random.default_rng(8).standard_normal((2, 3, 48, 48)).astype(np.float32))).numpy()


def save(model, folder: Path, how: dict) -> None:
    import torch

    how = dict(how)
    pickled = how.pop("pickled", False)
    model.save_pretrained(folder, **how)
    if pickled:
        (folder / "model.safetensors").unlink()
        format = {"format": "torch"} if "ampc" in torch.__file__ else {}
        torch.save(model.state_dict(), folder / "pytorch_model.bin", **format)


def save_image_model(model, folder: Path, name: str) -> None:
    import torch
    from safetensors.torch import save_file

    save_file(model.state_dict(), folder / f"{name}.safetensors")
    format = {"format": "torch"} if "ampc" in torch.__file__ else {}
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, folder / f"{name}.pth", **format)


def make(folder: Path) -> None:
    told = {}
    for i, (name, (create, inputs, how)) in enumerate(models().items()):
        model = create()
        fill(model, i)
        save(model, folder / name, how)
        told[name] = results(model, inputs).tolist()
    for i, name in enumerate(IMAGES):
        model = image_model(name)
        fill(model, 10 + i)
        save_image_model(model, folder, name)
        told[name] = image_results(model).tolist()
    (folder / "results.json").write_text(json.dumps(told))


def close(name: str, got: np.ndarray, want) -> None:
    want = np.array(want, dtype=np.float32)
    worst = float(np.abs(got - want).max() / np.abs(want).max())
    print(f"{name}: {worst:.1e}", flush=True)
    assert got.shape == want.shape and worst < 2e-5, name


def check(folder: Path) -> None:
    """Loads each model, compares what it computes, and saves it again, from where it is compared in turn."""
    told = json.loads((folder / "results.json").read_text())
    again = folder / "again"
    again.mkdir(exist_ok=True)
    for name, (create, inputs, how) in models().items():
        model, facts = type(create()).from_pretrained(folder / name, output_loading_info=True)
        assert not any(facts[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), (name, facts)
        close(name, results(model, inputs), told[name])
        save(model, again / name, how)
    for name in IMAGES:
        for end in ("safetensors", "pth"):
            model = image_model(name, checkpoint_path=str(folder / f"{name}.{end}"))
            close(f"{name}.{end}", image_results(model), told[name])
        save_image_model(model, again, name)
    (again / "results.json").write_text(json.dumps(told))


def declare() -> None:
    """PyPI's torchvision is compiled for CUDA: beside torch for CPUs its import wants these operators declared."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    declare.kept = library


if __name__ == "__main__" and len(sys.argv) > 3:
    step, folder, library, *packages = sys.argv[1:]
    sys.path.extend(packages)
    if library == "torch":
        declare()
        {"make": make, "check": check}[step](Path(folder))
    else:
        sys.argv[:] = ["ampc", "run", __file__, step, folder]
        runpy.run_module("ampc", run_name="__main__")
elif __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2]))
