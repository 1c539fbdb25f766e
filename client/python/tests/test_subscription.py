"""What a node does at its limits is told by a server that does nothing else."""

import socket
import threading
import unittest
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable, Dict, Iterator, List
from urllib.parse import parse_qs, urlsplit

from mongostream_streamer import Change, Loss, Progress, SnapshotMark, StreamerError, Subscription, subscribe
from mongostream_streamer.sse import events


class Node(ThreadingHTTPServer):
    """Answers each request as told, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[["Request"], None]) -> None:
        super().__init__(("127.0.0.1", 0), Request)
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
def node(answer: Callable[[Request], None]) -> Iterator[Node]:
    server = Node(answer)
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
        with node(answer) as server, subscribe(server.address, silence=0.5, on_reconnect=reasons.append) as messages:
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
