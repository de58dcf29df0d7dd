"""Check the connector in `examples/fides` by the schema in Fides' own package; run by a Python that has it.

    python fides_schema.py CONFIG DATASET

Fides imports clients of all databases that it knows. Those that are not installed are replaced by mocks: what is
checked are the classes of Fides and of its language that describe connectors and data sets.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class _Mocked(types.ModuleType):
    """A module that has whatever is asked of it."""

    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = MagicMock(name=name)
        setattr(self, name, found)
        return found


class _Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules that are not installed, once they are known."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Mocked(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def import_fides() -> None:
    """Import Fides, with a mock for each module that it misses; others may do without what is not there."""
    missing = _Missing()
    sys.meta_path.append(missing)
    while True:
        try:
            importlib.import_module("fides.api.schemas.saas.async_polling_configuration")
            return
        except ModuleNotFoundError as error:
            name = str(error.name).partition(".")[0]
            if name in missing.names or name in ("fides", "fideslang"):
                raise
            missing.names.add(name)
            for module in [one for one in sys.modules if one.partition(".")[0] in ("fides", name)]:
                del sys.modules[module]


def main() -> None:
    """Check, and say what was found."""
    import yaml

    import_fides()
    from fides.api.schemas.saas.async_polling_configuration import AsyncPollingConfiguration
    from fides.api.schemas.saas.saas_config import SaaSConfig
    from fideslang.models import Dataset

    # The key is a placeholder until Fides makes a connector of it.
    texts = [Path(name).read_text().replace("<instance_fides_key>", "oubli_instance") for name in sys.argv[1:]]
    config = SaaSConfig(**yaml.safe_load(texts[0])["saas_config"])
    dataset = Dataset(**yaml.safe_load(texts[1])["dataset"][0])
    assert {one.name for one in config.endpoints} == {one.name for one in dataset.collections}
    for endpoint in config.endpoints:
        delete = endpoint.requests.delete
        if delete is not None and delete.async_config is not None:
            AsyncPollingConfiguration(**delete.async_config.configuration)
    actions = {name for one in config.endpoints for name in ("read", "delete") if getattr(one.requests, name)}
    assert actions == {"read", "delete"}
    wrong = {**yaml.safe_load(texts[0])["saas_config"], "endpoints": [{"name": "x", "requests": {"read": {}}}]}
    try:
        SaaSConfig(**wrong)
    except ValueError:
        sys.stdout.write("sound\n")
    else:
        raise AssertionError("the check is blind")


if __name__ == "__main__":
    main()
