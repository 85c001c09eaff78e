"""The program reweight, which some functions run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Optional, Sequence, Union

from ._errors import InputError

PROGRAM = "reweight"
"""Its name. In its place, functions take the path of another program."""


def find() -> Optional[str]:
    """Returns the path of the program that came with this package, or else of that on the PATH,
    or None."""
    folders = [
        str(Path(__file__).parents[1] / "bin"),  # of pip install --target
        sysconfig.get_path("scripts"),
        sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")),
    ]
    return shutil.which(PROGRAM, path=os.pathsep.join(folders)) or shutil.which(PROGRAM)


class FileError(InputError):
    """Says in one line what is wrong with a file of rollouts, a flag or a partial: the line
    that the command prints, which names the file and where it has one the line and the field.
    """

    def __init__(self, argument: str, problem: str, index: None = None) -> None:
        super().__init__(argument, problem, index)

    def __str__(self) -> str:
        return self.problem


class CommandError(RuntimeError):
    """Says in one line why the command did not run to its end, when its input is not to blame."""


def run(
    program: str, command: Sequence[str], argument: str, *arguments: str, folder: Optional[Union[str, Path]] = None
) -> bytes:
    """Runs a command of the program in the folder, and returns what it prints. argument is
    the parameter of the caller that the command's input is from."""
    try:
        line = [program if program != PROGRAM else find() or PROGRAM, *command, *arguments]
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, cwd=folder)
    except OSError as error:
        raise CommandError(f"{program} does not run on {os.uname().nodename}: {error.strerror}") from None
    except ValueError as error:  # a NUL, or a letter that names have none of in this locale
        raise InputError(argument, f"or a flag cannot be an argument of a command: {error}") from None
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip().splitlines() or ["no error was printed"]
    name, problem = " ".join([Path(PROGRAM).name, *command]), said[-1]
    if problem.startswith(name + ": "):
        problem = problem[len(name) + 2 :]
    if done.returncode == 2:
        raise FileError(argument, problem)
    how = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
    raise CommandError(f"{name} ended with {how}: {problem}")
