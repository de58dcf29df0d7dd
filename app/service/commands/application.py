"""Commands change a model one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oubli.app.service.bodies import delete
from oubli.app.service.commands.additions import AddSamples
from oubli.app.service.commands.command import Command
from oubli.app.service.commands.deletions import DeleteSamples

if TYPE_CHECKING:
    from oubli.core.model import Model


def apply_all(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model by commands that touch nothing in common, in their order.

    Of an exact model neighbouring additions are made as one, and so are neighbouring deletions: the result is the
    same. Of others each is made by itself.
    """
    is_exact = model.guarantee == "exact"
    start = 0
    while start < len(commands):
        first, end = commands[start], start + 1
        while is_exact and first.is_merged and end < len(commands) and type(commands[end]) is type(first):
            end += 1
        first.apply(model, commands[start:end])
        start = end


def apply_held(model: Model, commands: Sequence[Command[Any]]) -> None:
    """Change a model that was fitted on the samples of another by commands that were planned for that one.

    A sliding window may hold fewer of them: what it does not hold is neither deleted nor replaced.
    """
    if model.guarantee == "exact":  # has no window
        apply_all(model, commands)
        return
    store = model.samples_
    for command in commands:
        gone = [name for name in command.gone if store.holding(name) is not None]
        if isinstance(command, DeleteSamples):
            if gone:
                delete(model, gone)
        elif gone or command.is_restriction or isinstance(command, AddSamples):
            command.apply(model, [command])
