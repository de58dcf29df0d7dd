"""Receipts are checked in the browser as `oubli ledger verify` checks them."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from oubli.app.ledger.downloads import ReceiptError, check_ledger, check_receipt, read_public_keys
from oubli.app.ledger.entries import LARGEST_INTEGER, CanonicalError, ChainError, canonical
from tests.process.console.audit.worlds import Told
from tests.unit.app.ledger.support import make_ledger

CANONICAL = """async (texts) => {
  const { canonical, CanonicalError } = await import("/console/lib/canonical.js");
  return texts.map((text) => {
    try {
      return new TextDecoder().decode(canonical(JSON.parse(text)));
    } catch (error) {
      if (!(error instanceof CanonicalError)) throw error;
      return null;
    }
  });
}"""
CHECK = """async ([receipts, keys, pages]) => {
  const { checkReceipt } = await import("/console/lib/verify.js");
  const { Chain } = await import("/console/lib/chain.js");
  const source = {
    keys: async () => keys,
    chain: async () => {
      const chain = new Chain();
      for (const page of pages) await chain.take(page);
      return chain;
    },
  };
  const checks = [];
  for (const receipt of receipts) {
    let steps;
    const outcome = await checkReceipt(receipt, source, (now) => (steps = now));
    checks.push([outcome, Object.fromEntries(steps.map(({ name, state, reason }) => [name, [state, reason]]))]);
  }
  return checks;
}"""
LEAVES = st.none() | st.booleans() | st.integers(-LARGEST_INTEGER, LARGEST_INTEGER) | st.text()
SIGNABLE = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
BROWSER = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@BROWSER
@given(st.lists(SIGNABLE, min_size=1, max_size=8))
@example(
    [{"\ufb33": 1, "😀": 2, "é": 3, "e": 4, "": 5, "__proto__": {"a": 1}}, '\x00\x1f\x7f\u2028\\"/', -LARGEST_INTEGER]
)
def test_the_canonical_form_is_that_of_the_server(blank: Any, values: list[Any]) -> None:
    forms = blank.evaluate(CANONICAL, [json.dumps(value) for value in values])
    for form, value in zip(forms, values, strict=True):
        assert form == canonical(value).decode() == rfc8785.dumps(value).decode()


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


BAD = ["0.5", "1e400", str(2**53), str(-(2**53)), '{"a": [1.5]}', r'"\ud800"', r'{"\udc00": 1}', json.dumps(nested(33))]


@pytest.mark.parametrize("text", BAD)
def test_what_has_no_canonical_form_has_none_in_the_browser(blank: Any, text: str) -> None:
    with pytest.raises(CanonicalError):
        canonical(json.loads(text))
    assert blank.evaluate(CANONICAL, [text]) == [None]
    assert blank.evaluate(CANONICAL, [json.dumps(nested(32))]) == [json.dumps(nested(32))]


def accepts(receipt: dict[str, Any], keys: list[dict[str, Any]], entries: list[dict[str, Any]]) -> bool:
    """Whether the server's own check finds nothing wrong."""
    trusted = read_public_keys({"keys": keys})
    try:
        check_receipt(receipt, check_ledger(entries), trusted)
    except (ChainError, ReceiptError):
        return False
    return True


def checked(page: Any, told: Told, size: int = 7) -> list[Any]:
    receipts, keys, entries = told
    pages = [entries[start : start + size] for start in range(0, len(entries), size)]
    found: list[Any] = page.evaluate(CHECK, [receipts, keys, pages])
    return found


def test_every_receipt_of_a_server_is_right(blank: Any, told: Told) -> None:
    assert {receipt["status"] for receipt in told[0]} == {"unlearned", "erased"}
    for size in (1, 7, 1000):
        for outcome, steps in checked(blank, told, size):
            assert outcome == "ok", steps
            assert {state for state, _ in steps.values()} == {"ok"}
            assert len(steps) == 7


@pytest.mark.parametrize(
    "lacking", [(), ("disclosure", "disclosure_limits"), ("disclosure", "disclosure_limits", "by", "held", "deadline")]
)
def test_receipts_of_earlier_versions_are_right(blank: Any, lacking: tuple[str, ...]) -> None:
    ledger = make_ledger()
    begun = ledger.unlearned_before("a", lacking=lacking)
    ledger.erased(begun)
    receipts = [json.loads(json.dumps(one.content())) for one in (begun, ledger.now_of(begun))]
    entries = [{name: one[name] for name in one if name != "keyed"} for one in ledger.entries()]
    for outcome, steps in checked(blank, (receipts, ledger.auditor.public_keys(), entries)):
        assert outcome == "ok", steps


def other(value: Any) -> Any:
    """Return something of the same type that is not the value."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value[:-1] + ("0" if value[-1:] != "0" else "1")
    if isinstance(value, list):
        return [*value, "more"]
    return "something"


CHANGES = ("receipt", "lacking field", "entry", "lacking entry", "swapped entries", "repeated entry", "nothing")


def alter(change: str, draw: Callable[[int], int], receipt: dict[str, Any], entries: list[dict[str, Any]]) -> None:
    """Change one thing that a liar could change; `draw` chooses one of so many."""
    fields = sorted(set(receipt) - {"durable"})  # which stands beside the receipt and is not signed
    place = draw(len(entries))
    match change:
        case "receipt":
            name = fields[draw(len(fields))]
            receipt[name] = other(receipt[name])
        case "lacking field":
            del receipt[fields[draw(len(fields))]]
        case "entry":
            name = sorted(entries[place])[draw(len(entries[place]))]
            entries[place][name] = other(entries[place][name])
        case "lacking entry":
            del entries[place]
        case "swapped entries":
            entries[place - 1], entries[place] = entries[place], entries[place - 1]
        case "repeated entry":
            entries.insert(place, copy.deepcopy(entries[place]))


@settings(BROWSER, max_examples=100)
@given(data=st.data())
def test_the_browser_finds_what_the_server_finds(blank: Any, told: Told, data: st.DataObject) -> None:
    receipts, keys, entries = copy.deepcopy(told)
    receipt = data.draw(st.sampled_from(receipts))
    change = data.draw(st.sampled_from(CHANGES))
    alter(change, lambda count: data.draw(st.integers(0, count - 1)), receipt, entries)
    [(outcome, steps)] = checked(blank, ([receipt], keys, entries))
    assert (outcome == "ok") == accepts(receipt, keys, entries), (change, steps)
    assert outcome in ("ok", "failed")


def test_a_key_that_is_another_is_found(blank: Any, told: Told) -> None:
    receipts, keys, entries = told
    other_key = "A" * 43 + "="
    for changes in ({"public_key": other_key}, {"public_key": "no key"}, {"key_id": "0" * 16}, {"algorithm": "RSA"}):
        wrong = [{**key, **changes} for key in keys]
        for outcome, steps in checked(blank, (receipts, wrong, entries)):
            assert (outcome, steps["Key"][0], steps["Signature"][0]) == ("failed", "failed", "unable")
            assert steps["Chain"][0] == "ok"


def test_a_ledger_that_was_cut_off_is_found_by_a_receipt(blank: Any, told: Told) -> None:
    receipts, keys, entries = told
    newest = max(receipts, key=lambda receipt: receipt["ledger_index"])
    [(outcome, steps)] = checked(blank, ([newest], keys, entries[: newest["ledger_index"] - 1]))
    assert outcome == "failed"
    assert steps["Chain"][0] == "ok"
    assert "were cut off" in steps["Place in the chain"][1]
