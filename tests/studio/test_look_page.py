"""The views that look at a model, start runs and finish, in a real browser against a stand-in of the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import NEEDED
from fake_look import FakeLook
from fake_server import start

pytestmark = NEEDED
STATIC = Path(__file__).parents[2] / "src/epass/studio/static"
KINDS = ("beach", "forest", "mountain", "street")
MAP_IS_THERE = "Number(document.querySelector('.map-canvas')?.dataset.points) === 40"


@pytest.fixture
def studio():
    """Forty images of four classes, eight of them labeled; the model is wrong about one label and says so."""
    fake = FakeLook([f"photo_{i:02}.jpg" for i in range(40)], [KINDS[i % 4] for i in range(40)])
    fake.classes = [{"id": i, "name": name, "key": str(i + 1)} for i, name in enumerate(KINDS)]
    fake.labels = {i: i % 4 for i in range(8)}
    fake.guesses = {i: (i % 4 if i != 3 else 0, 0.9) for i in range(40)}
    score = {"value": 0.875, "low": 0.5, "high": 0.98, "labels": 8}
    fake.model = {"n": 0, "labels": 8, "how": "labels only", "accuracy": score, "labels_only": None, "helped": None}
    fake.model |= {"history": [], "enough": None, "seconds": 1.0, "behind": 0}
    fake.teach_from = 1000
    return fake


@pytest.fixture
def show(browser, studio):
    server, address = start(studio, STATIC)

    def open_view(view, ready, **window):
        browser.open(f"{address}#{view}", **window)
        return browser.wait_for(ready)

    yield open_view
    assert browser.complaints() == []
    browser.open("about:blank")
    server.should_exit = True


def press(browser, words, inside="document"):
    """Press the first button or link that is written so, as soon as it is there."""
    is_it = f"(one) => one.textContent.trim() === {words!r} && !one.disabled"
    found = f"[...{inside}.querySelectorAll('button, a')].find({is_it})"
    browser.wait_for(f"!!{found}")
    browser.evaluate(f"{found}.click()")


def test_lasso_labels_a_group_and_keeps_labels_that_are_there(browser, studio, show):
    show("look", MAP_IS_THERE)
    left, top, width, height = canvas(browser)
    middle = (left + width / 2, top + height / 2)
    browser.drag([(left + 3, top + 3), (middle[0], top + 3), middle, (left + 3, middle[1]), (left + 3, top + 5)])
    browser.wait_for("document.querySelector('.map-bar strong')?.textContent === '10 images'")
    press(browser, "Label as…")
    press(browser, "forest", "document.querySelector('.map-menu')")
    browser.wait_for("document.querySelector('.map-bar').textContent.startsWith('8 images labeled as forest')")
    beaches = [i for i in range(40) if i % 4 == 0]
    assert [change["id"] for change in studio.answers] == beaches[2:]  # two had a label already
    assert studio.answers[0] == {"id": 8, "label": 1, "mark": None, "seen": {"label": None, "mark": None}}
    press(browser, "Undo")
    browser.wait_for("document.querySelector('.map-bar').hidden")
    assert len(studio.labels) == 8


def canvas(browser):
    """Left, top, width and height of the map, in the middle of the window."""
    browser.evaluate("document.querySelector('.map-canvas').scrollIntoView({block: 'center'})")
    box = "document.querySelector('.map-canvas').getBoundingClientRect()"
    return browser.evaluate(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")


def test_pointer_on_a_dot_shows_the_image_and_its_name(browser, show):
    show("look", MAP_IS_THERE)
    left, top, width, height = canvas(browser)
    scale = (min(width, height) - 56) / 10000
    browser.move(left + width / 2 + (2000 - 5000) * scale, top + height / 2 + (2000 - 5000) * scale)  # image 0
    browser.wait_for("document.querySelector('.map-card strong')?.textContent === 'photo_00.jpg'")
    words = "document.querySelector('.map-card span').textContent"
    assert browser.evaluate(words) == "label beach · guess beach, 90 % sure"


def test_map_is_moved_by_keys_and_told_in_words(browser, show):
    show("look", MAP_IS_THERE)
    words = browser.wait_for("document.querySelector('#map-words').textContent")
    assert words == "40 images by label, or guess where there is none: 10 beach, 10 forest, 10 mountain, 10 street."
    browser.evaluate("document.querySelector('.map-canvas').focus()")
    for key in "+++++":
        browser.press(key)
    browser.wait_for("Number(document.querySelector('.map-canvas').dataset.points) === 0")  # the middle is empty
    for _ in range(14):
        browser.press("ArrowLeft")
        browser.press("ArrowUp")
    browser.wait_for("Number(document.querySelector('.map-canvas').dataset.thumbnails) > 0")
    browser.press("0")
    browser.wait_for(MAP_IS_THERE)
    press(browser, "beach10")
    browser.wait_for("document.querySelector('[data-group=\"0\"]').getAttribute('aria-pressed') === 'false'")
    browser.wait_for("Number(document.querySelector('.map-canvas').dataset.points) === 30")


def test_lists_have_counts_and_a_cell_opens_its_images(browser, show):
    show("look", "document.querySelectorAll('.look-list').length === 4 && !!document.querySelector('.confusion')")
    assert browser.evaluate("document.querySelector('[data-list=mistakes] .list-count').textContent") == "1"
    assert browser.evaluate("document.querySelectorAll('[data-list=mistakes] img').length") == 1
    label = "1 labeled street, guessed beach: show"
    browser.evaluate(f"document.querySelector('[aria-label=\"{label}\"]').click()")
    banner = browser.wait_for("document.querySelector('.banner:not([hidden])')?.textContent")
    assert banner.startswith("Labeled street, guessed beach · 1 image")


def test_a_count_of_a_list_is_never_broken_into_two_numbers(browser, studio, show):
    asked = studio.ids
    studio.ids = lambda view, said: list(range(131)) if view == "mistakes" else asked(view, said)
    show("look", "document.querySelector('[data-list=mistakes] .list-count')?.textContent === '131'", width=1280)
    found = "document.querySelector('[data-list=mistakes] .list-count')"
    lines = f"(() => {{ const all = document.createRange(); all.selectNode({found}.firstChild);"
    assert browser.evaluate(f"{lines} return all.getClientRects().length; }})()") == 1


def test_without_a_model_it_says_what_is_missing(browser, studio, show):
    studio.model, studio.labels = None, {}
    said = show("look", "document.querySelector('.view-look .lead')?.textContent")
    assert said == "Nothing yet: label at least 2 images in each of two classes, and a model appears by itself."
    words = "document.querySelector('[data-list=mistakes]')?.innerText"
    assert "There is no model yet." in browser.wait_for(words)  # and so no label was left out, and none was missed


def test_with_too_few_labels_it_says_how_many_more(browser, studio, show):
    studio.model |= {"accuracy": None, "about": "Too few labels to tell the accuracy: 2 more, and it is shown."}
    said = show("look", "document.querySelector('.view-look .lead')?.textContent")
    assert said == studio.model["about"]


def test_form_says_only_what_was_filled_in(browser, studio, show):
    show("runs?new=train", "!!document.querySelector('.job-form')")
    assert browser.evaluate("[...document.querySelectorAll('.job-form details')].map((one) => one.open)") == [
        True,
        False,
    ]
    browser.evaluate("document.querySelector('#field-train-method').value = 'fixmatch'")
    browser.evaluate("document.querySelector('#field-train-stream').click()")
    browser.evaluate("document.querySelector('#field-train-projectors').focus()")
    browser.write("0")
    press(browser, "Start")
    assert studio.asked == []  # at least one projector
    browser.evaluate("document.querySelector('#field-train-projectors').value = '3'")
    browser.evaluate("document.querySelector('#field-train-settings').value = 'method.threshold=0.9\\n'")
    press(browser, "Show the plan")
    browser.wait_for("document.querySelector('.planned').textContent.includes('SimMatch with 3 projectors')")
    press(browser, "Start")
    browser.wait_for("location.hash === '#runs' && !!document.querySelector('[data-job]')")
    said = {"method": "fixmatch", "projectors": 3, "stream": True, "settings": ["method.threshold=0.9"]}
    wanted = {"do": "train", "said": said}
    assert studio.asked == [("/api/jobs", {**wanted, "plan": True}), ("/api/jobs", {**wanted, "plan": False})]


def test_job_is_stopped_and_resumed(browser, studio, show):
    studio.job("train", {})
    studio.runs["photos-simmatch-0-2"] = studio.run("photos-simmatch-0-2", 1)
    show("runs", "document.querySelector('[data-job] progress')?.value === 120")
    state = "document.querySelector('[data-run=photos-simmatch-0-2] .status')?.textContent"
    browser.wait_for(f"{state} === 'running'")  # there are results, but the guard may still keep another model
    browser.evaluate("window.before = document.querySelector('[data-job] button'); null")
    studio.jobs["job-0"]["progress"] |= {"step": 240}
    studio.publish_soon("job", studio.jobs["job-0"])
    browser.wait_for("document.querySelector('[data-job] progress').value === 240")
    assert browser.evaluate("window.before.isConnected")  # no click on it is lost
    press(browser, "Stop")
    browser.wait_for("document.querySelector('[data-job]').dataset.state === 'stopped'")
    browser.wait_for(f"{state} === 'finished'")
    press(browser, "Resume")
    browser.wait_for("document.querySelector('[data-job]').dataset.state === 'running'")
    assert [path for path, _ in studio.asked] == ["/api/jobs/job-0/stop", "/api/jobs/job-0/resume"]


def test_two_runs_side_by_side(browser, show):
    show("runs", "document.querySelectorAll('[data-pick]').length === 2")
    browser.evaluate("document.querySelectorAll('[data-pick]').forEach((box) => box.click())")
    press(browser, "Put side by side")
    verdict = browser.wait_for("document.querySelector('.verdict')?.textContent")
    assert verdict.startswith("On this one seed simmatch with 3 projectors is better")
    assert browser.evaluate("document.querySelector('.best').textContent") == "2.5 % (better)"
    cells = browser.evaluate(
        "[...document.querySelectorAll('.confusion tbody tr:first-child td')].map((one) => one.textContent)"
    )
    assert cells == ["−1", "0", "0", "+1"]
    browser.evaluate("document.querySelector('.differing .look-list').click()")
    banner = browser.wait_for("document.querySelector('.banner:not([hidden])')?.textContent")
    assert banner.startswith("Only photos-simmatch-0 is right · 1 image")


def test_run_from_a_terminal_has_its_page(browser, show):
    show("runs?run=photos-fixmatch-0", "!!document.querySelector('.view-runs .confusion')")
    assert browser.evaluate("document.querySelector('.view-runs h1').textContent") == "photos-fixmatch-0"
    assert browser.evaluate("document.querySelector('.view-runs .chart').getAttribute('aria-label')").startswith(
        "test error over step"
    )


def test_finish_trains_where_there_is_no_run_then_writes_the_table(browser, studio, show):
    kept, studio.runs = studio.runs, {}
    show("finish", "!!document.querySelector('[data-do=train]')")
    assert browser.evaluate("document.querySelector('[data-card=predict] button').disabled")
    press(browser, "Train one")
    browser.wait_for("!!document.querySelector('.view-finish progress')")
    # one damaged photo, or a label of one that is gone, must not be the end: nobody can say more here than yes
    assert studio.asked[-1] == ("/api/jobs", {"do": "train", "said": {"skip_unreadable": True}, "plan": False})
    studio.runs = kept
    studio.jobs["job-0"] |= {"state": "finished", "progress": None}
    studio.publish_soon("job", studio.jobs["job-0"])
    press(browser, "Write the table")
    browser.wait_for("!!document.querySelector('[data-card=predict] progress')")
    lacking = {
        "kind": "section",
        "title": "1 image without an answer:",
        "facts": {},
        "lines": ["odd.jpg cannot be read"],
    }
    studio.jobs["job-1"] |= {"state": "finished", "progress": None, "files": [{"what": "table", "name": "names.csv"}]}
    studio.jobs["job-1"] |= {"events": [lacking], "result": {"facts": {}, "partial": True}}
    studio.publish_soon("job", studio.jobs["job-1"])
    link = browser.wait_for("document.querySelector('[data-card=predict] .files a')?.getAttribute('href')")
    assert link == "/api/jobs/job-1/files/names.csv"
    assert "odd.jpg cannot be read" in browser.evaluate("document.querySelector('[data-card=predict]').innerText")
    assert studio.asked[-1] == ("/api/jobs", {"do": "predict", "said": {"run": "photos-simmatch-0"}, "plan": False})


@pytest.mark.parametrize("late", [True, False])
def test_a_model_that_could_not_be_trained_again_is_told_beside_the_one_there_is(browser, studio, show, late):
    show("finish", "!!document.querySelector('#finish-run')")
    press(browser, "Train again from the labels of now")
    browser.wait_for("!!document.querySelector('.view-finish progress')")
    why = {"state": "refused", "progress": None, "sentence": "There is no room on the disk."}
    studio.jobs["job-0"] |= why | ({} if late else {"started": 1.0})  # a later run, of a terminal, makes it old news
    studio.publish_soon("job", studio.jobs["job-0"])
    browser.wait_for("!document.querySelector('.view-finish progress')")
    assert ("no room on the disk" in browser.evaluate("document.querySelector('.view-finish').innerText")) is late


def test_news_of_a_job_are_not_undone_by_an_older_list(browser, show):
    """The list is asked for, a job ends, and only then the answer arrives, which says that it runs."""
    show("finish", "!!document.querySelector('#finish-file')")
    found = browser.evaluate(
        """import("/static/jobs.js").then(async ({ followJobs }) => {
          const job = (id, state) => ({ id, state, started: 0 });
          let tell, answer;
          const api = { get: () => new Promise((arrives) => { answer = arrives; }) };
          const jobs = followJobs({ on: (_, told) => { tell = told; }, api }, () => {});
          const states = () => Object.fromEntries(jobs.all().map(({ id, state }) => [id, state]));
          tell(job("gone", "running"));
          const read = jobs.read();
          tell(job("ended", "finished"));
          tell(job("new", "running"));
          answer([job("ended", "running"), job("other", "running")]);
          await read;
          const first = states();
          const again = jobs.read();
          answer([job("ended", "removed")]);
          await again;
          return [first, states()];
        })"""
    )
    assert found == [{"ended": "finished", "new": "running", "other": "running"}, {"ended": "removed"}]


def test_labels_are_taken_in_and_replaced_only_when_asked(browser, show):
    show("finish", "!!document.querySelector('#finish-file')")
    browser.evaluate(
        """(() => {
            const file = document.querySelector("#finish-file"), given = new DataTransfer();
            given.items.add(new File(["file,label"], "labels & more.csv"));
            file.files = given.files;
            file.dispatchEvent(new Event("change"));
        })()"""
    )
    said = "document.querySelector('.view-finish').textContent"
    browser.wait_for(f"{said}.includes('2 images have another label already.')")
    browser.events.clear()  # the browser tells of the answer 409 by itself
    press(browser, "Take them in anyway: they replace labels that differ")
    browser.wait_for(f"{said}.includes('Took in labels & more.csv: 10 bytes.')")


@pytest.mark.parametrize(
    "view", ["look", "runs", "runs?new=train", "runs?a=photos-simmatch-0&b=photos-fixmatch-0", "finish"]
)
def test_views_fit_a_phone(browser, studio, show, view):
    studio.job("train", {})
    show(view, "document.querySelectorAll('.look-panel').length > 0", width=390, height=844)
    wide = "[...document.querySelectorAll('.view:not([hidden])')].map((one) => one.scrollWidth)"
    browser.wait_for(f"{wide}.every((width) => width <= 390)")
    assert browser.evaluate("document.scrollingElement.scrollHeight") == 844  # the view scrolls, the frame stays
