"""A drawing as one SVG file that is readable on a light and on a dark page, with a legend of its lines."""

from collections.abc import Mapping, Sequence

from prood.report.markup import Chart, Html, element, joined

# The ground belongs to the drawing: text stays readable where the page's colours and the system's differ.
STYLE = """
svg{--ground:#fff;--ink:#1b1f24;--muted:#5d6570;--rule:#e2e5ea;--raised:#f2f4f7;
--blue:#0072b2;--orange:#d55e00;--green:#009e73;--violet:#7a4fc0;--grey:#8b94a0;--tint:#e6f1fa}
@media (prefers-color-scheme:dark){svg{--ground:#14171b;--ink:#e8eaed;--muted:#a5adb8;--rule:#31373f;--raised:#20252b;
--blue:#4fa9e6;--orange:#f5853b;--green:#2cc498;--violet:#b69af0;--grey:#858e9a;--tint:#1c3145}}
text{fill:var(--muted);
font:11px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",Arial,sans-serif}
text.ink{fill:var(--ink)}text.head{fill:var(--ink);font-weight:600}text.small{font-size:9.5px}
.ground{fill:var(--ground)}.grid,.axis{stroke:var(--rule);fill:none}.axis{stroke:var(--muted)}
.line,.steps{fill:none;stroke-width:1.8;stroke-linejoin:round}.thin{stroke-width:1;opacity:.8}
.dashed{stroke-dasharray:5 3}.dotted{stroke-dasharray:2 3}
.band{stroke:none;opacity:.14}.solid{opacity:.45}
.blue{stroke:var(--blue)}.orange{stroke:var(--orange)}.green{stroke:var(--green)}.violet{stroke:var(--violet)}
.grey{stroke:var(--grey)}.fill-violet{fill:var(--violet)}
.box{fill:var(--raised);stroke:var(--rule)}.box.proof{fill:var(--tint);stroke:var(--blue)}
.arrow{stroke:var(--muted);fill:none;stroke-width:1.2}.tip{fill:var(--muted)}
"""


def drawing(label: str, width: int, height: int, *marks: str) -> str:
    """`label` says what it shows to those who do not see it."""
    drawn = element(
        "svg",
        element("title", label),
        element("style", Html(STYLE.replace("\n", ""))),
        element("rect", width=width, height=height, rx=8, class_="ground"),
        *marks,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
    )
    return f"{drawn}\n"


def plot(chart: Chart, legend: Mapping[str, str], columns: int = 2) -> str:
    """A chart with its legend below: the classes of each line, and what it is."""
    width, below = chart.size[0] + 12, chart.size[1]  # room for half of the last tick's text
    rows = -(-len(legend) // columns)
    height = below + 10 + 18 * rows
    entries: list[str] = []
    for number, (kind, text) in enumerate(legend.items()):
        x = 20 + (width - 20) * (number % columns) / columns
        y = below + 14 + 18 * (number // columns)
        entries.append(element("path", d=f"M{x:.0f} {y}h22", class_=f"line {kind}"))
        entries.append(element("text", text, x=f"{x + 28:.0f}", y=y + 4, class_="ink"))
    return drawing(chart.label, width, height, joined(*chart.marks), *entries)


def box(x: float, y: float, width: float, height: float, lines: Sequence[str], kind: str = "") -> Html:
    """A rounded box with centred lines of text, the first one a heading."""
    rect = element("rect", x=x, y=y, width=width, height=height, rx=6, class_=f"box {kind}".strip())
    top = y + height / 2 - 7 * (len(lines) - 1) + 4
    texts = []
    for number, line in enumerate(lines):
        look, y = "small" if number else "head", top + 14 * number
        texts.append(element("text", line, x=f"{x + width / 2:g}", y=f"{y:g}", text_anchor="middle", class_=look))
    return joined(rect, *texts)


def arrow(*points: tuple[float, float]) -> Html:
    """A line through the points, which run along the axes, with a tip at the last one."""
    (x0, y0), (x1, y1) = points[-2:]
    across, up = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
    way = "M" + "L".join(f"{x:g} {y:g}" for x, y in (*points[:-1], (x1 - 6 * across, y1 - 6 * up)))
    back = (x1 - 7 * across, y1 - 7 * up)
    sides = [(back[0] + 3.5 * side * up, back[1] + 3.5 * side * across) for side in (-1, 1)]
    tip = "M" + "L".join(f"{x:g} {y:g}" for x, y in ((x1, y1), *sides)) + "Z"
    return joined(element("path", d=way, class_="arrow"), element("path", d=tip, class_="tip"))
