"""The view of predictions."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Route, expect

from tests.process.console.people import write_people
from tests.process.console.support import Console, looking
from tests.servers import module_server
from tests.serving import Running, serving


def shown(console: Console) -> list[str]:
    """Return label and probabilities as they are shown."""
    label = console.page.locator(".predict-label").first.inner_text()
    return [label, *console.page.locator(".predict-answer .bars-value").all_inner_texts()]


def expected(server: Running, row: list[object]) -> list[str]:
    answer = server.ask("POST", "/predict", {"instances": [row]})[1]
    return [answer["predictions"][0], *(f"{100 * one:.1f} %" for one in answer["probabilities"][0])]


def test_a_real_row_its_answer_and_another_row(console: Console, server: Running) -> None:
    console.open("predict")
    page = console.page
    [sample] = server.get("/samples?limit=1")[1]["samples"]
    row = list(sample["features"].values())
    expect(page.get_by_label("age", exact=True)).to_have_value(str(row[0]))
    expect(page.locator(".predict-answer .bars-value")).to_have_count(2)
    assert shown(console) == expected(server, row)
    console.hand.fill(page.get_by_label("age", exact=True), "69")
    console.hand.fill(page.get_by_label("job", exact=True), "smith")
    console.hand.choose(page.get_by_label("grew", exact=True), "false")
    other = expected(server, [69, "smith", False])
    expect(page.locator(".predict-label").first).to_have_text(other[0])
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(other[1])
    console.hand.press(page.get_by_label("age is missing"))
    missing = expected(server, [None, "smith", False])
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(missing[1])
    expect(page.get_by_label("age", exact=True)).to_have_attribute("placeholder", "missing")
    console.hand.press(page.get_by_label("age is missing"))
    expect(page.get_by_label("age", exact=True)).to_have_value("69")
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(other[1])
    console.hand.fill(page.get_by_label("age", exact=True), "old")
    expect(page.get_by_text("Enter a number, or mark it as missing.")).to_be_visible()
    console.check_access()
    console.hand.press(page.get_by_role("button", name="Another row"))
    second = server.get("/samples?limit=2")[1]["samples"][1]
    expect(page.get_by_label("age", exact=True)).to_have_value(str(second["features"]["age"]))
    expect(page.get_by_text("Enter a number, or mark it as missing.")).to_have_count(0)


def test_why_with_one_step_to_the_samples(console: Console, server: Running) -> None:
    console.open("predict")
    why = console.section("Why")
    console.hand.press(why.get_by_role("button", name="Which samples are behind this answer?"))
    [sample] = server.get("/samples?limit=1")[1]["samples"]
    asked = {"instances": [list(sample["features"].values())], "top": 8}
    expect(why.get_by_role("heading", name="Samples that help this answer most")).to_be_visible(timeout=300_000)
    found = server.ask("POST", "/influence", asked)[1]  # now its kernels are there: no job is begun
    for one in [*found["helpful"], *found["harmful"]]:
        expect(why.get_by_role("button", name=one["id"], exact=True)).to_be_visible()
    console.check_access()
    best = found["helpful"][0]["id"]
    console.hand.press(why.get_by_role("button", name=best, exact=True))
    dialog = console.page.get_by_role("dialog", name="Sample")
    held = server.get(f"/samples/{best}")[1]
    for text in (best, held["subject"], held["label"], held["features"]["job"]):
        expect(dialog).to_contain_text(str(text))
    console.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    console.check_silence(held["subject"])


def test_what_it_would_say_without_a_person(console: Console, server: Running) -> None:
    console.open("predict")
    without = console.section("Without a person")
    before = server.get("/model")[1]["model_version"]
    expect(without.get_by_label("Name")).to_have_value("person 0")
    console.hand.press(without.get_by_role("button", name="Predict without"))
    expect(without).to_contain_text("without 2 samples; 118 are left.", timeout=60_000)
    expect(without.get_by_role("heading", name="With", exact=True)).to_be_visible()
    expect(without.get_by_role("heading", name="Without", exact=True)).to_be_visible()
    console.check_access()
    console.hand.choose(without.get_by_label("Without"), "Sample (id)")
    console.hand.fill(without.get_by_label("Name"), "nobody at all")
    console.hand.press(without.get_by_role("button", name="Predict without"))
    expect(without).to_contain_text("The model has learned no sample under this name.")
    assert server.get("/model")[1]["model_version"] == before
    console.check_silence("person 0", "person%200", "person+0", "nobody")


def test_a_value_unlike_all_that_are_held_is_told_at_its_field(console: Console, server: Running) -> None:
    console.open("predict")
    page = console.page
    age, job = page.get_by_label("age", exact=True), page.get_by_label("job", exact=True)
    expect(page.locator(".predict-label")).not_to_be_empty()
    expect(page.locator(".field-error:visible")).to_have_count(0)
    console.hand.fill(age, "999")
    outside = page.get_by_text("Outside the range of the samples held: 20 to 69.")
    expect(outside).to_be_visible()
    expect(age).to_have_attribute("aria-invalid", "false")
    console.hand.fill(job, "astronaut")
    unknown = page.get_by_text("No sample held has this value.")
    expect(unknown).to_be_visible()
    console.check_access()
    grew = page.get_by_label("grew", exact=True).input_value() == "true"
    answer = expected(server, [999, "astronaut", grew])  # it is a warning: the answer is there
    expect(page.locator(".predict-answer .bars-value").first).to_have_text(answer[1])
    sample = {"id": "a-1", "features": [999, "astronaut", True], "label": "yes", "readd": True}
    assert server.ask("POST", "/samples", {"samples": [sample]})[0] == 201
    expect(outside).to_have_count(0)  # now one is held
    expect(unknown).to_have_count(0)
    server.ask("POST", "/samples/batch-delete", {"ids": ["a-1"]})
    console.hand.fill(job, "pilot")
    expect(unknown).to_be_visible()
    console.hand.press(page.get_by_label("job is missing"))
    expect(unknown).to_have_count(0)


# A server that ranks samples for a minute when it leaves each of them out in turn, for many rows.
slow = module_server(lambda folder: (*write_people(folder, 20_000), "--n-estimators", "1000"))


def influence_jobs(server: Running) -> list[Any]:
    return [one["status"] for one in server.get("/jobs")[1]["jobs"] if one["kind"] == "influence"]


def test_a_long_question_is_cancelled_or_replaced_and_the_next_has_its_turn(browser: Browser, slow: Running) -> None:
    def leave_out(route: Route) -> None:
        asked = route.request.post_data_json
        many = 20 * asked["instances"]  # a few rows are read, and only many are unlearned for
        route.continue_(post_data={**asked, "instances": many, "method": "leave-one-out"})

    with looking(browser, slow, view="predict") as console:
        page, why = console.page, console.section("Why")
        page.route("**/influence", leave_out)
        ask = why.get_by_role("button", name="Which samples are behind this answer?")
        console.hand.press(ask)
        expect(why.get_by_text("Running")).to_be_visible(timeout=60_000)
        console.check_access()
        console.hand.press(why.get_by_role("button", name="Cancel"))
        expect(ask).to_be_visible()
        console.hand.press(ask)
        expect(why.get_by_text("Running")).to_be_visible(timeout=60_000)
        assert influence_jobs(slow) == ["failed", "running"]
        page.get_by_label("age", exact=True).fill("44")  # the question is about another row then
        expect(ask).to_be_visible()
        without = console.section("Without a person")
        for name in ("person 1", "person 2"):
            console.hand.fill(without.get_by_label("Name"), name)
            console.hand.press(without.get_by_role("button", name="Predict without"))
        expect(without).to_contain_text("without 2 samples; 19,998 are left.")
        console.hand.press(ask)
        expect(why.get_by_text("Running")).to_be_visible(timeout=60_000)
        console.go("Now")
        page.wait_for_timeout(1000)
        assert influence_jobs(slow) == ["failed"] * 3, "nobody waits for the answer"


def test_the_answer_to_an_earlier_row_is_not_waited_for(browser: Browser, server: Running) -> None:
    with looking(browser, server) as console:
        page = console.page
        held: list[Route] = []

        def hold(route: Route) -> None:
            if '"instances":[[21,' in (route.request.post_data or ""):
                held.append(route)
            else:
                route.continue_()

        console.open("predict")
        expect(page.locator(".predict-label")).not_to_be_empty()
        page.route("**/predict", hold)
        page.get_by_label("age", exact=True).fill("21")
        while not held:
            page.wait_for_timeout(50)
        page.get_by_label("age", exact=True).fill("69")
        row = [69, page.get_by_label("job", exact=True).input_value()]
        answer = expected(server, [*row, page.get_by_label("grew", exact=True).input_value() == "true"])
        expect(page.locator(".predict-answer .bars-value").first).to_have_text(answer[1])
        while held[0].request.failure is None:  # the browser says so a little later
            page.wait_for_timeout(50)
        assert held[0].request.failure == "net::ERR_ABORTED"
        assert shown(console) == answer


def test_a_date_may_be_written_as_one_and_the_data_file_is_told(browser: Browser, tmp_path: Path) -> None:
    rows = [f"{i};{i % 28 + 1}.3.2021;{'yes' if i % 3 else 'no'};x" for i in range(60)]
    (tmp_path / "data.csv").write_text("\n".join(["n;since;y;always", *rows]) + "\n")
    flags = ("data.csv", "--target", "y", "--ephemeral", "--n-estimators", "3")
    with serving(*flags, cwd=tmp_path) as server, looking(browser, server, uses_keys=False) as console:
        console.open("predict")
        field = console.page.get_by_label("since", exact=True)
        console.hand.fill(field, "2021-03-05")
        answer = expected(server, [0, "2021-03-05", "x"])
        console.hand.fill(console.page.get_by_label("n", exact=True), "0")
        console.hand.fill(console.page.get_by_label("always", exact=True), "x")
        expect(console.page.locator(".predict-answer .bars-value").first).to_have_text(answer[1])
        console.hand.fill(field, "soon")
        expect(console.page.get_by_text("Enter a number or a date or time such as 2024-01-31")).to_be_visible()
        console.go("Model")
        facts = console.section("Current model")
        expect(facts).to_contain_text("csv, delimiter=;")
        expect(facts).to_contain_text("is the same in all rows")
