"""Where an adapter takes hold of a trainer."""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

from ._report import Report


class HookError(RuntimeError):
    """The trainer is not there, or has changed where the adapter takes hold of it."""


def find_hook(
    trainer: str, path: str, parameters: Sequence[str], written_for: str, tested: Sequence[str] = ()
) -> Tuple[Any, str]:
    """Returns the object that holds a hook, and the hook's name, for the path
    "module:function" or "module:Class.method".

    Raises HookError if the hook is gone or lacks one of the parameters, unless it takes *args or **kwargs, and warns if
    another version than that of written_for and those that were tested too is installed.
    """
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    error = f"reweight's adapter for {trainer} was written for {written_for} and its {names}({', '.join(parameters)})"
    owner: Any = None
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name == package:
            raise HookError(f"{error}, but {trainer} is not installed") from e
        if e.name is None or not (module + ".").startswith(e.name + "."):
            raise  # something else that the trainer needs
        raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no module {e.name}") from e
    for name in names.split("."):
        owner, target = target, getattr(target, name, None)
        if target is None:
            raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no {name} in {owner.__name__}")
    found = inspect.signature(target)
    kinds = {p.kind for p in found.parameters.values()}
    missing = [p for p in parameters if p not in found.parameters]
    if missing and kinds.isdisjoint((inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)):
        raise HookError(f"{error}, but in {trainer} {version_of(package)} it is {name}{found}: no {', '.join(missing)}")
    version = version_of(package)
    if version not in (*re.findall(r"\d[\w.]*", written_for), *tested, _UNKNOWN):
        checked = trainer.lower() if trainer in ("TRL", "verl", "OpenRLHF") else ""
        more = f"; python -m reweight check-trainer {checked} compares its losses with float64" if checked else ""
        warnings.warn(f"reweight's adapter for {trainer} was tested with {written_for}, not with {trainer} {version}{more}")
    return owner, name


def never_called(trainer: Any, owner: Any, name: str) -> HookError:
    """Returns the error of a trainer that is about to learn from batches without the credit, because the method name of
    owner, which the adapter has taken hold of, was not called: with the reason, where the class of the trainer tells it."""
    kind = type(trainer)
    classes = kind.__mro__[: kind.__mro__.index(owner)] if owner in kind.__mro__ else ()
    shadows = [f"{c.__module__}.{c.__qualname__}" for c in classes if name in vars(c)]
    if shadows:
        why = f"{' and '.join(shadows)} has a {name} of its own, which does not call that of {owner.__name__}"
    elif owner not in kind.__mro__:
        why = f"it is no {owner.__name__}, to which reweight gives the credit"
    elif name in vars(trainer):
        why = f"the object has a {name} of its own"
    elif not hasattr(getattr(owner, name), "_reweight_original") and owner.__module__.partition(".")[0] != "reweight":
        why = f"{owner.__name__}.{name} was replaced after reweight had been installed"
    else:
        why = f"{owner.__name__}.{name} was never called"
    return HookError(f"{kind.__module__}.{kind.__qualname__} is about to learn without the credit: {why}")


def check_calls(trainer: Any, method: str, owner: Any, name: str) -> None:
    """Has a method of the trainer raise HookError at its end if the trainer is not _reweight_credited then, which the
    method name of owner makes it."""
    call = getattr(trainer, method)

    @functools.wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        made = call(*args, **options)
        if not getattr(trainer, "_reweight_credited", False):
            raise never_called(trainer, owner, name)
        return made

    setattr(trainer, method, checked)


def when_imported(module: str, act: Callable[[], None]) -> None:
    """Calls act once the module has been imported, which may be now. Where a trainer starts
    processes of its own, an adapter is installed in each of them, also in those that must
    not import the trainer's driver, or not before they have been given a GPU."""
    package, _, rest = module.partition(".")
    if package in sys.modules:
        roots = list(getattr(sys.modules[package], "__path__", []))
    else:
        spec = importlib.util.find_spec(package)
        roots = list(spec.submodule_search_locations or []) if spec else []
    later = any(Path(root, *rest.split(".")).with_suffix(".py").is_file() for root in roots)
    if module not in sys.modules and later:
        sys.meta_path.insert(0, _WhenImported(module, act))
    else:
        act()  # which imports the module, or says that it is gone


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds one module as others find it, and acts after it has been executed. Who asks only where it is changes nothing."""

    def __init__(self, module: str, act: Callable[[], None]) -> None:
        self.module, self.act, self.asks = module, act, False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module or self.asks:
            return None
        self.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                sys.meta_path.remove(self)
                execute(module)
                self.act()

            setattr(spec.loader, "exec_module", exec_module)
        return spec


_UNKNOWN = "of unknown version"


def version_of(package: str) -> str:
    """Returns the version of an installed package, or "of unknown version"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", _UNKNOWN))


def replace(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], report: Optional[Report] = None
) -> None:
    """Sets owner.name to make(original), which reports to report. If an earlier call did, that is undone first, and its
    report says nothing when the process ends."""
    earlier = getattr(owner, name)
    original = getattr(earlier, "_reweight_original", earlier)
    if getattr(earlier, "_reweight_report", None) is not None:
        atexit.unregister(earlier._reweight_report.end)
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, "_reweight_original", original)
    setattr(wrapper, "_reweight_report", report)
    setattr(owner, name, wrapper)
