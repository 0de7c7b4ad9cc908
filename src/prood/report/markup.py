"""HTML and SVG that cannot be broken by what is put into it: text is escaped unless it is markup already."""

from html import escape

VOID = {"img", "meta"}


class Html(str):
    """Text that is markup. `element` escapes every other string."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """`<name attributes>children</name>`. In names of attributes '_' stands for '-', at the end for nothing (class_).

    An attribute that is None or False is left out, True stands alone.
    """
    written = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written.append(key)
        elif value is not None and value is not False:
            written.append(f'{key}="{escape(str(value))}"')
    opening = f"<{' '.join(written)}>"
    return Html(opening if name in VOID else f"{opening}{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))
