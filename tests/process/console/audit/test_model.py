"""The view of the model: parameters, importances, trees, fits, and work on the whole; by mouse and by keyboard."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.process.console.audit.worlds import COLUMN, ERASED, FLAGS, LABELS, World, world_in
from tests.process.console.support import Console, looking, with_key
from tests.serving import Running, serving


def nodes(console: Console) -> Locator:
    return console.page.get_by_role("treeitem")


def focused(page: Page) -> str:
    """Return the way to the node that has the focus."""
    path: str = page.evaluate("document.activeElement.dataset.path")
    return path


def open_form(console: Console) -> Locator:
    """Open the form of a fit and return its section."""
    fit = console.section("Fit again")
    console.hand.press(fit.locator("summary"))
    return fit


def test_parameters_and_importances_are_those_of_the_server(browser: Browser, world: World) -> None:
    (kind,) = (one for one in world.server.get("/model/kinds")[1]["kinds"] if one["in_force"])
    importances = world.server.get("/model/importances")[1]["features"]
    with looking(browser, world.server, view="") as console:
        console.go("Model")
        rows = console.section("Parameters").locator("tbody tr")
        expect(rows.first).to_be_visible()
        shown = {row.locator("td").nth(0).inner_text(): row.locator("td").nth(1).inner_text() for row in rows.all()}
        assert shown["n_estimators"] == "4"
        assert shown.keys() == {one["name"] for one in kind["parameters"]}
        bars = console.section("Importances").locator(".bars li")
        expect(bars).to_have_count(len(importances))
        values = [bar.locator(".bars-value").inner_text() for bar in bars.all()]
        assert values == [f"{100 * one:.1f} %" for one in sorted((f["importance"] for f in importances), reverse=True)]
        # The names are text, whatever stands in them.
        expect(console.section("Importances")).to_contain_text(COLUMN)
        expect(console.section("Current model")).to_contain_text(LABELS[0])
        assert console.page.locator("main img").count() == 0
        assert console.page.title() == "Model · Oubli"
        console.check_access()
        console.check_silence(*ERASED)


def test_a_tree_opens_node_by_node(browser: Browser, world: World) -> None:
    root = world.server.get("/model/trees/1?levels=0")[1]["node"]
    with looking(browser, world.server, view="model") as console:
        expect(nodes(console).first).to_be_visible()
        console.page.get_by_role("button", name="Next").click()
        expect(console.page.get_by_role("tree")).to_have_attribute("aria-label", "Tree 2")
        first = nodes(console).first
        expect(first).to_have_attribute("aria-expanded", "true")
        expect(console.page.locator(".tree-detail")).to_contain_text(f"{root['n_samples']} samples")
        first.locator(".tree-question").click()
        expect(nodes(console)).to_have_count(1)
        first.locator(".tree-question").click()
        closed = console.page.locator('[role=treeitem][aria-expanded="false"]')
        for _ in range(30):
            if not closed.count():
                break
            before = nodes(console).count()
            closed.first.locator(".tree-question").click()
            expect(nodes(console)).not_to_have_count(before)
        expect(closed).to_have_count(0)
        leaves = console.page.locator("[role=treeitem]:not([aria-expanded])")
        counts = [int(leaf.get_attribute("aria-label").split(", ")[-1].split()[0]) for leaf in leaves.all()]  # type: ignore[union-attr]
        assert sum(counts) == root["n_samples"]
        assert console.page.locator("main img").count() == 0
        console.check_access()


def test_a_tree_is_walked_by_keyboard(browser: Browser, world: World) -> None:
    with looking(browser, world.server, uses_keys=True, view="model") as console:
        expect(nodes(console).first).to_be_visible()
        console.hand.reach(nodes(console).first)
        keyboard = console.page.keyboard
        assert focused(console.page) == ""
        keyboard.press("ArrowRight")
        assert focused(console.page) == "l"
        keyboard.press("ArrowLeft")
        keyboard.press("ArrowLeft") if focused(console.page) else None
        assert focused(console.page) == ""
        keyboard.press("End")
        assert focused(console.page).startswith("r")
        keyboard.press("Home")
        keyboard.press("Enter")
        expect(nodes(console)).to_have_count(1)
        keyboard.press("ArrowRight")
        expect(nodes(console)).not_to_have_count(1)
        keyboard.press("ArrowDown")
        assert focused(console.page) == "l"
        keyboard.press("ArrowUp")
        assert focused(console.page) == ""
        expect(console.page.locator(".tree-detail h3")).to_contain_text("The root")


def test_a_tree_that_has_changed_is_drawn_anew(browser: Browser, world: World) -> None:
    with looking(browser, world.server) as console:
        problem = {"type": "urn:oubli:problem:no-tree"}
        console.page.route("**/model/trees/*?node=*", lambda route: route.fulfill(status=404, json=problem))
        console.open("model")
        console.page.locator('[role=treeitem][aria-expanded="false"] .tree-question').first.click()
        expect(console.page.get_by_text("the tree is redrawn")).to_be_visible()
        expect(nodes(console).first).to_have_attribute("aria-expanded", "true")


@pytest.mark.parametrize("uses_keys", [False, True], ids=["mouse", "keyboard"])
def test_a_fit_is_followed_and_measured(browser: Browser, changing: World, uses_keys: bool) -> None:
    with looking(browser, changing.server, uses_keys=uses_keys, view="model") as console:
        fit = open_form(console)
        trees = "7" if uses_keys else "6"
        console.hand.fill(fit.get_by_label("n_estimators"), "none of them")
        console.hand.press(fit.get_by_role("button", name="Fit again"))
        console.hand.press(console.page.get_by_role("dialog").get_by_role("button", name="Fit again"))
        expect(fit.get_by_label("n_estimators")).to_have_attribute("aria-invalid", "true")
        console.hand.fill(fit.get_by_label("n_estimators"), trees)
        console.hand.press(fit.get_by_role("button", name="Fit again"))
        expect(console.page.get_by_role("dialog")).to_contain_text(f"n_estimators = {trees}")
        console.hand.press(console.page.get_by_role("dialog").get_by_role("button", name="Fit again"))
        expect(fit).to_contain_text("The model was fitted", timeout=60_000)
        expect(fit.locator(".bars")).to_contain_text("Before")
        expect(fit.locator(".bars")).to_contain_text("After")
        row = console.section("Parameters").locator("tr", has_text="n_estimators")
        expect(row.locator("td").nth(1)).to_have_text(trees)
        assert changing.server.get("/model")[1]["parameters"]["n_estimators"] == int(trees)
        console.check_access()


def test_another_kind_takes_its_place(browser: Browser, changing: World) -> None:
    with looking(browser, changing.server, view="model") as console:
        fit = open_form(console)
        fit.get_by_label("Kind").select_option("incremental-boosting")
        fit.get_by_label("n_estimators").fill("3")
        fit.get_by_role("checkbox").uncheck()
        fit.get_by_role("button", name="Fit again").click()
        console.page.get_by_role("dialog").get_by_role("button", name="Fit again").click()
        expect(fit).to_contain_text("not measured", timeout=60_000)
        expect(console.section("Current model")).to_contain_text("incremental-boosting")
        console.section("Trees").get_by_role("button", name="read it again").click()
        expect(console.section("Trees")).to_contain_text("iteration 1")
        expect(console.page.locator(".tree-detail")).not_to_contain_text("%")


@pytest.mark.parametrize("uses_keys", [False, True], ids=["mouse", "keyboard"])
def test_the_model_is_looked_after(browser: Browser, changing: World, tmp_path: Path, uses_keys: bool) -> None:
    with looking(browser, changing.server, uses_keys=uses_keys, view="model") as console:
        care, file = console.section("Maintenance"), console.section("Snapshot")
        console.hand.press(care.get_by_role("button", name="Verify"))
        version = changing.server.get("/model")[1]["model_version"]
        expect(care).to_contain_text(f"Version {version} is verified: it is sound", timeout=60_000)
        changing.server.ask("POST", "/samples/batch-delete", {"ids": [changing.take()]})
        console.hand.press(care.get_by_role("button", name="Scrub"))
        expect(care).to_contain_text(re.compile("erasures? (was|were) finished"), timeout=60_000)
        assert [one for one in changing.receipts() if one["status"] != "erased"] == []
        console.hand.press(file.get_by_role("button", name="Write a snapshot now"))
        expect(file).to_contain_text("The snapshot is written")
        with console.page.expect_download() as download:
            console.hand.press(file.get_by_role("button", name="Download"))
            console.hand.press(console.page.get_by_role("dialog").get_by_role("button", name="Download"))
        download.value.save_as(tmp_path / "model.safetensors")
        erased = changing.take()
        changing.server.ask("POST", "/samples/batch-delete", {"ids": [erased]})
        before = changing.server.get("/model")[1]
        restore = file.get_by_role("button", name="Restore", exact=True)
        console.hand.press(restore)
        expect(file).to_contain_text("Choose a file first.")
        file.get_by_label("Restore a snapshot").set_input_files(tmp_path / "model.safetensors")
        console.hand.press(restore)
        dialog = console.page.get_by_role("dialog")
        expect(dialog.get_by_role("button", name="Restore")).to_be_disabled()
        console.hand.fill(dialog.get_by_label("Type restore"), "restore")
        console.hand.press(dialog.get_by_role("button", name="Restore"))
        expect(file).to_contain_text("Not brought back", timeout=60_000)
        after = changing.server.get("/model")[1]
        assert after["model_version"] > before["model_version"]
        assert after["n_samples"] == before["n_samples"]  # the sample that was erased is not brought back
        assert changing.server.get(f"/samples/{erased}")[0] == 404
        console.check_access()


def test_a_verification_is_of_one_version(browser: Browser, changing: World) -> None:
    """Whatever was verified before a change says nothing about the model after it."""
    server = changing.server
    with looking(browser, server, view="model") as console:
        care = console.section("Maintenance")
        console.hand.press(care.get_by_role("button", name="Verify"))
        version = server.get("/model")[1]["model_version"]
        expect(care.locator("p.good")).to_have_text(f"Version {version} is verified: it is sound.", timeout=60_000)
        console.go("Now")
        about = console.section("Model").locator("dd", has_text="fresh fit")
        expect(about.locator(".good")).to_contain_text(f"Version {version} was equal to a fresh fit")
        expect(about).not_to_contain_text("not verified")
        server.ask("POST", "/samples/batch-delete", {"ids": [changing.take()]})
        expect(about).to_contain_text(f"Version {version + 1}, the current one, is not verified.")
        expect(about.locator(".good")).to_have_count(0)
        console.check_access()
        console.go("Model")
        expect(care).to_contain_text(f"Version {version + 1}, the current one, is not verified.")
        expect(care.locator("p.good").filter(has_text="verified: it is sound")).to_have_count(0)


def test_a_file_that_is_none_is_refused_in_words(browser: Browser, changing: World, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("no model")
    with looking(browser, changing.server, view="model") as console:
        file = console.section("Snapshot")
        file.get_by_label("Restore a snapshot").set_input_files(tmp_path / "other.txt")
        file.get_by_role("button", name="Restore", exact=True).click()
        console.page.get_by_label("Type restore").fill("restore")
        console.page.get_by_role("dialog").get_by_role("button", name="Restore").click()
        expect(console.page.locator(".toast-failed")).to_contain_text("Nothing was changed")


HIDDEN = {"read": {"Fit again", "Maintenance"}, "predict": {"Importances", "Trees", "Snapshot", "Fit again"}}


@pytest.mark.parametrize("scope", HIDDEN)
def test_who_may_change_nothing_is_offered_no_change(browser: Browser, guarded: Running, scope: str) -> None:
    with with_key(browser, guarded, scope, view="model") as console:
        console.go("Model")
        expect(console.section("Parameters").locator("tbody tr").first).to_be_visible()
        if scope == "read":
            expect(console.section("Snapshot").get_by_role("button", name="Download")).to_be_visible()
        for name in HIDDEN[scope]:
            expect(console.section(name)).to_have_count(0)
        expect(console.page.get_by_role("button", name="Restore", exact=True)).to_have_count(0)


def test_a_fit_that_ends_with_its_server_is_told(browser: Browser, tmp_path: Path) -> None:
    with world_in(tmp_path) as world, looking(browser, world.server, view="model") as console:
        fit = open_form(console)
        fit.get_by_label("n_estimators").fill("30000")
        fit.get_by_role("button", name="Fit again").click()
        console.page.get_by_role("dialog").get_by_role("button", name="Fit again").click()
        expect(fit.get_by_role("progressbar")).to_be_visible()
        world.server.stop()
        with serving(*FLAGS, cwd=tmp_path, port=world.server.port):
            expect(fit).to_contain_text(re.compile("the job is gone|the server was stopped"), timeout=60_000)
            expect(console.page.locator(".shell-state")).to_have_text("Live")
            assert world.server.get("/model")[1]["parameters"]["n_estimators"] == 4
