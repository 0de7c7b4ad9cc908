"""The part of the Hub's HTTP interface that its client uses to push and to fetch a model, on this machine."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


class Hub:
    """Repositories with branches of commits; `asked` are the paths of all requests."""

    def __init__(self) -> None:
        self.commits: dict[str, Files] = {}
        self.refs: dict[tuple[str, str], str] = {}
        self.asked: list[str] = []
        self.url = ""

    def commit(self, name: str, branch: str, changes: Files, without: Iterable[str] = ()) -> str:
        files = self.commits.get(self.refs.get((name, branch), ""), {}) | changes
        files = {path: data for path, data in files.items() if path not in without}
        text = repr((name, branch, len(self.commits), sorted(files)))
        oid = hashlib.sha1(text.encode()).hexdigest()
        self.commits[oid], self.refs[name, branch] = files, oid
        return oid

    def at(self, name: str, revision: str) -> tuple[str, Files] | None:
        oid = self.refs.get((name, unquote(revision)), revision)
        return (oid, self.commits[oid]) if oid in self.commits else None


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_) -> None:
            pass

        def answer(self, value, status: int = 200, headers=(), head: bool = False) -> None:
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            for key, text in (*headers, ("Content-Length", str(len(body)))):
                self.send_header(key, text)
            self.end_headers()
            if not head:
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET(head=True)

        def do_GET(self, head: bool = False) -> None:
            hub.asked.append(self.path)
            parts = urlsplit(self.path).path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                name, kind, revision = "/".join(parts[2:4]), *(parts[4:6] or ["revision", "main"])
                known = any(one == name for one, _ in hub.refs)
                found = hub.at(name, revision)
                if found is None:
                    code = "RevisionNotFound" if known else "RepoNotFound"
                    self.answer({"error": code}, 404, [("X-Error-Code", code)], head)
                elif kind == "tree":
                    rows = [
                        {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                        for path, data in found[1].items()
                    ]
                    self.answer(rows, head=head)
                else:
                    siblings = [{"rfilename": path} for path in found[1]]
                    self.answer({"id": name, "sha": found[0], "siblings": siblings}, head=head)
                return
            if parts[0] == "api" or len(parts) < 5:
                self.answer({"name": "me", "type": "user"} if "whoami" in self.path else {}, head=head)
                return
            name, revision, path = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
            found = hub.at(name, revision)
            if found is None or path not in found[1]:
                self.answer({}, 404, [("X-Error-Code", "EntryNotFound")], head)
                return
            data = found[1][path]
            headers = [("ETag", f'"{hashlib.sha1(data).hexdigest()}"'), ("X-Repo-Commit", found[0])]
            self.answer(data, headers=headers, head=head)

        def do_POST(self) -> None:
            hub.asked.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path).path.strip("/").split("/")
            if parts == ["api", "repos", "create"]:
                asked = json.loads(body)
                name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
                if (name, "main") not in hub.refs:
                    hub.commit(name, "main", {".gitattributes": b""})
                self.answer({"url": f"{hub.url}/{name}", "id": name, "name": name})
            elif parts == ["api", "validate-yaml"]:
                self.answer({"errors": [], "warnings": []})
            elif parts[4] == "preupload":
                files = [
                    {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                    for one in json.loads(body)["files"]
                ]
                self.answer({"files": files})
            elif parts[4] == "branch":
                name, branch = "/".join(parts[2:4]), unquote(parts[5])
                hub.refs[name, branch] = hub.refs[name, "main"]
                self.answer({})
            elif parts[4] == "commit":
                lines = [json.loads(line) for line in body.splitlines()]
                files = {
                    one["value"]["path"]: base64.b64decode(one["value"]["content"])
                    for one in lines
                    if one["key"] == "file"
                }
                gone = [one["value"]["path"] for one in lines if one["key"] == "deletedFile"]
                oid = hub.commit("/".join(parts[2:4]), unquote(parts[5]), files, gone)
                self.answer({"commitUrl": f"{hub.url}/{'/'.join(parts[2:4])}/commit/{oid}", "commitOid": oid})
            else:
                self.answer({}, 400)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
