"""All views over each kind of model; and in light and dark, wide and narrow: axe finds nothing, nothing sticks out."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.process.console.people import write_csv, write_people
from tests.process.console.support import NARROW, WIDE, Console, looking
from tests.serving import Running, serving

VIEWS = {
    "now": "Now",
    "predict": "Predict",
    "samples": "Samples and people",
    "erasures": "Erasures",
    "model": "Model",
    "ledger": "Ledger and access",
}
FEW = ("--n-estimators", "3")
FLAGS = {"forest": FEW, "tree": (), "online-boosting": FEW, "incremental-boosting": FEW}


def look_at_the_model(console: Console, server: Running, model: dict[str, str]) -> None:
    """Use all that the views of the model and of erasures have for it, and erase a sample."""
    page = console.page
    console.open("model")
    expect(console.section("Current model")).to_contain_text(model["kind"])
    expect(console.section("Importances").locator(".bars li")).not_to_have_count(0)
    expect(page.get_by_role("treeitem").first).to_be_visible()
    closed = page.locator('[role=treeitem][aria-expanded="false"]')
    if closed.count():
        before = page.get_by_role("treeitem").count()
        closed.first.locator(".tree-question").click()
        expect(page.get_by_role("treeitem")).not_to_have_count(before)
    server.ask("POST", "/samples/batch-delete", {"ids": ["s1"]})
    care = console.section("Maintenance")
    care.get_by_role("button", name="Scrub").click()
    expect(care).to_contain_text("finished", timeout=60_000)
    care.get_by_role("button", name="Verify").click()
    expect(care).to_contain_text("is verified: it is sound", timeout=60_000)
    console.go("Erasures")
    console.section("Receipts").locator("tbody tr").first.get_by_role("button").click()
    expect(page.locator(".erasures-verdict")).to_contain_text("The receipt is right")
    expect(console.section("One receipt")).to_contain_text(model["guarantee"])


@pytest.mark.parametrize("kind", FLAGS)
def test_classes(browser: Browser, tmp_path: Path, kind: str) -> None:
    flags = (*write_people(tmp_path), "--model", kind, *FLAGS[kind])
    how = {"viewport": NARROW, "color_scheme": "dark"}
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server, **how) as console:
        model = server.get("/model")[1]
        console.open()
        for text in (f"{kind} (classification)", model["guarantee"]):
            expect(console.section("Model")).to_contain_text(text)
        console.check_access()
        console.check_fits()
        # Predictions
        console.go("Predict")
        expect(console.page.locator(".predict-answer .bars-value")).to_have_count(2)
        why, without = console.section("Why"), console.section("Without a person")
        if kind == "tree":
            expect(why).to_contain_text("cannot say which samples")
        else:
            console.hand.press(why.get_by_role("button", name="Which samples are behind this answer?"))
            expect(why.get_by_role("heading", name="Samples that help this answer most")).to_be_visible(timeout=90_000)
        if model["guarantee"] == "exact":
            console.hand.press(without.get_by_role("button", name="Predict without"))
            expect(without).to_contain_text("without 2 samples; 118 are left.", timeout=90_000)
        else:
            expect(without).to_contain_text("Only an exact model can")
        # Samples and people
        console.go("Samples and people")
        section = console.section("Find")
        console.hand.fill(section.get_by_label("Subject or id"), "person 3")
        console.hand.press(section.get_by_role("button", name="Forget"))
        dialog = console.page.get_by_role("dialog")
        expect(dialog).to_contain_text("Within 1 min:" if model["guarantee"] == "exact" else "After the next scrub")
        console.hand.press(dialog.get_by_role("button", name="Forget the person"))
        expect(section.locator("receipt-card")).to_contain_text(f"2 samples ({model['guarantee']})")
        console.check_silence("person 3")
        look_at_the_model(console, server, model)


@pytest.mark.parametrize("kind", ["forest", "online-boosting", "incremental-boosting"])
def test_numbers(browser: Browser, tmp_path: Path, kind: str) -> None:
    rows = [(f"s{i}", i % 17, i % 17 * 1000.5 + i % 3) for i in range(90)]
    write_csv(tmp_path / "data.csv", ("id", "size", "price"), rows)
    flags = ("--data", "data.csv", "--target", "price", "--id", "id", "--model", kind, *FEW)
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        page, model = console.page, server.get("/model")[1]
        assert model["task"] == "regression"
        console.open("predict")
        console.hand.fill(page.get_by_label("size", exact=True), "16")
        expected = server.ask("POST", "/predict", {"instances": [[16]]})[1]["predictions"][0]
        shown = page.evaluate("async (value) => (await import('/console/lib/format.js')).precise(value)", expected)
        expect(page.locator(".predict-label")).to_have_text(shown)
        if model["guarantee"] == "exact":
            without = console.section("Without a person")
            expect(without.get_by_label("Name")).to_have_value("s0")
            console.hand.press(without.get_by_role("button", name="Predict without"))
            expect(without).to_contain_text("without 1 sample; 89 are left.", timeout=60_000)
        console.check_access()
        look_at_the_model(console, server, model)


def test_a_model_without_samples_can_be_filled(browser: Browser, tmp_path: Path) -> None:
    with serving(*write_people(tmp_path, 4), *FEW, cwd=tmp_path) as server, looking(browser, server) as console:
        server.ask("POST", "/samples/batch-delete", {"ids": [f"s{i}" for i in range(4)]})
        page = console.page
        console.open()
        expect(page.locator(".now-count")).to_have_text("0")
        console.check_access()
        console.go("Predict")
        expect(page.get_by_text("There is no sample to start with.")).to_be_visible()
        expect(page.locator(".predict-answer .state")).to_be_visible()
        console.check_access()
        console.go("Samples and people")
        expect(console.section("Held")).to_contain_text("No sample is held. Add one below.")
        console.check_access()
        console.go("Model")
        expect(console.section("Importances")).to_contain_text("No tree has a split")
        expect(page.get_by_role("treeitem")).to_have_count(1)
        expect(page.get_by_role("treeitem")).to_contain_text("no samples")
        console.check_access()


# Controls that are too small for a finger.
SMALL = """() => [...document.querySelectorAll("button, a[href], summary, input")]
    .filter((node) => node.checkVisibility() && !node.closest("label") && node.ariaHidden !== "true")
    .filter((node) => getComputedStyle(node).display !== "inline")
    .filter((node) => node.getBoundingClientRect().height < 24 || node.getBoundingClientRect().width < 24)
    .map((node) => node.outerHTML)"""


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_view(browser: Browser, server: Running, view: str, scheme: str, size: dict[str, int]) -> None:
    with looking(browser, server, viewport=size, color_scheme=scheme) as console:
        page = console.page
        console.open(view)
        expect(console.heading(VIEWS[view])).to_be_visible()
        expect(page.locator(".state-loading")).to_have_count(0)
        if view == "now":
            expect(page.locator("live-line .line-value").first).not_to_have_text("…")
        for summary in page.locator("summary").all():
            summary.click()
        console.check_access()
        console.check_fits()
        assert [one for one in page.evaluate(SMALL) if "shell-skip" not in one] == []
