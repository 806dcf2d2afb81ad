"""What plain words make of a text that no rule knows: for each category the weight of the words that speak for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

MAX_TEXT = 600     # characters of a message that are weighed: its end repeats values, shapes and paths
PATH_WEIGHT = 3.0  # what the kind of a named file says

# category → (weight, words). 4: hardly said of anything else; 2: mostly; 1: fits, beside others. A word counts once.
# Chosen from what the programs of docs/why.md's sources say, and from the taxonomy's own words.
_WORDS: Mapping[str, tuple[tuple[int, str], ...]] = {
    "storage": (
        (4, r"no space|quota|read-only file ?system|stale (?:nfs )?(?:file )?handle|(?:input/output|i/o"
            r"|remote i/o) error"
            r"|disk (?:is )?full|inodes?|unmounted|not mounted|mount ?point|lustre|gpfs|beegfs|weka(?:fs)?|cephfs?|nfs"
            r"|unable to lock|lock(?:ing)? file|database (?:disk image|is locked)"),
        (2, r"(?:file )?write (?:error|failed|failure)|error writing|failed (?:to )?writ(?:e|ing)|can(?:no|')t write"
            r"|error during write|(?:failed to |error )?(?:flush|fsync)(?:ing)?|file ?system|reduce your request rate"
            r"|object stor(?:e|age)|blob|bucket|short (?:read|write)|bytes written|read-only"),
        (1, r"disk|storage|scratch|permission denied|upload|s3|volume"),
    ),
    "checkpoint": (
        (4, r"checkpoints? (?:is )?(?:missing|corrupt\w*|incomplete|not found|shards?)|state[_ ]dict|optimi[sz]er state"
            r"|safetensors?|(?:no|missing|invalid|incomplete|damaged|load\w*|restor\w*|find) (?:a |the "
            r"|valid )?checkpoint"
            r"|resume[_ ]from|not (?:a )?valid checkpoint"),
        (3, r"checkpoint(?:ed|ing|er)?|ckpt|checksum (?:mismatch|error|failed)"),
        (2, r"resum(?:e|ing)|restor(?:e|ing)|pre-?trained weights|manifest|checksum|shards?|weights (?:file|not)"
            r"|param(?:eter)? groups?|truncated|incomplete|corrupt(?:ed|ion)?|digest"),
        (1, r"weights|model file|snapshot|step \d+ not found|unexpected end"),
    ),
    "data": (
        (4, r"cannot identify image|tfrecord|parquet|corrupt(?:ed)? (?:record|jpeg|image|sample)|moov atom|codec"
            r"|demux\w*"
            r"|webdataset|data ?sets?|data ?loaders?|decod(?:e|er|ing)"),
        (2, r"samples?|jpe?g|png|video|audio|images?|records?|shuffle|tar(?:ball| file)|jsonl?|unicode|utf-8|csv"
            r"|no (?:training )?(?:files|data) (?:found|left)|corpus|documents?|split|truncated|magic (?:bytes|number)"
            r"|unexpected end of (?:data|file|stream)|corrupt(?:ed|ion)?|tokens?|annotations?|labels?"),
        (1, r"rows?|columns?|index file|vocab\w*|input file|batch|stream"),
    ),
    "config": (
        (4, r"configs?|configuration|command[- ]line|arguments? --?\w+|unrecogni[sz]ed|mutually exclusive"
            r"|not (?:evenly )?divisible|divisible by|(?:valid|available|supported|allowed) (?:options|choices"
            r"|values|ones)"
            r"|choose from|one of \[|mandatory|hyper-?param\w*|(?:unknown|invalid|unsupported) (?:\w+ )?(?:option|value"
            r"|name|type|mode|scheduler|optimi[sz]er|backend|architecture|key|field|choice|argument|flag|model)"),
        (2, r"options?|settings?|flags?|must be (?:set|one|specified|provided|between|a|at|less|greater|smaller|larger)"
            r"|must not|should be|needs? to be set|is required|are required|(?:was|were) given|yaml|toml|hydra"
            r"|missing value"
            r"|cannot be (?:used|combined|set)|only supported|not supported|max_\w+|\w+_size|world[_ ]size|parallel"),
        (1, r"must|expected|invalid|argument|specif(?:y|ied)|enabled?|keys?|names?|without value|--[a-z][\w-]+"),
    ),
    "environment": (
        (4, r"not installed|pip install|conda install|shared (?:object|library)|command not found|nvcc|ninja|gcc|g\+\+"
            r"|symbol lookup|undefined symbol|glibc\w*|container|enroot|pyxis|apptainer|singularity|squash\w*|driver"
            r"|execve|executable|shared libraries|no module named|lmod|toolchain|linker|cmake"),
        (2, r"compil(?:e|er|ing|ation)|install(?:ed|ation)?|librar(?:y|ies)|build(?:ing)?|package|import(?:ing|ed)?"
            r"|plugin"
            r"|environment|cuda_home|backend .{0,30}not available|toolkit|extension|interpreter"),
        (1, r"not available|module|kernel image|path"),
    ),
    "version_mismatch": (
        (4, r"version mismatch|incompatible version|(?:requires?|needs?) [\w.-]+ ?(?:[<>=~!]=?|version)"
            r"|[<>=~]=\d+(?:\.\d+)+"
            r"|(?:has been|was) (?:removed|deprecated|renamed)|different version|newer version|older version|too old"
            r"|compiled (?:with|against|using)|mismatched versions|upgrade|downgrade"),
        (2, r"versions?|incompatible|not compatible|deprecated|no longer (?:supported|available)|abi"),
    ),
    "network": (
        (4, r"unreachable|no route|(?:connection|connect) (?:reset|refused|lost|aborted|broken|closed|failure"
            r"|timed out)"
            r"|queue pair|qps?|rdma|verbs|ibv_\w+|mlx\d\w*|infiniband|efa|libfabric|ofi\w*|cxi\w*|ucx|ucp|hca|roce"
            r"|hsn\w*"
            r"|name or service not known|link (?:is )?down|retry (?:count )?exceeded|ib\d|subnet|packets?|nics?"
            r"|transmit|slingshot|peer (?:closed|is gone)|host ?name"),
        (2, r"network|connection|socket|transport|endpoint|fabric|port error|peers?|dns|resolve|handshake|tcp|ethernet"
            r"|broken pipe|retransmi\w+|gid"),
        (1, r"timed? ?-?out|remote|send|recv|connect(?:ed|ing)?|address"),
    ),
    "rendezvous": (
        (4, r"rendezvous|address already in use|master_(?:addr|port)|coordinat(?:or|ion)|tcp ?store|bind (?:failed"
            r"|error)"
            r"|waiting for (?:all |the )?(?:clients|workers|peers|ranks|processes)|(?:not all|some) (?:tasks|workers"
            r"|ranks)"
            r"|never (?:started|joined)|failed to join|join the"),
        (2, r"barrier|store|init_process_group|join|world"),
        (1, r"deadline|handshake|port"),
    ),
    "hub_auth": (
        (4, r"unauthori[sz]ed|forbidden|api[_ -]?keys?|log(?:ged)? ?in|credentials?|authenticat\w+|gated|rate limit\w*"
            r"|too many requests|hugging ?face|wandb|mlflow|comet|neptune|clearml|licen[cs]e|certificate|proxy|ssl"
            r"|(?:status(?: code)?|error|code|http)[ :]{1,2}(?:401|403|429)(?!\d)|access token|(?:expired"
            r"|invalid) token|token (?:has )?"
            r"(?:expired|is (?:invalid|expired)|invalid)"),
        (2, r"(?:401|403|429)(?!\d)(?= \w)|https?|hub|client error|server error|download\w*|access denied|request"
            r"|url|repo(?:sitory)?|tracking|account"
            r"|status code|permission to access"),
    ),
    "gpu_hardware": (
        (4, r"(?:gpu|device|card|accelerator)s? (?:\S+ )?(?:is |was |has )?(?:lost|unhealthy|failed|fallen|hung|hang"
            r"|dead"
            r"|missing|fault|reset)|double[- ]bit|uncorrectable|ecc|row remap\w*|remapp\w+|xid|sxid|nvlink|nvswitch|rma"
            r"|hbm|hardware (?:error|fault|failure)|ras|gsp|aicore|unhealthy|bad page|hw (?:\w+ )?(?:error|fault)"
            r"|hard-?reset|hardware heartbeat|page retire\w*"),
        (2, r"gpus?|npu|hpu|tpu|amdgpu|nvrm|device acquire|reset required|health|devices?|ring (?:gfx|sdma)\S*"
            r"|thermal"),
    ),
    "node_failure": (
        (4, r"node (?:\S+ )?(?:is |has |was )?(?:down|failed|failure|lost|unresponsive|dead|died|drained|unhealthy|gone"
            r"|rebooted)|heartbeat|lost contact|machine check|kernel panic|reboot\w*|power (?:loss|failure)"
            r"|(?:host|machine|instance|vm|worker|node) (?:\S+ )?(?:terminated|crashed|disappeared|not responding)"
            r"|allocation (?:\S+ )?(?:has been )?revoked|allocation"),
        (2, r"nodes?|prolog|epilog|hosts?|daemon"),
    ),
    "host_oom": (
        (4, r"oom|out[- ]of[- ]memory|cannot allocate memory|memory (?:limit|pressure)|bad_alloc|low on memory"
            r"|(?:host|system|cpu|node) (?:ran out of )?memory|sigkill"),
        (2, r"memory|killed|mmap|swap|rss|cgroup"),
    ),
    "cuda_oom": (
        (6, r"(?:cuda|gpu|device|npu|hpu|hip|xpu|vram|hbm)\w{0,12}\b.{0,40}(?:out of memory|alloc\w*|memory)|kv cache"
            r"|resource_?exhausted|exceed\w* .{0,30}memory|out of resources?"),
        (2, r"memory|alloc\w*|out of memory"),
    ),
    "numerical": (
        (4, r"nans?|infs?|infinit[ey]|diverg\w+|overflow\w*|underflow\w*|loss[_ ]scale|non-?finite|not finite|exploding"
            r"|exploded|isfinite|isnan|loss spike"),
        (1, r"gradients?|loss|norm|grad[_ ]norm"),
    ),
    "native_crash": (
        (4, r"seg(?:mentation)?[ -]?fault\w*|sig(?:segv|bus|ill|abrt)|core dumped|stack smashing|double free|free\(\)"
            r"|malloc\S*|illegal instruction|misaligned|(?:illegal|invalid) (?:memory )?(?:access|address)|bus error"
            r"|assertion `|heap|null pointer|access violation|terminate called|pure virtual"),
        (2, r"corruption|abort(?:ed)?|crash(?:ed)?|backtrace|signal \d+|internal error"),
    ),
    "hang": (
        (4, r"dead ?lock\w*|hang(?:s|ing)?|stuck|no progress|stall\w*|watchdog|straggler|(?:not|no) respon\w+"),
        (2, r"timed? ?-?out|collectives?|all_?reduce|all_?gather|broadcast|wait(?:ed|ing)?"),
    ),
    "preempted": ((4, r"preempt\w*|spot|evict\w*|reclaim\w*|maintenance|interruption notice"),),
    "time_limit": ((4, r"time ?limit|wall[- _]?(?:time|clock)|time is up|out of time"), (1, r"deadline|exceeded")),
    "cancelled": ((4, r"cancell?ed|ctrl-?c|keyboard|sighup|hang ?up|by (?:the )?user"), (2, r"interrupt\w*"
            r"|terminated")),
    "user_code": (
        (4, r"shape\w*|dtypes?|mat1|broadcastable|autograd|backward|nonetype|unexpected keyword|out of (?:range|bounds)"
            r"|size mismatch|dimensions?|operands?|serializable|unsupported operand|not defined|not implemented"
            r"|tracer\w*"
            r"|graph break|einops|subscriptable|callable|iterable|unpack\w*"),
        (2, r"expected .{1,60} (?:but )?got|tensors?|sizes?|attribute|index|types?|axis|elements?|float\d*|int\d+"
            r"|inputs?|outputs?|length"),
    ),
}
_PATH = re.compile(r"(?<![\w.@+=~/-])(?:[\w.@+=~-]{0,255}/){1,64}[\w.@+=-]{0,255}|\b[\w-]{1,255}\.[a-z]\w{1,11}\b")
# The end of a file's name → what it holds.
_KINDS = (
    (re.compile(r"\.(?:pt|pth|ckpt|safetensors|distcp|nemo)$|(?:^|[/_-])(?:ckpts?|checkpoints?)(?:[/_-]|$)"
                r"|latest\w{0,40}\.txt$|(?:^|/)(?:iter|global_step|checkpoint-)_?\d+"), "checkpoint"),
    (re.compile(r"\.(?:ya?ml|toml|ini|cfg|conf|gin)$|config\w{0,40}\.json$|hostfile$"), "config"),
    (re.compile(r"\.(?:jsonl|parquet|tar|bin|idx|npy|npz|h5|hdf5|arrow|tfrecord|csv|tsv|txt|jpe?g|png|mp4|wav|flac"
            r"|zst)$"
                r"|(?:^|/)data(?:sets?)?/"), "data"),
    (re.compile(r"\.(?:so(?:\.\d+)*|sif|sqsh|whl|cu|h)$|/bin/\w+$"), "environment"),
)


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """A pattern for each category; the name of the group that matched is the weight. Made when first needed."""
    return tuple(
        (category, re.compile("|".join(
            rf"(?P<w{weight}>(?<![A-Za-z0-9])(?:{words})s?(?![A-Za-z]))" for weight, words in rows), re.IGNORECASE))
        for category, rows in _WORDS.items())


@lru_cache(maxsize=512)
def weigh_words(text: str) -> Mapping[str, float]:
    """Category → the weight of the different words of a text that speak for it; those without any are left out."""
    text = text[:MAX_TEXT]
    said = _PATH.sub(" ", text)
    weights: dict[str, float] = {}
    for category, pattern in _patterns():
        heard = {match[0].lower(): int((match.lastgroup or "w0")[1:]) for match in pattern.finditer(said)}
        if heard:
            weights[category] = float(sum(heard.values()))
    for path in _PATH.findall(text)[:8]:
        kind = next((category for form, category in _KINDS if form.search(path)), None)
        if kind is not None:
            weights[kind] = max(weights.get(kind, 0.0) + PATH_WEIGHT / 2, PATH_WEIGHT)
    return weights
