"""multipart/form-data, from bytes that are all there already."""

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from prood.serve.answer import Refused, bad

FIELD = b"image"


class _Form:
    """The contents of all parts named `image`, as the parser calls them out."""

    def __init__(self, limit: int) -> None:
        self.files: list[bytes] = []
        self.limit = limit
        self._name, self._value, self._headers = b"", b"", {b"": b""}
        self._content = bytearray()
        self.ended = False

    def begin(self) -> None:
        self._headers, self._content = {}, bytearray()

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def header_end(self) -> None:
        self._headers[self._name.lower()] = self._value
        self._name, self._value = b"", b""

    def data(self, data: bytes, start: int, end: int) -> None:
        self._content += data[start:end]

    def end_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if options.get(b"name") != FIELD:
            raise bad("a part of the form has another name than image: send the pictures as image")
        if len(self.files) == self.limit:
            raise Refused(413, f"the form has more images than the {self.limit} that are allowed in one request")
        self.files.append(bytes(self._content))

    def end(self) -> None:
        self.ended = True


def parts(content_type: str, body: bytes, limit: int) -> list[bytes]:
    """The files of a form, at most `limit`."""
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise bad("the form has no boundary: let your HTTP library set its Content-Type")
    form = _Form(limit)
    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.begin,
                "on_header_field": form.header_field,
                "on_header_value": form.header_value,
                "on_header_end": form.header_end,
                "on_part_data": form.data,
                "on_part_end": form.end_part,
                "on_end": form.end,
            },
        )
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise bad(f"the form is damaged ({str(error)[:80]})") from None
    if not form.ended:
        raise bad("the form is cut short: its last boundary is missing")
    if not form.files:
        raise bad("the form has no image: send the picture as a part named image")
    return form.files
