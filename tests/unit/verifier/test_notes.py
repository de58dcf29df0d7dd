"""Signed notes and policies, with the example that the specification of notes has."""

import base64
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.verifier import notes
from oubli.verifier.checkpoints import check_signature, read_checkpoint, read_policy
from tests.witness import LocalWitness

# c2sp.org/signed-note
KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
SIGNATURE = "Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM="
NOTE = f"This is an example message.\n\n— example.com/foo {SIGNATURE}\n"


def key(name: str, kind: int) -> str:
    return str(notes.key_of(name, kind, Ed25519PrivateKey.generate().public_key().public_bytes_raw()))


def rule_of(work: Callable[..., object], *given: object) -> str:
    with pytest.raises(notes.FailedError) as caught:
        work(*given)
    return caught.value.rule


def test_the_published_note_and_key_and_signatures_of_others_are_passed_over():
    assert str(notes.read_key(KEY)) == KEY
    assert notes.is_signed(notes.read_note(NOTE), notes.read_key(KEY))
    other = notes.read_key(key("example.com/foo", notes.ED25519))
    assert not notes.is_signed(notes.read_note(NOTE), other)
    many = NOTE + "".join(f"— other{i} AAAAAAAA\n" for i in range(20))
    assert notes.is_signed(notes.read_note(many), notes.read_key(KEY))


def test_a_signature_that_does_not_fit_is_refused():
    others = (NOTE.replace("an example", "another"), NOTE.replace("message.\n", "message. \n"))
    for note in (*others, NOTE + f"— example.com/foo {SIGNATURE[:-2]}I=\n"):
        assert rule_of(notes.is_signed, notes.read_note(note), notes.read_key(KEY)) == "log-signature"


@pytest.mark.parametrize(
    "text",
    [
        *("", "text\n", NOTE.rstrip("\n"), NOTE.replace("\n\n", "\n"), NOTE.replace("—", "-"), NOTE.replace("— ", "—")),
        *(NOTE.replace("example.com/foo", name) for name in ("a b", "a+b")),
        *(NOTE.replace(SIGNATURE, other) for other in ("not base64", "AAAA")),
        *(NOTE.replace("This", text) for text in ("Th\tis", "Th\r\nis", "Th\ud800is")),
        NOTE + "\n",
        NOTE + "".join(f"— other{i} AAAAAAAA\n" for i in range(80)),
    ],
)
def test_what_is_no_note(text):
    assert rule_of(notes.read_note, text) == "format"


@pytest.mark.parametrize(
    "text",
    ["", "a", "a+b", KEY[:-1], KEY.replace("530d903a", "530d903b"), KEY.replace("/foo", "/bar"), KEY.replace("+", "")],
)
def test_what_is_no_key(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the text is that of anyone who asks
        notes.read_key(text)


@pytest.mark.parametrize("text", ["1", "01\nAA==", "-1\nAA==", "1\nAA==", "\nAA==", "1\n!"])
def test_what_is_no_checkpoint(text):
    assert rule_of(read_checkpoint, f"a\n{text}\n\n— other AAAAAAAA\n") == "format"


def policy(*lines: str) -> bytes:
    return "\n".join(lines).encode()


def test_the_example_of_two_levels_of_groups_and_a_quorum_of_one_and_of_none():
    names = ("X1", "X2", "X3", "Y1", "Y2", "Y3")
    found = read_policy(
        policy(
            "# of the specification",
            "",
            f"log {key('log', notes.ED25519)}  https://log.example/",
            *(f"witness {name} \t {key(name, notes.COSIGNATURE)}" for name in names),
            "  group X-witnesses 2 X1 X2 X3",
            "group Y-witnesses any Y1 Y2 Y3",
            "group X-and-Y all X-witnesses Y-witnesses",
            "quorum X-and-Y",
        )
    )
    assert (len(found.logs), list(found.witnesses)) == (1, list(names))
    met = {" ".join(names): True, "X1 X3 Y2": True, "X1 Y1 Y2 Y3": False, "X1 X2 X3": False, "": False}
    assert {witnesses: found.is_met({*witnesses.split()}) for witnesses in met} == met
    one = read_policy(policy(f"witness w {key('w', notes.COSIGNATURE)} https://w.example", "quorum w"))
    assert (one.is_met({"w"}), one.is_met(set()), one.urls) == (True, False, {"w": "https://w.example"})
    assert read_policy(b"quorum none").is_met(set())


LOG, WITNESS = key("log", notes.ED25519), key("w", notes.COSIGNATURE)


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        *(((), "no line 'quorum'"), (("quorum none", "quorum none"), "more than one")),
        (("quorum w",), "no line before"),
        *(((line, "quorum none"), "type") for line in (f"log {WITNESS}", f"witness w {LOG}")),
        (("log nonsense", "quorum none"), "name\\+id"),
        ((f"log {LOG}", f"log {LOG}", "quorum none"), "before"),
        ((f"witness none {WITNESS}", "quorum none"), "taken"),
        ((f"witness w {WITNESS}", "group w any w", "quorum w"), "taken"),
        *(((f"witness w {WITNESS}", f"group g {n} w", "quorum g"), "number") for n in ("2", "0", "01")),
        ((f"witness w {WITNESS}", "group g any w w", "quorum g"), "already"),
        ((f"witness w {WITNESS}", "group g any none", "quorum g"), "no line before"),
        ((f"witness w {WITNESS}", "group g any", "quorum w"), "none of"),
        *((("trust everybody",), "none of"), (("quorum none\r",), "control")),
    ],
)
def test_what_is_no_policy(lines, rule):
    with pytest.raises(notes.UncheckableError, match=rule):
        read_policy(policy(*lines))


def test_a_cosignature_holds_for_its_time_and_a_log_is_known_by_its_name_and_its_key():
    text = "log.example/1\n1\n" + base64.b64encode(bytes(32)).decode() + "\n"
    witness = LocalWitness("w.example")
    cosigned = f"{text}\n{witness.cosign(text, 7)}"
    assert notes.is_signed(notes.read_note(cosigned), witness.key)
    assert rule_of(notes.is_signed, notes.read_note(cosigned.replace("\n1\n", "\n2\n")), witness.key) == "quorum"
    for name, rule in (("log.example/2", "log"), ("log.example/1", "log-signature")):
        assert rule_of(check_signature, read_checkpoint(cosigned), (notes.read_key(key(name, notes.ED25519)),)) == rule
