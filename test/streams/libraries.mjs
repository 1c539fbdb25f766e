// How programs use each library, as its README says. Each takes an address and a function that is
// called with the id and the data of each message, and returns a function that stops it. Those in
// browsers are also run there, so nothing here needs Node.

// eventSource is for what has the interface of the browser's own EventSource.
const eventSource = (Source, options) => (url, event) => {
  const source = new Source(url, options);
  source.addEventListener('message', (e) => { event(e.lastEventId, e.data); });
  source.addEventListener('error', () => {});
  return () => { source.close(); };
};

// plain passes on what is a change: these libraries have one function for events of every kind.
const plain = (message, event) => { if (!message.event || message.event === 'message') event(message.id, message.data); };

// again repeats what reads a stream once, from the id of the last event on.
const again = (once) => (url, event) => {
  const abort = new AbortController();
  let last;
  (async () => {
    while (!abort.signal.aborted) {
      const headers = {Accept: 'text/event-stream', ...last && {'Last-Event-ID': last}};
      await once(url, headers, abort.signal, (id, data) => { last = id ?? last; event(id, data); }).catch(() => {});
      await new Promise((done) => { setTimeout(done, 200); });
    }
  })();
  return () => { abort.abort(); };
};

// isWhole reports whether data is all of an event: sse.js, as r3labs/sse in Go, also passes on what
// has come of the last one when a stream ends.
function isWhole(data) {
  try {
    return Boolean(JSON.parse(data));
  } catch {
    return false;
  }
}

const scripts = new Map();

// script loads a script into a page, as a tag does.
function script(path) {
  if (!scripts.has(path)) {
    scripts.set(path, new Promise((done, failed) => {
      const tag = Object.assign(document.createElement('script'), {src: path, onload: done, onerror: failed});
      document.head.append(tag);
    }));
  }
  return scripts.get(path);
}

// everywhere are libraries that run in browsers and in Node.
const everywhere = {
  'eventsource 5': async () => eventSource((await import('eventsource')).EventSource),
  'eventsource-client': async () => {
    const {createEventSource} = await import('eventsource-client');
    return (url, event) => { const c = createEventSource({url, onMessage: (m) => { plain(m, event); }}); return () => { c.close(); }; };
  },
  'eventsource-parser': async () => {
    const {EventSourceParserStream} = await import('eventsource-parser/stream');
    return again(async (url, headers, signal, event) => {
      const answer = await fetch(url, {headers, signal});
      const reader = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream()).getReader();
      for (let next; !(next = await reader.read()).done;) plain(next.value, event);
    });
  },
  'fetch-event-stream': async () => {
    const {events} = await import('fetch-event-stream');
    return again(async (url, headers, signal, event) => {
      for await (const m of events(await fetch(url, {headers, signal}), signal)) plain(m, event);
    });
  },
  'extended-eventsource': async () => eventSource((await import('extended-eventsource')).EventSource, {retry: 500}),
};

// inPages are libraries for browsers.
export const inPages = {
  ...everywhere,
  EventSource: async () => eventSource(EventSource),
  'event-source-polyfill': async () => {
    await script('/node_modules/event-source-polyfill/src/eventsource.js');
    return eventSource(window.EventSourcePolyfill);
  },
  'eventsource-polyfill': async () => { // it puts itself where there is no EventSource
    const own = window.EventSource;
    delete window.EventSource;
    window.EventSource = undefined;
    await script('/node_modules/eventsource-polyfill/dist/eventsource.js');
    const polyfill = window.EventSource;
    window.EventSource = own;
    return (url, event) => { // it gives up at an error of the network
      let source, last;
      const open = () => {
        source = new polyfill(last ? `${url}&lastEventId=${last}` : url);
        source.addEventListener('message', (e) => { last = e.lastEventId; event(last, e.data); });
        source.addEventListener('error', () => { if (source.readyState === polyfill.CLOSED || source.readyState === 2) setTimeout(open, 500); });
      };
      open();
      return () => { source.close(); };
    };
  },
  'reconnecting-eventsource': async () => {
    window.exports = {};
    return eventSource((await import('reconnecting-eventsource')).default);
  },
  '@microsoft/fetch-event-source': async () => {
    const {fetchEventSource} = await import('@microsoft/fetch-event-source');
    return (url, event) => {
      const abort = new AbortController();
      fetchEventSource(url, {signal: abort.signal, openWhenHidden: true, onmessage: (m) => { plain(m, event); }, onclose: () => { throw new Error('again'); }, onerror: () => {}});
      return () => { abort.abort(); };
    };
  },
  'sse.js': async () => {
    const {SSE} = await import('sse.js');
    return (url, event) => {
      const source = new SSE(url, {autoReconnect: true, reconnectDelay: 200});
      source.addEventListener('message', (e) => { if (isWhole(e.data)) event(e.lastEventId, e.data); });
      return () => { source.close(); };
    };
  },
  'react-native-sse': async () => {
    const {default: Source} = await import('/node_modules/react-native-sse/src/EventSource.js');
    return (url, event) => { // it gives up at an error of the network
      const source = new Source(url, {pollingInterval: 200});
      source.addEventListener('message', (e) => { event(e.lastEventId, e.data); });
      source.addEventListener('error', () => { setTimeout(() => { source.open(); }, 200); });
      return () => { source.close(); };
    };
  },
};

// inNode are libraries for Node.
export const inNode = {
  ...everywhere,
  'eventsource 1': async () => eventSource((await import('eventsource1')).default),
  'eventsource 2': async () => eventSource((await import('eventsource2')).default),
  'eventsource 3': async () => eventSource((await import('eventsource3')).EventSource),
  'eventsource 4': async () => eventSource((await import('eventsource4')).EventSource),
  'undici EventSource': async () => eventSource((await import('undici')).EventSource),
  'launchdarkly-eventsource': async () => eventSource((await import('launchdarkly-eventsource')).EventSource, {initialRetryDelayMillis: 200}),
  'event-source-plus': async () => {
    const {EventSourcePlus} = await import('event-source-plus');
    return (url, event) => {
      const c = new EventSourcePlus(url, {maxRetryInterval: 500}).listen({onMessage: (m) => { plain(m, event); }});
      return () => { c.abort(); };
    };
  },
};
