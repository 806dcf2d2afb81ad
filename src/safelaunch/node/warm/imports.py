"""What a script imports first, read from its text: for node/warm/parked.py, before whose text this one stands.

Only the imports at the script's top count, up to the first statement that does anything else, in their order, and of
installed packages alone. Standard library, Python 3.8.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Set, Tuple

MOST_FILES = 200      # of the user's own, whose imports are read
MOST_BYTES = 4 << 20
# What an optimizer's constructor imports: half of what a DDP training imports at all (torch 2.4 to 2.13).
LATER = {"torch": "torch._dynamo"}
# ... where nothing of the user's can still set what that import reads.
SETS = r"TORCHDYNAMO|TORCHINDUCTOR|TORCH_(LOGS|COMPILE|TRACE)|putenv" \
    r"|environ\s*(\[\s*[^'\"\s][^]]*\]\s*=[^=]|\.\s*update)"


class NotAsCold(BaseException):
    """This process cannot stand for a cold start; why, in words."""


class OwnNames:
    """Which modules are the user's own: those beside the script, and of what PYTHONPATH or a .pth adds."""

    def __init__(self, folders: List[str]) -> None:
        self.folders = folders
        self.own_files: Dict[str, Any] = {}    # of the user's own, that were read
        self.asked: Set[str] = set()           # top-level names that were looked for

    def is_own(self, name: str) -> bool:
        """Whether a module of this name may come from the user's own folders."""
        from importlib.machinery import PathFinder, all_suffixes

        for folder in self.folders:
            path = os.path.join(folder, name)
            if any(os.path.exists(path + suffix) for suffix in all_suffixes()) or os.path.exists(
                    os.path.join(path, "__init__.py")):
                return True
            if os.path.isdir(path):   # a namespace package: where no other one has this name
                spec = PathFinder.find_spec(name, [one for one in sys.path if one not in self.folders])
                if spec is None or spec.loader is None or spec.origin is None:
                    return True
        return False


class Reader:
    """The imports at the top of a script, and of the user's own modules that it imports, in their order."""

    def __init__(self, names: OwnNames) -> None:
        self.names = names
        self.wanted: List[Tuple[str, str]] = []   # module, and a name that is taken from it
        self.text = ""                            # of all of the user's own that can run
        self.is_whole = True                      # ... as far as its imports show

    def read(self, path: str) -> None:
        """Fill in all of it."""
        path = os.path.realpath(path)
        self._take_file(path)
        todo, done = [path], set()
        while todo:
            one = todo.pop()
            if one not in done:
                done.add(one)
                todo += self._own_imports(one)
            if len(done) > MOST_FILES:
                self.is_whole = False
                return

    def _tree(self, path: str) -> Any:
        import ast

        if os.path.getsize(path) > MOST_BYTES:
            raise NotAsCold("%s is large" % path)
        self.names.own_files[path] = stamp_of(path)
        with open(path, "rb") as file:
            source = file.read()
        return ast.parse(source), source.decode(errors="replace")

    def _own_imports(self, path: str) -> List[str]:
        import ast

        tree, text = self._tree(path)
        self.text += text
        tops = set()
        for one in ast.walk(tree):
            names = [alias.name for alias in one.names] if isinstance(one, ast.Import) else (
                [one.module or ""] if isinstance(one, ast.ImportFrom) and not one.level else [])
            tops |= {name.partition(".")[0] for name in names}
        found = []
        for top in tops:
            for folder in self.names.folders if self.names.is_own(top) else ():
                found += [os.path.realpath(place) for place in (os.path.join(folder, top + ".py"),)
                          if os.path.isfile(place)]
                for place, _, files in os.walk(os.path.join(folder, top)):
                    found += [os.path.realpath(os.path.join(place, name)) for name in files if name.endswith(".py")]
                    if len(found) > MOST_FILES:
                        break
        return found

    def _take_file(self, path: str) -> bool:
        if path in self.names.own_files:
            return True
        return all(self._take_statement(one) for one in self._tree(path)[0].body)

    def _take_statement(self, one: Any) -> bool:
        """Whether what follows may be imported as well: this statement does nothing but import, or define."""
        import ast

        if isinstance(one, ast.Import):
            return all(self._take_module(alias.name, "") for alias in one.names)
        if isinstance(one, ast.ImportFrom):   # of a package of the user's own
            return not one.level and all(self._take_module(one.module or "", alias.name) for alias in one.names)
        if isinstance(one, ast.Expr):
            return isinstance(one.value, ast.Constant)
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            outside = [one.args, *([one.returns] if one.returns else [])]
            return not one.decorator_list and not any(map(_calls, outside))
        if isinstance(one, ast.ClassDef):
            return not (one.decorator_list or one.keywords or any(map(_calls, one.bases))) and not any(
                isinstance(part, (ast.Import, ast.ImportFrom)) for part in one.body) and all(
                    map(self._take_statement, one.body))
        if isinstance(one, (ast.Assign, ast.AnnAssign)):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            return all(isinstance(name, ast.Name) for name in targets) and not _calls(one)
        return isinstance(one, ast.Pass)

    def _take_module(self, module: str, name: str) -> bool:
        top = module.partition(".")[0]
        if top == "__future__":
            return True
        if not self.names.is_own(top):
            self.wanted.append((module, name))
            return True
        for folder in self.names.folders:
            path = os.path.join(folder, module + ".py")
            if module == top and os.path.isfile(path) and not os.path.exists(os.path.join(folder, top)):
                return self._take_file(os.path.realpath(path))
        return False


def _calls(tree: Any) -> bool:
    import ast

    acts = (ast.Call, ast.Await, ast.NamedExpr, ast.Yield, ast.YieldFrom)
    return any(isinstance(one, acts) for one in ast.walk(tree))


class Watch:
    """A finder that finds nothing: it sees which names are looked for, and which of them the user's folders have."""

    def __init__(self, names: OwnNames) -> None:
        self.names, self.hit = names, ""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Nothing."""
        if path is None and name not in self.names.asked:
            self.names.asked.add(name)
            if self.names.is_own(name):
                self.hit = name
                raise ImportError(name)


def stamp_of(path: str) -> Optional[Tuple[int, int]]:
    """What changes with a file; None: there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def installed_folders() -> List[str]:
    """The folders of the standard library and of installed packages."""
    import site
    import sysconfig

    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    version = "python%d%d.zip" % sys.version_info[:2]
    found += [path for path in sys.path if os.path.basename(path) in (version, "dist-packages", "site-packages")
              or path.endswith("lib-dynload")]
    return sorted({os.path.realpath(path) for path in found if path} | {path for path in found if path})


def is_under(path: str, roots: List[str]) -> bool:
    """Whether a path, or what it leads to, lies in one of these folders."""
    real = os.path.realpath(path)
    return any(one == root or one.startswith(root + "/") for root in roots for one in (path, real))


