"""The console of a node of a cluster, whose answers are made here: the nodes, and what is left to the leader."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.process.console.people import HOSTILE
from tests.process.console.support import NARROW, WIDE, Console, looking
from tests.process.console.test_hostile import as_shown
from tests.serving import Running

LEADER = "http://127.0.0.2:8000/"
POLL = 5100  # milliseconds until the page has asked again
MANY_POLLS = 16_000  # with the 15 s between two signs of life, less than the silence that a page takes for an end

# Of a node that is sound.
SOUND = {"applied_seq": 40, "model_version": 12, "lag_versions": 0, "erased_seq": 30, "digests_equal": True}


def node(name: str, role: str = "follower", state: str = "in-step", **further: Any) -> dict[str, Any]:
    told = {"name": name, "url": f"http://{name}:8000", "role": role, "state": state, "seen_seconds_ago": 0.5}
    return {**told, **SOUND, **further}


NODES = [
    node("a", "leader"),
    node("b", state="behind", lag_versions=1200, model_version=4, digests_equal=None),
    node("c", state="silent", seen_seconds_ago=12.4),
    node("d", state="expelled", digests_equal=False),
]


class Answers:
    """Answers `GET /cluster` in the place of the server."""

    def __init__(self, console: Console, role: str, nodes: list[dict[str, Any]] | None = None) -> None:
        own = {"node": "a" if role == "leader" else "b", "role": role, "nodes": NODES if nodes is None else nodes}
        leader = {"name": "a", "url": LEADER}
        self.content: dict[str, Any] = {**own, "leader": leader, "epoch": 7, "model_version": 12, "seq": 40}
        self.asked = 0
        console.page.clock.install()
        console.page.route("**/cluster", self._answer)

    def _answer(self, route: Route) -> None:
        self.asked += 1
        route.fulfill(json=self.content)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_nodes_are_kept_up_to_date(browser: Browser, server: Running, scheme: str, size: dict[str, int]) -> None:
    with looking(browser, server, color_scheme=scheme, viewport=size) as console:
        answers = Answers(console, "leader")
        console.open()
        nodes = console.section("Nodes")
        expect(nodes.get_by_role("status")).to_have_text(
            "4 nodes, epoch 7. Not answering: 2. Models that differ from the leader's: 1. They answer no predictions."
        )
        rows = [row.inner_text().split("\t") for row in nodes.get_by_role("row").all()]
        assert [[cell.strip() for cell in row] for row in rows] == [
            ["Node", "Role", "State", "Version", "Behind by", "Model"],
            ["a (this one)", "Leader", "In step", "12", "\u2013", "The same"],
            ["b", "Follower", "Behind", "4", "1,200 versions", "Not compared yet"],
            ["c", "Follower", "Silent for 12 s", "12", "0 versions", "The same"],
            ["d", "Follower", "Expelled", "12", "0 versions", "Differs: answers nothing"],
        ]
        expect(console.page.locator(".banner")).to_have_count(0)
        console.check_access()
        console.check_fits()
        # The focus stays where somebody reads by the keyboard, while what is there is written again.
        frame = nodes.get_by_role("region", name="Nodes of the cluster")
        console.hand.reach(frame) if size == WIDE else frame.focus()
        answers.content["nodes"] = NODES[:2]
        console.page.clock.run_for(POLL)
        expect(nodes.get_by_role("row")).to_have_count(3)
        expect(frame).to_be_focused()


def test_a_server_without_others_shows_nothing_and_is_asked_once(browser: Browser, server: Running) -> None:
    with looking(browser, server) as console:
        answers = Answers(console, "alone", [node("b", "alone")])
        forget = console.section("Find").get_by_role("button", name="Forget")
        console.open()
        expect(console.section("Model")).to_be_visible()
        expect(console.section("Nodes")).to_have_count(0)
        expect(console.page.locator(".banner")).to_have_count(0)
        console.page.clock.run_for(MANY_POLLS)
        assert answers.asked == 1
        console.go("Samples and people")
        expect(forget).to_be_visible()
        console.page.unroute("**/cluster")
        console.page.route("**/cluster", lambda route: route.fulfill(status=404, json={}))
        console.page.reload()
        expect(forget).to_be_visible()


def test_a_page_that_nobody_sees_asks_for_nothing(browser: Browser, server: Running) -> None:
    with looking(browser, server) as console:
        answers = Answers(console, "leader")
        console.open()
        expect(console.section("Nodes")).to_be_visible()
        console.page.evaluate("Object.defineProperty(document, 'visibilityState', { get: () => 'hidden' })")
        console.page.clock.run_for(POLL)  # what was asked before is answered
        asked = answers.asked
        console.page.clock.run_for(MANY_POLLS)
        assert answers.asked == asked


@pytest.mark.parametrize("uses_keys", [False, True], ids=["mouse", "keyboard"])
def test_a_follower_leaves_changes_to_the_leader_it_names(browser: Browser, server: Running, uses_keys: bool) -> None:
    with looking(browser, server, uses_keys=uses_keys) as console:
        answers = Answers(console, "follower")
        page = console.page
        console.open("samples")
        banner = page.locator(".banner")
        expect(banner).to_contain_text("Changes go to the leader.")
        expect(banner.get_by_role("link", name=LEADER)).to_have_attribute("href", LEADER)
        expect(console.section("Held").get_by_role("row").nth(1)).to_be_visible()
        assert console.actions().isdisjoint({"Forget", "Restrict", "Release"})
        expect(console.section("Add")).to_have_count(0)
        console.check_access()
        console.hand.press(console.section("Held").get_by_role("row").nth(1).get_by_role("button"))
        sheet = page.get_by_role("dialog", name="Sample", exact=True)
        expect(sheet.get_by_role("button", name="Export what is held about the person")).to_be_visible()
        assert set(sheet.get_by_role("button").all_inner_texts()) == {"Close", "Export what is held about the person"}
        page.keyboard.press("Escape")
        expect(sheet).to_have_count(0)
        console.go("Model")
        expect(console.section("Parameters")).to_be_visible()
        for title in ("Fit again", "Maintenance"):
            expect(console.section(title)).to_have_count(0)
        assert console.actions().isdisjoint({"Write a snapshot now", "Restore", "Download", "Verify", "Scrub"})
        console.go("Predict")
        expect(page.locator(".predict-label")).not_to_be_empty()
        # It is promoted: what may be done is there without a reload.
        answers.content |= {"role": "leader", "leader": {"name": "b", "url": "http://b:8000"}}
        console.go("Samples and people")
        page.clock.run_for(POLL)
        expect(banner).to_have_count(0)
        expect(console.section("Find").get_by_role("button", name="Forget")).to_be_visible()
        # And while no one leads, it says so.
        answers.content |= {"role": "follower", "leader": None}
        page.clock.run_for(POLL)
        expect(banner).to_contain_text("no node leads at the moment")
        assert banner.get_by_role("link").count() == 0


def test_a_change_that_another_node_takes_is_not_followed_with_the_key(browser: Browser, server: Running) -> None:
    with looking(browser, server) as console:
        answers = Answers(console, "leader")
        page = console.page
        console.open("samples")
        console.section("Held").get_by_role("row").nth(1).get_by_role("button").click()

        def refuse(route: Route) -> None:  # from now on, so that the page does not learn of it before
            answers.content |= {"role": "follower", "leader": {"name": "x", "url": LEADER}}
            route.fulfill(status=307, headers={"Location": f"{LEADER}samples"})

        page.route("**/samples/batch-delete", refuse)
        sheet = page.get_by_role("dialog", name="Sample", exact=True)
        sheet.get_by_role("button", name="Forget this sample").click()
        page.get_by_role("dialog", name="Forget this sample?").get_by_role("button", name="Forget the sample").click()
        expect(page.get_by_text("Nothing was changed: another node leads")).to_be_visible()
        expect(page.locator(".banner")).to_contain_text(LEADER)  # asked for at once
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_text("Nothing was changed: another node leads")).to_be_visible()  # the dialog is closed
        assert [one.url for one in console.requests if LEADER in one.url] == []


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_nodes_are_text_and_only_web_addresses_are_links(browser: Browser, server: Running, name: str) -> None:
    with looking(browser, server, viewport=NARROW) as console:
        answers = Answers(console, "follower", [node(name, "leader"), node("b", state="<b>odd</b>")])
        answers.content["leader"] = {"name": name, "url": "javascript:document.title=1"}
        page = console.page
        console.open()
        nodes = console.section("Nodes")
        expect(nodes.get_by_role("cell").first).to_have_text(as_shown(name))
        expect(nodes).to_contain_text("<b>odd</b>")
        expect(page.locator(".banner")).to_contain_text(as_shown(name))
        assert page.locator("main img, main script, main a[href^='javascript'], .banner a").count() == 0
        console.check_fits()
        assert page.title() == "Now · Oubli"
