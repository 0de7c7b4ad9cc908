"""The service on a real socket: bodies without a length or with a wrong one, slow clients, and an orderly end."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from prood.errors import BadValue, NoAccess, Unsupported
from prood.models import MODEL_FILE, save
from prood.serve import About, Options, create_app
from prood.serve.connection import ACCEPTED, RESERVE, Quiet, descriptors
from prood.serve.server import announcement, bind, hosts_for, is_loopback, loaded, make_server, read_token


@pytest.fixture
def start(detector):
    """`start(body_s=…)` serves in a thread; the port."""
    running = []

    def begin(**options):
        listening = bind("127.0.0.1", 0)
        server = make_server(detector, Options(**options), About("small", 0.02))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        running.append((server, thread))
        while not server.started:
            time.sleep(0.01)
        return listening.getsockname()[1]

    yield begin
    for server, thread in running:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def exchange(port, sent, *, end=False):
    """Send bytes; all that comes back until the service closes, or until a whole answer is there."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        received = b""
        while part := connection.recv(65536):
            received += part
            head, gap, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if not end and gap and length and len(body) >= int(length[1]):
                break
        return received


def head(length=None, more=b"", path=b"/v1/predict"):
    lines = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n" + more
    return lines + (b"" if length is None else b"Content-Length: %d\r\n" % length) + b"\r\n"


def status(answer):
    return int(answer.split(b" ", 2)[1])


def error(answer):
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def chunked(data, size=100):
    parts = [data[place : place + size] for place in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def test_a_body_in_chunks(start, files):
    port = start(body_bytes=5000)
    more = b"Transfer-Encoding: chunked\r\n"
    assert status(exchange(port, head(more=more) + chunked(files[0]))) == 200
    answer = exchange(port, head(more=more) + chunked(b"x" * 6000))
    assert status(answer) == 413
    assert "more than 5000 bytes" in error(answer)


def test_a_length_that_is_too_long_is_refused_before_anything_is_read(start):
    port = start(body_bytes=5000)
    answer = exchange(port, head(10**12))
    assert status(answer) == 413


def test_a_length_that_lies(start, files):
    port = start(body_s=0.3)
    answer = exchange(port, head(len(files[0]) + 10) + files[0])
    assert status(answer) == 408
    answer = exchange(port, head(20) + files[0][:20])
    assert status(answer) == 400
    # What is left over of a body is no request; the connection ends with it.
    answer = exchange(port, head(20) + files[0], end=True)
    assert answer.count(b"HTTP/1.1 400") == 2
    assert status(exchange(port, head(len(files[0])) + files[0])) == 200


def test_headers_that_do_not_come_end_the_connection(start, files):
    port = start(header_s=0.4)
    begun = time.monotonic()
    assert exchange(port, b"", end=True) == b""
    assert exchange(port, b"POST /v1/predict HTTP/1.1\r\nHost: loc", end=True) == b""
    assert time.monotonic() - begun >= 0.8
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        assert closed_while_sending(connection, b"a")  # a byte now and then does not help


def test_a_connection_in_use_is_not_cut(start, files):
    port = start(header_s=0.6, wait_ms=900)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for pause in (0, 0.9, 0):  # answers take longer than headers may, and so do pauses between requests
        time.sleep(pause)
        connection.request("POST", "/v1/predict", files[0], {"Content-Type": "image/png", "Host": "localhost"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()


def test_a_body_that_was_refused_is_not_read_for_ever(start):
    port = start(body_bytes=1000, header_s=0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head(10**9) + b"x" * 100)
        assert b"413" in connection.recv(65536)
        assert closed_while_sending(connection, b"x" * 1000)


def test_two_ways_to_tell_the_length_are_refused(start, files):
    """A proxy and the service may each believe another one: what is left over would be somebody else's request."""
    port = start()
    sent = head(len(files[0]), b"Transfer-Encoding: chunked\r\n") + chunked(files[0])
    answer = exchange(port, sent + b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\n\r\n", end=True)
    assert status(answer) == 400
    assert "Content-Length and a Transfer-Encoding" in error(answer)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()


def test_more_connections_than_allowed_are_closed(start):
    port = start(connections=5)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(5)]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as one_more:
        assert one_more.recv(100) == b""
    for one in idle:
        one.close()
    answer, end = b"", time.monotonic() + 20
    while not answer and time.monotonic() < end:  # until it has noticed
        with suppress(ConnectionError):
            answer = exchange(port, once(b"/healthz"))
    assert status(answer) == 200


def until_status(port, wanted):
    for _ in range(200):
        answer = exchange(port, once(b"/healthz"), end=True)
        if status(answer) == wanted:
            return
        time.sleep(0.02)
    raise AssertionError(answer)


ATTACK = b"/v1/attack?steps=100000&eps=0.02"


@pytest.mark.parametrize("path", [b"/v1/predict", b"/v1/certify", ATTACK, ATTACK + b"&stream=true"])
def test_work_ends_when_its_client_hangs_up(start, files, path):
    """Also that of requests that only wait."""
    port = start(wait_ms=60_000, attack_steps=100_000)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head(len(files[0]), path=path) + files[0])
        until_metric(port, f'prood_{"attacks" if b"attack" in path else "queue_rows"}{{model="small"}} 1.0')
    until_metric(port, f'path="{path.partition(b"?")[0].decode()}",status="499"}} 1.0')
    for gauge in ("queue_rows", "attacks", "queue_seconds"):
        until_metric(port, f'prood_{gauge}{{model="small"}} 0.0')
    until_metric(port, "prood_requests_in_flight 1.0")


def once(path):
    return b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def until_metric(port, line):
    for _ in range(1000):
        found = exchange(port, once(b"/metrics"), end=True).decode()
        if line + "\n" in found:
            return
        time.sleep(0.02)
    raise AssertionError(found)


def test_the_descriptors_bound_the_connections(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.insert(0, wanted))
    assert descriptors(4096) == 1024 - RESERVE - ACCEPTED
    assert descriptors(100) == 100
    limits[0] = (1024, 10_000)
    assert descriptors(4096) == 4096
    assert limits[0] == (4096 + RESERVE + ACCEPTED, 10_000)


def test_what_cannot_be_accepted_is_one_line_a_minute(caplog):
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(Quiet())
    for _ in range(1000):
        loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": OSError(24, "")})
    assert len(caplog.records) == 1
    loop.call_exception_handler({"message": "something else"})
    assert len(caplog.records) == 2
    loop.close()


def closed_while_sending(connection, part):
    """Whether the service closes the connection although bytes keep coming; within some twenty seconds."""
    connection.settimeout(0.05)
    for _ in range(400):
        try:
            connection.sendall(part)
            if connection.recv(10) == b"":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@pytest.fixture(scope="module")
def run(detector, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "small"
    save(detector.model, folder / MODEL_FILE, classes=list("abcdefgh"), threshold=0.5, accept=0.9, eps=0.03)
    return folder


@contextmanager
def served(run, *words):
    """`prood serve` in a process of its own; the process and its port."""
    command = [sys.executable, "-m", "prood", "serve", str(run), "--port", "0", "--threads", "1", *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        lines = [server.stdout.readline() for _ in range(4)]
        assert "small: 8 classes, images 1×28×28, rejects below a confidence of 0.5 (accepts 90%" in lines[0]
        port = int(re.search(r"http://localhost:(\d+)/\n", lines[1])[1])
        assert "/docs" in lines[2]
        yield server, port
    finally:
        server.kill()
        server.communicate()


@pytest.mark.slow
def test_sigterm_finishes_what_was_accepted(run, files):
    with served(run, "--wait-ms", "1500", "--grace-s", "1") as (server, port):
        assert status(exchange(port, b"GET /v1/model HTTP/1.1\r\nHost: evil.example\r\n\r\n")) == 400
        assert status(exchange(port, b"GET /healthz HTTP/1.1\r\nHost: 10.1.1.1\r\n\r\n")) == 200
        answers = []
        sent = head(len(files[0])) + files[0]
        clients = [threading.Thread(target=lambda: answers.append(exchange(port, sent))) for _ in range(3)]
        for client in clients:
            client.start()
        until_metric(port, 'prood_queue_rows{model="small"} 3.0')
        os.kill(server.pid, signal.SIGTERM)
        until_status(port, 503)  # not ready, and …
        answers.append(exchange(port, sent))  # … still there
        for client in clients:
            client.join(30)
        assert [status(answer) for answer in answers] == [200] * 4
        assert b"connection: close" in answers[-1].lower()
        assert server.wait(30) == 0
        assert server.stderr.read() == ""
        with pytest.raises(ConnectionError):
            exchange(port, sent)


@pytest.mark.slow
def test_the_time_to_finish_is_kept(run, files):
    """Whatever is waiting: it is told so, and its work is dropped."""
    with served(run, "--wait-ms", "60000", "--grace-s", "0", "--drain-s", "1") as (server, port):
        answers = []
        sent = head(len(files[0])) + files[0]
        client = threading.Thread(target=lambda: answers.append(exchange(port, sent)))
        client.start()
        until_metric(port, 'prood_queue_rows{model="small"} 1.0')
        begun = time.monotonic()
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(30) == 0
        assert time.monotonic() - begun < 20  # and not the minute for which the request would wait
        client.join(30)
        assert status(answers[0]) == 503
        assert "Traceback" not in server.stderr.read()


def test_a_port_in_use_and_addresses_that_are_none():
    with bind("127.0.0.1", 0) as taken, pytest.raises(NoAccess, match="--port"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(NoAccess, match=r"no\.such\.host\.invalid"):
        bind("no.such.host.invalid", 8000)
    with pytest.raises(BadValue, match="70000"):
        bind("127.0.0.1", 70000)


def test_who_may_call_it_by_which_name():
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.1.1.1", "box.example", "::"))
    assert set(hosts_for("127.0.0.1", ("Box.example",))) == {"localhost", "127.0.0.1", "::1", "box.example"}
    assert hosts_for("0.0.0.0", ()) is None
    assert hosts_for("0.0.0.0", ("box",)) == ("box",)


def test_the_token_comes_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("PROOD_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("PROOD_TOKEN", "from-there")
    assert read_token(None) == "from-there"
    (tmp_path / "token").write_text("from-here\n")
    assert read_token(tmp_path / "token") == "from-here"
    with pytest.raises(NoAccess):
        read_token(tmp_path / "none")


def test_what_is_loaded_and_announced(run, detector, tmp_path):
    found, about = loaded(run)
    assert (about.name, about.eps, found.accept, found.threshold) == ("small", 0.03, 0.9, 0.5)
    assert loaded(run / MODEL_FILE)[1].name == "model"
    assert loaded(run, name="mine")[1].name == "mine"
    said = "\n".join(announcement(create_app(found, Options(), about), "0.0.0.0", 80))
    assert "anybody who reaches 0.0.0.0 may use it" in said
    assert "warning" not in "\n".join(announcement(create_app(found, Options(token="x"), about), "0.0.0.0", 80))
    assert "warning" not in "\n".join(announcement(create_app(found, Options(), about), "127.0.0.1", 80))
    assert "http://[::1]:80/docs" in "\n".join(announcement(create_app(found, Options(), about), "::1", 80))
    found.accept = 0.996
    assert "(accepts 99.6% of" in announcement(create_app(found, Options(), about), "127.0.0.1", 80)[0]
    detector_alone = type(detector)(detector.model)
    assert "no threshold" in announcement(create_app(detector_alone, Options(), about), "127.0.0.1", 80)[0]
    save(detector.model.discriminator, tmp_path / MODEL_FILE)
    with pytest.raises(Unsupported):
        loaded(tmp_path)
