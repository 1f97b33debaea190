"""Compile the native kernels on the way; where no compiler is found, the package works without them."""

import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "src"))

from momentum_transformer.backend.cpu.build import LIBRARY, BuildError, build  # noqa: E402 (after the path is set)

KERNELS = Path("momentum_transformer", "backend", "cpu")


class BuildWithKernels(build_py):
    def run(self) -> None:
        super().run()
        target = ROOT / "src" / KERNELS if self.editable_mode else Path(self.build_lib) / KERNELS
        target.mkdir(parents=True, exist_ok=True)
        try:
            build(target)
        except BuildError as error:
            sys.stderr.write(f"momentum-transformer: no native kernels, PyTorch will do their work: {error}\n")


class WheelForAnyPython(bdist_wheel):
    """The library knows nothing of Python, so that one wheel a platform serves every version of it."""

    def get_tag(self) -> tuple[str, str, str]:
        compiled = (Path(self.get_finalized_command("build_py").build_lib) / KERNELS / LIBRARY).exists()
        return "py3", "none", super().get_tag()[2] if compiled else "any"


class Platform(Distribution):
    def has_ext_modules(self) -> bool:  # what is installed depends on the machine
        return True


setup(distclass=Platform, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelForAnyPython})
