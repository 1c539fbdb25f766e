// What the node runs with: its version, and the value of every key.

import {Refusal, get} from '../api.js';
import {count, h, keyed, plural, table, text} from '../ui.js';

function open(root) {
  const about = h('p');
  const find = h('input', {type: 'search', 'aria-label': 'Find keys', placeholder: 'Find a key or a value', input: () => draw()});
  const list = table('Values in force', [{title: 'Key'}, {title: 'Value'}]);
  const shown = h('p.help', {role: 'status'});
  root.append(about, h('div.bar', find), h('div.scroll', list.element), shown, h('p.help', 'Secrets are not shown. docs/reference and config.yaml say what each key means; a change needs a restart of the node.'));
  let known = null;
  function draw() {
    if (!known) return;
    const wanted = find.value.trim().toLowerCase();
    const rows = known.values.filter((v) => `${v.key} ${v.value}`.toLowerCase().includes(wanted));
    keyed(list.body, rows, (v) => v.key, (v) => ({element: list.row(h('code', v.key), h('span.value', v.value || '–'))}));
    text(shown, rows.length < known.values.length ? `${count(rows.length)} of ${plural(known.values.length, 'key')}` : plural(rows.length, 'key'));
  }
  get('/v1/configuration').then((answer) => {
    known = answer;
    text(about, `Node ${known.node} runs Streamer ${known.version}, built with ${known.go}.`);
    draw();
  }).catch((error) => text(about, error instanceof Refusal ? error.advice : 'The node does not answer.'));
  return {};
}

export const configuration = {path: 'configuration', title: 'Configuration', menu: true, open};
