"""The console over each kind of model."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.process.console.people import write_csv, write_people
from tests.process.console.support import NARROW, looking
from tests.serving import serving

pytestmark = pytest.mark.long
KINDS = {
    "forest": "exact",
    "tree": "epsilon-feasible",
    "online-boosting": "approximate",
    "incremental-boosting": "exact",
}
SMALL = {
    "forest": ["--n-estimators", "3"],
    "tree": [],
    "online-boosting": ["--n-estimators", "3"],
    "incremental-boosting": ["--n-estimators", "3"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_classes(browser: Browser, tmp_path: Path, kind: str) -> None:
    flags = (*write_people(tmp_path), "--model", kind, *SMALL[kind])
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server, size=NARROW, scheme="dark") as console:
        page = console.page
        guarantee = server.get("/model")[1]["guarantee"]
        console.open()
        expect(console.section("Model")).to_contain_text(f"{kind} (classification)")
        expect(console.section("Model")).to_contain_text(guarantee)
        console.check_access()
        console.check_fits()
        console.go("Predict")
        expect(page.locator(".predict-answer .bars-value")).to_have_count(2)
        why, without = console.section("Why"), console.section("Without a person")
        if kind == "tree":
            expect(why).to_contain_text("cannot say which samples")
        else:
            console.hand.press(why.get_by_role("button", name="Which samples are behind this answer?"))
            expect(why.get_by_role("heading", name="Samples that help this answer most")).to_be_visible(timeout=90_000)
        if guarantee == "exact":
            console.hand.press(without.get_by_role("button", name="Predict without"))
            expect(without).to_contain_text("without 2 samples; 118 are left.", timeout=90_000)
        else:
            expect(without).to_contain_text("Only an exact model can")
        console.check_access()
        console.check_fits()
        console.go("Samples and people")
        section = console.section("Find")
        console.hand.fill(section.get_by_label("Subject or id"), "person 3")
        console.hand.press(section.get_by_role("button", name="Forget"))
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Within 1 min:" if guarantee == "exact" else "After the next scrub")
        console.check_fits()
        console.hand.press(dialog.get_by_role("button", name="Forget the person"))
        expect(section.locator("receipt-card")).to_contain_text(f"2 samples ({guarantee})")
        console.check_access()
        console.check_fits()
        console.check_silence("person 3")


@pytest.mark.parametrize("kind", ["forest", "incremental-boosting"])
def test_numbers(browser: Browser, tmp_path: Path, kind: str) -> None:
    rows = [(f"s{i}", i % 17, i % 17 * 1000.5 + i % 3) for i in range(90)]
    write_csv(tmp_path / "data.csv", ("id", "size", "price"), rows)
    flags = ("--data", "data.csv", "--target", "price", "--id", "id", "--model", kind, *SMALL[kind])
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        assert server.get("/model")[1]["task"] == "regression"
        console.open("predict")
        page = console.page
        console.hand.fill(page.get_by_label("size", exact=True), "16")
        expected = server.ask("POST", "/predict", {"instances": [[16]]})[1]["predictions"][0]
        expect(page.locator(".predict-label")).to_have_text(
            page.evaluate("async (value) => (await import('/console/lib/format.js')).precise(value)", expected)
        )
        without = console.section("Without a person")
        expect(without.get_by_label("Name")).to_have_value("s0")
        console.hand.press(without.get_by_role("button", name="Predict without"))
        expect(without).to_contain_text("without 1 sample; 89 are left.", timeout=60_000)
        console.check_access()
        assert console.complaints == []


def test_a_model_without_samples_can_be_filled(browser: Browser, tmp_path: Path) -> None:
    flags = (*write_people(tmp_path, 4), "--n-estimators", "2")
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        server.ask("POST", "/samples/batch-delete", {"ids": [f"s{i}" for i in range(4)]})
        console.open()
        expect(console.page.locator(".now-count")).to_have_text("0")
        console.check_access()
        console.go("Predict")
        expect(console.page.get_by_text("There is no sample to start with.")).to_be_visible()
        expect(console.page.locator(".predict-answer .state")).to_be_visible()
        console.check_access()
        console.go("Samples and people")
        expect(console.section("Held")).to_contain_text("No sample is held. Add one below.")
        console.check_access()
