"""The page for everybody: by keyboard, in both themes, on any screen."""

import io

import pytest
from PIL import Image

FOCUS = """(({id, className, href, parentElement, tagName}) =>
  tagName === 'svg' ? parentElement.id : id || className || href)(document.activeElement)"""
CONTRAST = """(() => {
  const channel = (part) => (part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
  const ground = (element) => { for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor; if (!/, 0\\)$/.test(colour)) return colour; } };
  const kinds = 'p, h1, h2, h3, li, dt, dd, b, label, button, figcaption, strong, svg text';
  const texts = [...document.querySelectorAll(kinds)].filter((one) => one.checkVisibility() && one.textContent.trim());
  const ratios = texts.map((element) => { const style = getComputedStyle(element);
    const colours = [element.namespaceURI.endsWith('svg') ? style.fill : style.color, ground(element)].map(light);
    return [(Math.max(...colours) + 0.05) / (Math.min(...colours) + 0.05), element.textContent.slice(0, 40)]; });
  return [texts.length, ratios.filter(([ratio]) => !(ratio >= 4.5))];
})()"""
OVERLAPS = """[...document.querySelectorAll('.chart svg')].map((svg) => {
  const frame = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map((text) => text.getBoundingClientRect());
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  const inside = (box) => box.left >= frame.left && box.right <= frame.right + 1 && box.bottom <= frame.bottom + 1;
  const meeting = boxes.filter((a, at) => boxes.some((b, other) => other > at && !apart(a, b)));
  return [boxes.length >= 8, boxes.every(inside), meeting.length];
})"""
GROUND = "getComputedStyle(document.body).backgroundColor"
COLOURS = {"light": "rgb(246, 247, 249)", "dark": "rgb(16, 19, 22)"}
OUTSIDE = (
    "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length"
)
SMALL = """[...document.querySelectorAll('button, input[type=range]')].filter((control) =>
  control.checkVisibility() && control.getBoundingClientRect().height < 24).map((control) => control.id)"""


def test_the_focus_goes_through_everything_in_order_and_is_seen(tab, service, examples):
    tab.open(service.url)
    order = []
    while not (order and order[-1].endswith("/docs")) and len(order) < 50:
        tab.press("Tab")
        order.append(tab.value(FOCUS))
        width = tab.value("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
        assert width >= 2, f"the focus on {order[-1]} is not to be seen"
    before, after = (
        ["skip", "theme", "drop"],
        ["eps", "proof-chart", "copy-link", "copy-curl", "attack", "factor", "far-chart"],
    )
    assert order[:-1] == before + ["example"] * len(examples) + after
    nameless = """[...document.querySelectorAll('button, input, svg[tabindex]')].filter((control) =>
      !(control.ariaLabel || control.textContent.trim() || control.labels?.length)).length"""
    assert tab.value(nameless) == 0


def test_everything_can_be_done_with_the_keyboard(page, files, examples):
    page.call("Page.setInterceptFileChooserDialog", enabled=True)
    for key, name in ((" ", "noise"), ("Enter", "ramp")):
        page.value("document.querySelector('#drop').focus()")
        page.press(key)
        node = page.browser.event("Page.fileChooserOpened", page.session)["backendNodeId"]
        page.call("DOM.setFileInputFiles", backendNodeId=node, files=[str(files[name])])
        page.wait_for(f"{name}.png")
    page.press("Tab")
    page.press("Enter")
    page.wait_for(examples[0]["name"])
    page.press("Tab", len(examples))
    assert page.value("document.activeElement.id") == "eps"
    page.press("Home")
    page.press("ArrowRight", 3)
    assert page.text("#eps-value") == "0.012"
    assert page.numbers("#claim")[0] == 0.012
    assert page.value("document.querySelector('#eps').ariaValueText") == "ε = 0.012"
    page.press("Tab", 4)
    page.press("Enter")
    page.until("document.querySelector('#attack-status').textContent.includes('proof allows')")
    assert page.value("document.activeElement.id") == "attack", "the focus stays where it was"
    for place in ("#claim", "#answer-body", "#far-claim"):
        assert page.value(f"document.querySelector('{place}').ariaLive") == "polite"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_are_legible(page, files, scheme):
    page.prefer(color_scheme=scheme, reduced_motion="reduce")
    page.use(files["noise"])
    page.attack()
    assert page.value(GROUND) == COLOURS[scheme]
    texts, faint = page.value(CONTRAST)
    assert texts > 50
    assert faint == []


def test_the_theme_can_be_chosen_and_is_kept(tab, service):
    tab.go(service.url)
    tab.until("document.querySelector('#theme').checkVisibility()")
    assert [tab.value(GROUND), tab.text("#theme")] == [COLOURS["light"], "Dark theme"]
    tab.click("#theme")
    assert [tab.value(GROUND), tab.text("#theme")] == [COLOURS["dark"], "Light theme"]
    tab.go(service.url)
    assert tab.value(GROUND) == COLOURS["dark"]


@pytest.mark.parametrize("width", [360, 900])
def test_it_fits_any_screen(tab, service, files, width):
    tab.size(width, 740, touch=width < 500)
    tab.open(service.url)
    tab.use(files["noise"])
    tab.attack()
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(OUTSIDE) == 0
    assert tab.value(OVERLAPS) == [[True, True, 0]] * 3
    assert tab.value(SMALL) == []
    with Image.open(io.BytesIO(tab.screenshot())) as image:
        assert image.width == width
        assert len(image.convert("RGB").getcolors(1 << 24)) > 200, "something is drawn"
