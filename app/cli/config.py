"""Settings as a TOML file that says where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oubli.app.settings import GROUPS, MODEL_PARAMETERS, TABLES, Settings


def settings_lines(settings: Settings) -> Iterator[str]:
    """Yield the lines of a settings file with the settings in force.

    What is not set is a comment. A parameter of the model that is not set has the default of its kind; parameters that
    the kind does not have are left out.
    """
    sources = settings.sources()
    parameters = {one.name: one for one in TABLES[settings.model]}
    for group, names in GROUPS.items():
        lines = []
        for name in names:
            if name == "config" or (name in MODEL_PARAMETERS and name not in parameters):
                continue
            value = settings.shown_journal if name == "journal" else getattr(settings, name)
            if value is None and name in parameters:
                value = parameters[name].default
                value = parameters[name].none_word if value is None else value
            set_here = "" if value is not None else "# "
            shown = "" if value is None else _toml(value)
            lines.append(f"{set_here}{name} = {shown}".rstrip().ljust(40) + f"  # {sources[name]}")
        if lines:
            yield f"# {group}"
            yield from lines
            yield ""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
