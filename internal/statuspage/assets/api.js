// Requests to the node that has served the page.

const kept = 'streamer-token';
let token = sessionStorage.getItem(kept) ?? '';

export const hasToken = () => token !== '';

export function setToken(value, keep) {
  token = value;
  if (value && keep) sessionStorage.setItem(kept, value);
  else sessionStorage.removeItem(kept);
}

// A Refusal is an answer that is none: its status, and code, message and remedy where the node has told.
export class Refusal extends Error {
  constructor(status, told) {
    super(told.message || `the node answers ${status}`);
    this.status = status;
    this.code = told.code ?? '';
    this.remedy = told.remedy ?? '';
  }

  // advice is the message with its remedy, for people.
  get advice() {
    return [this.message, this.remedy].filter(Boolean).join('. ');
  }
}

async function request(path, options) {
  const headers = {...options.headers};
  const sent = token;
  if (sent) headers.Authorization = `Bearer ${sent}`;
  const response = await fetch(path, {...options, headers, cache: 'no-store', credentials: 'same-origin', redirect: 'error'});
  if (response.ok) return response;
  const refusal = new Refusal(response.status, await response.json().catch(() => ({})));
  refusal.outdated = sent !== token; // another token was entered meanwhile
  throw refusal;
}

// get returns what the node answers as JSON.
export async function get(path) {
  const response = await request(path, {signal: AbortSignal.timeout(10_000)});
  return response.json();
}

// post asks the node to do something, and returns what it answers.
export async function post(path) {
  const response = await request(path, {method: 'POST', signal: AbortSignal.timeout(25_000)});
  return response.json();
}

// follow reads a stream of events until the signal ends it or it breaks, and calls heard(type, data, id, text) for each: text is what data was before
// its numbers were rounded. An id without an event is of type progress, without data. It returns the id of the last. EventSource cannot send a token.
export async function follow(path, last, signal, heard) {
  const headers = {Accept: 'text/event-stream'};
  if (last) headers['Last-Event-ID'] = last;
  const response = await request(path, {signal, headers});
  heard('open', null);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let known = last;
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return last;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        let type = 'message';
        let data = '';
        for (const line of block.split('\n')) {
          if (line.startsWith('id: ')) last = line.slice(4);
          else if (line.startsWith('event: ')) type = line.slice(7);
          else if (line.startsWith('data: ')) data += line.slice(6);
        }
        if (data) heard(type, JSON.parse(data), last, data);
        else if (last !== known) heard('progress', null, last, '');
        known = last;
      }
    }
  } catch (error) {
    if (signal.aborted) return last;
    throw error;
  }
}
