/** A field group of an event stream (WHATWG HTML, section 9.2). data is undefined where only the id moved on. */
export interface ServerEvent {
  id: string | undefined;
  type: string;
  data: string | undefined;
  retry: number | undefined;
}

/** maxEvent bounds what one event may take: the largest change is 16 MB of BSON, and at most twelve times as much JSON. */
const maxEvent = 256 << 20;

/** events reads an event stream. alive is called for whatever arrives. */
export async function* events(body: ReadableStream<Uint8Array>, alive: () => void): AsyncGenerator<ServerEvent, void, void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let pending: string[] = []; // pieces of a line that has not ended
  let size = 0;
  let event = fresh();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event that is cut off is dropped
      alive();
      const text = decoder.decode(value, { stream: true });
      let from = 0;
      for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", from)) {
        pending.push(text.slice(from, end));
        const line = pending.length === 1 ? pending[0]! : pending.join("");
        pending = [];
        size = 0;
        from = end + 1;
        if (line !== "" && line !== "\r") {
          field(event, line.endsWith("\r") ? line.slice(0, -1) : line);
          continue;
        }
        if (event.id !== undefined || event.data !== undefined || event.retry !== undefined) yield event;
        event = fresh();
      }
      if (from < text.length) pending.push(text.slice(from));
      size += text.length - from;
      if (size > maxEvent) throw new Error("an event of the stream is too large");
    }
  } finally {
    await reader.cancel().catch(() => {}); // the connection may have ended already
  }
}

function fresh(): ServerEvent {
  return { id: undefined, type: "message", data: undefined, retry: undefined };
}

function field(event: ServerEvent, line: string): void {
  const colon = line.indexOf(":");
  if (colon === 0) return; // a comment
  const name = colon < 0 ? line : line.slice(0, colon);
  let value = colon < 0 ? "" : line.slice(colon + 1);
  if (value.startsWith(" ")) value = value.slice(1);
  switch (name) {
    case "id":
      if (!value.includes("\0")) event.id = value;
      break;
    case "event":
      event.type = value;
      break;
    case "data":
      event.data = event.data === undefined ? value : `${event.data}\n${value}`;
      break;
    case "retry":
      if (/^\d+$/.test(value)) event.retry = Number(value);
  }
}
