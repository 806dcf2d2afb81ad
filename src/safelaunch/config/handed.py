"""What can be handed to a process through a bash script: the one table behind the config's check and the script's."""

from __future__ import annotations

# execve(2): one argument or variable holds at most 128 KiB (MAX_ARG_STRLEN), our few words around the value included.
MAX_VALUE_BYTES = 120_000
# Of a job script Slurm takes 4 MiB (slurm.conf(5), max_script_size), of which safelaunch's own part takes some.
SCRIPT_MAX_BYTES = (4 << 20) - (128 << 10)
# Every bash on the way to the training sets these itself or does not pass them on (each tried with bash 5.2).
BASHS_OWN = frozenset(
    ("_", "BASH", "BASHOPTS", "BASHPID", "BASH_ALIASES", "BASH_ARGC", "BASH_ARGV", "BASH_ARGV0", "BASH_CMDS",
     "BASH_COMMAND", "BASH_LINENO", "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "COMP_WORDBREAKS",
     "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "IFS", "LINENO", "OLDPWD",
     "OPTIND", "PPID", "PWD", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID"))


def unfit(value: str, most_bytes: int = MAX_VALUE_BYTES) -> str | None:
    """Why no process can be given this text, in words that follow "key: "; None = it can."""
    if "\0" in value:
        return "holds a NUL character, which no process can be given"
    try:
        size_bytes = len(value.encode())
    except UnicodeEncodeError:   # surrogates: bytes of a command line, variable or folder in another encoding
        return "holds bytes that are not UTF-8"
    if size_bytes > most_bytes:
        return (f"has {size_bytes} bytes, more than a process can be given ({most_bytes}); put it into a file, "
                "and name the file here")
    return None


def unfit_for_output(path: str) -> str | None:
    """Why Slurm cannot be told to write below this folder; None = it can. Source: sbatch(1), filename pattern."""
    if "\\" in path:
        return "holds a backslash, which Slurm takes for its own in the name of an output file"
    control = next((char for char in path if char < " " or char == "\x7f"), None)
    return None if control is None else f"holds the control character {control!r}, which no #SBATCH line can"
