"""The views of erasures, the model and the ledger over each kind of model."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.process.console.people import write_csv, write_people
from tests.process.console.support import Console, looking
from tests.serving import Running, serving

FEW = ("--n-estimators", "3")
CLASSES = {"forest": FEW, "tree": (), "online-boosting": FEW, "incremental-boosting": FEW}


def look(console: Console, server: Running) -> None:
    """Use all that the three views have for a model, and erase a sample."""
    page = console.page
    model = server.get("/model")[1]
    console.open("model")
    expect(console.section("Current model")).to_contain_text(model["kind"])
    expect(console.section("Importances").locator(".bars li")).not_to_have_count(0)
    expect(page.get_by_role("treeitem").first).to_be_visible()
    closed = page.locator('[role=treeitem][aria-expanded="false"]')
    if closed.count():
        before = page.get_by_role("treeitem").count()
        closed.first.locator(".tree-question").click()
        expect(page.get_by_role("treeitem")).not_to_have_count(before)
    console.check_access()
    server.ask("POST", "/samples/batch-delete", {"ids": ["s1"]})
    care = console.section("Maintenance")
    care.get_by_role("button", name="Scrub").click()
    expect(care).to_contain_text("1 erasure was finished", timeout=60_000)
    care.get_by_role("button", name="Verify").click()
    expect(care).to_contain_text("is verified: it is sound", timeout=60_000)
    console.go("Erasures")
    console.section("Receipts").locator("tbody tr").first.get_by_role("button").click()
    expect(page.locator(".erasures-verdict")).to_contain_text("The receipt is right")
    expect(console.section("One receipt")).to_contain_text(model["guarantee"])
    assert console.complaints == []


@pytest.mark.parametrize("kind", CLASSES)
def test_classes(browser: Browser, tmp_path: Path, kind: str) -> None:
    flags = (*write_people(tmp_path), "--model", kind, *CLASSES[kind])
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        look(console, server)


@pytest.mark.parametrize("kind", ["forest", "online-boosting", "incremental-boosting"])
def test_numbers(browser: Browser, tmp_path: Path, kind: str) -> None:
    rows = [(f"s{i}", i % 17, i % 17 * 1000.5 + i % 3) for i in range(90)]
    write_csv(tmp_path / "data.csv", ("id", "size", "price"), rows)
    flags = ("--data", "data.csv", "--target", "price", "--id", "id", "--model", kind, *FEW)
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        look(console, server)


def test_a_model_without_samples(browser: Browser, tmp_path: Path) -> None:
    with serving(*write_people(tmp_path, 4), *FEW, cwd=tmp_path) as server, looking(browser, server) as console:
        server.ask("POST", "/samples/batch-delete", {"ids": [f"s{i}" for i in range(4)]})
        console.open("model")
        expect(console.section("Importances")).to_contain_text("No tree has a split")
        expect(console.page.get_by_role("treeitem")).to_have_count(1)
        expect(console.page.get_by_role("treeitem")).to_contain_text("no samples")
        console.check_access()
        assert console.complaints == []
