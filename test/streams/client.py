"""Reads a stream as programs in Python do, with urllib or with requests, and prints the id and the data of each change, which is an event without a name.

    python3 test/streams/client.py urllib|requests URL
"""

import sys
import time
import urllib.request


def lines_of_urllib(url, headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        for line in answer:
            yield line.decode().rstrip("\n")


def lines_of_requests(url, headers):
    import requests

    with requests.get(url, headers=headers, stream=True, timeout=60) as answer:
        answer.raise_for_status()
        for line in answer.iter_lines(chunk_size=1):
            yield line.decode()


def events(lines):
    identity, name, data = None, "", []
    for line in lines:
        if not line:
            if data:
                yield identity, name, "\n".join(data)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            identity = value
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)


def main(library, url):
    last = None
    while True:
        headers = {"Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        try:
            for last, name, data in events({"urllib": lines_of_urllib, "requests": lines_of_requests}[library](url, headers)):
                if not name:
                    print(last, data, sep="\t", flush=True)
        except OSError:
            pass
        except Exception as failure:  # http.client's are no OSError
            if "Incomplete" not in repr(failure):
                raise
        time.sleep(0.2)


main(*sys.argv[1:])
