"""Build the CPU image with another Python than that of the base image: `make image-python PYTHON=3.12`.

The locks are the same: they contain the hashes of the wheels for each Python. The interpreter comes from this machine,
because neither Debian's suite nor a package registry has it. With a registry of images, RLJOB_BASE_IMAGE is simpler.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import images
from tests.cluster.errors import ClusterError
from tests.cluster.paths import REPOSITORY

BUILD = REPOSITORY / "build" / "python"
LEFT_OUT = ("__pycache__", "test", "tests", "idlelib", "turtledemo", "tkinter", "site-packages", "*.a", "config-3*")
PROGRAM = "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"


def prefix_of(version: str) -> Path:
    """Return the folder of an installation of this version. Raises ClusterError if there is none."""
    places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    for place in filter(None, places):
        done = subprocess.run([str(place), "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=30)
        prefix, _, found = done.stdout.strip().rpartition(" ")
        if done.returncode == 0 and found == version:
            return Path(prefix)
    raise ClusterError(f"this machine has no Python {version}, neither on PATH nor from pyenv; install it")


def assemble(version: str) -> None:
    """Copy the installation into the context of the image."""
    prefix = prefix_of(version)
    shutil.rmtree(BUILD, ignore_errors=True)
    library = BUILD / "python" / "lib"
    ignored = shutil.ignore_patterns(*LEFT_OUT)
    shutil.copytree(prefix / "lib" / f"python{version}", library / f"python{version}", ignore=ignored)
    for shared in prefix.glob(f"lib/libpython{version}*.so*"):
        shutil.copy2(shared, library / shared.name)
    # The image compiles an extension.
    shutil.copytree(prefix / "include" / f"python{version}", BUILD / "python" / "include" / f"python{version}")
    programs = BUILD / "python" / "bin"
    programs.mkdir(parents=True)
    shutil.copy2(prefix / "bin" / f"python{version}", programs / f"python{version}")
    (programs / "python3").symlink_to(f"python{version}")


def main() -> int:
    """Build the image and print its tag."""
    parser = argparse.ArgumentParser(prog="scripts.other_python", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", help="such as 3.12")
    try:
        assemble(parser.parse_args().version)
        print(images.build(images.recipe_named("runtime-cpu-other-python")).tag)
    except ClusterError as error:
        print(f"other_python: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
