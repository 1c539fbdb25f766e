// Elements, numbers and small charts.

const vectors = 'http://www.w3.org/2000/svg';

// h makes an element: h('td.number', {title: 'x'}, 'text', child, …). Properties of functions are listeners; null children are left out.
export function h(name, props, ...children) {
  if (props === null || typeof props !== 'object' || props instanceof Node || Array.isArray(props)) {
    children.unshift(props);
    props = {};
  }
  const [tag, ...classes] = name.split('.');
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(' ');
  for (const [key, value] of Object.entries(props)) {
    if (typeof value === 'function') e.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

// text sets the text of an element, and touches nothing where it is the same.
export function text(e, value) {
  if (e.textContent !== value) e.textContent = value;
}

// prose sets the text of an element, with what is between backticks as code.
export function prose(e, value) {
  if (e.told === value) return;
  e.told = value;
  e.replaceChildren(...value.split('`').map((part, i) => (i % 2 ? h('code', part) : part)));
}

// keyed makes the children of parent those of items, in their order: existing elements are kept by their key, so that focus and selection stay.
export function keyed(parent, items, key, make) {
  const kept = parent.keyed ?? (parent.keyed = new Map());
  const seen = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = key(item);
    if (seen.has(k)) continue;
    seen.add(k);
    let row = kept.get(k);
    if (!row) kept.set(k, row = make(item));
    if (row.element === at) at = at.nextElementSibling;
    else parent.insertBefore(row.element, at);
    row.update?.(item);
  }
  for (const [k, row] of kept) {
    if (!seen.has(k)) {
      row.element.remove();
      kept.delete(k);
    }
  }
}

// table makes a table with these columns: {title, number, operate}. A column with operate: true is for identities that may operate. Roles are explicit, because the style turns rows into cards on narrow screens.
export function table(label, columns) {
  const body = h('tbody', {role: 'rowgroup'});
  const head = h('tr', {role: 'row'}, columns.map((c) => h(c.number ? 'th.number' : c.operate ? 'th.operate' : 'th', {role: 'columnheader', scope: 'col'}, c.title)));
  const element = h('table', {role: 'table', 'aria-label': label}, h('thead', {role: 'rowgroup'}, head), body);
  const row = (first, ...cells) => {
    const all = [first, ...cells].map((c, i) => {
      const column = columns[i];
      const cell = h(i === 0 ? 'th' : 'td', {role: i === 0 ? 'rowheader' : 'cell', scope: i === 0 ? 'row' : null, 'data-label': column.title}, c);
      if (column.number) cell.className = 'number';
      if (column.operate) cell.className = 'operate';
      return cell;
    });
    return h('tr', {role: 'row'}, all);
  };
  return {element, body, row};
}

// badge is a short state; its meaning is in the text, the colour only repeats it.
export function badge(level, value) {
  return h('span.badge', {'data-level': level}, value);
}

// svg makes an element of an SVG picture: svg('path', {class: 'line'}, child, …).
export function svg(name, attributes, ...children) {
  const e = document.createElementNS(vectors, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

// spark makes a line of numbers, of which null is unknown, and returns {element, draw(values, most)}: most is what the top shows at least.
export function spark(width = 96, height = 24) {
  const area = svg('path', {class: 'area'});
  const line = svg('path', {class: 'line'});
  const element = svg('svg', {class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true', preserveAspectRatio: 'none'}, area, line);
  return {
    element,
    draw(values, most = 0) {
      const length = Math.max(values.length, 20); // a page just opened has few
      const max = Math.max(most, ...values.filter((v) => v !== null), 1e-9);
      const x = (i) => width - (values.length - 1 - i) * (width / Math.max(length - 1, 1));
      const y = (v) => height - 1.5 - (v / max) * (height - 4);
      let path = '';
      let begun = -1;
      let filled = '';
      values.forEach((v, i) => {
        if (v === null) {
          if (begun >= 0) filled += `L${x(i - 1).toFixed(1)} ${height}Z`;
          begun = -1;
          return;
        }
        const point = `${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
        filled += begun < 0 ? `M${x(i).toFixed(1)} ${height}L${point}` : `L${point}`;
        path += (begun < 0 ? 'M' : 'L') + point;
        if (begun < 0) begun = i;
      });
      if (begun >= 0) filled += `L${x(values.length - 1).toFixed(1)} ${height}Z`;
      line.setAttribute('d', path);
      area.setAttribute('d', filled);
    },
  };
}

const dash = '–';

export function count(n) {
  return n === null || n === undefined ? dash : n.toLocaleString('en', {maximumFractionDigits: 0});
}

export function rate(n) {
  if (n === null || n === undefined) return dash;
  if (n >= 100) return count(Math.round(n));
  return n.toLocaleString('en', {maximumFractionDigits: n >= 10 ? 0 : 1});
}

export function bytes(n) {
  if (n === null || n === undefined) return dash;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${n.toLocaleString('en', {maximumFractionDigits: n < 10 && i > 0 ? 1 : 0})} ${units[i]}`;
}

// duration shows seconds with their two largest units, as commands show them.
export function duration(s) {
  if (s === null || s === undefined) return dash;
  if (s < 0) return `-${duration(-s)}`;
  if (s < 0.0005) return '0s';
  if (s < 1) return `${Math.round(s * 1000)}ms`;
  if (s < 60) return `${s.toLocaleString('en', {maximumFractionDigits: s < 10 ? 1 : 0})}s`;
  const units = [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]];
  const at = units.findIndex(([, size]) => s >= size);
  const [name, size] = units[at];
  const rest = units[at + 1] ? Math.floor((s % size) / units[at + 1][1]) : 0;
  return `${Math.floor(s / size)}${name}${rest ? `${rest}${units[at + 1][0]}` : ''}`;
}

// clock shows the time of day.
export const clock = (at) => new Date(at).toLocaleTimeString('en-GB');

// when makes the time of something that happened: the clock's for today, the date's before.
export function when(at) {
  const d = new Date(at);
  const today = d.toDateString() === new Date().toDateString();
  return h('time', {datetime: d.toISOString(), title: d.toString()}, today ? clock(at) : `${d.toISOString().slice(0, 10)} ${clock(at).slice(0, 5)}`);
}

// ranges writes ascending numbers: 0–3, 7.
export function ranges(numbers, most = 6) {
  const parts = [];
  for (let i = 0; i < numbers.length;) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === numbers[j] + 1) j++;
    parts.push(j > i ? `${numbers[i]}–${numbers[j]}` : `${numbers[i]}`);
    i = j + 1;
  }
  return parts.length > most ? `${parts.slice(0, most).join(', ')}, …` : parts.join(', ');
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// names lists a few names and how many more there are.
export function names(all, most = 4) {
  const rest = all.length - most;
  return rest > 0 ? `${all.slice(0, most).join(', ')} and ${count(rest)} more` : all.join(', ');
}

const inOrder = new Intl.Collator('en', {numeric: true});

// natural compares names as people count: node-2 comes before node-10.
export const natural = (a, b) => inOrder.compare(a, b);
