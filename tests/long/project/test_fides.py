"""The connector for Fides is what Fides' own schema asks for; its package is installed in a venv of its own."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.serving import ROOT

# Fides needs 150 packages in exact versions, not all of which can be installed; these are what its schemas work with.
# The newest version for Python 3.11.
PACKAGES = (
    "ethyca-fides==2.78.2", "fideslang==3.1.4a1", "fideslog==1.2.15", "SQLAlchemy==1.4.54", "SQLAlchemy-Utils==0.38.3",
    "sqlalchemy-bigquery==1.17.3", "sqlalchemy-citext==1.8.0", "anyascii==0.3.3", "bcrypt==5.0.0", "bidict==0.24.1",
    "dnspython==2.9.2", "email-validator==2.4.0", "google-auth==2.62.2", "loguru==0.7.3", "pymongo==4.20.0",
    "multidimensional-urlencode==0.0.4", "pydash==8.1.0", "toml==0.10.2", "validators==0.36.0",
)  # fmt: skip


def test_the_connector_is_sound_by_the_schema_of_fides(tmp_path):
    if sys.version_info >= (3, 13):
        pytest.skip("these versions are for older ones of Python")
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True, timeout=300)
    python = tmp_path / "bin" / "python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], capture_output=True, text=True, timeout=900
    )
    if installed.returncode:
        pytest.skip("the packages of Fides cannot be installed here")
    # What both need, pydantic among it, is that of this environment.
    (folder,) = tmp_path.glob("lib/python*/site-packages")
    (folder / "tests.pth").write_text(sysconfig.get_path("purelib"))
    files = [ROOT / "examples" / "fides" / name for name in ("oubli_config.yml", "oubli_dataset.yml")]
    script = Path(__file__).with_name("fides_schema.py")
    done = subprocess.run([python, "-W", "ignore", script, *files], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "sound", done.stderr[-2000:]
