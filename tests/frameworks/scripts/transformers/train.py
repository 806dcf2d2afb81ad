import os
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, row):
        tokens = (row + torch.arange(16) * (1 + row % 7)) % 64
        return {"input_ids": tokens, "labels": tokens}


class Slow(TrainerCallback):
    """Stands for a larger model."""

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.3)


config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                     bos_token_id=None, eos_token_id=None)
args = TrainingArguments(output_dir="out", max_steps=16, per_device_train_batch_size=4, learning_rate=1e-2,
                         save_steps=4, logging_steps=1, report_to="none", use_cpu=True, seed=1,
                         ddp_find_unused_parameters=False)
torch.manual_seed(1)
trainer = Trainer(model=LlamaForCausalLM(config), args=args, train_dataset=Counting(), callbacks=[Slow()])
trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)
