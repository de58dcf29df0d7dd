"""Half a million samples: each view comes up, pages and searches stay small, and one person is forgotten."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.process.console.people import write_people
from tests.process.console.support import agree, find, looking
from tests.process.console.test_looks import VIEWS
from tests.serving import serving

N = 500_000
MOST_NODES = 5_000  # elements of a page


def test_half_a_million_samples(browser: Browser, tmp_path: Path) -> None:
    flags = [*write_people(tmp_path, N), "--n-estimators", "5", "--erasure-deadline", "10"]
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server) as console:
        page = console.page
        for view, title in VIEWS.items():
            console.open(view)
            expect(console.heading(title)).to_be_visible()
            expect(page.locator(".state-loading")).to_have_count(0)
            assert page.evaluate("document.querySelectorAll('*').length") < MOST_NODES, view
        console.open("now")
        expect(page.locator(".now-count")).to_have_text("500,000")
        console.open("predict")
        why = console.section("Why")
        console.hand.press(why.get_by_role("button", name="Which samples are behind this answer?"))
        expect(why.get_by_role("heading", name="Samples that help this answer most")).to_be_visible(timeout=120_000)
        without = console.section("Without a person")
        console.hand.press(without.get_by_role("button", name="Predict without"))
        expect(without).to_contain_text("without 2 samples; 499,998 are left.", timeout=120_000)
        console.open("samples")
        find(console, "Person (subject)", "person 249999")
        section = console.section("Find")
        console.hand.press(section.get_by_role("button", name="Forget"))
        agree(console, "Forget this person?", "Forget the person")
        # On a busy machine the files of half a million samples can take longer than the deadline.
        card = section.locator("receipt-card")
        expect(card).to_contain_text(re.compile("Erased( late)?: 2 samples"), timeout=120_000)
        assert server.get("/samples/s499999")[0] == 404
        console.open("now")
        expect(page.locator(".now-count")).to_have_text("499,998")
        console.check_silence("person 249999", "person%20249999", "person+249999")
