"""The view of samples and people. What it says is compared with what the server holds."""

import json
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Error, Route, expect

from tests.process.console.support import Console, agree, find
from tests.serving import Running


def add(server: Running, subject: str, n: int = 2) -> list[str]:
    """Have a person in the model; return the ids."""
    samples = [{"subject": subject, "features": [30 + i, "cook", True], "label": "yes"} for i in range(n)]
    ids: list[str] = server.ask("POST", "/samples", {"samples": samples})[1]["ids"]
    return ids


def held(server: Running, subject: str) -> list[dict[str, object]]:
    status, page = server.ask("POST", "/samples/search", {"subject": subject})
    return page["samples"] if status == 200 else []


def test_find_see_rectify_and_forget_a_sample(console: Console, server: Running) -> None:
    [sample_id] = add(server, "ada", 1)
    console.open("samples")
    found = find(console, "Sample (id)", sample_id)
    console.hand.press(found.get_by_role("button", name=sample_id, exact=True))
    sheet = console.page.get_by_role("dialog", name="Sample", exact=True)
    expect(sheet).to_contain_text("ada")
    console.check_access()
    console.hand.press(sheet.get_by_role("button", name="Rectify"))
    form = console.page.get_by_role("dialog", name="Rectify the sample")
    expect(form.get_by_label("age", exact=True)).to_have_value("30")
    console.hand.fill(form.get_by_label("age", exact=True), "31.5")
    console.hand.fill(form.get_by_label("Subject"), "ada lovelace")
    console.hand.fill(form.get_by_label("Weight"), "2.5")
    console.check_access()
    console.hand.press(form.get_by_role("button", name="Replace the values"))
    expect(sheet.locator("receipt-card")).to_contain_text("1 sample (exact)")
    now = server.get(f"/samples/{sample_id}")[1]
    assert (now["features"]["age"], now["subject"], now["label"], now["weight"]) == (31.5, "ada lovelace", "yes", 2.5)
    console.page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    found = find(console, "Person (subject)", "ada lovelace")
    console.hand.press(found.get_by_role("button", name=sample_id, exact=True))
    agree(console, sheet.get_by_role("button", name="Forget this sample"), "Forget this sample?", "Forget the sample")
    expect(sheet.locator("receipt-card")).to_contain_text("Unlearned: 1 sample (exact)")
    assert server.get(f"/samples/{sample_id}")[0] == 404
    server.finish("/model/scrub")
    expect(sheet.locator("receipt-card")).to_contain_text("Erased: 1 sample")
    console.page.keyboard.press("Escape")
    expect(console.section("Held")).to_contain_text("Nothing is held about this person.")
    console.check_silence("ada lovelace", "ada%20lovelace")


def test_what_fails_in_a_dialog_is_told_there_and_can_be_tried_again(console: Console, server: Running) -> None:
    [sample_id] = add(server, "grace", 1)
    console.open("samples")
    console.hand.press(find(console, "Person (subject)", "grace").get_by_role("button", name=sample_id, exact=True))
    sheet = console.page.get_by_role("dialog", name="Sample", exact=True)
    console.page.route("**/samples/batch-delete", lambda route: route.abort())
    forget = sheet.get_by_role("button", name="Forget this sample")
    agree(console, forget, "Forget this sample?", "Forget the sample")
    message = sheet.get_by_role("status").filter(has_text="The server does not answer.")
    expect(message).to_be_visible()
    console.check_access()
    console.hand.press(message.get_by_role("button", name="Close the message"))
    console.page.unroute("**/samples/batch-delete")
    agree(console, forget, "Forget this sample?", "Forget the sample")
    expect(sheet.locator("receipt-card")).to_contain_text("1 sample (exact)")


def test_forget_a_person_and_change_ones_mind(console: Console, server: Running) -> None:
    subject = f"bob {console.hand.uses_keys}"
    add(server, subject, 3)
    console.open("samples")
    find(console, "Person (subject)", subject)
    section = console.section("Find")
    forget = section.get_by_role("button", name="Forget")
    console.hand.press(forget)
    dialog = console.page.get_by_role("dialog", name="Forget this person?")
    expect(dialog).to_contain_text("3 samples")
    expect(dialog).to_contain_text("You cannot undo this")
    console.hand.press(dialog.get_by_role("button", name="Cancel"))
    assert len(held(server, subject)) == 3
    expect(forget).to_be_focused()
    agree(console, forget, "Forget this person?", "Forget the person")
    expect(section.locator("receipt-card")).to_contain_text("3 samples (exact)")
    assert held(server, subject) == []
    expect(console.section("Held")).to_contain_text("Nothing is held about this person.")
    agree(console, forget, "Forget this person?", "Forget the person")
    expect(section).to_contain_text("3 samples (exact)")  # the receipt of the erasure before
    console.check_silence(subject)


def test_add_a_sample_with_what_is_wrong_told_at_its_place(console: Console, server: Running) -> None:
    name = f"new-{console.hand.uses_keys}"
    console.open("samples")
    section = console.section("Add")
    console.hand.press(section.get_by_text("One sample"))
    form = section.locator("details").first
    console.hand.fill(form.get_by_label("age", exact=True), "forty")
    console.hand.press(form.get_by_role("button", name="Add the sample"))
    expect(form.get_by_text("Enter a number, or mark it as missing.")).to_be_visible()
    console.hand.fill(form.get_by_label("age", exact=True), "40")
    expect(form.get_by_text("Enter a label: string.")).to_be_visible()
    console.hand.fill(form.get_by_label("Label: income"), "perhaps")
    console.hand.fill(form.get_by_label("Id", exact=True), name)
    console.hand.fill(form.get_by_label("Subject"), "eve")
    console.hand.fill(form.get_by_label("Weight"), "0.0001")
    console.hand.press(form.get_by_role("button", name="Add the sample"))
    expect(form.get_by_label("Weight")).to_have_attribute("aria-invalid", "true")
    console.hand.fill(form.get_by_label("Weight"), "0.5")
    console.check_access()
    console.hand.press(form.get_by_role("button", name="Add the sample"))
    expect(form).to_contain_text(f"The model has learned sample {name}")
    sample = server.get(f"/samples/{name}")[1]
    assert sample["features"] == {"age": 40, "job": None, "grew": None}
    assert (sample["label"], sample["subject"], sample["weight"]) == ("perhaps", "eve", 0.5)
    console.hand.fill(form.get_by_label("age", exact=True), "41")
    console.hand.press(form.get_by_role("button", name="Add the sample"))
    expect(form.get_by_text("is held with other content").first).to_be_visible()
    server.ask("POST", "/samples/batch-delete", {"ids": [name]})
    console.hand.press(form.get_by_role("button", name="Add the sample"))
    console.hand.press(form.get_by_role("button", name="Add it anyway"))
    expect(form).to_contain_text(f"The model has learned sample {name}")
    server.ask("POST", "/samples/batch-delete", {"ids": [name]})
    console.check_silence("perhaps", name)


def test_add_a_file(console: Console, server: Running, tmp_path: Path) -> None:
    name = f"file {console.hand.uses_keys}"
    rows = [f'{name}-{i},"p\n{i}",{20 + i},cook,true,yes' for i in range(7)]  # with a line break between quotes
    csv = tmp_path / "more.csv"
    csv.write_text("\n".join(["id,subject,age,job,grew,income", *rows]) + "\n")
    console.open("samples")
    section = console.section("Add")
    console.hand.press(section.get_by_text("A CSV file"))
    start = section.get_by_role("button", name="Add the samples")
    console.hand.press(start)
    expect(section.get_by_text("Choose a file.")).to_be_visible()
    section.get_by_label("CSV file").set_input_files(csv)
    console.hand.press(start)
    expect(section).to_contain_text("7 rows were added.")
    assert server.get(f"/samples?id={quote(name)}-3")[1]["samples"][0]["subject"] == "p\n3"
    for text, refusal in (
        ('age,job,grew,"the, ""colour""",income\n1,cook,true,red,yes\n', 'no column the, "colour", which is column 4'),
        ("age,job,grew,income\n1,cook,true,yes\n2,cook,perhaps,yes\n", "row 2 was refused in column grew: must be"),
    ):
        csv.write_text(text)
        section.get_by_label("CSV file").set_input_files(csv)
        console.hand.press(start)
        expect(section).to_contain_text(refusal)
        expect(section).to_contain_text("0 rows were added.")
        console.check_access()


def test_a_dialog_goes_with_its_view(console: Console, server: Running) -> None:
    [sample_id] = add(server, "zoe", 1)
    console.open("now")
    console.go("Samples and people")
    page = console.page
    dialogs = page.get_by_role("dialog")
    console.hand.press(find(console, "Sample (id)", sample_id).get_by_role("button", name=sample_id, exact=True))
    console.hand.press(dialogs.get_by_role("button", name="Forget this sample"))
    expect(dialogs).to_have_count(2)
    page.go_back()
    expect(console.heading("Now")).to_be_visible()
    expect(dialogs).to_have_count(0)
    assert server.get(f"/samples/{sample_id}")[0] == 200
    page.go_forward()
    find(console, "Person (subject)", "zoe")
    slow: list[Route] = []
    page.route("**/samples/search", lambda route: slow.append(route))
    console.hand.press(console.section("Find").get_by_role("button", name="Forget"))
    while not slow:
        page.wait_for_timeout(50)
    page.go_back()  # before it is asked whether to forget
    expect(console.heading("Now")).to_be_visible()
    with suppress(Error):  # it was aborted
        slow[0].continue_()
    page.wait_for_timeout(300)
    expect(dialogs).to_have_count(0)
    server.ask("POST", "/samples/batch-delete", {"ids": [sample_id]})


def test_export_restrict_and_release_a_person(console: Console, server: Running) -> None:
    subject = f"carol {console.hand.uses_keys}"
    ids = add(server, subject)
    n_samples = server.get("/model")[1]["n_samples"]
    console.open("samples")
    found = find(console, "Person (subject)", subject)
    section = console.section("Find")
    for name, check in (
        ("Save as JSON", lambda text: json.loads(text)["held"]),
        ("Save as CSV", lambda text: ids[0] in text),
    ):
        console.hand.press(section.get_by_role("button", name="Export"))
        dialog = console.page.get_by_role("dialog", name="Export what is held")
        with console.page.expect_download() as downloading:
            console.hand.press(dialog.get_by_role("button", name=name))
        assert check(downloading.value.path().read_text())
        assert subject not in downloading.value.suggested_filename
        expect(dialog).to_have_count(0)
    agree(console, section.get_by_role("button", name="Restrict"), "Restrict this person?", "Restrict")
    expect(found).to_contain_text("Restricted")
    assert server.get("/model")[1]["n_samples"] == n_samples - 2
    agree(console, section.get_by_role("button", name="Release"), "Release this person?", "Release")
    expect(found).not_to_contain_text("Restricted")
    assert server.get("/model")[1]["n_samples"] == n_samples
    server.ask("POST", "/samples/batch-delete", {"subjects": [subject]})
    console.check_silence(subject)


def test_all_samples_page_by_page(console: Console, server: Running) -> None:
    console.open("samples")
    found = console.section("Held")
    expect(found.get_by_role("row")).to_have_count(26)
    console.hand.press(found.get_by_role("button", name="Show more"))
    expect(found.get_by_role("row")).to_have_count(51)
    names = [one["id"] for one in server.get("/samples?limit=50")[1]["samples"]]
    assert found.get_by_role("row").get_by_role("button").all_inner_texts() == names
