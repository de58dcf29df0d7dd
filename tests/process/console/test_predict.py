"""The view of predictions."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.process.console.support import Console
from tests.serving import Running

pytestmark = pytest.mark.long


def shown(console: Console) -> list[str]:
    """Return label and probabilities as they are shown."""
    return [
        console.page.locator(".predict-label").first.inner_text(),
        *console.page.locator(".predict-answer .bars-value").all_inner_texts(),
    ]


def expected(server: Running, row: list[object]) -> list[str]:
    answer = server.ask("POST", "/predict", {"instances": [row]})[1]
    return [answer["predictions"][0], *(f"{100 * one:.1f} %" for one in answer["probabilities"][0])]


def test_a_real_row_its_answer_and_another_row(console: Console, server: Running) -> None:
    console.open("predict")
    page = console.page
    [sample] = server.get("/samples?limit=1")[1]["samples"]
    row = list(sample["features"].values())
    expect(page.get_by_label("age", exact=True)).to_have_value(str(row[0]))
    expect(page.locator(".predict-answer .bars-value")).to_have_count(2)
    assert shown(console) == expected(server, row)
    console.hand.fill(page.get_by_label("age", exact=True), "69")
    console.hand.fill(page.get_by_label("job", exact=True), "smith")
    console.hand.choose(page.get_by_label("grew", exact=True), "false")
    other = expected(server, [69, "smith", False])
    expect(page.locator(".predict-label").first).to_have_text(other[0])
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(other[1])
    console.hand.press(page.get_by_label("age is missing"))
    missing = expected(server, [None, "smith", False])
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(missing[1])
    expect(page.get_by_label("age", exact=True)).to_have_attribute("placeholder", "missing")
    console.hand.press(page.get_by_label("age is missing"))
    expect(page.get_by_label("age", exact=True)).to_have_value("69")
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(other[1])
    console.hand.fill(page.get_by_label("age", exact=True), "old")
    expect(page.get_by_text("Enter a number, or mark it as missing.")).to_be_visible()
    console.check_access()
    console.hand.press(page.get_by_role("button", name="Another row"))
    second = server.get("/samples?limit=2")[1]["samples"][1]
    expect(page.get_by_label("age", exact=True)).to_have_value(str(second["features"]["age"]))
    expect(page.get_by_text("Enter a number, or mark it as missing.")).to_have_count(0)


def test_why_with_one_step_to_the_samples(console: Console, server: Running) -> None:
    console.open("predict")
    why = console.section("Why")
    console.hand.press(why.get_by_role("button", name="Which samples make this answer?"))
    [sample] = server.get("/samples?limit=1")[1]["samples"]
    asked = {"instances": [list(sample["features"].values())], "top": 8}
    expect(why.get_by_role("heading", name="They help this answer most")).to_be_visible(timeout=300_000)
    found = server.ask("POST", "/influence", asked)[1]  # now its kernels are there: no job is begun
    for one in [*found["helpful"], *found["harmful"]]:
        expect(why.get_by_role("button", name=one["id"], exact=True)).to_be_visible()
    console.check_access()
    best = found["helpful"][0]["id"]
    console.hand.press(why.get_by_role("button", name=best, exact=True))
    dialog = console.page.get_by_role("dialog", name="Sample")
    held = server.get(f"/samples/{best}")[1]
    for text in (best, held["subject"], held["label"], held["features"]["job"]):
        expect(dialog).to_contain_text(str(text))
    console.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    console.check_silence(held["subject"])


def test_what_it_would_say_without_a_person(console: Console, server: Running) -> None:
    console.open("predict")
    without = console.section("Without a person")
    before = server.get("/model")[1]["model_version"]
    expect(without.get_by_label("Name")).to_have_value("person 0")
    console.hand.press(without.get_by_role("button", name="What would it say without?"))
    expect(without).to_contain_text("without 2 samples; 118 are left.", timeout=60_000)
    expect(without.get_by_role("heading", name="With", exact=True)).to_be_visible()
    expect(without.get_by_role("heading", name="Without", exact=True)).to_be_visible()
    console.check_access()
    console.hand.choose(without.get_by_label("Without"), "Sample (id)")
    console.hand.fill(without.get_by_label("Name"), "nobody at all")
    console.hand.press(without.get_by_role("button", name="What would it say without?"))
    expect(without).to_contain_text("The model has learned nothing under this name.")
    assert server.get("/model")[1]["model_version"] == before
    console.check_silence("person 0", "person%200", "person+0", "nobody")
