"""The label view in a real browser, before a stand-in for the server. Skipped where there is no Chromium."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
from browsing import NEEDED
from contrast import FAINT
from fake_server import STATIC, FakeStudio, start

pytestmark = NEEDED
HOSTILE = "<script>document.title='owned'</script><b>sea</b>"
KINDS = ("forest", HOSTILE, "street")


@pytest.fixture
def serve(browser):
    """A function that serves so many images with the first so many classes; the stand-in and its address."""
    servers = []

    def begin(images=60, classes=3):
        names = [f"<i>photo</i> {i}.jpg" for i in range(images)]
        fake = FakeStudio(names, [KINDS[i % 3] for i in range(images)])
        fake.classes = [{"id": i, "name": KINDS[i], "key": "123"[i]} for i in range(classes)]
        server, url = start(fake, STATIC)
        servers.append(server)
        return fake, url

    yield begin
    browser.open("about:blank")  # a page whose server is gone complains, maybe only during the next test
    for server in servers:
        server.should_exit = True


@pytest.fixture
def studio(serve, browser):
    """A page with three classes, with an image in sight."""
    fake, url = serve()
    browser.open(url, width=1200, height=760)
    browser.wait_for("document.querySelector('.single-name')?.textContent")
    return fake


def wait_until(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def shown(browser):
    """The number of the image in sight."""
    source = browser.evaluate("document.querySelector('.stage img')?.getAttribute('src') ?? ''")
    return int(source.split("/")[2].split("?")[0]) if source else None


def text(browser, selector):
    """The words of what is in sight, as soon as it has some."""
    return browser.wait_for(
        f"(() => {{ const e = document.querySelector({selector!r}); return e?.checkVisibility() && e.innerText; }})()"
    )


def box(browser, selector):
    return browser.evaluate(
        f"""(() => {{
            const found = document.querySelector({selector!r});
            const {{ x, y, width, height, left, bottom }} = found.getBoundingClientRect();
            return {{ x: x + width / 2, y: y + height / 2, left, bottom }};
        }})()"""
    )


def click(browser, selector, *modifiers):
    spot = box(browser, selector)
    browser.click(spot["x"], spot["y"], *modifiers)


def open_grid(browser):
    browser.press("g")
    browser.wait_for("document.querySelectorAll('.tile img.there').length >= 8")


def test_first_visit_names_classes_and_labels_by_number(browser, serve):
    fake, url = serve(classes=0)
    browser.open(url)
    browser.wait_for("document.activeElement.matches('.class-add input')")
    assert "Type the name of the first class" in browser.evaluate("document.querySelector('.welcome').innerText")
    for number, name in enumerate(("forest", HOSTILE), start=1):
        browser.write(name)
        browser.press("Enter")
        browser.wait_for(f"document.querySelectorAll('.classes li').length === {number}")
    browser.press("Enter")
    order = fake.ids("suggested", {})
    browser.press("2")
    wait_until(lambda: fake.labels == {order[0]: fake.classes[1]["id"]})
    browser.wait_for("document.querySelectorAll('.class-count')[1].textContent === '1'")
    # names are text wherever they come from
    assert browser.evaluate("document.querySelectorAll('.class-name')[1].textContent") == HOSTILE
    assert browser.evaluate("document.querySelector('.single-name').textContent").startswith("<i>photo</i>")
    assert browser.evaluate("document.querySelector('.classes b, .single-name i, main script')") is None
    assert browser.evaluate("document.title") != "owned"
    assert browser.complaints() == []


def test_the_policy_of_the_page_is_active(browser, studio):
    browser.evaluate(
        "{ const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); }"
    )
    assert browser.evaluate("window.ran ?? null") is None


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_no_key_is_lost_and_each_finds_its_image(browser, studio, pause):
    studio.wait = 0.02  # so that a key is pressed while the answer before it is being written
    order, said = studio.ids("suggested", {})[:20], "12313231221331213221"
    for key in said:
        browser.press(key)
        time.sleep(pause)
    wait_until(lambda: len(studio.answers) == 20)
    assert [(each["id"], each["label"]) for each in studio.answers] == [
        (number, int(key) - 1) for number, key in zip(order, said, strict=True)
    ]
    browser.wait_for("document.getElementById('saved').textContent === 'saved'")


def test_the_next_image_waits_until_the_answer_is_written(browser, studio):
    studio.held = True
    before = shown(browser)
    browser.press("1")
    browser.wait_for("document.getElementById('saved').textContent === 'saving 1 answer'")
    assert shown(browser) == before
    studio.held = False
    wait_until(lambda: shown(browser) != before)
    assert studio.labels == {before: 0}


def test_marks_clear_and_undo(browser, studio):
    order = studio.ids("suggested", {})
    for key in ("1", "s", "x", "n"):
        browser.press(key)
    wait_until(lambda: len(studio.answers) == 4)
    assert studio.labels == {order[0]: 0}
    assert studio.marks == {order[1]: "skip", order[2]: "unsure", order[3]: "none"}
    browser.press("u")
    browser.press("z", "Control")
    wait_until(lambda: studio.marks == {order[1]: "skip"})
    wait_until(lambda: shown(browser) == order[2])  # what was taken back is asked again
    browser.press("ArrowLeft")
    browser.press("Backspace")
    wait_until(lambda: studio.marks == {})
    assert shown(browser) == order[1]
    browser.press("2")
    browser.press("2")
    wait_until(lambda: studio.labels == {order[0]: 0, order[1]: 1, order[2]: 1})


def test_enter_accepts_the_guess_that_was_shown_even_if_the_model_thinks_again(browser, studio):
    studio.teach_from = 4
    for key in "1231":
        browser.press(key)
    chip = "document.querySelector('.chip')?.innerText"
    words = browser.wait_for(chip)
    now, guess = shown(browser), studio.guesses[shown(browser)]
    assert f"{guess[1]:.0%}".replace("%", " %") in words
    for i in studio.guesses:
        studio.guesses[i] = ((guess[0] + 1) % 3, 0.51)
    studio.loop.call_soon_threadsafe(studio.publish, "model", studio.model)
    browser.evaluate("new Promise((done) => setTimeout(done, 200))")
    assert browser.evaluate(chip) == words
    browser.press("Enter")
    wait_until(lambda: studio.labels.get(now) == guess[0])
    said = browser.evaluate("document.querySelector('.model').innerText")
    assert "4 labels" in said
    assert "Measured on all labels." in said


def test_new_suggestions_replace_only_what_nobody_has_seen(browser, studio):
    studio.teach_from = 3
    order = studio.ids("suggested", {})
    for key in "123":
        browser.press(key)
    text(browser, ".score")
    wait_until(lambda: shown(browser) == order[3])
    fresh = [i for i in studio.ids("suggested", {}) if i not in order[:5]]
    assert fresh[0] != order[5]
    asked = f"performance.getEntriesByType('resource').some((each) => each.name.includes('/image/{fresh[0]}?'))"
    browser.wait_for(asked)  # ahead of its time, as the one after the next
    for _ in range(3):
        browser.press("ArrowRight")
    wait_until(lambda: shown(browser) == fresh[1])


def test_selecting_many_and_assigning_them_at_once(browser, studio):
    open_grid(browser)
    order = studio.ids("suggested", {})
    click(browser, "#tile-1")
    click(browser, "#tile-3", "Shift")
    click(browser, "#tile-5", "Control")
    assert "4 images selected" in browser.evaluate("document.querySelector('.chosen').innerText")
    browser.press("2")
    wait_until(lambda: studio.labels == dict.fromkeys([order[1], order[2], order[3], order[5]], 1))
    assert browser.wait_for("document.querySelector('#tile-1 .tile-caption b')?.textContent") == HOSTILE
    # a band around tiles, then the keyboard alone
    first, last = box(browser, "#tile-0"), box(browser, "#tile-1")
    browser.drag([(first["left"] + 8, first["bottom"] + 4), (first["x"], first["y"]), (last["x"], last["y"])])
    assert browser.evaluate("[...document.querySelectorAll('.tile.selected')].map((t) => t.id)") == ["tile-0", "tile-1"]
    browser.press("3")
    wait_until(lambda: studio.labels.get(order[0]) == 2 and studio.labels[order[1]] == 2)
    click(browser, "#tile-7")
    browser.press("Escape")
    browser.press(" ")
    browser.press("ArrowRight", "Shift")
    browser.press("1")
    wait_until(lambda: studio.labels.get(order[7]) == 0 and studio.labels.get(order[8]) == 0)


def test_a_grid_of_100_000_images_holds_only_those_in_sight(browser, serve):
    fake, url = serve(images=100_000)
    browser.open(f"{url}#label?view=all&mode=grid", width=1200, height=760)
    browser.wait_for("document.querySelectorAll('.tile img.there').length >= 8")
    browser.evaluate("document.querySelector('.grid').scrollTop = 1e9")
    browser.wait_for("document.querySelector('#tile-99999 img.there') !== null")
    assert browser.evaluate("document.querySelectorAll('.tile').length") < 100
    assert browser.evaluate("document.querySelector('#tile-99999').getAttribute('aria-label')").startswith(
        "<i>photo</i> 99999"
    )
    browser.press("1")  # the first image had the frame, and nobody sees it now
    assert "Select images first" in text(browser, ".toast")
    assert fake.answers == []
    browser.press("g")
    wait_until(lambda: shown(browser) and shown(browser) > 99_900)


def test_no_tab_is_cut_off_in_a_window_of_1280_pixels(browser, serve):
    fake, url = serve(images=100_000)
    fake.labels, fake.marks = dict.fromkeys(range(5000), 0), dict.fromkeys(range(6000, 7000), "unsure")
    browser.open(f"{url}#label?view=labeled&mode=grid", width=1280, height=800)
    browser.wait_for("document.querySelector('.tab-class')?.checkVisibility()")
    assert (
        browser.evaluate("(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.tabs'))")
        == 0
    )


def test_classes_are_renamed_and_merged_and_labels_follow(browser, studio):
    for key in "123":
        browser.press(key)
    wait_until(lambda: len(studio.labels) == 3)
    click(browser, "[data-edit='0']")
    browser.write("wood")
    browser.press("Enter")
    browser.wait_for(
        "document.querySelector('.class-name').textContent === 'wood' && !document.querySelector('dialog')"
    )
    click(browser, "[data-edit='2']")
    browser.evaluate(
        "{ const s = document.querySelector('dialog select'); s.value = '0'; s.dispatchEvent(new Event('change')); }"
    )
    click(browser, "dialog .edit > .row:nth-of-type(2) button")
    browser.wait_for("document.querySelectorAll('.classes li').length === 2")
    assert sorted(studio.labels.values()) == [0, 0, 1]
    browser.wait_for("document.querySelector('.class-count').textContent === '2'")


def test_an_answer_of_another_tab_is_not_overwritten(browser, studio):
    number = shown(browser)
    studio.labels[number] = 2  # as from a tab of which this one has not heard yet
    browser.press("1")
    assert "another tab" in text(browser, ".toast.warning")
    assert studio.labels == {number: 2}
    assert shown(browser) == number
    assert text(browser, ".single-now .answer") == "street"


def test_what_another_tab_says_shows_in_place(browser, studio):
    open_grid(browser)
    number = studio.ids("suggested", {})[4]
    before = browser.evaluate("[...document.querySelectorAll('.tile img')].map((image) => image.src)")
    studio.labels[number] = 2
    studio.loop.call_soon_threadsafe(studio.changed, [number], "")
    assert text(browser, "#tile-4 .tile-caption b") == "street"
    assert browser.evaluate("[...document.querySelectorAll('.tile img')].map((image) => image.src)") == before


def test_while_the_server_is_gone_nothing_is_lost_and_nobody_goes_on(browser, studio):
    number = shown(browser)
    studio.gone = True
    browser.press("1")
    assert "Not saved yet: 1 answer" in text(browser, "#bar")
    browser.press("2")
    assert shown(browser) == number
    studio.gone = False
    wait_until(lambda: studio.labels == {number: 0})
    wait_until(lambda: shown(browser) != number)
    browser.wait_for("document.getElementById('bar').hidden")
    browser.press("3")
    wait_until(lambda: len(studio.labels) == 2)
    assert [each["label"] for each in studio.answers] == [0, 2]


def start_again(browser, studio):
    """Let an answer be under way while the server goes and another one comes, which the page may not enter yet."""
    number = shown(browser)
    studio.gone = True
    browser.press("1")
    text(browser, "#bar")
    studio.start, studio.locked, studio.gone = "2", True, False
    browser.wait_for("document.getElementById('bar').innerText.includes('Open the address')")
    assert "Not saved yet: 1 answer" in text(browser, "#bar")
    browser.evaluate("globalThis.before = true")
    return number


def test_an_answer_under_way_is_written_by_the_next_start_of_the_server(browser, studio):
    number = start_again(browser, studio)
    studio.locked = False
    wait_until(lambda: studio.labels == {number: 0})
    browser.wait_for("globalThis.before === undefined && !!document.querySelector('.single-name')?.textContent")


@pytest.mark.parametrize("change", ["photos", "classes"])
def test_an_answer_that_means_something_else_after_the_next_start_is_told_to_be_lost(browser, studio, change):
    start_again(browser, studio)
    if change == "photos":
        studio.digest = "of other photos"
    else:
        studio.classes = [{**each, "id": (each["id"] + 1) % 3} for each in studio.classes]
    studio.locked = False
    browser.wait_for("document.getElementById('bar').innerText.startsWith('Not saved: 1 answer.')")
    time.sleep(3)  # a connection that is back is no reason to take the sentence away, nor is a new start
    assert browser.evaluate("globalThis.before && document.getElementById('bar').innerText").startswith("Not saved: 1")
    assert not studio.labels


def test_a_reload_finds_the_place_and_what_was_before_it(browser, studio):
    order = studio.ids("suggested", {})
    for key in "123":
        browser.press(key)
    wait_until(lambda: shown(browser) == order[3])
    browser.reload()
    wait_until(lambda: shown(browser) == order[3])
    browser.press("u")
    wait_until(lambda: shown(browser) == order[2])
    assert order[2] not in studio.labels
    browser.press("ArrowLeft")
    wait_until(lambda: shown(browser) == order[1])


def test_labels_are_reviewed_by_class_and_a_banner_leads_back(browser, studio):
    for key in "121":
        browser.press(key)
    wait_until(lambda: len(studio.labels) == 3)
    browser.wait_for(
        "document.querySelector('.class-count')?.textContent.trim() === '2'"
    )  # no click on what is redrawn
    click(browser, ".class-count")
    browser.wait_for("document.querySelectorAll('.tile').length === 2")
    assert browser.evaluate("document.querySelector('.tab-class').selectedOptions[0].textContent") == "forest (2)"
    browser.evaluate("location.hash = 'label?view=unlike&title=Unlike any other&mode=grid'")
    assert "Unlike any other" in text(browser, ".banner")
    click(browser, ".banner button")
    browser.wait_for("document.querySelector('.tab[aria-pressed=true]')?.dataset.tab === 'suggested'")
    browser.press("/")
    browser.wait_for("document.activeElement?.type === 'search'")
    browser.write("photo</i> 17")
    browser.wait_for("document.querySelectorAll('.tile').length === 1")
    assert browser.evaluate("document.activeElement.type") == "search"


def test_keys_are_shown_and_changed(browser, studio):
    browser.press("h")
    find = "[...document.querySelectorAll('dialog li')].find((li) => li.innerText.startsWith('Skip'))"
    browser.evaluate(f"{find}.querySelector('button').click()")
    browser.press("k")
    browser.wait_for(f"{find}.querySelector('kbd')?.textContent === 'k'")
    assert studio.keys["skip"] == "k"
    browser.press("Escape")
    number = shown(browser)
    browser.press("s")
    browser.press("k")
    wait_until(lambda: studio.marks == {number: "skip"})


def test_a_small_photo_grows_only_as_far_as_it_can_be_seen(browser, studio):
    sizes = "(({width, height}) => [Math.round(width), Math.round(height)])(document.querySelector('.stage img')"
    sizes += ".getBoundingClientRect())"
    assert browser.wait_for(sizes)[0] > 700  # a large one fills its place
    studio.picture = lambda i, side: FakeStudio.picture(studio, i, 120)
    for _ in range(4):  # those that were loaded ahead are large
        browser.press("ArrowRight")
    browser.wait_for("document.querySelector('.stage img').naturalWidth === 120")
    browser.wait_for(f"{sizes}.join() === '360,320'")  # which it gets once it is loaded


def test_labels_of_images_that_cannot_be_read_are_not_behind(browser, studio):
    studio.teach_from = 4
    for key in "11112":
        browser.press(key)
    wait_until(lambda: studio.model and studio.model["labels"] == 5)
    studio.model |= {"labels": 4, "unreadable": 1}
    browser.reload()
    assert "up to date" in text(browser, ".model header")
    assert "Without 1 label of images that cannot be read." in text(browser, ".model")


def test_the_card_of_the_model_says_what_its_accuracy_was_measured_on(browser, studio):
    studio.teach_from = 4
    for key in "1231":
        browser.press(key)
    assert "over your 4 labels" in text(browser, ".score")
    known = {**studio.model, "about": "A fair sample.", "accuracy": {**studio.model["accuracy"], "labels": 3}}
    studio.loop.call_soon_threadsafe(studio.publish, "model", known)
    browser.wait_for("document.querySelector('.model').innerText.includes('A fair sample.')")
    assert "over 3 of your 4 labels" in text(browser, ".score")
    known = {**known, "accuracy": {**known["accuracy"], "labels": 9}}  # five were taken back since
    studio.loop.call_soon_threadsafe(studio.publish, "model", known)
    browser.wait_for("document.querySelector('.score').innerText.includes('over the 9 labels of before')")
    known |= {"about": "Two more labels are needed.", "accuracy": None}
    studio.loop.call_soon_threadsafe(studio.publish, "model", known)
    browser.wait_for("document.querySelector('.model').innerText.includes('Two more labels are needed.')")


@pytest.mark.parametrize("dark", [False, True])
def test_fits_a_phone_and_can_be_read(browser, serve, dark):
    fake, url = serve()
    fake.teach_from = 4
    browser.open(url, width=390, height=844, dark=dark)
    browser.wait_for("document.querySelector('.single-name')?.textContent")
    for key in "1231":
        browser.press(key)
    browser.wait_for("document.querySelector('.chip') && document.querySelector('.score')?.innerText")
    assert browser.evaluate("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    for _ in range(2):  # one image, then the grid
        assert browser.evaluate(
            "['html', '.view-label'].every((each) => document.querySelector(each).scrollWidth <= innerWidth)"
        )
        assert browser.evaluate(FAINT) == []
        open_grid(browser) if shown(browser) is not None else None
    assert browser.complaints() == []
