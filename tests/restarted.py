"""What test_distributed_training.py kills: ``ampc run --nproc 2 --max-restarts 9 restarted.py FOLDER`` trains by a configuration, saves a checkpoint
every few steps, and goes on from it after each restart. Every process first writes its number, so that it can be killed at any moment."""

import os
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
count, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
(folder / f"pid.{rank}").write_text(str(os.getpid()))
os.replace(folder / f"pid.{rank}", folder / f"{count}.{rank}")  # whole at once

import trainer_ranks  # noqa: E402

import ampc  # noqa: E402
import ampc.distributed as dist  # noqa: E402
from ampc.training import AMPConfig  # noqa: E402

STEPS, EVERY = 40, 3

dist.init_process_group()
trainer, net, opt = trainer_ranks.setup(AMPConfig(growth_interval=5), dropout=0.3)
ampc.manual_seed(dist.get_rank())  # each rank drops others
path = folder / "run.safetensors"
if path.exists():
    trainer.load_checkpoint(path, net, opt)
while trainer.amp_stats["total_steps"] < STEPS:
    step = trainer.amp_stats["total_steps"]
    trainer.training_step(net, *trainer_ranks.share(dist.get_rank(), dist.get_world_size(), step), trainer_ranks.LOSS, opt)
    time.sleep(0.01)
    if (step + 1) % EVERY == 0 or step + 1 == STEPS:
        trainer.save_checkpoint(path, net, opt)
dist.destroy_process_group()
