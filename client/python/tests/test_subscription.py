"""What a node does at its limits is told by a server that does nothing else."""

import io
import os
import socket
import ssl
import tempfile
import threading
import unittest
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, Dict, Iterator, List, Optional, Tuple
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from mongostream_streamer import Change, Loss, Progress, SnapshotMark, StreamerError, Subscription, subscribe
from mongostream_streamer.__main__ import main
from mongostream_streamer.sse import events


class Node(ThreadingHTTPServer):
    """Answers each request as told, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[["Request"], None], tls: Optional[ssl.SSLContext] = None) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answer = answer
        self.asked: List[str] = []
        self.released = threading.Event()  # what ends a silent answer

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Request(BaseHTTPRequestHandler):
    server: Node

    def do_GET(self) -> None:
        self.server.asked.append(self.headers.get("Last-Event-ID", ""))
        self.server.answer(self)

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, body: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "text/event-stream", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body.encode())
        self.wfile.flush()

    def silence(self) -> None:
        self.server.released.wait()


@contextmanager
def node(answer: Callable[[Request], None], tls: Optional[ssl.SSLContext] = None) -> Iterator[Node]:
    server = Node(answer, tls)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def unheard(reason: Exception) -> None:
    pass


class Subscriptions(unittest.TestCase):
    def test_continues_after_the_last_message_that_is_done(self) -> None:
        def answer(request: Request) -> None:
            turn = len(request.server.asked)
            if turn == 1:
                request.reply(503, '{"code":"STRM-NODE-STOPPING","message":"m","remedy":"r"}', Content_Type="application/json", Retry_After="0")
            elif turn == 2:
                request.reply(200, 'retry: 1\n\nid: 1\ndata: {"key":"1"}\n\nid: 2\ndata: {"key":"2"}\n')  # cut off
            elif turn == 3:
                request.reply(200, 'retry: 1\r\n\r\nid: 2\r\ndata: {"key":"2"}\r\n\r\nid: 3\n: progress\n\n')
                request.silence()
            else:
                request.reply(200, 'event: resync\nid: 4\ndata: {"notice":"resync","reason":"r","lost_to":{},"namespaces":["shop.*"]}\n\n')

        reasons: List[Exception] = []
        with node(answer) as server, subscribe(server.address, silence=3, on_reconnect=reasons.append) as messages:
            got = [next(messages) for _ in range(3)]
            self.assertEqual(messages.position, "3")  # the loss is not done
        self.assertEqual([m.id for m in got], ["1", "2", "4"])
        self.assertIsInstance(got[2], Loss)
        self.assertEqual(getattr(got[2], "namespaces"), ["shop.*"])
        self.assertEqual(server.asked, ["", "", "1", "3"])
        self.assertIn("STRM-NODE-STOPPING", str(reasons[0]))

    def test_progress_comes_if_it_is_asked_for(self) -> None:
        body = 'id: 1\n\nevent: snapshot\nid: 2\ndata: {"state":"done","read":7}\n\nid: 3\ndata: {"operationType":"insert","key":"k"}\n\n'

        def answer(request: Request) -> None:
            request.reply(200, body)
            request.silence()

        with node(answer) as server:
            with subscribe(server.address, progress=True) as messages:
                first, second, third = (next(messages) for _ in range(3))
            self.assertEqual(first, Progress("1"))
            self.assertTrue(isinstance(second, SnapshotMark) and (second.state, second.read) == ("done", 7))
            self.assertTrue(isinstance(third, Change) and (third.operation, third.key) == ("insert", "k"))
            with subscribe(server.address) as messages:
                self.assertIsInstance(next(messages), SnapshotMark)

    def test_asks_as_it_was_told(self) -> None:
        seen: List[Dict[str, List[str]]] = []

        def answer(request: Request) -> None:
            seen.append(parse_qs(urlsplit(request.path).query))
            request.reply(200, 'id: 1\ndata: {}\n\n')

        with node(answer) as server:
            with subscribe(
                server.address + "/behind/", db="shop", coll="orders", op=["insert", "update"], filter='doc.total >= 100 && doc.name == "ü&"',
                subscriber="me", start="earliest", on_loss="snapshot", leaves=True,
            ) as messages:  # fmt: skip
                next(messages)
        self.assertEqual(seen[0], {
            "db": ["shop"], "coll": ["orders"], "op": ["insert,update"], "filter": ['doc.total >= 100 && doc.name == "ü&"'], "subscriber": ["me"],
            "start": ["earliest"], "on_loss": ["snapshot"], "leaves": ["true"],
        })  # fmt: skip

    def test_what_another_attempt_does_not_change_ends_it(self) -> None:
        refusals = [
            (400, '{"code":"STRM-FILTER-INVALID","message":"m","remedy":"write it otherwise"}', "STRM-FILTER-INVALID"),
            (404, "<html>", ""),
            (302, "", ""),  # another origin would get the token
            (200, 'event: error\ndata: {"code":"STRM-SESSION-REPLACED","message":"m","remedy":"r"}\n\n', "STRM-SESSION-REPLACED"),
        ]
        for status, body, code in refusals:
            with self.subTest(status), node(lambda request: request.reply(status, body, Location="http://127.0.0.1:1/")) as server:
                with self.assertRaises(StreamerError) as caught:
                    next(subscribe(server.address, token="secret"))
                self.assertEqual(caught.exception.code, code)
                self.assertEqual(len(server.asked), 1)
                if status == 400:
                    self.assertEqual(str(caught.exception), "STRM-FILTER-INVALID: m. write it otherwise")

    def test_a_refused_token_is_renewed_once(self) -> None:
        tokens: List[str] = []

        def token() -> str:
            tokens.append(f"t{len(tokens)}")
            return tokens[-1]

        def answer(request: Request) -> None:
            request.reply(200 if request.headers["Authorization"] == "Bearer t1" else 401, "retry: 1\n\ndata: {}\n\n")

        with node(answer) as server:
            messages = subscribe(server.address, token=token, on_reconnect=unheard)
            next(messages)
            with self.assertRaises(StreamerError) as caught:
                next(messages)  # t2 and t3 are refused
        self.assertEqual((caught.exception.status, tokens), (401, ["t0", "t1", "t2", "t3"]))

    def test_no_error_shows_a_token(self) -> None:
        seen: List[str] = []

        def answer(request: Request) -> None:
            seen.append(request.headers["Authorization"])
            request.reply(200, "data: {}\n\n")

        with node(answer) as server:
            for token in ("secret\n", " secret\r\n", lambda: "secret\n"):  # as files and commands end
                with subscribe(server.address, token=token) as messages:
                    next(messages)
            for token in ("sec\nret", "sec\0ret", "secr\u00e9t", "sec\u20acret", lambda: "sec\x7fret"):
                with self.subTest(token), self.assertRaises(ValueError) as caught:
                    next(subscribe(server.address, token=token))
                self.assertRegex(str(caught.exception), "^the token has ")
                self.assertIsNone(caught.exception.__context__)
                self.assertNotIn("sec", str(caught.exception))
        self.assertEqual(seen, ["Bearer secret"] * 3)

    def test_the_next_address_is_tried_at_once(self) -> None:
        def answer(request: Request) -> None:
            request.reply(200, "id: 1\ndata: {}\n\n")

        with socket.socket() as closed, node(answer) as server:
            closed.bind(("127.0.0.1", 0))  # nobody listens
            reasons: List[Exception] = []
            address = f"http://127.0.0.1:{closed.getsockname()[1]}"
            next(subscribe([address, server.address], on_reconnect=reasons.append))
        self.assertRegex(str(reasons[0]), f"^{address}: .*refused")

    def test_without_a_listener_the_reason_is_logged(self) -> None:
        def answer(request: Request) -> None:
            if len(request.server.asked) == 1:
                request.wfile.write(b"\x00\x00\x18\x04 no HTTP\n")  # as a gRPC port
            else:
                request.reply(200, "data: {}\n\n")

        with node(answer) as server, self.assertLogs("mongostream_streamer") as logs:
            next(subscribe(server.address))
        self.assertRegex(logs.output[0], "is this the address of a node's HTTP server, port 8080")

    def test_an_invalid_address_is_refused(self) -> None:
        for address in ("", "nonsense", "127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1:many", "http://me:secret@127.0.0.1", "http://h/?db=shop"):
            with self.subTest(address), self.assertRaises(ValueError):
                subscribe(["http://127.0.0.1:1", address])
        with self.assertRaises(ValueError):
            subscribe([])

    def test_another_thread_closes_it(self) -> None:
        def answer(request: Request) -> None:
            request.reply(200, "id: 1\ndata: {}\n\n")
            request.silence()

        with node(answer) as server:
            messages = subscribe(server.address, on_reconnect=unheard)
            next(messages)
            thread = threading.Thread(target=messages.close)
            thread.start()
            self.assertEqual(list(messages), [])
            thread.join()

    def test_nothing_comes_after_close(self) -> None:
        def answer(request: Request) -> None:
            request.reply(200, "".join(f"id: {i}\ndata: {{}}\n\n" for i in range(1, 4)))  # it arrives at once
            request.silence()

        with node(answer) as server:
            messages = subscribe(server.address, on_reconnect=unheard)
            next(messages)
            messages.close()
            self.assertEqual(list(messages), [])
            self.assertEqual((messages.position, len(server.asked)), ("1", 1))

    def test_a_connection_stays_encrypted_when_it_is_closed(self) -> None:
        def answer(request: Request) -> None:
            request.reply(200, "id: 1\ndata: {}\n\n")
            request.silence()

        def anonymous(protocol: int) -> ssl.SSLContext:  # needs no certificate
            context = ssl.SSLContext(protocol)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers("aNULL:@SECLEVEL=0")
            return context

        with node(answer, anonymous(ssl.PROTOCOL_TLS_SERVER)) as server:
            address = f"https://127.0.0.1:{server.server_port}"
            with subscribe(address, tls=anonymous(ssl.PROTOCOL_TLS_CLIENT), on_reconnect=unheard) as messages:
                next(messages)
                connection = messages._socket
                assert isinstance(connection, ssl.SSLSocket)
                messages.close()
                self.assertEqual(connection.version(), "TLSv1.2")  # a thread that still reads does so in TLS
                self.assertEqual(list(messages), [])

    def test_the_end_that_was_asked_for_ends_it(self) -> None:
        def answer(request: Request) -> None:
            if request.headers["Last-Event-ID"] == "end":  # as a node answers there
                request.send_response(204)
                request.end_headers()
            else:
                request.reply(200, 'id: 1\ndata: {}\n\nevent: end\ndata: {"message":"the end is reached"}\nid: end\n\n')

        with node(answer) as server:
            for progress, want in ((False, ["1"]), (True, ["1", "end"])):
                messages = Subscription([server.address], [("end", "2026-01-01T00:00:00Z")], progress=progress)
                self.assertEqual([m.id for m in messages], want)
                self.assertEqual(messages.position, "end")
            self.assertEqual(list(Subscription([server.address], [("end", "2026-01-01T00:00:00Z")], after="end")), [])
            self.assertEqual(server.asked, ["", "", "end"])
            with self.assertRaises(StreamerError):  # nobody has asked for an end: a proxy's answer, perhaps
                next(subscribe(server.address, after="end"))


class Program(unittest.TestCase):
    """The program that python3 -m mongostream_streamer runs."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "position.txt")

    def run_it(self, address: str) -> Tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([address + "/v1/events?end=2026-01-01T00:00:00Z", self.file])
        return code, out.getvalue(), err.getvalue()

    def saved(self) -> str:
        with open(self.file) as saved:
            return saved.read()

    def test_ends_at_the_end_and_continues_there(self) -> None:
        def answer(request: Request) -> None:
            if request.headers["Last-Event-ID"] == "end":
                request.send_response(204)
                request.end_headers()
            else:
                request.reply(200, 'id: 1\ndata: {"n":2}\n\nevent: end\ndata: {}\nid: end\n\n')

        with node(answer) as server:
            self.assertEqual(self.run_it(server.address), (0, '{"id":"1","n":2}\n', ""))
            self.assertEqual(self.saved(), "end")
            self.assertEqual(self.run_it(server.address), (0, "", ""))

    def test_a_line_has_its_id_once(self) -> None:
        stream = 'id: 1\ndata: {"n":2}\n\nid: 2\ndata: {"id":"2","n":3}\n\nid: 3\ndata: {}\n\nevent: end\ndata: {}\nid: end\n\n'
        with node(lambda request: request.reply(200, stream)) as server:
            self.assertEqual(self.run_it(server.address), (0, '{"id":"1","n":2}\n{"id":"2","n":3}\n{}\n', ""))

    def test_a_position_is_on_disk_before_it_has_its_name(self) -> None:
        synced: List[int] = []

        def fsync(file: int) -> None:
            synced.append(os.fstat(file).st_size)
            self.assertFalse(os.path.exists(self.file))

        with node(lambda request: request.reply(200, "event: end\ndata: {}\nid: end\n\n")) as server, mock.patch("os.fsync", fsync):
            self.assertEqual(self.run_it(server.address), (0, "", ""))
        self.assertEqual((synced, self.saved()), ([len("end")], "end"))

    def test_an_empty_file_says_not_where_to_continue(self) -> None:
        with node(lambda request: request.reply(200, "event: end\ndata: {}\n\n")) as server:
            for text in ("", "\n"):
                with open(self.file, "w") as empty:
                    empty.write(text)
                code, out, err = self.run_it(server.address)
                self.assertEqual((code, out, server.asked), (1, "", []))
                self.assertIn(f"{self.file}: the file is empty: ", err)


class Streams(unittest.TestCase):
    def test_events_are_read_however_they_are_cut(self) -> None:
        text = ': hello\r\nretry: 7\n\nid: 1\ndata: ü\ndata: b\n\nid: 2\n\nid: bad\0\nevent: e\ndata\n\nid: 3\ndata: cut'.encode()
        want = [(None, "message", None, 0.007), ("1", "message", "ü\nb", None), ("2", "message", None, None), (None, "e", "", None)]
        for size in range(1, len(text) + 1):
            pieces = iter([text[i : i + size] for i in range(0, len(text), size)] + [b""])
            with self.subTest(size):
                self.assertEqual([(e.id, e.kind, e.data, e.retry) for e in events(lambda: next(pieces))], want)


if __name__ == "__main__":
    unittest.main()
