// The comforts of a page: the theme, search, links to headings and rows, and copy buttons. A page is whole without them.

const up = document.currentScript.dataset.up;
const themes = ['', 'light', 'dark'];
const names = {'': 'Theme: system', light: 'Theme: light', dark: 'Theme: dark'};

// stored reads or writes the theme, where the browser keeps anything for the page.
function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem('theme', value);
    return localStorage.getItem('theme') ?? '';
  } catch {
    return value ?? '';
  }
}

function show(theme) {
  document.documentElement.style.colorScheme = theme;
  return theme;
}

let theme = show(themes.includes(stored()) ? stored() : '');

function switchThemes() {
  const button = document.getElementById('theme');
  const say = () => { button.textContent = names[theme]; };
  button.hidden = false;
  button.addEventListener('click', () => {
    theme = show(themes[(themes.indexOf(theme) + 1) % themes.length]);
    stored(theme);
    say();
  });
  say();
}

// linkAnchors adds a link to each heading and row that has a name.
function linkAnchors() {
  for (const element of document.querySelectorAll('main :is(h2, h3, h4, tr)[id]')) {
    const link = document.createElement('a');
    link.className = 'anchor';
    link.href = `#${element.id}`;
    link.textContent = '#';
    link.setAttribute('aria-label', `Link to ${element.id}`);
    (element.tagName === 'TR' ? element.cells[0] : element).append(link);
  }
}

function addCopyButtons() {
  if (!navigator.clipboard) return; // in a page without TLS
  for (const pre of document.querySelectorAll('main pre')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = 'Copy';
    button.addEventListener('click', async () => {
      await navigator.clipboard.writeText(pre.querySelector('code').textContent);
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    });
    pre.append(button);
  }
}

// loadIndex loads the search index, once. It is a script, so that it loads from a folder, too.
let loading = null;
function loadIndex() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement('script');
    script.src = `${up}search.js`;
    script.onload = () => resolve(globalThis.searchIndex);
    script.onerror = () => { loading = null; reject(new Error('the search index does not load')); };
    document.head.append(script);
  });
  return loading;
}

// find returns the entries that have all words of a query, best first. Names count more than texts.
function find(index, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found = [];
  for (const entry of index) {
    const heading = entry.h.toLowerCase();
    const title = entry.t.toLowerCase();
    const text = entry.x.toLowerCase();
    let score = heading === words.join(' ') ? 100 : 0;
    for (const word of words) {
      const here = (heading.includes(word) ? 20 : 0) + (title.includes(word) ? 8 : 0) + (text.includes(word) ? 2 : 0);
      score = here === 0 ? -Infinity : score + here;
    }
    if (score > 0) found.push({entry, score: score - entry.u.length / 1000});
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 12).map((f) => f.entry);
}

// excerpt returns the text around the first word that it has.
function excerpt(text, query) {
  const lower = text.toLowerCase();
  const at = Math.max(0, ...query.toLowerCase().split(/\s+/).filter(Boolean).map((word) => lower.indexOf(word)));
  const from = Math.max(0, at - 60);
  return `${from > 0 ? '…' : ''}${text.slice(from, from + 160)}${text.length > from + 160 ? '…' : ''}`;
}

function search() {
  const input = document.getElementById('search');
  const results = document.getElementById('results');
  const hide = () => { results.hidden = true; };
  const update = async () => {
    const index = await loadIndex();
    const query = input.value.trim();
    results.replaceChildren(...find(index, query).map((entry) => {
      const link = document.createElement('a');
      link.href = up + entry.u;
      link.textContent = entry.h === entry.t ? entry.t : `${entry.t}: ${entry.h}`;
      const small = document.createElement('small');
      small.textContent = excerpt(entry.x, query);
      link.append(small);
      link.addEventListener('click', hide);
      const item = document.createElement('li');
      item.append(link);
      return item;
    }));
    if (query !== '' && results.children.length === 0) results.append('Nothing was found.');
    results.hidden = query === '';
  };
  input.addEventListener('focus', loadIndex);
  input.addEventListener('input', update);
  document.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') hide();
    if (e.key === '/' && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
      e.preventDefault();
      input.focus();
    }
    if (e.key === 'Enter' && document.activeElement === input) results.querySelector('a')?.click();
    if (e.key === 'ArrowDown' && document.activeElement === input) {
      e.preventDefault();
      results.querySelector('a')?.focus();
    }
  });
  document.addEventListener('click', (e) => { if (!e.target.closest('[role="search"]')) hide(); });
}

document.addEventListener('DOMContentLoaded', () => {
  switchThemes();
  linkAnchors();
  addCopyButtons();
  search();
});
