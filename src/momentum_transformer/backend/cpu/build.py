"""Compile the native kernels: one shared library for all instruction sets, without headers of Python or PyTorch.

`python -m momentum_transformer.backend.cpu.build` rebuilds it in place; `pip install` does the same.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ...errors import UserError

SOURCES = Path(__file__).parent / "native"
LIBRARY = "_native.so"
SEAL = "_native.sha256"  # its checksum
FLAGS = ["-std=c++17", "-O3", "-falign-loops=64", "-fPIC", "-Wall"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
REALS = ("float", "double")
VARIANTS = {
    "generic": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"],
}


def digest() -> int:
    """A checksum of sources and flags, compiled into the library: one built from other sources is not used."""
    text = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir())) + repr((FLAGS, VARIANTS)).encode()
    return zlib.crc32(text)


class BuildError(UserError):
    """No compiler, or one that failed; the message says which."""


def compiler() -> list[str]:
    """The C++ compiler of $CXX, or the first one found."""
    named = shlex.split(os.environ.get("CXX", ""))
    for candidate in [named] if named else [["g++"], ["clang++"], ["c++"]]:
        if shutil.which(candidate[0]):
            return candidate
    raise BuildError("no C++ compiler found (looked for $CXX, g++, clang++, c++)")


def build(directory: Path, *, extra: tuple[str, ...] = (), only: str | None = None) -> Path:
    """Build into `directory`, atomically, and return the path; `only` builds one of VARIANTS."""
    command = compiler()
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    names = [only] if only else list(VARIANTS) if x86 else ["generic"]
    with tempfile.TemporaryDirectory() as scratch:

        def job(source: str, name: str, *flags: str) -> list[str]:
            return [*command, *FLAGS, *flags, *extra, "-c", str(SOURCES / source), "-o", f"{scratch}/{name}.o"]

        jobs = [
            job("kernel.cpp", f"{name}_{real}", *VARIANTS[name], f"-DVARIANT={name}", f"-DREAL={real}")
            for name in names
            for real in REALS
        ]
        jobs.append(job("dispatch.cpp", "dispatch", f"-DDIGEST={digest()}u", *(["-DWITH_X86"] if x86 else [])))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, jobs))
        objects = [job[-1] for job in jobs]
        partial = directory / f"{LIBRARY}.{os.getpid()}"
        # GOMP_parallel is resolved when the library is loaded, from the OpenMP runtime that PyTorch brings
        unresolved = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        _run([*command, *extra, "-shared", "-pthread", *unresolved, *objects, "-o", str(partial)])
        seal = directory / f"{SEAL}.{os.getpid()}"
        seal.write_bytes(_sha256(partial).encode())
        (directory / SEAL).unlink(missing_ok=True)  # while only one of the two is new, the library counts as damaged
        partial.replace(directory / LIBRARY)
        seal.replace(directory / SEAL)
    return directory / LIBRARY


def is_whole(library: Path) -> bool:
    """Whether a library is what was built: its checksum lies beside it. A damaged one can crash the process."""
    seal = library.with_name(SEAL)
    return seal.is_file() and seal.read_bytes() == _sha256(library).encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        reason = next((line for line in lines if "error" in line), lines[0])
        raise BuildError(f"{command[0]} failed (it must be GCC 12 or newer, or a Clang of its age): {reason}")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build(Path(__file__).parent)}\n")
    except BuildError as error:
        sys.exit(str(error))
