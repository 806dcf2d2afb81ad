"""What in a line counts a training's steps, by the surest of four kinds that the text has:

1. words: "step 100", "iteration 7/ 9", "Epoch [1/5], Step [100/600]";
2. tqdm's bars;
3. weaker words and bare fractions, where a figure of a training stands beside them: "it 59 loss 0.01",
   "[3776/60000 (6%)] Loss: 0.017", and other bars with a fraction (rich);
4. epochs, of trainings whose lines count nothing else: "Epoch 5/100, Loss: 0.12".

A number beside the words of an evaluation, a start or the work on files is none of a training; nor is one in prose
("Step 2: load the data"), unless it counts up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from safelaunch.trainlog.epochs import LineCount, epoch_before, line_at, line_begin

# Lines of common trainers; the number is the step. Sources: Megatron-LM training_log ("iteration  100/ 1000 |"),
# DeepSpeed engine ("step=100, skipped=0", "micro_step=8/global_step=4,") and PipelineEngine ("steps: 10 loss:"),
# torchtitan ("step: 100"), nanoGPT ("iter 100: loss"), NeMo ("iteration 7/9 | … global_step: 7", "global_step=794.0"
# in a bar), MaxText ("completed step: 9,"), litgpt ("iter 40 step 10 |"), fairseq and metaseq ("num_updates=445",
# '"num_updates": "445"', "epoch 010:  2000 / 8223"), PyTorch's examples and mmcv ("Step [100/600]",
# "Epoch: [0][  10/5005]"), mmengine ("Iter(train) [  100/40000]"), composer ("[batch=100/1000]:"), clu of JAX
# ("logging_writer.py:48] [100] loss="), and plain "step 100".
# slurmstepd's "*** STEP 42.0 ON n1 FAILED" is none (seen in a drill: step 42).
# Thousands are parted as Python's format does it (1,000 and 1_000), or in Switzerland (1'000). A blank parts them only
# where the total behind has one, too: "step 1 000/10 000".
_BLANKS = rb"\d{1,3}(?: \d{3}){1,3}(?!\d)"
GROUPS = rb"\d{1,3}(?:[,_']\d{3}){1,3}(?!\d)|" + _BLANKS + rb"(?= ?/ ?" + _BLANKS + rb")"
# Rounded: "step 1.2k/10k", a bar's "1.20k/10.0k". A training that writes so counts on by tens, then by hundreds.
SHORT = rb"\d{1,4}(?:\.\d{1,3})?(?-i:[kKM])\b"
COUNT = rb"(" + GROUPS + rb"|" + SHORT + rb"|\d{1,12})"
STEP_LINE = re.compile(
    rb"(?:^|(?<!\*\*\*)[\s|\[\](:,{'\"])(iteration|iter(?:\(train\))?|global_step|step|num_updates)['\"]?"
    rb"[ \t]{0,24}[:=#|]?[ \t]{0,8}(?:\[[ \t]{0,8}|['\"(])?" + COUNT + rb"(?:\.0)?"
    rb"(?=['\"]?(?:[/|,:}\])\s]|$))"
    rb"|\bsteps: (\d{1,12})(?= loss:)|/(global_step)=(\d{1,12})(?=,)"
    rb"|\bepoch \d{1,9}:?[ \t]{1,8}" + COUNT + rb"(?= / \d(?![^\r\n]{0,300}num_updates))"
    rb"|\bepoch(?:\(train\))?:?[ \t]{1,8}\[\d{1,9}\][ \t]{0,4}\[[ \t]{0,8}(\d{1,12})(?=/[ \t]{0,8}\d)"
    rb"|\[batch=(\d{1,12})(?=/\d{1,12}\])|\.py:\d{1,6}\] \[(\d{1,12})\](?= \w)",
    re.IGNORECASE | re.MULTILINE,
)
_WORD, _GLOBAL = 1, (b"global_step", b"num_updates")
_RANK = {b"global_step": 3, b"num_updates": 3, b"step": 2}   # of the words of one line the first of these counts
# tqdm's bars (Transformers, axolotl, Lightning, torchtune): "Epoch 0:  10%|#   | 10/100 [00:01<00:11,  8.10it/s". Many
# stand in one line, parted by carriage returns; in a pipe some writers leave the bar itself out.
BAR_LINE = re.compile(rb"(?:^|[\r\n])(?P<what>[^\r\n%]{0,120}?)[ \t]{0,8}\d{1,3}%[^\r\n\[]{0,300}?\b(?P<step>"
                      + SHORT + rb"|\d{1,12})/(?P<of>" + SHORT
                      + rb"|\d{1,12}) \[(?:\d{1,4}:){1,3}\d\d<(?![^\]\r\n]{0,40}(?:examples?|files?|docs?|B)/s)")
# Of a bar's own words: those of a training's. Bars of downloads, shards, validation and tokenising have others.
_TRAINING = re.compile(rb"(?i)\b(?:epoch|train(?:ing)?|iter(?:ation)?s?|steps?|loss)\b")
_NO_BAR = re.compile(rb"(?i)valid|eval|\btest|sanity|predict|token|generat|dataset|\bdata\b|split|pack|filter|\bmap"
                     rb"|(?:up|down)?load|prepar|process|extract|shard|file|cach|index|encod|read|copy|warm.?up")
_PREFIX = re.compile(rb"^\s{0,64}(?:\[[^\]]{1,60}\]:?\s{0,64}|\d{1,9}:\s{1,64}){1,8}")   # torchrun's, srun's --label
_OF = rb"[ \t]{0,8}(?:/|of\b)[ \t]{0,8}" + COUNT + rb"(?!\d|\.\d)"
_OF_BEHIND = re.compile(rb"(?i)" + _OF)
_NUMBER, _OF_NAMED = COUNT.replace(b"(", b"(?P<count>", 1), _OF.replace(COUNT, COUNT.replace(b"(", b"(?P<of>", 1))
# What a training names beside a step, with a number.
_FIGURE_WORDS = (b"loss", b"acc", b"ppl", b"perplexity", b"lr", b"rate", b"reward", b"return", b"mse", b"mae", b"norm",
                 b"nll", b"elbo", b"error")
_FIGURE = re.compile(
    rb"(?i)(?<![a-z])(?<!val[_/ ])(?<!eval[_/ ])(?<!test[_/ ])(?<!valid[_/ ])(?<!validation[_/ ])"
    rb"(?:loss|acc(?:uracy)?|ppl|perplexity|lr|learning[ _]rate|reward|return"
    rb"|r?mse|mae|g(?:rad[ _])?norm|nll|elbo|error)[\w@/]{0,16}['\"]?[ \t]{0,4}[:=|]?[ \t]{0,4}['\"(\[]{0,2}[ \t]{0,4}"
    rb"[-+]?(?:\d|\.\d|nan\b|inf\b)")
_WEAK = re.compile(
    rb"(?i)(?<![a-z_.-])(?:it|itr|(?:train|opt|optim|optimizer|gradient|grad|global|n|num)?_?"
    rb"(?:step|iter|iteration|update)s?|(?P<inner>(?:mini-?)?batch(?:es)?(?:[_ ]?(?:idx|id|index|num|number))?)|episode"
    rb"|round)(?:\(train\))?['\"]?[ \t]{0,24}[:=#|]?[ \t]{0,8}(?:[\[(][ \t]{0,8}|['\"])?" + _NUMBER
    + rb"(?![\w%]|\.\d|[ \t]{0,2}(?:s|ms|sec)\b)(?:" + _OF_NAMED + rb")?")
# "[00059/10000] train_loss", "120/500 [====>" (Keras), "Train: 3 [ 100/500 ( 20%)]" (timm), "[64/60000 (0%)]" (MNIST).
_FRACTION = re.compile(
    rb"(?:^|(?<=[\s\[(|>\]=])|(?<=\]:))" + _NUMBER + _OF_NAMED
    + rb"(?!/|[ \t]{0,2}(?:[kMGT]i?B|B|bytes|files|ex|docs)\b| \d\d:\d\d:)")
_OPEN = re.compile(rb"(?:^|[\[(|>\]=-]|\]:|^\d{1,9}:|INFO:?|DEBUG:?|\xe2..)[ \t]{0,8}$")   # before a bare fraction
_GLYPHS = re.compile(rb"(?:\xe2[\x94-\x97][\x80-\xbf]){3,200}|[#=>]{3,200}")
_NOT_BESIDE = re.compile(rb"(?i)(?:acc(?:uracy)?|correct|score|precision|recall|f1|files?|shards?|samples?|total)"
                         rb"\W{0,4}$")
# Behind one of these words a number is none of the training's: "eval step 3/50", "max steps 100", "see step 3".
_ASIDE = re.compile(
    rb"(?i)(?:^|[^a-z./\w-])(?:valid\w*|val|eval\w*|test(?:ing)?|sanity|predict\w*|warm-?up|warming|resum\w*|restor\w*"
    rb"|load(?:ing|ed)?|skip\w*|download\w*|prepar\w*|pre-?process\w*|tokeni[sz]\w*|build\w*|compil\w*|dummy|calibrat\w*"
    rb"|benchmark\w*|profil\w*|init\w*|set-?up|max(?:imum)?|total|num(?:ber)?|every|each|until|per|from|next|best|see"
    rb"|this|another|install\w*)\b[^.\]\n]{0,20}$|[\[(](?:eval|val|valid|validation|test)[\])]:?[ \t]{0,4}$")
_PROSE = re.compile(rb"[A-Za-z]{2}[^A-Za-z\n]{1,8}[A-Za-z]{2}")
_NUMBERS = re.compile(rb"[:=|][ \t]{0,8}['\"]?[-+]?(?:\.?\d|(?i:nan|inf)\b)"
                      rb"|\d\.\d|\d ?(?:s|ms|sec|%|it/s)\b|(?i:epoch|rank|loss) ?\d")
_WORDS = re.compile(rb"[A-Za-z]{2}")
NEAR_BYTES = 32
PARTS = re.compile(rb"[,_' ]")
_UNITS = {b"k": 1_000, b"K": 1_000, b"M": 1_000_000}


def count_of(digits: bytes) -> int:
    """The number of digits that may be parted in thousands, or shortened."""
    unit = _UNITS.get(digits[-1:])
    return round(float(digits[:-1]) * unit) if unit else int(digits if digits.isdigit() else PARTS.sub(b"", digits))


def words(text: bytes, start: int = 0) -> list[LineCount]:
    """The first kind, from a line's begin on."""
    found: list[tuple[int, int, LineCount]] = []   # where its line begins, the rank of its word
    prose: list[tuple[bytes, LineCount]] = []
    has_epochs = b"poch" in text
    for match in STEP_LINE.finditer(text, start):
        at, group = match.start(), match.lastindex or 0
        begin = line_begin(text, at)
        word = (match[_WORD] or match[4] or b"").lower()
        near = text[max(begin, at - NEAR_BYTES):at + 1]
        if _WORDS.search(near) and _ASIDE.search(near):
            continue
        one = LineCount(at, match.start(group), count_of(match[group]),
                      _total(text, match.end()) if has_epochs else None,
                      False if word in _GLOBAL else None if word else True)
        if word == b"step" and _is_prose(text, match.end()):
            prose.append((text[begin:match.start(group)], one))
            continue
        found.append((begin, _RANK.get(word, 1), one))
    if found:
        highest: dict[int, int] = {}
        for begin, rank, _ in found:
            highest[begin] = max(rank, highest.get(begin, 0))
        return [one for begin, rank, one in found if rank == highest[begin]]
    return list(_counting_up(prose))


def _total(text: bytes, end: int) -> int | None:
    match = _OF_BEHIND.match(text, end)
    return count_of(match[1]) if match else None


def _is_prose(text: bytes, end: int) -> bool:
    """Whether words follow, and no figure: "Step 2: load the data"."""
    if text[end:end + 1] in (b"", b"\n", b"\r", b"/", b"|", b",", b"}", b"]", b")"):
        return False
    behind = line_at(text, end)[:200]
    return _PROSE.search(behind) is not None and _NUMBERS.search(behind) is None and _OF_BEHIND.match(behind) is None


def _counting_up(prose: Sequence[tuple[bytes, LineCount]]) -> Iterator[LineCount]:
    """Those of which the same words before them have counted on."""
    highest: dict[bytes, int] = {}
    growing = set()
    for before, one in prose:
        if one.number > highest.get(before, one.number):
            growing.add(before)
        highest[before] = max(one.number, highest.get(before, one.number))
    return (one for before, one in prose if before in growing)


def bars(text: bytes) -> list[LineCount]:
    """The second kind: those with a training's words, else those without any. Of these the longest is the training's:
    Transformers draws its evaluations' bars just so.
    """
    found = [match for match in BAR_LINE.finditer(text) if is_training(match["what"])]
    found = [match for match in found if _TRAINING.search(match["what"])] or found
    longest = max((count_of(match["of"]) for match in found), default=0)
    return [LineCount(match.start(), match.start("step"), count_of(match["step"]), longest, True)
            for match in found if count_of(match["of"]) == longest]


def is_training(what: bytes) -> bool:
    """Whether a bar's own words are a training's, or none."""
    own = _PREFIX.sub(b"", what).strip()
    if _NO_BAR.search(own):
        return False
    return not re.search(rb"[A-Za-z]{2}", own) or _TRAINING.search(own) is not None


def figures(text: bytes) -> list[LineCount]:
    """The third kind, of fractions the longest, as of bars; where there is none, the fourth."""
    found, epochs = [], []
    for begin, line in _lines(text):
        one = _weak(line, begin) if has_figure(line) else _drawn(line, begin)
        if one is not None and one.is_epoch:
            epochs.append(one)
        elif one is not None:
            found.append(one)
    longest = max((one.of for one in found if one.of is not None), default=None)
    return [one for one in found if one.of == longest] or epochs


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    begin = 0
    for line in text.replace(b"\r", b"\n").split(b"\n"):
        if line:
            yield begin, line
        begin += len(line) + 1


def has_number(line: bytes) -> bool:
    """Whether a line has a number beside its prefix."""
    return re.search(rb"\d", _PREFIX.sub(b"", line)) is not None


def has_figure(line: bytes) -> bool:
    """Whether a line names a figure of a training: a loss, an accuracy, a learning rate."""
    lowered = line.lower()
    return any(word in lowered for word in _FIGURE_WORDS) and _FIGURE.search(line) is not None


def _weak(line: bytes, begin: int) -> LineCount | None:
    """A weaker word or a bare fraction beside a figure; else the line's epoch."""
    epoch = epoch_before(line)
    for pattern in (_WEAK, _FRACTION):
        for match in pattern.finditer(line):
            near = line[max(0, match.start() - NEAR_BYTES):match.start()]
            is_epoch = epoch is not None and match.start() < epoch.end and match.end() > epoch.start
            if is_epoch or _ASIDE.search(near) or _NOT_BESIDE.search(near):
                continue
            is_bare = pattern is _FRACTION
            if is_bare and not _OPEN.search(near) and (epoch is None or _WORDS.search(line, epoch.end, match.start())):
                continue
            is_inner = True if is_bare or match["inner"] else None
            one = _fraction(match, begin, is_inner)
            if one is not None:
                return one
    if epoch is None or _ASIDE.search(line[max(0, epoch.start - NEAR_BYTES):epoch.start]):
        return None
    return LineCount(begin + epoch.start, begin + epoch.end, epoch.number, epoch.of, is_epoch=True)


def _drawn(line: bytes, begin: int) -> LineCount | None:
    """A fraction beside a bar, as rich, alive-progress and progressbar2 draw it."""
    glyphs = _GLYPHS.search(line)
    if glyphs is None:
        return None
    epoch = epoch_before(line[:glyphs.start()])
    match = _FRACTION.search(line, epoch.end if epoch is not None else 0)
    if match is None or not is_training(line[:min(match.start(), glyphs.start())].rstrip(b" \t(|[%0123456789")):
        return None
    return _fraction(match, begin, True)


def _fraction(match: re.Match[bytes], begin: int, is_inner: bool | None) -> LineCount | None:
    number, of = count_of(match["count"]), count_of(match["of"]) if match["of"] else None
    if of is not None and (number > of or of < 2):
        return None
    return LineCount(begin + match.start(), begin + match.start("count"), number, of, is_inner, may_have_header=True)
