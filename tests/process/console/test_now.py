"""The view of what the model is doing; erasures that are late, which every view tells."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.process.console.people import write_people
from tests.process.console.support import Console, agree, find, looking
from tests.process.durability.faults import fill, small_file_system, why_no_mounts
from tests.serving import Running, serving

ROW = [33, "cook", True]
BAD = "rgb(179, 32, 26)"


def test_it_says_what_the_server_says_and_goes_on_by_itself(browser: Browser, server: Running) -> None:
    with looking(browser, server, view="") as console:
        page = console.page
        model = server.get("/model")[1]
        expect(page.locator(".now-count")).to_have_text(str(model["n_samples"]))
        about = console.section("Model")
        for text in ("forest (classification)", "exact", f"{model['model_version']}"):
            expect(about).to_contain_text(text)
        expect(page.locator(".shell-state")).to_have_text("Live")
        console.check_access()
        assert server.ask("POST", "/samples", {"samples": [{"id": "new", "features": ROW, "label": "yes"}]})[0] == 201
        expect(page.locator(".now-count")).to_have_text(str(model["n_samples"] + 1))
        server.ask("POST", "/samples/batch-delete", {"ids": ["new"]})
        erasures = console.section("Erasures")
        expect(erasures).to_contain_text("Deletion of 1 sample")
        expect(page.locator(".now-count")).to_have_text(str(model["n_samples"]))
        server.finish("/model/scrub")
        expect(erasures).to_contain_text("None is pending")


def test_paused_expiry_is_told_with_what_to_do_about_it(browser: Browser, tmp_path: Path) -> None:
    flags = (*write_people(tmp_path), "--n-estimators", "2", "--max-expiry-share", "0.01")
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server, view="") as console:
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        sample = {"features": ROW, "label": "yes", "expires_at": soon}
        assert server.ask("POST", "/samples", {"samples": [sample] * 5})[0] == 201
        banner = console.page.get_by_role("alert").filter(has_text="No sample expires")
        expect(banner).to_contain_text("Check the server's clock", timeout=90_000)
        console.check_access()
        console.hand.press(banner.get_by_role("button", name="Continue expiry"))
        expect(banner).to_have_count(0)
        expect(console.page.locator(".now-count")).to_have_text("120")


@pytest.mark.skipif(why_no_mounts() is not None, reason=str(why_no_mounts()))
def test_stopped_changes_are_told_with_what_to_do_about_it(browser: Browser, tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", "24m") as small:
        flags = [*write_people(tmp_path), "--n-estimators", "5", "--data-dir", str(small / "data")]
        with serving(*flags, cwd=tmp_path) as server, looking(browser, server, view="") as console:
            banner = console.page.get_by_role("alert").filter(has_text="No samples can be added or erased")
            expect(console.page.locator(".now-count")).to_have_text("120")
            expect(banner).to_have_count(0)
            filler = fill(small)
            while server.ask("POST", "/samples", {"samples": [{"features": ROW, "label": "yes"}] * 50})[0] == 201:
                pass
            expect(banner).to_contain_text("Make room: changes then resume by themselves.")
            console.check_access()
            filler.unlink()
            expect(banner).to_have_count(0, timeout=60_000)


def test_light_and_dark_follow_the_system_and_a_switch_that_is_not_kept(console: Console) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    console.open()
    light = console.page.evaluate(paper)
    console.page.emulate_media(color_scheme="dark")
    dark = console.page.evaluate(paper)
    assert light != dark
    console.hand.press(console.page.get_by_role("button", name="Dark"))
    assert console.page.evaluate(paper) == light
    console.page.reload()
    assert console.page.evaluate(paper) == dark
    console.check_silence()


def test_many_tabs_of_a_browser_all_work(browser: Browser, server: Running) -> None:
    """A browser has six connections to a server: tabs that hold streams must leave some to the others."""
    with looking(browser, server) as console:
        pages = [console.page, *(console.page.context.new_page() for _ in range(7))]
        for page in pages:
            page.goto(f"{server.url}/#predict")
            expect(page.locator(".predict-label")).not_to_be_empty()
        states = [page.locator(".shell-state").inner_text() for page in pages]
        assert set(states) == {"Live", "Every 5 seconds"}
        assert states.count("Live") == 2
        server.ask("POST", "/samples", {"samples": [{"id": "tab", "features": ROW, "label": "yes"}]})
        version = server.ask("POST", "/samples/batch-delete", {"ids": ["tab"]})[1]["model_version"]
        for page in pages:
            expect(page.locator(".predict-answer")).to_contain_text(f"Version {version} ")


def ring_of(place: Locator) -> Locator:
    return place.locator("erasure-ring .ring-left").first


def test_a_late_erasure_is_told_in_every_view(browser: Browser, tmp_path: Path) -> None:
    """While a fit has the samples, no erasure can be finished."""
    flags = (*write_people(tmp_path, 6000), "--n-estimators", "3", "--erasure-deadline", "1")
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        page = console.page
        console.open("samples")
        find(console, "Person (subject)", "person 7")
        server.ask("POST", "/model/fit", {"parameters": {"n_estimators": 3000}, "score": False})
        section = console.section("Find")
        forget = section.get_by_role("button", name="Forget")
        agree(console, forget, "Forget this person?", "Forget the person")
        card = section.locator("receipt-card")
        expect(card.locator("strong")).to_have_text("Overdue")
        expect(card.locator("strong")).to_have_css("color", BAD)
        expect(ring_of(card)).to_have_css("stroke", BAD)
        banner = page.get_by_role("alert").filter(has_text="Overdue erasures: 1.")
        expect(banner).to_contain_text("files still hold the unlearned samples")
        console.go("Now")
        now = console.section("Erasures")
        expect(now.locator("strong.bad")).to_have_text("1 overdue.")
        expect(ring_of(now)).to_have_css("stroke", BAD)
        console.go("Samples and people")
        section.get_by_label("Subject or id").fill("person 7")
        agree(console, forget, "Forget this person?", "Forget the person")  # answers with the receipt that there is
        expect(card).to_contain_text("Erased late: 2 samples (exact).", timeout=120_000)
        expect(card).to_contain_text("after its deadline")
        expect(banner).to_have_count(0)
        console.check_access()
        console.go("Now")
        expect(now).to_contain_text("None is pending")
        expect(now.locator("strong.bad")).to_have_text(re.compile("Finished after the deadline: 1."))
        console.go("Erasures")
        row = console.section("Receipts").locator("tbody tr").first
        expect(row).to_contain_text("Erased late")
        expect(ring_of(row)).to_have_css("stroke", BAD)
        row.get_by_role("button").click()
        receipt = console.section("One receipt")
        expect(receipt.get_by_role("heading", level=3)).to_have_text(re.compile("from all files, after the deadline$"))
        expect(receipt.locator("dd", has_text="after the deadline")).to_be_visible()
        expect(console.page.locator(".erasures-verdict")).to_contain_text("The receipt is right")
        console.check_access()
        console.go("Ledger and access")
        expect(console.section("Timeline")).to_contain_text("1 erasure finished, 1 after the deadline")
