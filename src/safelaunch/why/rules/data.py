"""Data sets, samples and their loaders."""

from __future__ import annotations

from safelaunch.why.findings import Rule

_TORCH = "PyTorch, torch/utils/data"

RULES = (
    Rule(
        "data.loader_bus", "data",
        (b"out of shared memory", b"insufficient shared memory", b"unable to write to file </torch_",
         b"unable to open shared memory object", b"unable to allocate shared memory"),
        b"workers are out of shared memory|insufficient shared memory|unable to write to file </torch_|unable to "
        b"(?:open|allocate) shared memory", "cause", "node", 0.78, action="fix_environment",
        summary="a data loader worker died: /dev/shm is too small",
        explain="Workers hand their batches over in shared memory.",
        do="Larger /dev/shm (docker --shm-size, --ipc=host), or fewer workers.", source=_TORCH, order=4,
        sample="RuntimeError: DataLoader worker (pid 87) is killed by signal: Bus error. It is possible that "
               "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        counter_sample="shared memory: 64 GB",
    ),
    Rule(
        "data.loader_died", "data", (b"DataLoader worker (pid",),
        rb"DataLoader worker \(pid\(?s?\)?[^)]*\) (?:exited unexpectedly|is killed by signal: (?P<signal>[\w ]+))",
        "cause", "rank", 0.6, action="restart", summary="a data loader worker died ({signal})",
        explain="The worker itself crashed or was killed.",
        do="Set num_workers=0 to see its error; look for an OOM kill.", source=_TORCH, order=1,
        sample="RuntimeError: DataLoader worker (pid(s) 4242) exited unexpectedly",
        counter_sample="DataLoader worker (pid 4242) has begun",
    ),
    Rule(
        "data.loader_signal", "data", (b"encountered in worker",),
        b"ERROR: Unexpected (?P<what>bus error|segmentation fault|floating-point exception) encountered in worker",
        "cause", "rank", 0.6, action="fix_environment", summary="a data loader worker died: {what}",
        explain="The worker says so itself; the exception below names it. A bus error is most often a full /dev/shm.",
        source=_TORCH, order=5,
        sample="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
               "(shm).",
        counter_sample="no unexpected signal was encountered in worker 3",
    ),
    Rule(
        "data.collate", "data",
        (b"stack expects each tensor to be equal size", b"default_collate: batch must contain",
         b"each element in list of batch should be of equal size", b"Trying to resize storage that is not resizable"),
        b"stack expects each tensor to be equal size|default_collate: batch must contain|each element in list of "
        b"batch should be of equal size|Trying to resize storage", "cause", "job", 0.74, action="fix_user_code",
        summary="samples of different size in one batch", explain="The default collation cannot stack them.",
        do="Pad in a collate_fn of your own.", source=_TORCH, order=2,
        sample="RuntimeError: stack expects each tensor to be equal size, but got [3, 8] at entry 0 and [3, 9] at "
               "entry 1",
        counter_sample="each tensor is of equal size",
    ),
    Rule(
        "data.dataset_name", "config",
        (b"DatasetNotFoundError", b"Dataset scripts are no longer supported", b"BuilderConfig '", b"Unknown split"),
        rb"DatasetNotFoundError: (?P<why>.{0,200})|BuilderConfig '(?P<name>[^']*)' not found"
        rb"|Unknown split \"(?P<split>[^\"]*)\"", "cause", "job", 0.74,
        summary="there is no such data set: {why}{name}{split}", explain="A wrong name or configuration, or no access.",
        do="Correct the name; check access with huggingface-cli or tfds.",
        source="Hugging Face datasets; tensorflow_datasets", order=2,
        sample="ValueError: BuilderConfig 'en2' not found. Available: ['en']",
        counter_sample="BuilderConfig 'en' is in use",
    ),
    Rule(
        "data.empty", "data",
        (b"num_samples should be a positive integer", b"number of samples 0", b"Dataset is empty", b"dataset is empty",
         b"no samples found", b"No samples found", b"Found 0 files", b"Found no valid file"),
        b"num_samples should be a positive integer value, but got "
        b"num_samples=0|(?:Error|Exception).{0,300}?(?:[Dd]ataset is empty|[Nn]o samples found|Found 0 "
        b"files|Found no valid file)", "cause", "job", 0.74, action="fix_config", summary="the data set is empty",
        explain="A wrong path or split, or every sample was filtered out.", do="Check path and split.",
        source=_TORCH + "; torchvision", order=2,
        sample="ValueError: num_samples should be a positive integer value, but got num_samples=0",
        counter_sample="num_samples=80 is a positive integer value",
    ),
    Rule(
        "data.tfrecord", "data", (b"corrupted record at", b"truncated record at"),
        rb"(?:corrupted|truncated) record at (?P<offset>\d+)", "cause", "job", 0.78, action="fix_storage",
        summary="a TFRecord file is damaged", explain="Damaged or cut off while being written.",
        do="Fetch or write it again.", source="TensorFlow, record_reader.cc", order=2,
        sample="tensorflow.python.framework.errors_impl.DataLossError: truncated record at 81920",
        counter_sample="tensorflow: read 80 records without DataLossErrors, the last at 81920",
    ),
    Rule(
        "data.index_files", "data",
        (b"index file", b"cannot be found at the path prefix", b"Shard hash mismatch", b".idx", b"no document",
         b"at least one document"),
        rb"Could not find index file|\.idx and \.bin files|cannot be found at the path prefix|[Ss]hard hash "
        rb"mismatch|shard\.\d+\.mds|expect the dataset to have at least one",
        "cause", "job", 0.72, action="fix_config",
        summary="the data set's index or a shard is missing or does not fit",
        explain="Preprocessing did not end, or the prefix is wrong.",
        source="Megatron-LM; MosaicML streaming", order=3,
        sample="AssertionError: Could not find index file /data/corpus_text_document.idx",
        counter_sample="reading index file /data/corpus_text_document.idx",
    ),
    Rule(
        "data.tables", "data",
        (b"CastError", b"deserialize thrift", b"allow_pickle=False", b"There is no item named", b"ArrayRecord"),
        rb"CastError: Couldn't cast|Couldn't deserialize thrift|Cannot load file containing pickled data|There "
        rb"is no item named '?|ArrayRecord file \S+: |ArrayRecord.{0,100}?(?:truncated|[Cc]orrupt)",
        "cause", "job", 0.72,
        summary="a file of the data set cannot be read",
        explain="It is damaged, cut short or of another form than its loader expects.",
        do="Make the file again from its source.",
        source="datasets; Arrow; numpy", order=3,
        sample="OSError: Couldn't deserialize thrift: TProtocolException: Invalid data",
        counter_sample="CastError is raised for other columns",
    ),
    Rule(
        "data.mmap_shm", "data",
        (b"unable to mmap",),
        rb"unable to mmap \d+ bytes from file <?/?torch_",
        "cause", "node", 0.72, action="fix_environment",
        summary="shared memory for the data loader is full",
        explain="Too many batches wait in /dev/shm, or too many maps are open.",
        do="Larger /dev/shm, fewer workers; set_sharing_strategy.",
        source="PyTorch, MapAllocator", order=5,
        sample="OSError: unable to mmap 8192 bytes from file </torch_811_22>: Cannot allocate memory (12)",
        counter_sample="mmap 8192 bytes from file x.bin",
    ),
)
