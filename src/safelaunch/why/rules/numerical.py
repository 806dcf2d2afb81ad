"""Numbers that went wrong: NaN, infinity, loss scale."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_DO = ("Go back to a checkpoint from before it and skip the batches, lower the rate, clip gradients; check the data "
       "and the precision.")

RULES = (
    Rule(
        "numerical.loss_nan", "numerical",
        (b": nan", b"=nan", b"= nan", b" nan ", b"=NaN", b": NaN", b"': nan", b": inf", b"nan,"),
        rb"(?i:loss\w{0,40})['\"]?(?:\s{0,8}[:=]\s{0,8}|\s{1,8})(?:tensor\()?['\"]?[-+]?(?:nan|NaN|NAN)\b",
        "cause", "job", 0.74,
        summary="the loss is not a number any more", explain="The training goes on, but learns nothing.", do=_DO,
        source="trainers' own lines", order=4,
        sample="step 800 | loss: nan | lr 1e-4", counter_sample="step 800 | loss: 2.31 | aux: nan",
    ),
    Rule(
        "numerical.stopping", "numerical",
        (b"oss is nan", b"oss is NaN", b"oss is inf", b"oss is not finite", b"NaN loss", b"nan loss",
         b"non-finite loss", b"Non-finite loss", b"oss is {", b"NaN detected", b"Nan detected", b"found NaN",
         b"found Inf", b"Detected nan or inf"),
        rb"(?i:loss is (?:nan|inf\b|not finite|infinite)|(?:nan|non-finite) (?:loss|detected)|detected nan|(?:found"
        rb"|encountered) (?:nan|inf)\b)", "cause", "job", 0.72, summary="the program met NaN or infinity",
        explain="Loss, gradient or output is not finite.", do=_DO,
        source="detectron2, timm, Megatron-LM, Lightning and others", order=1,
        sample="Loss is nan, stopping training", counter_sample="the loss is fine, so training goes on",
    ),
    Rule(
        "numerical.loss_scale", "numerical",
        (b"loss scale already at minimum", b"Minimum loss scale reached", b"minimum loss scale reached"),
        b"(?i:loss scale already at minimum|minimum loss scale reached)", "cause", "job", 0.9,
        summary="the loss scale fell to its minimum: gradients overflow at every step",
        explain="fp16 training has diverged.", do=_DO, source="DeepSpeed, fp16/loss_scaler.py; fairseq", order=3,
        sample="Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        counter_sample="loss scale: 65536",
    ),
    Rule(
        "numerical.probability", "numerical", (b"probability tensor contains either",),
        b"probability tensor contains either `?inf`?, `?nan`?", "cause", "job", 0.88, action="fix_config",
        summary="probabilities are NaN or infinite while sampling",
        explain="The logits are broken: precision, damaged weights, or a library that does not fit.",
        do="Try bf16 or fp32; check weights and kernels.", source="PyTorch, torch.multinomial", order=2,
        sample="RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        counter_sample="the probability tensor sums to 1",
    ),
    Rule(
        "numerical.anomaly", "numerical", (b"returned nan values in its",),
        rb"Function '(?P<function>\w+)' returned nan values in its \d+th output", "cause", "job", 0.86,
        summary="{function} made NaN in the backward pass", explain="Autograd's anomaly mode names the operation.",
        do=_DO, source="PyTorch, autograd anomaly mode", order=2,
        sample="RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
        counter_sample="Function 'SqrtBackward0' returned",
    ),
    Rule(
        "numerical.distribution", "numerical", (b"but found invalid values",),
        b"Expected (?:parameter|value) .{0,300}?but found invalid values", "cause", "job", 0.72,
        summary="a distribution was given NaN or a value outside its support",
        explain="The network's output is broken.", do=_DO, source="torch.distributions", order=2,
        sample="ValueError: Expected parameter loc (Tensor of shape (8,)) of distribution Normal(loc: "
               "torch.Size([8])) to satisfy the constraint Real(), but found invalid values:",
        counter_sample="Expected parameter loc is real",
    ),
    Rule(
        "numerical.input_nan", "numerical",
        (b"contains NaN", b"contains infinity", b"contains infs or NaNs", b"array must not contain infs"),
        b"ValueError: .{0,300}?(?:contains (?:NaN|infinity|infs)|must not contain infs or NaNs)", "cause", "job", 0.72,
        summary="an array holds NaN or infinity", explain="scikit-learn or scipy refuses it.", do=_DO,
        source="scikit-learn; scipy", order=2,
        sample="ValueError: Input X contains NaN.", counter_sample="Input X contains 8 columns",
    ),
    Rule(
        "numerical.floating", "numerical", (b"FloatingPointError", b"LinAlgError", b"invalid value (nan) encountered"),
        rb"FloatingPointError: (?P<why>.*)|LinAlgError: (?P<why2>.*)"
        rb"|invalid value \(nan\) encountered in (?P<where>\S+)", "cause", "job", 0.7,
        summary="a calculation failed: {why}{why2}{where}", explain="Not finite, singular or not positive definite.",
        do=_DO, source="numpy; PyTorch; JAX debug_nans; fairseq", order=2,
        sample="numpy.linalg.LinAlgError: Singular matrix", counter_sample="numpy.linalg: the matrix is not singular",
    ),
    Rule(
        "numerical.skipped", "numerical",
        (b"OVERFLOW!", b"Overflow detected", b"gradient overflow", b"Gradient overflow"),
        b"OVERFLOW!|Overflow detected|[Gg]radient overflow", "context", "nobody", 0.2,
        summary="steps were skipped for overflow", explain="Usual now and then in fp16.",
        source="DeepSpeed; apex; fairseq",
        sample="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        counter_sample="no overflow in 80 steps",
    ),
    Rule(
        "numerical.grad_nan", "numerical", (b"norm: nan", b"norm': nan", b'norm": nan', b"norm nan", b"norm=nan",
                                            b"norm: NaN", b"norm': 'nan", b'norm": NaN'),
        rb"(?i:grad(?:ient)?[ _]?norm)['\"]?(?:\s*[:=]\s*|\s+)['\"]?nan\b", "cause", "job", 0.66,
        summary="the gradients are not numbers any more", explain="The training goes on, but learns nothing.", do=_DO,
        source="Megatron-LM, training_log; transformers, Trainer.log", order=4,
        sample=" iteration 12/ 100 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 |",
        counter_sample=" iteration 12/ 100 | loss scale: 1.0 | grad norm: 0.8 | number of nan iterations:   0 |",
    ),
    Rule(
        "numerical.megatron", "numerical", (b"number of nan iterations:",),
        rb"number of nan iterations: +(?P<count>[1-9]\d*)", "cause", "job", 0.6, summary="{count} iterations gave NaN",
        explain="Megatron counts and skips them.", do=_DO, source="Megatron-LM, training_log", order=4,
        sample=" iteration 80/ 100 | lm loss: 2.0E+00 | number of skipped iterations:   0 | number of nan iterations: "
               "  3 |",
        counter_sample=" iteration 80/ 100 | number of nan iterations:   0 |",
    ),
    Rule(
        "numerical.words", "numerical",
        (b" nan ", b"non-finite", b"spiky loss", b"is NaN", b"NaN detected", b"not finite"),
        rb"(?:Error|Exception): (?:.{0,100}?(?i:detected (?:nan|inf)|nan (?:detected|encountered|in (?:the "
        rb")?(?:grad|loss|logits|weights))|is (?:nan|inf)\b|nan or inf|non-?finite|loss is not finite)"
        rb"|.{0,60}?spiky loss)",
        "cause", "job", 0.78,
        summary="a value is not a number: {line}",
        explain="The loss or a gradient left the range of its type.",
        do="Lower the learning rate, look at the batch before; bf16 in place of fp16.",
        source="PyTorch; Lightning; Megatron-LM", order=4,
        sample="RuntimeError: Detected nan in gradient of layer 12",
        counter_sample="RuntimeError: gradient of layer 12 is not a leaf",
    ),
    Rule(
        "numerical.became_nan", "numerical",
        (b"became nan", b"became NaN", b"became inf", b"turned NaN", b"turned nan", b"went NaN", b"went nan"),
        rb"[Ll]oss\b.{0,30}?\b(?:became|turned|went) (?:to )?(?:nan|NaN|inf)", "cause", "job", 0.82,
        summary="the loss became NaN", explain="The training diverged, or a batch is bad.",
        do="Go back to an older checkpoint with a lower rate, or skip the batch.", source="various trainers",
        sample="Training has failed: loss became nan at iteration 4410", counter_sample="the loss became smaller",
    ),
)
