"""Make the project's virtual environment from a lock file.

Runs under any Python 3, so that an unsupported one can be told so.

usage: python3 bootstrap.py VENV LOCK
"""

import os
import subprocess
import sys
import sysconfig
from typing import NoReturn

SUPPORTED = ((3, 11), (3, 12))


def fail(sentence: str) -> NoReturn:
    sys.exit("error: " + sentence)


def check_interpreter() -> None:
    if sys.version_info[:2] not in SUPPORTED:
        names = " or ".join("%d.%d" % v for v in SUPPORTED)
        found = "%d.%d (%s)" % (sys.version_info[0], sys.version_info[1], sys.executable)
        fail("Python: found %s; allowed: %s. Name another one with `make PYTHON=/path/to/python3.11`." % (found, names))
    name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
    import ctypes

    try:
        ctypes.CDLL(name)
    except OSError:
        places = [sysconfig.get_config_var("LIBDIR"), os.path.join(sys.base_prefix, "lib")]
        if not any(place and os.path.exists(os.path.join(place, name)) for place in places):
            package = name[: name.index(".so")]
            fail(
                "%s: not found; Triton's Python backend needs it. Install it (Debian, Ubuntu: `apt-get install %s`) "
                "or use a Python that was built with --enable-shared." % (name, package)
            )


def pip_of_this_python() -> str:
    try:
        import pip
    except ImportError:
        fail("pip: not found for %s; install it (Debian, Ubuntu: `apt-get install python3-pip`)." % sys.executable)
    return os.path.dirname(pip.__file__)


def make_venv(venv: str) -> str:
    # Debian splits ensurepip off, so the environment is made without pip and gets it from this interpreter's own.
    import venv as venv_module

    python = os.path.join(venv, "bin", "python")
    if not os.path.exists(python):
        venv_module.EnvBuilder(with_pip=False, symlinks=True).create(venv)
    if subprocess.call([python, "-c", "import pip"], stderr=subprocess.DEVNULL) != 0:
        subprocess.check_call([python, pip_of_this_python(), "install", "-qq", "pip>=24"])
    return python


def main(venv: str, lock: str) -> None:
    check_interpreter()
    python = make_venv(venv)
    install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    print("installing %s into %s (about a minute the first time)" % (lock, venv), flush=True)
    try:
        subprocess.check_call([*install, "--require-hashes", "-r", lock])
        subprocess.check_call([*install, "--no-deps", "-e", "."])
    except subprocess.CalledProcessError as error:
        fail("pip could not install %s (exit status %d); the lines above say why." % (lock, error.returncode))


if __name__ == "__main__":
    main(*sys.argv[1:])
