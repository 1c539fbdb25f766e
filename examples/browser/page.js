import { StreamerError, stringify, subscribe } from "./client/index.js";

const form = document.querySelector("form");
const state = document.querySelector("#state");
const list = document.querySelector("#changes");
const count = document.querySelector("#count");
const pause = document.querySelector("#pause");
const shown = 200;
let stop = new AbortController();
let resume = null; // while the page is paused: what lets it continue
let paused = Promise.resolve();

pause.addEventListener("click", () => {
  if (resume) {
    resume();
    resume = null;
  } else {
    paused = new Promise((resolve) => { resume = resolve; });
  }
  pause.textContent = resume ? "Continue" : "Pause";
});

// What the page has shows again after a reload; the position is of one filter and one cluster.
async function follow(addresses, filter) {
  stop.abort();
  stop = new AbortController();
  const key = JSON.stringify([addresses, filter]);
  const { signal } = stop;
  let received = 0;
  state.textContent = "connected";
  try {
    const messages = subscribe({
      addresses, filter, signal,
      after: sessionStorage.getItem(key) ?? "",
      onReconnect: (reason) => (state.textContent = `reconnecting: ${reason.message}`),
    });
    for await (const m of messages) {
      await paused; // the node waits with the rest
      state.textContent = "connected";
      count.textContent = (++received).toLocaleString("en");
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
