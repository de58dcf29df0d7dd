"""What the journal keeps of a mutation, as JSON; a class for each, beside the command that writes it.

    {"do": "add", "ids": [..], "rows": [[..]], "labels": [..], "subjects": [..] or null, "expires": [..] or null,
     "next_id": n, "at": t, "request": ".." or null, "retentions": {"subject": ms} or null, "nonces": base64}
                                          earlier versions have written none of the last four
    {"do": "delete", "ids": [..]}
    {"do": "replace", "id": .., "row": [..], "label": .., "subject": .. or null, "expires": .. or null, "nonce": base64}
                                          earlier versions have written no nonce
    {"do": "restrict", "subjects": [..], "at": t, "keep": true or false}
    {"do": "release", "subjects": [..]}
    {"do": "retain", "subjects": [..], "period": ms or null, "at": t}
    {"do": "fit", "kind": .., "parameters": {..}}

Cells and labels are those of the request, not their codes: they mean the same to a model from any snapshot. JSON's
shortest form of a number is read back as the same number. A start and a node that follows apply a body with `redo`.
"""

from dataclasses import MISSING, fields

import orjson

from oubli.app.service.commands.additions import AddBody
from oubli.app.service.commands.deletions import DeleteBody, ReplaceBody
from oubli.app.service.commands.restrictions import ReleaseBody, RestrictBody, RetainBody
from oubli.app.service.commands.swaps import FitBody

Body = AddBody | DeleteBody | ReplaceBody | RestrictBody | ReleaseBody | RetainBody | FitBody
_KINDS: dict[str, type[Body]] = {
    "add": AddBody,
    "delete": DeleteBody,
    "replace": ReplaceBody,
    "restrict": RestrictBody,
    "release": ReleaseBody,
    "retain": RetainBody,
    "fit": FitBody,
}


class UnknownBodyError(ValueError):
    """A body is none that this version writes: a newer version has written it."""


def decode(body: bytes) -> Body:
    """Return the body that a record holds.

    Raises
    ------
    UnknownBodyError
        When it is none that this version writes.
    """
    content = orjson.loads(body)
    kind = _KINDS.get(str(content.get("do", ""))) if isinstance(content, dict) else None
    if kind is None or not _required(kind) <= set(content) <= {field.name for field in fields(kind)}:
        raise UnknownBodyError("a body of another version")
    del content["do"]
    return kind(**content)


def _required(kind: type[Body]) -> set[str]:
    """Return the names that a body has since the first version."""
    return {field.name for field in fields(kind) if not field.init or field.default is MISSING}
