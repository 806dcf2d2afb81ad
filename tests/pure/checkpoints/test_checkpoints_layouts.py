"""Folders as public trainers leave them: which checkpoint is chosen, and which step it is said to be of.

A row: the trainer, what it writes (the oldest first), the path and the step that are right, and what is skipped.
"""

from __future__ import annotations

import itertools
import json
import pickle
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from safelaunch.checkpoints.model import FoundCheckpoints
from tests.checkpoints.test_handmade import tensors
from tests.pure.checkpoints.checkpoint_files import (
    DictFolder,
    archive_of,
    dcp_folder,
    latest_complete,
    old_torch_file,
    torch_file,
)
from tests.tables import each

NOTHING: Mapping[str, str] = {}


class Row(NamedTuple):
    """`files`: names apart by blanks, {a,b} for several; NAME!KIND, NAME?step=9 inside, NAME=its text, A->B a link."""

    trainer: str
    files: str
    path: str | None
    step: int | None
    skipped: Mapping[str, str] = NOTHING


LOST = "which the checkpoints beside it have: the save has not finished"
ROWS = (
    # Reinforcement learning of language models
    Row("verl", "global_step_{50,100}/{actor/{model,optim,extra_state}_world_size_2_rank_{0,1}.pt,data.pt} "
        "latest_checkpointed_iteration.txt=100", "global_step_100", 100),
    Row("verl, killed while it saved", "global_step_50/actor/{model,optim}_world_size_2_rank_{0,1}.pt "
        "latest_checkpointed_iteration.txt=50 global_step_100/actor/{model,optim}_world_size_2_rank_0.pt",
        "global_step_50", 50, {"global_step_100": "newer than 50 in latest_checkpointed_iteration.txt"}),
    Row("verl without its tracker, one rank's file missing",
        "global_step_50/actor/model_world_size_4_rank_{0,1,2,3}.pt "
        "global_step_75/actor/model_world_size_4_rank_{0,1,2}.pt",
        "global_step_50", 50, {"global_step_75": "no file of rank 3 of 4"}),
    Row("verl with a critic and the model for Hugging Face", "global_step_{20,40}/{actor,critic}/"
        "{model,optim}_world_size_8_rank_{0,1,2,3,4,5,6,7}.pt global_step_{20,40}/actor/huggingface/config.json "
        "latest_checkpointed_iteration.txt=40", "global_step_40", 40),
    Row("EasyR1", 'global_step_{5,10}/{actor/model_world_size_2_rank_{0,1}.pt,dataloader.pt} '
        'checkpoint_tracker.json={"last_global_step":10}', "global_step_10", 10),
    Row("OpenRLHF",
        "_actor/{global_step100/{mp_rank_00_model_states.pt,bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt},"
        "latest=global_step100}", "_actor", 100),
    Row("slime, Megatron's with the state of its data", "iter_0000{009,019}/mp_rank_00/model_optim_rng.pt "
        "rollout/global_dataset_state_dict_{9,19}.pt latest_checkpointed_iteration.txt=19", "iter_0000019", 19),
    Row("NeMo-RL", "step_{10,20}/policy/weights/model.safetensors step_{10,20}/training_info.json!json", "step_20", 20),
    Row("icefall, after a step that was no number", "epoch-{8,9}.pt bad-model-0.pt", "epoch-9.pt", 9,
        {"bad-model-0.pt": "named as what is kept of a training that has gone wrong"}),
    Row("weights that are no numbers", "model_{100,200}.pt diverged_epoch3.pt", "model_200.pt", 200,
        {"diverged_epoch3.pt": "named as"}),
    # Diffusion
    Row("guided-diffusion", "{model,ema_0.9999_,opt}{000100,000200}.pt", "model000200.pt", 200),
    Row("guided-diffusion, killed behind the model", "{model,ema_0.9999_,opt}{000100,000200}.pt model000300.pt",
        "model000200.pt", 200, {"model000300.pt": f"no ema_?_000300.pt, {LOST}"}),
    Row("improved-diffusion with two averages",
        "model{010000,020000}.pt ema_{0.99,0.9999}_{010000,020000}.pt opt{010000,020000}.pt", "model020000.pt", 20000),
    Row("diffusers, a model", "checkpoint-{500,1000}/{unet/{config.json,diffusion_pytorch_model.safetensors},"
        "optimizer.bin,scheduler.bin,random_states_0.pkl}", "checkpoint-1000", 1000),
    Row("diffusers, LoRA", "checkpoint-{500,1000}/{pytorch_lora_weights.safetensors,optimizer.bin,scheduler.bin,"
        "random_states_0.pkl} pytorch_lora_weights.safetensors", "checkpoint-1000", 1000),
    Row("diffusers with an averaged model",
        "checkpoint-{500,1000}/{unet/{config.json,diffusion_pytorch_model.safetensors},"
        "unet_ema/{config.json,diffusion_pytorch_model.safetensors},optimizer.bin,scheduler.bin,random_states_0.pkl}",
        "checkpoint-1000", 1000),
    Row("kohya, weights and states",
        "name-step{00000500,00001000}{.safetensors,-state/{model.safetensors,optimizer.bin,"
        "scheduler.bin,random_states_0.pkl}}", "name-step00001000-state", 1000),
    Row("kohya, weights of epochs", "mylora-{000001,000002}.safetensors", "mylora-000002.safetensors", 2),
    Row("DiT", "checkpoints/{0050000,0100000}.pt", "checkpoints/0100000.pt", 100000),
    Row("EDM",
        "network-snapshot-{000100,000200}.pkl training-state-{000100,000200}.pt", "training-state-000200.pt", 200),
    # GANs and image restoration
    Row("StyleGAN2-ADA, StyleGAN3", "network-snapshot-{000000,000100}.pkl", "network-snapshot-000100.pkl", 100),
    Row("CycleGAN", "{5,10,latest}_net_{G_A,G_B,D_A,D_B}.pth", "latest_net_G_A.pth", None),
    Row("pix2pix, without latest", "{5,10}_net_{G,D}.pth", "10_net_G.pth", 10),
    Row("pix2pix, a save that was killed", "{5,10}_net_{G,D}.pth 15_net_G.pth", "10_net_G.pth", 10,
        {"15_net_G.pth": f"no 15_net_D.pth, {LOST}"}),
    Row("CycleGAN by another hand, killed in the third",
        "{G_AB,G_BA,D_A,D_B}_{1,2}.pth {G_AB,G_BA}_3.pth", "G_AB_2.pth", 2,
        {"G_AB_3.pth": f"no D_A_3.pth, {LOST}"}),
    Row("DCGAN of PyTorch's examples", "{netG,netD}_epoch_{2,3}.pth", "netG_epoch_3.pth", 3),
    Row("ESRGAN, BasicSR", "models/net_g_{5000,10000}.pth training_states/{5000,10000}.state",
        "training_states/10000.state", 10000),   # written last, and what BasicSR resumes from
    Row("MUNIT", "{gen,dis}_{00010000,00020000}.pt optimizer.pt", "gen_00020000.pt", 20000),
    # Images
    Row("DINO", "checkpoint{0000,0020}.pth checkpoint.pth?epoch=23", "checkpoint.pth", 23),
    Row("MAE", "checkpoint-{0,20}.pth", "checkpoint-20.pth", 20),
    Row("DINOv2", "model_{0004999,0009999}.rank_{0,1}.pth last_checkpoint.rank_0=model_0009999.rank_0.pth",
        "model_0009999.rank_0.pth", 9999),
    Row("MoCo", "checkpoint_{0000,0001}.pth.tar", "checkpoint_0001.pth.tar", 1),
    Row("PyTorch's ImageNet example", "checkpoint.pth.tar?epoch=7 model_best.pth.tar?epoch=5", "checkpoint.pth.tar", 7),
    Row("timm", "checkpoint-{10,11}.pth.tar?epoch=0 model_best.pth.tar?epoch=10 last.pth.tar?epoch=12",
        "last.pth.tar", 12),
    Row("timm, killed behind the last numbered one", "last.pth.tar checkpoint-{10,11}.pth.tar model_best.pth.tar",
        "checkpoint-11.pth.tar", 11),
    Row("detectron2", "model_{0004999,0009999}.pth last_checkpoint=model_0009999.pth", "model_0009999.pth", 9999),
    Row("detectron2 at its end",
        "model_{0004999,0009999}.pth model_final.pth?iteration=12000 last_checkpoint=model_final.pth",
        "model_final.pth", 12000),
    Row("mmengine by epochs", "epoch_{9,10}.pth best_coco_bbox_mAP_epoch_9.pth last_checkpoint=work/epoch_10.pth",
        "epoch_10.pth", 10),
    Row("mmengine by iterations", "iter_{4000,8000}.pth best_mIoU_iter_4000.pth last_checkpoint=work/iter_8000.pth",
        "iter_8000.pth", 8000),
    Row("YOLOv5, YOLOv8",
        "weights/epoch{0,10}.pt weights/best.pt?epoch=9 weights/last.pt?epoch=12", "weights/last.pt", 12),
    Row("open_clip", "checkpoints/epoch_{4,5}.pt", "checkpoints/epoch_5.pt", 5),
    Row("open_clip, the latest within an epoch", "checkpoints/epoch_{4,5}.pt checkpoints/epoch_latest.pt?step=900",
        "checkpoints/epoch_latest.pt", 900),
    Row("torchvision's references", "model_{8,9}.pth checkpoint.pth?epoch=9", "checkpoint.pth", 9),
    Row("torchvision's references, an architecture in the name", "resnet50_e{9,10}.pth resnet50_best.pth",
        "resnet50_e10.pth", 10),
    Row("an architecture and its last state", "vit_b_16_epoch_{3,4}.pth vit_b_16_last.pth", "vit_b_16_last.pth", None),
    Row("an architecture, the last state first",
        "vit_b_16_last.pth vit_b_16_epoch_{3,4}.pth", "vit_b_16_epoch_4.pth", 4),
    Row("one file of an architecture", "efficientnet_b7.pth", "efficientnet_b7.pth", None),
    Row("pretrained weights of two architectures", "resnet18.pth resnet50.pth epoch_3.pth", "epoch_3.pth", 3),
    Row("WideResNet", "wrn_28_10_ep{19,20}.pth.tar", "wrn_28_10_ep20.pth.tar", 20),
    Row("swin", "swin_base_patch4_window7_224/default/ckpt_epoch_{11,12}.pth",
        "swin_base_patch4_window7_224/default/ckpt_epoch_12.pth", 12),
    Row("nnU-Net", "fold_0/checkpoint_best.pth fold_0/checkpoint_latest.pth?current_epoch=150",
        "fold_0/checkpoint_latest.pth", 150),
    Row("a fold in the name", "model_fold{0,1}_epoch_{3,4}.pt", "model_fold1_epoch_4.pt", 4),
    Row("image captioning tutorial", "{encoder,decoder}-{4,5}-3000.ckpt encoder-6-3000.ckpt", "decoder-5-3000.ckpt", 5,
        {"encoder-6-3000.ckpt": "no decoder-6-3000.ckpt"}),
    # Speech and text
    Row("fairseq", "checkpoint1.pt checkpoint_{1_500,2_1000}.pt checkpoint_best.pt checkpoint_last.pt",
        "checkpoint_last.pt", None),
    Row("fairseq by updates", "checkpoint_{1_500,2_1000}.pt", "checkpoint_2_1000.pt", 1000),
    Row("ESPnet", "{8,9}epoch.pth valid.acc.best.pth checkpoint.pth", "checkpoint.pth", None),
    Row("ESPnet, without its state", "{9,10}epoch.pth", "10epoch.pth", 10),
    Row("Tacotron 2", "checkpoint_{1000,2000}!torch", "checkpoint_2000", 2000),
    Row("HiFi-GAN", "{g,do}_{00001000,00002000}!torch", "g_00002000", 2000),
    Row("HiFi-GAN, killed behind the generator",
        "{g,do}_{00001000,00002000}!torch g_00003000!torch", "g_00002000", 2000,
        {"g_00003000": f"no do_00003000, {LOST}"}),
    Row("VITS, so-vits-svc", "{G,D}_{0,1000,2000}.pth", "G_2000.pth", 2000),
    Row("RVC, only the latest", "{G,D}_2333333.pth", "G_2333333.pth", None),
    Row("wav2lip", "{checkpoint,disc_checkpoint}_step{000001000,000002000}.pth", "checkpoint_step000002000.pth", 2000),
    Row("Coqui TTS", "checkpoint_{10000,20000}.pth best_model_15000.pth best_model.pth", "checkpoint_20000.pth", 20000),
    Row("Whisper finetune",
        "checkpoint-{1000,2000}/{model.safetensors,config.json,trainer_state.json={\"global_step\":@},"
        "optimizer.pt,scheduler.pt,rng_state.pth,training_args.bin}", "checkpoint-2000", 2000),
    Row("DeepSpeech, PyTorch", "deepspeech_{9,10}.pth", "deepspeech_10.pth", 10),
    # Language models
    Row("litgpt", "step-{00001000,00002000}/{lit_model.pth,hyperparameters.yaml=a}", "step-00002000", 2000),
    Row("litgpt at its end", "step-{00001000,00002000}/lit_model.pth final/lit_model.pth", "final", None),
    Row("llm-foundry, composer", "ep0-ba{100,200}-rank0.pt latest-rank0.pt.symlink=ep0-ba200-rank0.pt",
        "ep0-ba200-rank0.pt", 200),
    Row("composer in shards", "ep0-ba{100,200}/!dcp", "ep0-ba200", 200),
    Row("OLMo", "step{1000,2000}/{train/rank{0,1}.pt,config.yaml=a} step{1000,2000}-unsharded/{model,optim,train}.pt",
        "step2000", 2000),
    Row("nanoGPT", "ckpt.pt?iter_num=5000", "ckpt.pt", 5000),
    Row("llm.c, minGPT", "model_{00001000,00002000}.bin!torch", "model_00002000.bin", 2000),
    Row("lingua", "checkpoints/{0000001000,0000002000}/!dcp", "checkpoints/0000002000", 2000),
    Row("torchtitan", "checkpoint/step-{100,200}/!dcp", "checkpoint/step-200", 200),
    Row("torchtune", "epoch_{0,1}/{model-00001-of-00002.safetensors,model-00002-of-00002.safetensors,"
        'model.safetensors.index.json!index,config.json,recipe_state.pt}', "epoch_1", 1),
    Row("axolotl, unsloth", "checkpoint-{50,100}/{adapter_model.safetensors,adapter_config.json,"
        "trainer_state.json={\"global_step\":@},optimizer.pt,scheduler.pt,rng_state.pth}", "checkpoint-100", 100),
    Row("Megatron-DeepSpeed, GPT-NeoX", "global_step{100,200}/{layer_00-model_00-model_states.pt,"
        "layer_02-model_00-model_states.pt,mp_rank_00_model_states.pt,zero_pp_rank_0_mp_rank_00_optim_states.pt} "
        "latest=global_step200", "global_step200", 200),
    Row("FSDP in accelerate", "checkpoint_{0,1}/{pytorch_model_fsdp_0/!dcp,optimizer_0/!dcp,scheduler.bin,"
        "random_states_0.pkl}", "checkpoint_1", 1),
    Row("sharded states in two folders of a step", "step_{10,20}/{model,optim}/!dcp", "step_20", 20),
    Row("sharded safetensors", "step_{10,20}/model-0000{1,2}-of-00002.safetensors "
        "step_{10,20}/model.safetensors.index.json!index", "step_20", 20),
    Row("a trainer of one's own, folders iter_N", "iter_{900,1000}/{model.pt,optim/shard_0.pt}", "iter_1000", 1000),
    Row("a trainer of one's own, a part of the folder missing", "iter_{900,1000}/{model.pt,optim/shard_0.pt} "
        "iter_1100/model.pt", "iter_1000", 1000, {"iter_1100": f"no optim/shard_#.pt, {LOST}"}),
    Row("a trainer of one's own, folders iter_N and a tracker", "iter_{900,1000,1100}/{model.pt,optim.pt} "
        "latest_checkpointed_iteration.txt=1000", "iter_1000", 1000,
        {"iter_1100": "newer than 1000 in latest_checkpointed_iteration.txt"}),
    Row("a folder that is written anew each epoch",
        "epoch_{10,20}/{model,optimizer}.pt last/{model,optimizer}.pt?epoch=23",
        "last", 23),
    Row("the same, older", "last/{model,optimizer}.pt epoch_{10,20}/{model,optimizer}.pt", "epoch_20", 20),
    Row("folders of the best and the last", "checkpoint-{100,200}/{model,optim}.pt checkpoint-best/{model,optim}.pt",
        "checkpoint-200", 200),
    Row("folders named after a model", "resnet50_epoch_{3,4}/{model,optimizer}.pt", "resnet50_epoch_4", 4),
    Row("VGG with its layers in the name", "vgg16_bn_{8,9,10}.pth vgg16_bn_best.pth", "vgg16_bn_10.pth", 10),
    Row("3D U-Net", "unet3d_{100,200}.pt", "unet3d_200.pt", 200),
    Row("a run's own number in front", "exp3_{3000,1500}.pt", "exp3_3000.pt", 3000),
    Row("a version in front", "model-v2.1-{3000,1500}.pt", "model-v2.1-3000.pt", 3000),
    Row("a folder of ranks, killed while it saved", "step_{100,200}/{model,optim}_rank_{0,1}.pt "
        "step_300/{model,optim}_rank_0.pt", "step_200", 200,
        {"step_300": "no model_rank_1.pt, which the checkpoints beside it have"}),
    Row("a folder of ranks, fewer of them since a restart", "step_100/rank_{0,1}.pt step_{200,300}/rank_0.pt",
        "step_300", 300),
    Row("hashes behind the step", "ckpt_{100_8f3a9c1e,200_0676ba61}.pt", "ckpt_200_0676ba61.pt", 200),
    Row("data beside the checkpoints", "epoch_{9,10}.pt data_{0,1,2,9}.pt", "epoch_10.pt", 10),
    Row("milestones that count saves", "model-1.pt?step=1000 model-2.pt?step=2000", "model-2.pt", 2000),
    Row("last.pt copied without its time", "last.pt?epoch=12 epoch_10.pt", "last.pt", 12),
    Row("thousands alone", "{10k,20k}.pt", "20k.pt", 20000),
    Row("one pickle that is written anew", "state.pkl?step=70", "state.pkl", 70),
    Row("Hugging Face, a last one", "checkpoint-{100,200}/{model.safetensors,trainer_state.json={\"global_step\":@},"
        "optimizer.pt,scheduler.pt,rng_state.pth} "
        "checkpoint-last/{model.safetensors,optimizer.pt,scheduler.pt,rng_state.pth} checkpoint-last/trainer_state"
        ".json?global_step=230", "checkpoint-last", 230),
    Row("ranks' files in a folder of the epoch", "epoch_{1,2}/model_rank{0,1,2,3}.pt", "epoch_2", 2),
    Row("epochs that hold steps", "epoch_1/step_{100,200}.pt epoch_2/step_{300,400}.pt", "epoch_2/step_400.pt", 400),
    Row("steps that each epoch counts anew", "epoch_1_iter_{100,900}.pt epoch_2_iter_100.pt", "epoch_2_iter_100.pt", 2),
    # Robots and control
    Row("LeRobot", "{020000,100000,0900000}/{pretrained_model/{model.safetensors,config.json},"
        "training_state/{training_step.json={\"step\":@},optimizer_state.safetensors}} last->0900000",
        "0900000", 900000),
    Row("Stable-Baselines3", "rl_model_{10000,20000}_steps.zip!sb3", "rl_model_20000_steps.zip", 20000),
    Row("Stable-Baselines3 with its buffer",
        "rl_model_{10000,20000}_steps.zip!sb3 rl_model_replay_buffer_{10000,20000}_steps.pkl "
        "rl_model_vecnormalize_{10000,20000}_steps.pkl", "rl_model_20000_steps.zip", 20000),
    Row("tianshou", "checkpoint_{10,20}.pth policy.pth", "checkpoint_20.pth", 20),
    Row("RLlib", "checkpoint_{000010,000020}/{algorithm_state.pkl,policies/default_policy/policy_state.pkl,"
        "rllib_checkpoint.json}", "checkpoint_000020", 20),
    Row("Ray Train", "checkpoint_{000000,000001}/{model.pt,extra_state.pt}", "checkpoint_000001", 1),
    Row("Isaac Gym", "nn/last_Ant_ep_{50,100}_rew_{5,12}.pth nn/Ant.pth", "nn/last_Ant_ep_100_rew_12.pth", 100),
    Row("policies and values as pickles", "{policy,value}_{10,20}.pkl", "policy_20.pkl", 20),
    Row("RSL-RL", "model_{0,500,1000}.pt", "model_1000.pt", 1000),
    Row("CleanRL and others by the time of day", "agent_20261127_235959.pt agent_20261128_103000.pt",
        "agent_20261128_103000.pt", None),
    # Scenes
    Row("NeRF", "{100000,200000}.tar", "200000.tar", 200000),
    Row("3D Gaussian splatting", "chkpnt{7000,30000}.pth point_cloud/iteration_{7000,30000}/point_cloud.ply=x",
        "chkpnt30000.pth", 30000),
    Row("nerfstudio",
        "nerfstudio_models/step-{000002000,000004000}.ckpt", "nerfstudio_models/step-000004000.ckpt", 4000),
    # Other packages
    Row("PaddlePaddle", "epoch_{3,4}.{pdparams,pdopt}!pickle", "epoch_4.pdparams", 4),
    Row("PyG and others, a legacy file", "model_{9,10}.model!old", "model_10.model", 10),
    Row("Apex, DGL: no suffix at all", "run/ckpt-{100,200}!torch", "run/ckpt-200", 200),
    Row("a link to the newest file", "step_{100,200}.pt latest.pt->step_200.pt", "step_200.pt", 200),
    Row("last.pt of each epoch, and each tenth", "epoch_{10,20}.pt last.pt?epoch=29", "last.pt", 29),
    Row("model and optimizer", "{model,optimizer}_{1000,2000}.pt", "model_2000.pt", 2000),
    Row("model and optimizer, a torn pair", "{model,optimizer}_1000.pt model_2000.pt", "model_1000.pt", 1000,
        {"model_2000.pt": f"no optimizer_2000.pt, {LOST}"}),
    Row("model and optimizer without numbers", "model.pt optimizer.pt?step=3", "model.pt", None),
    Row("an optimizer's file cut short",
        "{model,optimizer}_1000.pt model_2000.pt optimizer_2000.pt!torn", "model_1000.pt",
        1000, {"model_2000.pt": "optimizer_2000.pt: truncated"}),
    Row("an average each fifth time", "model_{1,2,3,4,5}.pt swa_5.pt model_6.pt", "model_6.pt", 6),
    Row("only the newest optimizer is kept", "model_{100,200}.pt model_300.pt optimizer_300.pt", "model_300.pt", 300),
    Row("thousands", "model_{90k,100k}.pt", "model_100k.pt", 100000),
    Row("the step in the file", "model_5.pt?global_step=50000 model_6.pt?global_step=60000", "model_6.pt", 60000),
    # An unnumbered file of any name beside numbered ones
    *(Row(f"{word}, written last", f"epoch_{{10,20}}.pt?epoch=20 {word}.pth", f"{word}.pth", None) for word in (
        "resume", "autosave", "checkpoint_resume", "preempt", "interrupted", "train_state", "trainer", "signal",
        "rolling", "running", "weights", "emergency", "live", "most_recent", "crash", "hpc")),
    *(Row(f"{word}, a later epoch inside", f"{word}.pth?epoch=25 snapshot_20.pth?epoch=20", f"{word}.pth", 25)
      for word in ("resume", "policy", "backup", "my_run")),
    *(Row(f"{word}, an earlier epoch inside", f"epoch_20.pth?epoch=20 {word}.pth?epoch=15", "epoch_20.pth", 20)
      for word in ("resume", "preempt", "last")),
    *(Row(f"{word} written last is no state", f"step_{{10,20}}.pt {word}.pt", "step_20.pt", 20) for word in (
        "vocab", "demo.vocab", "tokenizer", "args", "training_args", "config", "dataset_cache", "ema", "optimizer",
        "best", "label_encoder", "predictions", "previous", "policy")),
    Row("an autosave without a suffix", "epoch_{10,20}.pt autosave!torch vocab!torch", "autosave", None),
    Row("an autosave that is no file of torch", "epoch_{10,20}.pt autosave=x", "epoch_20.pt", 20),
    Row("a former copy, touched", "model.pt model_old.pt", "model.pt", None),
    # Numbers of runs
    Row("DiT in its experiment's folder", "000-DiT-XL-2/checkpoints/{0050000,0100000}.pt",
        "000-DiT-XL-2/checkpoints/0100000.pt", 100000),
    Row("StyleGAN3, two runs", "00000-stylegan3-r-gpus8/network-snapshot-001000.pkl "
        "00001-stylegan3-r-gpus8/network-snapshot-000200.pkl",
        "00001-stylegan3-r-gpus8/network-snapshot-000200.pkl", 200),
    Row("hydra, two runs", "2026-11-27/10-00-00/checkpoints/step_{100,200}.pt "
        "2026-11-28/09-00-00/checkpoints/step_50.pt", "2026-11-28/09-00-00/checkpoints/step_50.pt", 50),
    Row("YOLO, two runs", "detect/{train,train2}/weights/{epoch5,best,last}.pt", "detect/train2/weights/last.pt", None),
    Row("YOLO, two runs without numbered files", "detect/{train,train2}/weights/{best,last}.pt",
        "detect/train2/weights/last.pt", None),
    Row("a folder of the job's id", "12345/checkpoint_10.pt", "12345/checkpoint_10.pt", 10),
    Row("a step's folder with files of that step", "100/{model,optim}_100.pt 200/{model,optim}_200.pt", "200", 200),
    Row("an agent's folder of several critics", "agent_{100,200}/{actor,critic_1,critic_2}.pt", "agent_200", 200),
    # Ranks
    Row("nanochat, killed before the last rank", "{model,meta}_00{1,2}000.pt optim_00{1,2}000_rank{0,1}.pt "
        "{model,meta}_003000.pt optim_003000_rank0.pt", "model_002000.pt", 2000,
        {"model_003000.pt": "no optim_003000.pt of rank 1"}),
    Row("ranks' files, half of them", "step{100,200,300}.rank{0,1,2,3}.pt step400.rank{0,1}.pt",
        "step300.rank0.pt", 300,
        {"step400.rank0.pt": "no step400.pt of rank 2"}),
    Row("a job that is smaller since", "step{100,200}.rank{0,1,2,3}.pt step{300,400}.rank{0,1}.pt", "step400.rank0.pt",
        400),
    # Numbers
    Row("thousands and millions", "model_{100k,200k,1M}.pt", "model_1M.pt", 1000000),
    Row("millions of steps", "step_{2M,900k}.pt", "step_2M.pt", 2000000),
    Row("millions with their word", "ckpt-{10,9}Msteps.pt", "ckpt-10Msteps.pt", 10000000),
    Row("sizes in millions", "opt-{350M,1300M}.pt", "opt-1300M.pt", None),
    Row("a size in millions", "pythia-70m-step{9,10}.pt", "pythia-70m-step10.pt", 10),
    Row("thousands apart by underscores", "model_{10_000,9_000}.pt", "model_10_000.pt", 10000),
    Row("thousands apart by commas", "step_10,000.pt step_9,500.pt", "step_10,000.pt", 10000),
    Row("batches of each epoch", "ckpt_epoch_{0_batch_1000,1_batch_90,1_batch_500,0_batch_500}.pt",
        "ckpt_epoch_1_batch_500.pt", 1),
    Row("batches of each epoch in short", "e{1_i500,0_i9500,1_i90}.pt", "e1_i500.pt", 1),
    Row("simpletransformers", "checkpoint-{2000-epoch-1,4690-epoch-2}/{model.safetensors,config.json,optimizer.pt,"
        "scheduler.pt}", "checkpoint-4690-epoch-2", 4690),
    Row("SpeechBrain", "save/CKPT+2026-11-28+{10-10-10,11-11-11}+00/{model.ckpt,optimizer.ckpt,CKPT.yaml=a,"
        "counter.ckpt=3}", "save/CKPT+2026-11-28+11-11-11+00", None),
    # What no format reads: said by name
    *(Row(f"numbered files .{suffix}", f"net_{{100,200}}.{suffix}=weights", None, None,
          {f"net_{step}.{suffix}": "read by no format" for step in (200, 100)}) for suffix in (
        "weights", "h5", "keras", "msgpack", "params", "pdparams", "onnx", "npy", "gguf", "pth.gz", "tar.gz", "state",
        "nemo", "zip", "json", "ubj", "cbm")),
    Row("LightGBM", "model.txt.snapshot_iter_{90,100}=x", None, None,
        {f"model.txt.snapshot_iter_{step}": "read by no format" for step in (100, 90)}),
    Row("darknet", "yolov3_{1000,last}.weights=x", None, None,
        {f"yolov3_{which}.weights": "read by no format" for which in ("1000", "last")}),
    Row("data and logs alone", "data_3.npz=x metrics_step_5.json=x train_1.txt=x images_2.zip=x part-01.h5=x "
        "test.h5=x", None, None),
    Row("Flax", "checkpoint_{1000,2000}=x", None, None,
        {"checkpoint_2000": "read by no format", "checkpoint_1000": "read by no format"}),
    Row("t5x", "checkpoint_{1000,2000}/checkpoint=x", None, None,
        {"checkpoint_2000": "read by no format", "checkpoint_1000": "read by no format"}),
    Row("TensorFlow", "ckpt-12.index=x ckpt-12.data-00000-of-00001=x checkpoint=x", None, None,
        {"ckpt-12.index": "read by no format", "ckpt-12.data-00000-of-00001": "read by no format"}),
    Row("Keras", "weights.05-0.20.h5=x", None, None, {"weights.05-0.20.h5": "read by no format"}),
    Row("MXNet, GluonTS", "model-0005.params=x", None, None, {"model-0005.params": "read by no format"}),
    Row("own arrays", "step_5.npz=x", None, None, {"step_5.npz": "read by no format"}),
)


def expand(text: str) -> Iterator[str]:
    """The words that {a,b} stands for, in their order."""
    depth, at = 0, text.find("{")
    while at >= 0 and text[at + 1 : at + 2] == '"':   # JSON
        at = text.find("{", at + 1)
    if at < 0:
        yield text
        return
    cuts = [at]
    for place in range(at, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if (text[place] == "," and depth == 1) or not depth:
            cuts.append(place)
        if not depth:
            break
    for begin, end in itertools.pairwise(cuts):
        yield from expand(text[:at] + text[begin + 1 : end] + text[cuts[-1] + 1 :])


def files_of(word: str) -> dict[str, bytes]:
    """The files that a word of a row stands for."""
    name, has_text, text = word.partition("=") if "?" not in word.partition("=")[0] else (word, "", "")
    name, _, told = name.partition("?")
    name, _, kind = name.partition("!")
    if kind == "dcp":
        return dcp_folder(name.rstrip("/"))
    if has_text:
        step = (re.findall(r"\d+", name) or ["0"])[0]
        return {name: text.replace("@", str(int(step))).encode()}
    keys = {told.partition("=")[0]: int(told.partition("=")[2])} if told else {}
    return {name: content_of(name, kind or name.rpartition(".")[2], keys)}


def content_of(name: str, kind: str, told: dict[str, int]) -> bytes:
    if kind == "safetensors":
        return tensors()
    if kind == "index":
        return b'{"weight_map": {}}'
    if kind == "json":
        return json.dumps(told).encode()
    if kind in ("pkl", "pickle"):
        return pickle.dumps({"weights": [1.5], **told}, protocol=4)
    if kind == "old":
        return old_torch_file(told)
    if kind == "sb3":
        return archive_of("data", "policy.pth", "pytorch_variables.pth")
    return torch_file(told=told)[: -9 if kind == "torn" else None]


def found_in(row: Row) -> FoundCheckpoints:
    words = [word for text in row.files.split() for word in expand(text)]
    links = {word.partition("->")[0]: word.partition("->")[2] for word in words if "->" in word}
    files: dict[str, bytes] = {}
    for word in words:
        files.update(files_of(word) if "->" not in word else {})
    return latest_complete(DictFolder(files, links=links), "auto")


@each("row", ROWS, ids=[row.trainer for row in ROWS])
def test_of_every_trainers_folder_the_right_checkpoint_is_chosen(row: Row) -> None:
    found = found_in(row)
    best = (found.best.path, found.best.step) if found.best else (None, None)
    assert best == (row.path, row.step), [(one.path, one.step) for one in found.older]
    said = {one.path: one.reason for one in found.skipped}
    if row.skipped:
        assert {path: reason[: len(row.skipped.get(path, ""))] for path, reason in said.items()} == row.skipped
    else:
        assert said == {} or row.trainer == "3D Gaussian splatting", said
