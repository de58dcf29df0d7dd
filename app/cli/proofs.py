"""`oubli proof`: checks of proofs of the log, with `oubli.verifier`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oubli.app.cli.console import complain, tell
from oubli.app.cli.options import FAILED
from oubli.app.errors import StartError

if TYPE_CHECKING:
    from oubli.verifier import Checkpoint, Policy


proof_cli = typer.Typer(name="proof", help="Check proofs of the log of erasures, offline.", no_args_is_help=True)

PolicyFile = Annotated[Path, typer.Option("--policy", metavar="FILE", help="Trusted keys (tlog-policy).")]


class NameKind(StrEnum):
    """What a name is."""

    IDS = "ids"
    SUBJECTS = "subjects"


@contextmanager
def checking() -> Iterator[None]:
    """Tell what the verifier says: exit 1 for what does not hold, 2 for what could not be checked."""
    from oubli.verifier import FailedError, UncheckableError

    try:
        yield
    except FailedError as error:
        complain(f"it does not hold: {error} (rule: {error.rule})")
        raise typer.Exit(FAILED) from None
    except UncheckableError as error:
        raise StartError(str(error)) from None


def read_text(path: Path) -> str:
    """Return the text in a file; raises `StartError`."""
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StartError(f"{path} is no text in UTF-8") from None


def policy_in(path: Path) -> Policy:
    """Return the policy in a file; raises `UncheckableError` or `StartError`."""
    from oubli.verifier import read_policy

    try:
        return read_policy(path.read_bytes())
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None


def log_line(log: Checkpoint, cosigned: Sequence[str]) -> str:
    """Return the line about the log of a proof: its size, and the witnesses that have cosigned it."""
    witnesses = f"cosigned by {', '.join(cosigned)}" if cosigned else "not cosigned"
    return f"log {log.origin}, {log.size} entries, {witnesses}"


def disclosure_line(mode: str | None, limits: str | None) -> str:
    """Return the line about the mode of disclosure in which samples were erased."""
    return "disclosure: not recorded by earlier versions" if mode is None else f"disclosure {mode}: {limits}"


def hex_in(text: str, what: str) -> bytes:
    """Return 32 bytes that are written in hexadecimal; raises `StartError`."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != 32:
        raise StartError(f"{what} must be 64 hexadecimal digits")
    return raw


@proof_cli.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Proof: answer of GET /erasures/ID/proof, GET /ledger/INDEX/proof or POST /samples/absence-proofs; or "
            "the receipt of a prediction: an object of `instances` and `answer`.",
        ),
    ],
    *,
    policy: PolicyFile,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Id or subject that must be erased or absent."),
    ] = None,
    opening: Annotated[
        str | None, typer.Option(metavar="HEX", help="Opening of that name, from `oubli proof opening`.")
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Earlier receipt: the log must agree with it.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(metavar="HEX", help="For a proof of absence: the trusted root of the set.")
    ] = None,
    positions_key: Annotated[
        str | None, typer.Option(metavar="HEX", help="For a proof of absence: the server's positions key.")
    ] = None,
) -> None:
    """Check a proof without its server. Exit code 0: it holds; 1: it does not; 2: it could not be checked."""
    from oubli.app.ledger.downloads import read_object
    from oubli.verifier import check_proof, is_absence_proof
    from oubli.verifier.proofs import original_of

    text = read_text(file)
    if text.lstrip().startswith("{") and "answer" in read_object(file):
        with checking():
            _check_prediction(read_object(file), policy_in(policy))
        return
    if is_absence_proof(text):
        if opening is not None or receipt is not None:
            raise StartError("--opening and --receipt are for proofs of erasures, and this is one of absence")
        _check_absence(text, policy, name, root, positions_key)
        return
    if root is not None or positions_key is not None:
        raise StartError("--root and --positions-key are for proofs of absence, and this is none")
    with checking():
        checked = check_proof(
            text,
            policy_in(policy),
            name=name,
            opening=None if opening is None else hex_in(opening, "--opening"),
            kept=None if receipt is None else read_object(receipt),
        )
    log = checked.checkpoint
    typer.echo(log_line(log, checked.cosigned))
    typer.echo(f"entry {checked.entry['index']}: {checked.entry['type']}, {checked.entry['at']}")
    if checked.receipt is not None:
        typer.echo(f"receipt {checked.receipt['id']}: {checked.receipt['status']}")
        erasure = original_of(checked.entry)
        typer.echo(disclosure_line(erasure.get("disclosure"), erasure.get("disclosure_limits")))
    if checked.found:
        typer.echo(f"the name is among the {' and the '.join(checked.found)} of the erasure")
    tell(
        "Proved: the entry is in the signed log, and the server cannot take it back or show others another log without "
        "its witnesses noticing. Not proved: that the server did what it wrote, and keeps no copy."
    )


def _check_prediction(content: dict[str, Any], policy: Policy) -> None:
    from oubli.verifier import check_prediction

    checked = check_prediction(content, policy)
    typer.echo(f"{len(checked.instances)} predictions by version {checked.model_version}")
    typer.echo(f"set root {checked.set_root}")
    tell(
        "Proved: the server has signed that the model of this version, trained on samples with this root, gave these "
        "answers. Whether it did is found by an audit of that version: oubli audit --receipts."
    )


def _check_absence(text: str, policy: Path, name: str | None, root: str | None, positions_key: str | None) -> None:
    from oubli.verifier import check_absence

    with checking():
        checked = check_absence(
            text,
            policy_in(policy),
            name=name,
            root=None if root is None else hex_in(root, "--root"),
            positions_key=None if positions_key is None else hex_in(positions_key, "--positions-key"),
        )
    of = "" if checked.n_samples is None else f" of {checked.n_samples} samples"
    typer.echo(f"set root {checked.root.hex()}{of}, model version {checked.model_version}")
    kind = "id" if checked.by == "ids" else "subject"
    where = "in a state that you trust" if checked.entry is None else f"in the state of entry {checked.entry}"
    typer.echo(f"the {kind} is not in the set, {where}")
    how = "" if positions_key is not None else ", as far as the server gives each name its own position"
    tell(
        f"Proved: no sample under this {kind} is in the set that the server says the model has learned{how}. Not "
        "proved: that the model has learned exactly this set (an audit shows that), and that no copy is kept."
    )


@proof_cli.command()
def opening(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Answer of GET /erasures/ID/opening.")],
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Id or subject, as in the request.")],
    by: Annotated[NameKind, typer.Option(help="Kind of the name.")],
) -> None:
    """Print the opening of one name. Give it to the person together with the proof."""
    from oubli.app.ledger.downloads import read_object
    from oubli.verifier import opening_of

    secret = hex_in(str(read_object(file).get("opening")), f"'opening' in {file}")
    typer.echo(opening_of(secret, by.value, name).hex())
