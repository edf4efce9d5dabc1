"""lightning: its Trainer in two precisions, checkpoint and resume."""

import logging
import tempfile
import warnings

import numpy as np
import torch
from start import fill, main, pictures, script
from torch import nn


def parts(seed, steps):
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self, width=32):
            super().__init__()
            self.save_hyperparameters()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 4))
            self.losses = []

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            x, y = batch
            self.log("checked", nn.functional.cross_entropy(self.net(x), y))

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, 100), "interval": "step"}}

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    x, y = pictures(np.random.default_rng(seed), 8 * steps, 1, 8, 8)
    data = torch.utils.data.TensorDataset(x, y)
    return Classifier, torch.utils.data.DataLoader(data, batch_size=8), torch.utils.data.DataLoader(data, batch_size=16)


def trainer_of(folder, **settings):
    import lightning

    return lightning.Trainer(accelerator="cpu", devices=1, default_root_dir=folder, logger=False, enable_progress_bar=False, enable_model_summary=False, **settings)


def run(seed, **settings):
    make, data, check = parts(seed, 24)
    model = fill(make(), seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(folder, max_epochs=1, enable_checkpointing=False, **settings)
        trainer.fit(model, data, check)
        (checked,) = trainer.validate(model, check, verbose=False)
    return [*model.losses, checked["checked"]]


@script("lightning", "float32, clipping, accumulation")
def plain(seed):
    return run(seed, gradient_clip_val=0.5, accumulate_grad_batches=2)


@script("lightning", "bf16-mixed", rounding="bfloat16")
def bf16_mixed(seed):
    return run(seed, precision="bf16-mixed")


@script("lightning", "checkpoint and resume")
def resume(seed):
    make, data, _ = parts(seed, 12)
    model = fill(make(width=24), seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer_of(folder, max_epochs=2).fit(model, data)
        trainer = trainer_of(folder, max_epochs=2)
        trainer.fit(model, data)  # another trainer, from the first's last parameters
        trainer.save_checkpoint(f"{folder}/kept.ckpt")
        loaded = make.load_from_checkpoint(f"{folder}/kept.ckpt", weights_only=True)
        assert loaded.hparams.width == 24 and torch.equal(loaded.net[1].weight, model.net[1].weight)
        trainer_of(folder, max_epochs=3).fit(loaded, data, ckpt_path=f"{folder}/kept.ckpt", weights_only=True)
    return model.losses + loaded.losses


if __name__ == "__main__":
    main()
