"""The words in names of checkpoints: what counts steps, what a file holds, which of several it is.

A word is a row here; what follows from it is in steps.py (numbers), filesets.py (sets) and newest.py (order).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise


def _set_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A number behind one of these is a step, and an epoch. "ba": composer's batches; "kimg": StyleGAN's.
STEP_WORDS = _set_of(
    "step steps globalstep gs iter iters iteration iterations itr it update updates ba kimg tick ticks chkpnt")
EPOCH_WORDS = _set_of("epoch epochs ep e eps episode episodes")
# Numbers behind these count within an epoch: epoch_1_batch_500, e1_i500.
BATCH_WORDS = _set_of("batch minibatch b i s")
# A number behind these alone is the checkpoint's. Letters are the roles of GANs: G_1000, do_00001000.
CHECKPOINT_WORDS = _set_of(
    "ckpt ckpts ckp cp chkpt chk checkpoint checkpoints snapshot snapshots save saved saves state states model models"
    " weights network net nets rl policy agent actor critic opt optim optimizer ema training train recipe generator"
    " discriminator disc gen lora g d do unet dalle pytorch trainer")
# Letters behind one of these name a direction: D_A_100, net_G_B_100.
GAN_WORDS = _set_of("g d net netg netd gen dis disc generator discriminator")
# A number behind one of these is, whatever stands in front: v2_ckpt_100.
MARKS = _set_of("ckpt checkpoint checkpoints model snapshot state weights")
# Numbers behind these tell one thing from another.
IDENTITY_WORDS = _set_of(
    "v version ver fold seed run exp experiment trial try stage phase layer block head data dataset test val size dim"
    " hidden width depth res resolution class img image video scene subject sample file frame clip task env split chunk"
    " batch job top in")
BEST, LAST = ("best",), ("last", "latest", "final", "current", "newest", "recent")
# What is saved beside the model; a file with one of these words is not the one that a set is called after.
_BESIDE_WORDS = _set_of(
    "opt pdopt optim optims optimizer optimizers sched scheduler schedulers lr scaler rng random sampler dataloader"
    " loader replay buffer vecnormalize normalizer extra dis disc discriminator critic value do loss args hparams"
    " history metrics queue data")
# What trainings save that no training goes on from, whatever its size and age.
_ASIDE_WORDS = _set_of(
    "vocab vocabs vocabulary tokenizer config configs cfg arg cache caches stat stats statistics prediction predictions"
    " preds embedding embeddings result results label labels losses dataset pretrained"
    " pretrain backbone teacher init initial export exported prompt")
_BOOSTED_WORDS = _set_of("xgb xgboost lgb lgbm lightgbm gbm booster catboost cat snap")
_DATA_WORDS = _set_of("part shard train test val valid data dataset image images")
_VOCABULARY_WORDS = _set_of("vocab vocabs vocabulary tokenizer")
_FORMER_WORDS = _set_of("old older oldest prev previous backup bak former")
# What is kept to be looked at, of a training that has gone wrong: icefall's bad-model-0.pt.
_BROKEN_WORDS = _set_of("bad nan nans broken corrupt corrupted diverged")
_AVERAGED_WORDS = _set_of("ema avg averaged average swa mean")
_WHOLE_WORDS = _set_of("checkpoint ckpt")
_STATE_WORDS = _set_of("state states")
# An unnumbered file of these words alone is the state of the training beside it.
_LEADING_WORDS = _set_of("ckpt checkpoint checkpoints model models state states snapshot net training")
_NO_NAMES = STEP_WORDS | EPOCH_WORDS | _set_of("loss acc rew reward score")
_SAVED = MARKS | STEP_WORDS | EPOCH_WORDS | _set_of("save cp")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def words_of(name: str) -> list[str]:
    """The words of a name in lower case: "netG_epoch_3" → net, g, epoch."""
    return [word.lower() for word in _WORD.findall(name)]


def is_best(name: str) -> bool:
    """Whether it is a copy of the checkpoint that some measure likes best."""
    return any(word.startswith(BEST) for word in words_of(name))


def is_copy(name: str) -> bool:
    """Whether its words say which one it is: the best, the last. A number behind them is hardly a step."""
    return any(word.startswith(BEST + LAST) for word in words_of(name))


def main_first(name: str) -> tuple[int, ...]:
    """Sorts the files of one step: the model's first, then averages of it, then what is saved beside it."""
    words = words_of(name)
    is_critic = words[:1] == ["d"] or ("net", "d") in pairwise(words)
    is_part = not _WHOLE_WORDS.intersection(words)
    is_export = {"network", "snapshot"}.issubset(words)   # EDM's, beside training-state-N.pt
    return (int(is_critic or bool(_BESIDE_WORDS.intersection(words))), int(bool(_AVERAGED_WORDS.intersection(words))),
            is_part + (is_part and bool(_STATE_WORDS.intersection(words))) + 2 * is_export, int("model" not in words))


def is_beside(name: str) -> bool:
    """Whether the file holds what is saved beside a model: an optimizer, a discriminator."""
    return main_first(name)[0] > 0


def is_of_training(name: str, beside: Iterable[str] = ()) -> bool:
    """Whether an unnumbered name is one for the newest state: last, model, or the others' name without their step."""
    words = words_of(name.partition(".")[0])
    named = [[word for word in words_of(other.partition(".")[0]) if word not in _NO_NAMES] for other in beside]
    known = CHECKPOINT_WORDS.union(EPOCH_WORDS, *named) if any(word.startswith(LAST) for word in words) else (
        _LEADING_WORDS)
    return bool(words) and (words in named or all(word in known or word.startswith(LAST) for word in words))


def is_aside(name: str) -> bool:
    """Whether it is none of the training's states: a vocabulary, arguments, an average of the weights."""
    return not (_ASIDE_WORDS | _AVERAGED_WORDS).isdisjoint(words_of(name)) or is_beside(name)


def is_vocabulary(name: str) -> bool:
    """Whether it holds the words of a language, which no training changes."""
    return not _VOCABULARY_WORDS.isdisjoint(words_of(name))


def is_former(name: str) -> bool:
    """Whether it is a copy of what was the newest once: model.pt.bak."""
    return not _FORMER_WORDS.isdisjoint(words_of(name))


def is_broken(name: str) -> bool:
    """Whether it holds weights that have gone wrong."""
    return not _BROKEN_WORDS.isdisjoint(words_of(name))


def is_own_name(name: str, beside: Iterable[str]) -> bool:
    """Whether it has a word that no name beside it has, and that is none for a part of a model: preempt.pth."""
    stem = words_of(name.partition(".")[0])
    known = CHECKPOINT_WORDS.difference(("trainer", "train", "weights", "save")).union(
        *(words_of(other) for other in beside))
    return bool(stem) and not known.issuperset(stem) and not re.search(r"\d", name.partition(".")[0])


def is_run(name: str) -> bool:
    """Whether a folder's name is a run's rather than a step's: 00001-stylegan3-r, 09-00-00, train2."""
    return not name.isdecimal() and not (MARKS | _set_of("save saves saved cp")).intersection(words_of(name))


def is_of_data(name: str) -> bool:
    """Whether a word says that it is of a data set: part-0001.h5."""
    return not _DATA_WORDS.isdisjoint(words_of(name))


def is_of_model(name: str) -> bool:
    """Whether all its words are for checkpoints, steps, or trees that are boosted."""
    stem = words_of(name)
    return bool(stem) and (CHECKPOINT_WORDS | STEP_WORDS | EPOCH_WORDS | _BOOSTED_WORDS).issuperset(stem) and any(
        word in _BOOSTED_WORDS or (word in CHECKPOINT_WORDS and not word.startswith("train")) for word in stem)


def is_saved_state(name: str) -> bool:
    """Whether any word of a name is one for what trainings save."""
    return not _SAVED.isdisjoint(words_of(name))
