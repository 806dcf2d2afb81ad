import time

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset


class LitRegressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        points, wanted = batch
        loss = torch.nn.functional.mse_loss(self.net(points), wanted)
        self.log("train_loss", loss, prog_bar=True)
        time.sleep(0.3)   # stands for a larger model
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


L.seed_everything(42)
points = torch.randn(64, 32)
train_loader = DataLoader(TensorDataset(points, torch.tanh(points @ torch.randn(32, 1))), batch_size=8, shuffle=True)
checkpoint_callback = ModelCheckpoint("out", every_n_epochs=1, save_top_k=-1, save_last=True)
trainer = L.Trainer(accelerator="cpu", strategy="ddp", devices=1, num_nodes=2, max_epochs=4, logger=False,
                    log_every_n_steps=1, callbacks=[checkpoint_callback, TQDMProgressBar()])
trainer.fit(LitRegressor(), train_loader, ckpt_path="last")
