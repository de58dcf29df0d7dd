"""The view of erasures: the list, one receipt and its check, reports; by mouse and by keyboard."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from oubli.app.ledger.downloads import check_ledger, check_receipt, read_public_keys
from tests.process.console.audit.worlds import CASE, ERASED, World
from tests.process.console.support import NARROW, WIDE, Console, changed, looking, with_key
from tests.serving import Running

RIGHT = "The receipt is right"
UNABLE = "could not be checked here"
GIVES = "((owner, name, value) => Object.defineProperty(owner, name, { get: () => value }))"


def open_newest(console: Console) -> None:
    """Open the receipt in the first row."""
    console.hand.press(console.section("Receipts").locator("tbody tr").first.get_by_role("button"))


def verdict(console: Console) -> Any:
    return console.page.locator(".erasures-verdict")


def states(console: Console) -> dict[str, str]:
    """Return the state of each step of the check."""
    steps = console.page.locator(".erasures-step").all()
    return {step.locator("strong").inner_text(): step.locator(".sr-only").inner_text().strip(": ") for step in steps}


@pytest.mark.parametrize("uses_keys", [False, True], ids=["mouse", "keyboard"])
def test_a_receipt_is_checked_step_by_step(browser: Browser, world: World, uses_keys: bool) -> None:
    how = {"viewport": WIDE} if uses_keys else {"viewport": NARROW, "color_scheme": "dark"}
    with looking(browser, world.server, uses_keys=uses_keys, view="", **how) as console:
        console.go("Erasures")
        open_newest(console)
        expect(verdict(console)).to_contain_text(RIGHT)
        assert set(states(console).values()) == {"right"}
        assert len(states(console)) == 7
        expect(console.section("Receipts").locator("tbody tr").first).to_contain_text("Right")
        console.check_access()
        console.check_fits()
        console.hand.press(console.section("One receipt").get_by_role("button", name="Close"))
        expect(console.page.locator("h3", has_text="erased")).not_to_be_visible()
        # The focus goes back to where it came from.
        assert console.page.evaluate("document.activeElement.closest('tr') !== null")
        console.check_silence(*ERASED)


def test_lists_go_by_status_and_case(browser: Browser, world: World) -> None:
    with looking(browser, world.server, view="erasures") as console:
        rows = console.section("Receipts").locator("tbody tr")
        expect(rows).to_have_count(len(world.receipts()))
        console.page.get_by_label("Overdue").check()
        expect(console.section("Receipts")).to_contain_text("No receipt matches.")
        console.page.get_by_label("Erased", exact=True).check()
        expect(rows.first).to_contain_text("Erased")
        console.page.get_by_label("All", exact=True).check()
        field = console.page.get_by_label("Case number")
        console.hand.fill(field, "case 7")
        console.page.get_by_role("button", name="Find").click()
        expect(console.page.get_by_text("A case number is a UUID")).to_be_visible()
        console.hand.fill(field, CASE)
        console.page.get_by_role("button", name="Find").click()
        expect(rows).to_have_count(1)
        assert CASE not in console.page.url
        # The page is in India: half an hour lies between its times and those of UTC.
        [receipt] = [one for one in world.receipts() if one["ref"] == CASE]
        unlearned = console.section("Receipts").locator(f'time[datetime="{receipt["unlearned_at"]}"]')
        expect(unlearned).to_have_attribute("title", re.compile(f"{receipt['unlearned_at'][11:16]}.* UTC"))
        expect(unlearned).not_to_contain_text(receipt["unlearned_at"][13:17])


def test_an_erasure_shows_by_itself_and_runs_out(browser: Browser, world: World) -> None:
    with looking(browser, world.server, view="erasures") as console:
        rows = console.section("Receipts").locator("tbody tr")
        before = len(world.receipts())
        expect(rows).to_have_count(before)
        world.server.ask("POST", "/samples/batch-delete", {"ids": [world.take()]})
        expect(rows).to_have_count(before + 1)
        expect(rows.first).to_contain_text("left")
        open_newest(console)
        expect(verdict(console)).to_contain_text(RIGHT)
        world.server.finish("/model/scrub")
        receipt = console.section("One receipt")
        expect(receipt).to_contain_text("erased from the model and from all files", timeout=15_000)
        expect(verdict(console)).to_contain_text(RIGHT)
        expect(rows.first).not_to_contain_text("left")


def test_a_changed_receipt_is_found_and_a_check_counts_for_what_was_checked(browser: Browser, world: World) -> None:
    def change(answer: Any) -> None:
        answer["erasures"][0]["unlearned"] += 1
        answer["erasures"][1]["unlearned_at"] = answer["erasures"][1]["received_at"] = "2020-01-01T00:00:00.000Z"

    with looking(browser, world.server) as console:
        changed(console.page, "/erasures?*", change)
        console.open("erasures")
        open_newest(console)  # as the server has it
        expect(verdict(console)).to_contain_text(RIGHT)
        rows = console.section("Receipts").locator("tbody tr")
        expect(rows.first).not_to_contain_text("Right")
        console.page.get_by_role("button", name="Check all listed receipts").click()
        expect(console.page.get_by_text("do not match the server's key and ledger: 2.")).to_be_visible()
        for row, word in enumerate(("Wrong", "Wrong", "Right")):
            expect(rows.nth(row)).to_contain_text(word)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"{GIVES}(Crypto.prototype, 'subtle', undefined); {GIVES}(window, 'isSecureContext', false)", "plain HTTP"),
        (f"{GIVES}(Crypto.prototype, 'subtle', undefined)", "has no WebCrypto"),
        ("SubtleCrypto.prototype.importKey = async () => { throw new DOMException(); }", "no Ed25519"),
    ],
)
def test_what_cannot_be_checked_is_said(browser: Browser, world: World, script: str, reason: str) -> None:
    with looking(browser, world.server) as console:
        console.page.add_init_script(script)
        console.open("erasures")
        open_newest(console)
        expect(verdict(console)).to_contain_text(UNABLE)
        assert states(console) == {name: "right" if name == "Form" else "not checked" for name in states(console)}
        expect(console.page.locator(".erasures-steps")).to_contain_text(reason)


def test_a_report_holds_what_anybody_can_check(browser: Browser, world: World, tmp_path: Path) -> None:
    with looking(browser, world.server, view="erasures") as console:
        console.page.get_by_role("button", name="Check all listed receipts").click()
        expect(console.page.locator("tbody")).to_contain_text("Right")
        with console.page.expect_download() as download:
            console.section("For the regulator").get_by_role("button", name="Report as JSON").click()
        download.value.save_as(tmp_path / "report.json")
        report = json.loads((tmp_path / "report.json").read_text())
        ledger = check_ledger(world.entries())
        assert [one["receipt"] for one in report["receipts"]] == world.receipts()[::-1]
        for one in report["receipts"]:
            check_receipt(one["receipt"], ledger, read_public_keys(report))
            assert one["check"]["outcome"] == "ok"
        console.check_silence(*ERASED)


def test_a_report_is_printed_without_the_rest_of_the_page(browser: Browser, world: World) -> None:
    with looking(browser, world.server) as console:
        console.page.add_init_script("window.print = () => { document.documentElement.dataset.printed = ''; }")
        console.open("erasures")
        open_newest(console)
        expect(verdict(console)).to_contain_text(RIGHT)
        console.section("One receipt").get_by_role("button", name="Print").click()
        expect(console.page.locator("html[data-printed]")).to_be_attached()
        paper = console.page.locator(".erasures-paper")
        expect(paper).to_be_hidden()
        console.page.emulate_media(media="print")
        expect(paper).to_be_visible()
        expect(paper).to_contain_text("Checked in a browser on")
        expect(paper).to_contain_text(world.receipts()[-1]["signature"])
        expect(console.page.get_by_role("navigation")).to_be_hidden()
        expect(console.section("Receipts")).to_be_hidden()
        console.page.evaluate("dispatchEvent(new Event('afterprint'))")
        expect(paper).to_have_count(0)
        expect(console.heading("Erasures")).to_be_visible()


def test_a_key_that_may_erase_sees_receipts_and_no_ledger(browser: Browser, guarded: Running) -> None:
    with with_key(browser, guarded, "erase", view="erasures") as console:
        console.go("Erasures")
        open_newest(console)
        expect(verdict(console)).to_contain_text(UNABLE)
        assert states(console)["Signature"] == "right"
        assert states(console)["Chain"] == "not checked"
        console.go("Ledger and access")
        expect(console.section("Timeline")).to_have_count(0)
        expect(console.section("Access")).to_contain_text("delete samples")
