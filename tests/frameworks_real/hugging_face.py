"""Training with the Trainer of Hugging Face, which says by itself how far it is; an elastic group by torchrun."""

import os
import time
from typing import Any

import torch
from points import points
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FOLDER = os.environ["SNAPSHOT"]


class Disc(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(torch.nn.Linear(2, 24), torch.nn.Tanh(), torch.nn.Linear(24, 1))

    def forward(self, places: torch.Tensor, inside: torch.Tensor) -> dict[str, torch.Tensor]:
        guess = self.network(places)
        return {"loss": torch.nn.functional.binary_cross_entropy_with_logits(guess, inside), "guess": guess}


class Says(TrainerCallback):
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        print(f"process={os.getpid()} workers={args.world_size} step={state.global_step}", flush=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        print(f"step={state.global_step} workers={args.world_size}", flush=True)
        time.sleep(0.2)


torch.set_num_threads(1)
options = TrainingArguments(
    output_dir=FOLDER,
    max_steps=int(os.environ["EPOCHS"]),
    per_device_train_batch_size=32,
    save_steps=5,
    save_total_limit=3,
    logging_steps=5,
    use_cpu=True,
    disable_tqdm=True,
)
data = [{"places": place, "inside": inside} for place, inside in zip(*points(), strict=True)]
trainer = Trainer(model=Disc(), args=options, train_dataset=data, callbacks=[Says()])
trainer.train(resume_from_checkpoint=get_last_checkpoint(FOLDER))
