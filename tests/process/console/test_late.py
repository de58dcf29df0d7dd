"""Erasures that are finished after their deadline, or should be finished and are not: every view says so."""

import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, expect

from tests.process.console.people import write_people
from tests.process.console.support import Console, agree, find, looking
from tests.serving import serving

BAD = "rgb(179, 32, 26)"
LONG_FIT = {"parameters": {"n_estimators": 3000}, "score": False}


def ring_of(place: Locator) -> Locator:
    return place.locator("erasure-ring .ring-left").first


def test_a_late_erasure_is_told_in_every_view(browser: Browser, tmp_path: Path) -> None:
    """While a fit has the samples, no erasure can be finished."""
    flags = (*write_people(tmp_path, 6000), "--n-estimators", "3", "--erasure-deadline", "1")
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        page = console.page
        console.open("samples")
        find(console, "Person (subject)", "person 7")
        server.ask("POST", "/model/fit", LONG_FIT)
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
        check_what_is_said_later(console)


def check_what_is_said_later(console: Console) -> None:
    console.go("Now")
    now = console.section("Erasures")
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
