"""`oubli audit`: compare an export with a state of the model that is in the log, and with a fit made afresh."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeVar

import typer

from oubli.app.cli.console import Bars, tell
from oubli.app.cli.options import LOCAL, Force, ServerUrl, require_new
from oubli.app.cli.proofs import PolicyFile, checking, log_line, policy_in, proof_cli
from oubli.app.cli.remote import asking
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.app.cli.audit_fits import Samples
    from oubli.client import Client
    from oubli.verifier import CheckedPrediction, CheckedState, Policy

_ATTEMPTS = 5  # of a download during which nothing may change

Learned = TypeVar("Learned")


def audit(
    export: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="Samples: pages of GET /samples?openings=true, one a line.")
    ],
    *,
    state: Annotated[Path, typer.Option(metavar="FILE", help="State: answer of GET /model/states/INDEX.")],
    policy: PolicyFile,
    receipts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Receipts of predictions: an object with `instances` and `answer` on each line."
        ),
    ] = None,
    trees: Annotated[
        int | None,
        typer.Option(
            metavar="K", min=1, help="For a forest: grow and compare only this number of trees, drawn at random."
        ),
    ] = None,
) -> None:
    """Check that the model equals a fit on the export. Exit code 0: it does; 1: it does not; 2: not checked.

    `oubli proof fetch` downloads EXPORT and the state. For a kind that is not exact only the set of samples is checked.
    """
    from oubli.app.cli.audit_fits import check_answer, check_model, fit
    from oubli.app.ledger.downloads import read_lines, read_object
    from oubli.verifier import check_state

    with checking(), Bars() as progress:
        trusted = policy_in(policy)
        checked = check_state(read_object(state), trusted)
        if trees is not None:
            if receipts is not None:
                raise StartError("predictions are checked with all trees: leave out --trees, or --receipts")
            _audit_trees(export, checked, trees, progress)
            return
        asked = [] if receipts is None else _receipts_of(read_lines(receipts), checked, trusted)
        tell_fit = partial(progress, "fitting a model to compare with")
        learn = partial(fit, checked=checked, progress=tell_fit) if checked.is_exact else None
        samples, model = check_samples(export, checked, learn)
        if model is not None:
            check_model(model, checked)
            for one in asked:
                check_answer(model, one)
    _tell_set(checked, samples)
    if model is None:
        tell("Proved: the samples have the root in the log. Not proved: that the model was trained on them.")
        return
    typer.echo(f"digest {checked.digest}: equals that of a fit on these samples")
    if receipts is not None:
        typer.echo(f"{len(asked)} predictions: they come from this model")
    tell(
        "Proved: at this version the model equalled a fit on exactly these samples. Not proved: that the server keeps "
        "no copy of other samples, and that it has answered with this model, except for the predictions whose receipts "
        "were checked."
    )


def _audit_trees(export: Path, checked: CheckedState, n: int, progress: Bars) -> None:
    """Audit some trees of a forest."""
    from oubli.app.cli.audit_fits import draw, grow
    from oubli.verifier import check_trees

    drawn = draw(checked, n)
    learn = partial(grow, checked=checked, drawn=drawn, progress=partial(progress, "growing trees to compare with"))
    samples, some = check_samples(export, checked, learn)
    if some is not None:
        check_trees(checked, some.header, drawn.n_trees, some.digests)
    _tell_set(checked, samples)
    typer.echo(f"digest {checked.digest}: matches the digests of {drawn.n_trees} trees")
    typer.echo(f"trees {', '.join(map(str, drawn.trees))}, drawn at random: equal those of a fit on these samples")
    tell(
        "Proved: at this version the drawn trees equalled those of a fit on exactly these samples. Not proved: the "
        "same for the other trees, that the server keeps no copy of other samples, and that it has answered with this "
        "model."
    )


def _tell_set(checked: CheckedState, samples: Samples) -> None:
    entry, log = checked.entry, checked.checkpoint
    typer.echo(log_line(log, checked.cosigned))
    typer.echo(f"version {checked.model_version}, {entry['at']}: {entry['kind']}, {entry['guarantee']}")
    typer.echo(f"set root {checked.set_root}: that of the {len(samples):,} samples in the export")


def samples_of(pages: Iterator[Any], checked: CheckedState) -> Samples:
    """Return the samples of an export that models learn from.

    Raises
    ------
    FailedError
        When it is of another version than the state.
    UncheckableError
        When it is no export.
    """
    from oubli.verifier import FailedError, UncheckableError

    found: Samples = []
    is_last = False
    for page in pages:
        if not isinstance(page, dict) or not isinstance(page.get("samples"), list):
            raise UncheckableError("the export must hold pages of GET /samples?openings=true, one a line")
        if page.get("model_version") != checked.model_version:
            raise FailedError(
                "version", f"the export is of version {page.get('model_version')}, the state of {checked.model_version}"
            )
        found += [one for one in page["samples"] if one.get("restricted_at") is None]
        is_last = page.get("next") is None
    if not is_last:
        raise UncheckableError("the export ends before its last page: download it again")
    return found


def check_samples(
    export: Path, checked: CheckedState, learn: Callable[[Samples], Learned] | None
) -> tuple[Samples, Learned | None]:
    """Check that the samples in an export are those that a state has the root of; return them, and what `learn` does.

    The root is made in a thread of its own while the kernels of `learn` run. It fits the samples, or some trees.

    Raises
    ------
    FailedError
        When they are not.
    UncheckableError
        When the export is none, or its samples cannot be fitted.
    """
    from oubli.app.cli.audit_fits import set_root
    from oubli.app.ledger.downloads import read_lines
    from oubli.app.service.memory import without_collector

    # The collector would look through all samples again and again.
    with without_collector(), ThreadPoolExecutor(1) as threads:
        samples = samples_of(read_lines(export), checked)
        root = threads.submit(set_root, samples, checked.positions_key)
        learned, failure = None, None
        if learn is not None:
            try:
                learned = learn(samples)
            except Exception as error:
                failure = error
        _check_root(root.result(), samples, checked)
    if failure is not None:
        raise failure
    return samples, learned


def _check_root(root: bytes, samples: Samples, checked: CheckedState) -> None:
    from oubli.verifier import FailedError

    if root.hex() != checked.set_root or len(samples) != checked.entry.get("n_samples"):
        raise FailedError("set-root", "the samples in the export are others than those that the log has the root of")


def _receipts_of(lines: Iterator[Any], checked: CheckedState, policy: Policy) -> Sequence[CheckedPrediction]:
    """Return the predictions of a version; those of other versions are counted in a message and skipped."""
    from oubli.verifier import FailedError, UncheckableError, check_prediction

    if not checked.is_exact:
        raise UncheckableError("predictions can be checked of exact kinds only: leave out --receipts")
    found = [check_prediction(one if isinstance(one, dict) else {}, policy) for one in lines]
    ours = [one for one in found if one.model_version == checked.model_version]
    if not ours:
        raise UncheckableError(f"no prediction is of version {checked.model_version}: audit the version that they name")
    if any(one.set_root != checked.set_root for one in ours):
        raise FailedError("prediction", "a prediction was signed with another root over the samples than the log has")
    if len(found) > len(ours):
        tell(f"{len(found) - len(ours)} predictions are of other versions: they are not compared with a model.")
    return ours


@proof_cli.command()
def fetch(
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="Where to write the samples, one page a line.")],
    *,
    state: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the state.")],
    url: ServerUrl = LOCAL,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with a key that has the scopes 'read' and 'audit'.")
    ] = None,
    force: Force = False,
) -> None:
    """Download a state of the model with all samples and their openings, for `oubli audit`.

    The export contains every sample: keep it as safe as the data, and erase it after the audit.
    """
    for path in (export, state):
        require_new(path, force)
    with asking(url, api_key_file) as client:
        for _ in range(_ATTEMPTS):
            try:
                n_samples = _download(client, export, state)
            except OSError as error:
                raise StartError(f"{export} or {state} cannot be written: {error.strerror}") from None
            if n_samples is not None:
                tell(f"Wrote {n_samples} samples to {export}, and the state of that version to {state}.")
                return
    raise StartError("the model has changed during each download: try again while nothing is added and deleted")


def _download(client: Client, export: Path, state: Path) -> int | None:
    """Download a state and its samples; return how many, None when something has changed during the download."""
    import orjson

    from oubli.client.operations.requests import object_of, posting, reading

    def ask(request: Any) -> dict[str, Any]:
        return object_of(client.transport.run(client.session.ask(request)))

    entry, n_samples = ask(posting("/model/states")), 0
    path = f"/model/states/{entry['index']}"
    # Before the samples: the digests of trees are there only while the model is of this version.
    answer = ask(reading(path, trees="true"))
    cursor: str | None = None
    with _written(export) as file:
        while True:
            page = ask(reading("/samples", openings="true", cursor=cursor))
            if page.get("model_version") != entry["model_version"]:
                return None
            n_samples += len(page["samples"])
            file.write(orjson.dumps(page) + b"\n")
            cursor = page.get("next")
            if cursor is None:
                break
    if ask(reading(path))["digest"] is None and entry["digest_hash"] is not None:
        return None  # an erasure was finished during the download
    with _written(state) as file:
        file.write(orjson.dumps(answer) + b"\n")
    return n_samples


def _written(path: Path) -> BinaryIO:
    """Open a file that only its owner may read."""
    return open(path, "wb", opener=partial(os.open, mode=0o600))
