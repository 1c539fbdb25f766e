"""Prints the changes that a Streamer node serves, one line of JSON each, and continues where it was after every failure.

    python3 consumer.py 'http://127.0.0.1:8080/v1/events?db=shop&coll=orders' position.txt
"""
import json, os, sys, time, urllib.error, urllib.request

def events(response):
    """Yields (id, event, data) of a stream of server-sent events."""
    position, event, data = "", "message", []
    for line in response:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "id": position = value
        elif field == "event": event = value
        elif field == "data": data.append(value)
        elif not field and not value:  # an empty line ends the event; one without data only moves the position on
            yield position, event, "\n".join(data)
            event, data = "message", []

def tell(text):
    """Prints a line. Whoever has closed the pipe, as head does, wants no more: that is the end, and no failure of the network."""
    try: print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left of the line
        sys.exit(0)

def follow(url, file):
    """Handles events until the connection ends. A position is saved after its event was handled: at least once."""
    request = urllib.request.Request(url, headers={"Accept": "text/event-stream"})
    if token := os.environ.get("STREAMER_TOKEN"): request.add_header("Authorization", "Bearer " + token)
    if os.path.exists(file): request.add_header("Last-Event-ID", open(file).read())
    with urllib.request.urlopen(request, timeout=45) as response:  # nodes write every 15 s
        for position, event, data in events(response):
            if data and event == "message": tell(data)  # a change: handle it here, before its position is saved
            elif data: print(event, json.loads(data), file=sys.stderr, flush=True)  # a loss: read its namespaces again
            if position:
                with open(file + ".new", "w") as new: new.write(position)
                os.replace(file + ".new", file)

while __name__ == "__main__":
    try: follow(*sys.argv[1:])
    except urllib.error.HTTPError as error:
        if error.code < 500 and error.code != 429: sys.exit(error.read().decode())  # a bad filter, a missing right
    except OSError as error: print("reconnecting:", error, file=sys.stderr, flush=True)
    time.sleep(1)
