"""Makes the environment that runs transformers: python tests/parity/reference_env.py FOLDER

Installs requirements/parity.txt there, unless that was done already.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "parity.txt"


def main(folder: Path) -> int:
    """pip's exit status."""
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    stamp = folder / "requirements.sha256"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return 0
    python = folder / "bin" / "python"
    if not python.exists():
        venv.EnvBuilder(symlinks=True).create(folder)
    print(f"installing {REQUIREMENTS.name} into {folder} (torch is large: minutes the first time)", flush=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "-r", str(REQUIREMENTS)]
    status = subprocess.call(pip)
    if status == 0:
        stamp.write_text(wanted, encoding="utf-8")
    return status


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/parity/reference_env.py FOLDER")
    sys.exit(main(Path(sys.argv[1])))
