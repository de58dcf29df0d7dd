"""Every view in light and dark, wide and narrow: nothing for axe to find, and nothing that sticks out."""

import pytest
from playwright.sync_api import Browser, expect

from tests.process.console.support import NARROW, WIDE, looking
from tests.serving import Running

VIEWS = {
    "now": "Now",
    "predict": "Predict",
    "samples": "Samples and people",
    "erasures": "Erasures",
    "model": "Model",
    "ledger": "Ledger and access",
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_view(browser: Browser, server: Running, view: str, scheme: str, size: tuple[int, int]) -> None:
    with looking(browser, server, size=size, scheme=scheme) as console:
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
        small = page.evaluate(
            """() => [...document.querySelectorAll("button, a[href], summary, input")]
                .filter((node) => node.checkVisibility() && !node.closest("label") && node.ariaHidden !== "true")
                .filter((node) => getComputedStyle(node).display !== "inline")
                .filter((node) => node.getBoundingClientRect().height < 24 || node.getBoundingClientRect().width < 24)
                .map((node) => node.outerHTML)"""
        )
        assert [one for one in small if "shell-skip" not in one] == []
