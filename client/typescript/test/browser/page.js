// A page that keeps what it has handled, with the position after it, and a live query beside it.
import { LiveQuery, stringify, subscribe } from "/client/index.js";

const options = { addresses: new URLSearchParams(location.search).getAll("address"), db: "shop", coll: "orders" };
const events = [];
const onReconnect = (reason) => events.push(`reconnect: ${reason.message}`);
addEventListener("offline", () => events.push("offline"));

const live = new LiveQuery({ ...options, onReconnect });
window.state = {
  events,
  // One item holds both, so that a page that is left at any time has neither without the other.
  kept: () => JSON.parse(localStorage.getItem("kept") ?? '{"position":"","handled":[]}'),
  documents: () => [...live.documents.values()].map((d) => stringify(d)),
};
const failed = (error) => events.push(`failed: ${error.message}`);
live.run().catch(failed);

(async () => {
  const { position, handled } = window.state.kept();
  for await (const m of subscribe({ ...options, start: "earliest", after: position, onReconnect })) {
    if (m.kind === "notice") continue; // such as that the collection does not exist yet: no change
    await new Promise((resolve) => setTimeout(resolve)); // work, in which the page may be left
    handled.push(m.kind === "change" ? m.change.documentKey._id : m.kind);
    localStorage.setItem("kept", JSON.stringify({ position: m.id || window.state.kept().position, handled }));
  }
})().catch(failed);
