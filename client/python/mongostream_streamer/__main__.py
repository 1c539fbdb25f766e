"""Prints the changes that a node serves, one line of JSON each, and continues where it was after every failure.

    python3 -m mongostream_streamer 'http://127.0.0.1:8080/v1/events?db=shop&coll=orders' [POSITION_FILE]

A position is saved after its change was printed: at least once. STREAMER_TOKEN may hold a token.
"""

import os
import sys
from io import TextIOWrapper
from typing import List
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from . import Change, Progress, StreamerError, Subscription


def main(arguments: List[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    url, file = urlsplit(arguments[0]), arguments[1] if len(arguments) == 2 else ""
    if url.path not in ("", "/", "/v1/events"):
        print(f"{arguments[0]}: the path is /v1/events", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    after = ""
    if file and os.path.exists(file):
        with open(file) as saved:
            after = saved.read().strip()
        if not after:  # nothing would say which changes have been missed
            print(f"{file}: the file is empty: write the id of the last change into it, or delete it to start without a position", file=sys.stderr)
            return 1
    try:
        with Subscription(
            [urlunsplit((url.scheme, url.netloc, "", "", ""))], parse_qsl(url.query, keep_blank_values=True),
            after=after, token=os.environ.get("STREAMER_TOKEN"), progress=True,
        ) as messages:  # fmt: skip
            for message in messages:
                if isinstance(message, Change):
                    print(_with_id(message), flush=True)
                elif not isinstance(message, Progress):  # a loss: its namespaces are to be read again
                    print(message, file=sys.stderr, flush=True)
                if file and message.id:
                    _save(file, message.id)
    except BrokenPipeError:  # whoever has closed the pipe, as head does, wants no more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of the line
    except (StreamerError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _with_id(change: Change) -> str:
    """Returns the event, an object, with the id in it. Nodes of earlier builds sent it there as well."""
    if not change.id or len(change.text) <= len("{}") or change.text.startswith('{"id":'):
        return change.text
    return f'{{"id":"{change.id}",{change.text[1:]}'


def _save(file: str, position: str) -> None:
    with open(file + ".new", "w") as new:
        new.write(position)
        new.flush()
        os.fsync(new.fileno())  # or the file may be empty when the machine has failed
    os.replace(file + ".new", file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
