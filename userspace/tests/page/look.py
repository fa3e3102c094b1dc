"""Looks at pages as a person would: look.py PAGE... [--pictures DIR]

Each page in headless Chromium, 1280 and 390 pixels wide, light and dark: no error on the console, nothing asked of a
network, nothing that is cut or lies over something else; and that what can be clicked does what it says, by mouse and by
keyboard; then without JavaScript."""

import argparse
import pathlib
import sys

from browser import Browser, Page, find

# Text that is cut or lies over other text, elements that are wider than the window, cards that overlap.
FAULTS = r"""
(() => {
  const faults = [];
  const shown = (node) => node.checkVisibility?.({visibilityProperty: true, opacityProperty: true}) ?? true;
  const box = (node) => node.getBoundingClientRect();
  const name = (node) => (node.id || node.className?.baseVal || node.className || node.tagName) + ": " + node.textContent.trim().slice(0, 50);
  const overlap = (a, b, by) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > by && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > by;
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) faults.push("the page is wider than the window: " + document.documentElement.scrollWidth);
  for (const node of document.querySelectorAll("body *")) {
    if (!shown(node) || node.closest(".scroll, pre, svg, script, [hidden]")) continue;
    const of = box(node);
    if (of.width > 0 && (of.left < -1 || of.right > width + 1)) faults.push("outside of the window: " + name(node));
  }
  for (const node of document.querySelectorAll("h1, h2, h3, p, li, caption, label, #controls button")) {
    if (shown(node) && node.scrollWidth > node.clientWidth + 1 && node.clientWidth > 0 && getComputedStyle(node).display !== "inline") faults.push("cut: " + name(node));
  }
  const blocks = [...document.querySelectorAll("header, .answer, #controls, .card, #timeline, #tables, footer")].filter(shown).filter((n) => box(n).height > 0);
  blocks.forEach((a, i) => blocks.slice(i + 1).forEach((b) => {
    if (a.contains(b) || b.contains(a) || a.id === "controls" || b.id === "controls") return;
    if (overlap(box(a), box(b), 1)) faults.push("over each other: " + name(a) + " | " + name(b));
  }));
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot.data || !shown(plot)) continue;
    const whole = box(plot);
    const texts = [...plot.querySelectorAll("svg text")].filter((t) => t.textContent.trim() && shown(t) && !t.closest(".hoverlayer, .modebar"));
    for (const text of texts) {
      const of = box(text);
      if (of.left < whole.left - 1 || of.right > whole.right + 1 || of.top < whole.top - 1 || of.bottom > whole.bottom + 1) faults.push("cut in " + plot.id + ": " + text.textContent);
    }
    texts.forEach((a, i) => texts.slice(i + 1).forEach((b) => {
      if (!a.contains(b) && !b.contains(a) && overlap(box(a), box(b), 1.5)) faults.push("text over text in " + plot.id + ": " + a.textContent + " | " + b.textContent);
    }));
  }
  return faults;
})()
"""

# All figures, also those that are not in sight.
DRAW = 'for (const name of ["beforeprint", "afterprint"]) window.dispatchEvent(new Event(name))'
DRAWN = "[...document.querySelectorAll('.card:not([hidden]) .plot')].every((p) => p.data || p.classList.contains('empty'))"


class Fault(Exception):
    """Something is wrong with a page."""


def expect(true, what):
    if not true:
        raise Fault(what)


def settled(page):
    """Figures are drawn, and two frames have passed."""
    page.until(DRAWN)
    page.run(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 80))))"
    )


def click(page, x, y):
    for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
        page.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def key(page, name, code):
    text = {"Enter": "\r"}.get(name)
    parameters = {"key": name, "code": name, "windowsVirtualKeyCode": code}
    page.send(
        "Input.dispatchKeyEvent", type="keyDown", **parameters, **({"text": text} if text else {})
    )
    page.send("Input.dispatchKeyEvent", type="keyUp", **parameters)


def points(page, plot="plot-requests-0"):
    return page.run(
        f"(document.getElementById('{plot}').data ?? []).reduce((sum, trace) => sum + trace.x.length, 0)"
    )


def check_controls(page):
    """A band, a category, a point and its segments; by mouse and by keyboard."""
    page.run(DRAW)
    settled(page)
    before = points(page)
    if page.run("document.querySelector('[data-choose=\"band-top1\"]') !== null"):
        page.run("document.querySelector('[data-choose=\"band-top1\"]').focus()")
        key(page, "Enter", 13)
        page.until("document.querySelector('[data-choose=\"band-top1\"]').ariaPressed === 'true'")
        page.until(
            f"document.getElementById('plot-requests-0').data?.reduce((s, t) => s + t.x.length, 0) !== {before}"
        )
        settled(page)
        expect(
            0 < points(page) < before, f"of the top 1 % {points(page)} of {before} points are drawn"
        )
        expect("band=top1" in page.run("location.hash"), "the band is not in the address")
        expect(
            page.run("document.activeElement.dataset.choose") == "band-top1", "the focus is lost"
        )
        page.run("document.querySelector('[data-choose=\"band-all\"]').click()")
        settled(page)
    page.run("document.querySelector('.categories button').click()")
    settled(page)
    category = page.run(
        "document.querySelector('.categories [aria-pressed=true]').dataset.choose"
    ).removeprefix("category-")
    faint = f"document.getElementById('plot-breakdown-0').data.filter((t) => t.meta.category !== '{category}')"
    page.until(f"{faint}.every((t) => t.opacity < 0.5)")
    expect(
        category in page.run("document.getElementById('plot-latency-0').layout.xaxis.title.text"),
        "the latency's figure does not follow the category",
    )
    page.run("document.querySelector('.categories [aria-pressed=true]').click()")
    settled(page)
    # A click on a point.
    page.run("document.getElementById('card-requests').scrollIntoView()")
    settled(page)
    before = chosen(page)
    spots = page.run(
        "[...document.querySelectorAll('#plot-requests-0 .scatterlayer .point')].map((p) => p.getBoundingClientRect())"
        ".map((r) => [r.x + r.width / 2, r.y + r.height / 2])"
    )
    for x, y in spots[:20]:
        click(page, x, y)
        page.run("new Promise((done) => setTimeout(done, 300))")
        if chosen(page) != before or len(spots) == 1:
            break
    expect(len(spots) < 2 or chosen(page) != before, "a click on a point chooses no request")
    check_request(page, chosen(page))
    # One of the list, by keyboard.
    page.run("document.querySelector('#requests button:last-of-type').focus()")
    key(page, "Enter", 13)
    page.until("document.querySelector('#requests button:last-of-type').ariaPressed === 'true'")
    check_request(page, chosen(page), kept=True)
    page.run("document.getElementById('theme').click()")
    settled(page)
    page.run("document.getElementById('theme').click()")


def chosen(page):
    """The request that is chosen, as the address has it: side, capture, number."""
    return page.run("new URLSearchParams(location.hash.slice(1)).get('request')")


def check_request(page, request, kept=False):
    number = request.split(":")[2]
    page.until(f"document.getElementById('which').textContent.includes('request {number}')")
    rows = page.run("document.querySelectorAll('#pieces tr').length") - 1
    is_kept = page.run("!document.getElementById('pieces').hidden")
    expect(is_kept or not kept, f"request {number} is listed without its segments")
    if is_kept:
        bars = page.run(
            "document.getElementById('plot-timeline').data.filter((t) => t.type === 'bar').reduce((s, t) => s + t.x.length, 0)"
        )
        # A latency of 0 has no segments.
        none = " = 0 ns" in page.run("document.getElementById('which').textContent")
        expect(
            rows == bars and (rows == 0) == none,
            f"request {number}: {rows} segments in the table, {bars} drawn",
        )
    else:
        expect(
            "rpcprobe explain" in page.run("document.getElementById('note-timeline').textContent"),
            "what to do is not said",
        )


# Pixels across what is printed on A4, with the margins that browsers leave.
PAPER = 718
# On paper there is nothing to press, all tables are there, and what is written is dark on white, also in figures.
ON_PAPER = r"""
(() => {
  const faults = [];
  const shown = (node) => node.checkVisibility({visibilityProperty: true, opacityProperty: true});
  const dark = (color) => { const [r, g, b] = color.match(/[\d.]+/g).map(Number); return 0.3 * r + 0.6 * g + 0.1 * b < 140; };
  for (const node of document.querySelectorAll("#theme, #requests, #controls select, #controls [data-choose^=band]")) {
    if (shown(node)) faults.push("a control: " + (node.id || node.textContent));
  }
  const legend = [...document.querySelectorAll("#controls .categories button")];
  if (!legend.length || !legend.every(shown)) faults.push("the colours have no names");
  if (!document.getElementById("tables").open) faults.push("the tables are shut");
  for (const plot of document.querySelectorAll(".plot")) {
    if (!plot.data || !shown(plot)) continue;
    const room = plot.parentElement.getBoundingClientRect().right + 1;
    for (const svg of plot.querySelectorAll("svg.main-svg")) {
      if (svg.getBoundingClientRect().right > room) faults.push("cut: " + plot.id);
    }
    for (const text of plot.querySelectorAll("svg text")) {
      if (shown(text) && text.textContent.trim() && !text.closest(".hoverlayer") && !dark(getComputedStyle(text).fill)) faults.push("too light in " + plot.id + ": " + text.textContent);
    }
  }
  for (const node of document.querySelectorAll("h1, h2, h3, p, li, td, th, caption")) {
    if (shown(node) && !dark(getComputedStyle(node).color)) faults.push("too light: " + node.textContent.slice(0, 40));
  }
  for (const node of document.querySelectorAll("table, pre")) {
    if (shown(node) && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1) faults.push("wider than the paper: " + node.textContent.slice(0, 60));
  }
  return faults;
})()
"""


def check_print(page, dark, picture=None):
    """The page as it is printed from a window: nothing is cut, and dark screens do not print light on white."""
    page.run('window.dispatchEvent(new Event("beforeprint"))')
    settled(page)
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=PAPER,
        height=1000,
        deviceScaleFactor=1,
        mobile=False,
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.send("Emulation.setEmulatedMedia", media="print", features=[scheme])
    settled(page)
    if picture:
        page.picture(picture)
    faults = page.run(FAULTS) + page.run(ON_PAPER)
    expect(not faults, f"on paper: {faults}")
    page.send("Emulation.setEmulatedMedia", media="", features=[scheme])
    width_of = "document.getElementById('plot-requests-0').querySelector('svg').clientWidth"
    on_paper = page.run(width_of)
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=1280,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.run('window.dispatchEvent(new Event("afterprint"))')
    page.until(f"{width_of} !== {on_paper}")
    settled(page)
    expect(not (faults := page.run(FAULTS)), f"after printing: {faults}")


def look(browser, file, pictures):
    url = file.resolve().as_uri()
    for width in (1280, 390):
        for dark in (False, True):
            what = f"{file.name}, {width} px, {'dark' if dark else 'light'}"
            page = Page(browser, url, width, dark=dark)
            try:
                has_figures = True
                page.until("document.readyState === 'complete'")
                has_figures = page.run("document.getElementById('controls') !== null")
                if has_figures:
                    page.until("document.documentElement.dataset.ready")
                    page.run(DRAW)
                    settled(page)
                    page.run("document.getElementById('tables').open = false")
                    page.run("window.scrollTo(0, 0)")
                if pictures:
                    page.picture(
                        pictures / f"{file.stem}-{width}-{'dark' if dark else 'light'}.png"
                    )
                faults = page.run(FAULTS)
                expect(not faults, f"{faults}")
                if has_figures:
                    check_controls(page)
                    page.run("window.scrollTo(0, 0)")
                    expect(not (faults := page.run(FAULTS)), f"after the clicks: {faults}")
                    if width == 1280:
                        mode = "dark" if dark else "light"
                        name = pictures and pictures / f"{file.stem}-paper-{mode}.png"
                        check_print(page, dark, name)
                expect(page.run("window.pwned === undefined"), "a name was run as a script")
                expect(not page.faults(), f"{page.faults()}")
            except (Fault, RuntimeError) as error:
                raise Fault(f"{what}: {error}") from error
            finally:
                page.close()
    page = Page(browser, url, 390, scripts=False)
    page.until("document.readyState === 'complete'")
    rows = page.run(
        "[...document.querySelectorAll('#tables tr')].filter((r) => r.checkVisibility()).length"
    )
    expect(
        rows > 3 or not has_figures,
        f"{file.name}: without JavaScript {rows} rows of tables are seen",
    )
    expect(
        page.run("![...document.querySelectorAll('.plot')].some((p) => p.checkVisibility())"),
        f"{file.name}: empty figures without JavaScript",
    )
    page.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    args = parser.parse_args()
    path = find()
    if path is None:
        print("skipped: no Chromium (apt-get install chromium-headless-shell)")
        return 77
    with Browser(path) as browser:
        for file in args.pages:
            try:
                look(browser, file, args.pictures)
            except Fault as fault:
                print(fault)
                return 1
    print(f"{len(args.pages)} pages are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
