import { StreamerError, stringify, subscribe } from "./client/index.js";

const form = document.querySelector("form");
const state = document.querySelector("#state");
const list = document.querySelector("#changes");
const shown = 200;
let stop = new AbortController();

// What the page has shows again after a reload; the position is of one filter and one cluster.
async function follow(addresses, filter) {
  stop.abort();
  stop = new AbortController();
  const key = JSON.stringify([addresses, filter]);
  const { signal } = stop;
  state.textContent = "connected";
  try {
    const messages = subscribe({
      addresses, filter, signal,
      after: sessionStorage.getItem(key) ?? "",
      onReconnect: (reason) => (state.textContent = `reconnecting: ${reason.message}`),
    });
    for await (const m of messages) {
      state.textContent = "connected";
      const item = document.createElement("li");
      item.textContent = m.kind === "change" ? `${m.change.operationType} ${stringify(m.change)}` : `${m.kind} ${JSON.stringify(m)}`;
      list.prepend(item);
      while (list.children.length > shown) list.lastChild.remove();
      if (m.id) sessionStorage.setItem(key, m.id);
    }
  } catch (error) {
    if (error instanceof StreamerError && error.code.endsWith("BAD-POSITION")) sessionStorage.removeItem(key); // another cluster
    state.textContent = `${error.message}. ${error.remedy ?? ""}`;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  list.replaceChildren();
  const { addresses, filter } = form.elements;
  follow(addresses.value.split(",").map((a) => a.trim()), filter.value);
});
form.requestSubmit();
