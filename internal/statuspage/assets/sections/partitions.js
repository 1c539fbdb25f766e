import {colour, css} from '../colours.js';
import {ratesOf} from '../history.js';
import {address, button} from '../operate.js';
import {count, duration, h, keyed, rate, spark, table, text} from '../ui.js';

const sick = {failed: '--critical', stale: '--critical', no_majority: '--critical', stuck: '--critical', lagging: '--warning', starting: '--muted'};
const tallest = 360;

// layout places n cells in a width: large ones with numbers and charts, or as many small ones as there are partitions.
function layout(n, width) {
  if (n <= 128) {
    const columns = Math.max(1, Math.min(n, Math.floor(width / 116)));
    return {columns, w: width / columns, h: 58, gap: 6, large: true};
  }
  const size = Math.max(6, Math.min(34, Math.floor(Math.sqrt(width * tallest / n))));
  const columns = Math.max(1, Math.floor(width / size));
  return {columns, w: width / columns, h: size, gap: size < 8 ? 1 : 2, large: false};
}

function build(root) {
  const canvas = h('canvas', {tabindex: 0, role: 'slider', 'aria-label': 'Partitions', 'aria-valuemin': 0, 'aria-describedby': 'partitions-help'});
  const legend = h('ul.legend');
  const title = h('h3', 'Partition 0');
  const facts = h('dl.facts');
  const to = h('select', {'aria-label': 'Node that takes the partition', change: () => describe()});
  const handOver = button('Hand over', () => to.value && {
    label: `Hand over partition ${chosen} to ${to.value}`, path: `${address`/v1/partitions/${chosen}/handoff`}?${new URLSearchParams({to: to.value})}`,
    what: 'Its owner delivers it until the other node serves it. If that takes more than a minute, it stays where it is. The leader may move another partition in return.',
  });
  const operate = h('div.bar.operate', to, handOver.element);
  const chart = spark(260, 44);
  const groups = table('Partitions by owner and state', [{title: 'Owner'}, {title: 'State'}, {title: 'Partitions', number: true}, {title: 'Events/s', number: true}, {title: 'Greatest lag', number: true}]);
  const byLoad = h('input', {type: 'checkbox', id: 'by-load', change: () => draw()});
  root.append(
    h('div.bar', legend, h('label.check', {for: 'by-load'}, byLoad, 'Shade by load')),
    h('div.map', canvas),
    h('p.help', {id: 'partitions-help'}, 'Arrow keys move between partitions. A corner in another colour is where the plan moves a partition. One that needs attention has a bar at its left, or, where they are small, is red with a dot or amber.'),
    h('div.split',
      h('div.chosen', title, h('div.charted', chart.element), facts, operate),
      h('div.scroll.short', {tabindex: 0, role: 'region', 'aria-label': 'Partitions by owner and state'}, groups.element)));

  let state = null;
  let chosen = 0;
  let place = null;

  const stateOf = (p, id) => (p.states[id] >= 0 ? p.state_names[p.states[id]] : p.owners[id] >= 0 ? 'starting' : 'unowned');
  // lastLag says what the lag was while MongoDB could be read.
  const lastLag = (p, id) => {
    const lag = p.last_lag_seconds?.[id] ?? null;
    return lag === null ? 'unknown' : `unknown, was ${duration(lag)} ${duration(Math.floor((Date.now() - new Date(p.last_known_at)) / 1000))} ago`;
  };
  const ownerOf = (s, id) => s.nodes[s.partitions.owners[id]]?.node ?? 'nobody';

  function draw() {
    const s = state?.status;
    if (!s) return;
    const p = s.partitions;
    const n = p.owners.length;
    const width = canvas.parentElement.clientWidth;
    if (!width || !n) return;
    place = layout(n, width);
    const height = Math.ceil(n / place.columns) * (place.h + (place.large ? place.gap : 0));
    const scale = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const g = canvas.getContext('2d');
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    const most = Math.max(...p.rates, 1e-9);
    const now = Date.now();
    const trouble = !place.large && p.owners.some((_, id) => sick[stateOf(p, id)]);
    for (let id = 0; id < n; id++) cell(g, s, id, most, now, trouble);
  }

  function corner(id) {
    return [(id % place.columns) * place.w, Math.floor(id / place.columns) * (place.h + (place.large ? place.gap : 0))];
  }

  function cell(g, s, id, most, now, trouble) {
    const p = s.partitions;
    const [x, y] = corner(id);
    const [w, height] = [place.w - place.gap, place.large ? place.h : place.h - place.gap];
    const owner = p.owners[id];
    const what = stateOf(p, id);
    const radius = place.large ? 7 : Math.min(3, w / 4);
    const share = byLoad.checked ? 0.12 + 0.88 * Math.sqrt(p.rates[id] / most) : 1;
    g.beginPath();
    g.roundRect(x, y, w, height, radius);
    if (owner < 0) {
      g.strokeStyle = css('--critical');
      g.lineWidth = 1;
      g.setLineDash([3, 3]);
      g.stroke();
      g.setLineDash([]);
    } else {
      g.globalAlpha = place.large ? 0.16 * share + 0.04 : trouble ? share * 0.4 : share; // what is well steps back
      g.fillStyle = colour(s.nodes[owner].node);
      g.fill();
      g.globalAlpha = 1;
    }
    if (p.planned[id] >= 0 && p.planned[id] !== owner) {
      g.save();
      g.clip();
      g.beginPath();
      const part = place.large ? 26 : w * 0.7;
      g.moveTo(x + w, y + height);
      g.lineTo(x + w - part, y + height);
      g.lineTo(x + w, y + height - part);
      g.closePath();
      g.fillStyle = colour(s.nodes[p.planned[id]].node);
      g.fill();
      g.restore();
    }
    if (sick[what]) {
      g.save();
      g.beginPath();
      g.roundRect(x, y, w, height, radius);
      g.clip();
      g.fillStyle = css(sick[what]);
      g.fillRect(x, y, place.large ? 5 : w, height);
      if (!place.large && sick[what] === '--critical') {
        g.fillStyle = css('--panel');
        g.fillRect(x + w / 2 - 1.5, y + height / 2 - 1.5, 3, 3);
      }
      g.restore();
    }
    if (place.large) tile(g, s, id, x, y, w, height, what, owner);
    const moved = state.moved.get(id);
    if (moved && now - moved.at < 8000) outline(g, x, y, w, height, radius, css('--accent'), 2);
    if (id === chosen && document.activeElement === canvas) outline(g, x, y, w, height, radius, css('--text'), 2);
    else if (id === chosen) outline(g, x, y, w, height, radius, css('--muted'), 1);
  }

  function outline(g, x, y, w, height, radius, stroke, width) {
    g.beginPath();
    g.roundRect(x + width / 2, y + width / 2, w - width, height - width, radius);
    g.strokeStyle = stroke;
    g.lineWidth = width;
    g.stroke();
  }

  function tile(g, s, id, x, y, w, height, what, owner) {
    if (owner >= 0) {
      g.fillStyle = colour(s.nodes[owner].node);
      g.beginPath();
      g.arc(x + 14, y + 15, 4, 0, 7);
      g.fill();
    }
    g.textBaseline = 'middle';
    g.textAlign = 'left';
    g.font = `600 12px ${css('--font')}`;
    g.fillStyle = css('--text');
    g.fillText(String(id), x + 23, y + 15.5);
    g.font = `11px ${css('--font')}`;
    g.textAlign = 'right';
    g.fillStyle = css(sick[what] ?? '--muted');
    g.fillText(what === 'healthy' ? `${rate(s.partitions.rates[id])}/s` : what, x + w - 9, y + 15.5);
    const values = ratesOf(id);
    const most = Math.max(...values, 1e-9);
    g.beginPath();
    values.forEach((v, i) => {
      const px = x + w - 9 - (values.length - 1 - i) * ((w - 20) / (Math.max(values.length, 20) - 1));
      const py = y + height - 9 - (v / most) * (height - 36);
      if (i === 0) g.moveTo(px, py);
      else g.lineTo(px, py);
    });
    g.strokeStyle = owner >= 0 ? colour(s.nodes[owner].node) : css('--muted');
    g.lineWidth = 1.5;
    g.lineJoin = 'round';
    g.stroke();
  }

  function describe() {
    const s = state?.status;
    if (!s) return;
    const p = s.partitions;
    chosen = Math.max(0, Math.min(chosen, p.owners.length - 1));
    const owner = ownerOf(s, chosen);
    const planned = s.nodes[p.planned[chosen]]?.node ?? 'nobody';
    const what = stateOf(p, chosen);
    text(title, `Partition ${chosen}`);
    const lag = p.lag_seconds[chosen];
    const room = p.head_room_seconds[chosen];
    const rows = [
      ['Owner', owner], planned !== owner ? ['Moves to', planned] : null, ['State', what], ['Events', `${rate(p.rates[chosen])} per second`],
      ['Lag', lag !== null ? duration(lag) : owner === s.node ? lastLag(p, chosen) : `see the page of ${owner}`], room !== null ? ['Head-room', duration(room)] : null,
      p.why[chosen] >= 0 ? ['Here because', p.reasons[p.why[chosen]]] : null, p.errors[chosen] ? ['Error', p.errors[chosen]] : null,
    ].filter(Boolean);
    keyed(facts, rows, (r) => r[0], ([name]) => {
      const value = h('dd');
      return {element: h('div', h('dt', name), value), update: (r) => text(value, r[1])};
    });
    const takers = s.nodes.filter((n) => n.node !== owner && !n.drained && !n.unread).map((n) => n.node);
    const taker = to.value;
    keyed(to, takers, (n) => n, (n) => ({element: h('option', {value: n}, n)}));
    if (takers.includes(taker)) to.value = taker;
    operate.hidden = takers.length === 0;
    handOver.show(true, `Hand over partition ${chosen} to ${to.value}`);
    chart.draw(ratesOf(chosen));
    canvas.setAttribute('aria-valuemax', p.owners.length - 1);
    canvas.setAttribute('aria-valuenow', chosen);
    canvas.setAttribute('aria-valuetext', `Partition ${chosen}: ${owner}, ${what}${planned !== owner ? `, moves to ${planned}` : ''}`);
  }

  function choose(id) {
    const n = state?.status?.partitions.owners.length ?? 0;
    if (!n) return;
    chosen = Math.max(0, Math.min(id, n - 1));
    describe();
    draw();
  }

  canvas.addEventListener('keydown', (event) => {
    const n = state?.status?.partitions.owners.length ?? 0;
    const to = {ArrowRight: chosen + 1, ArrowLeft: chosen - 1, ArrowDown: chosen + (place?.columns ?? 1), ArrowUp: chosen - (place?.columns ?? 1), Home: 0, End: n - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  });
  canvas.addEventListener('pointerdown', (event) => {
    if (!place) return;
    const row = Math.floor(event.offsetY / (place.h + (place.large ? place.gap : 0)));
    choose(row * place.columns + Math.min(place.columns - 1, Math.floor(event.offsetX / place.w)));
  });
  canvas.addEventListener('focus', () => draw());
  canvas.addEventListener('blur', () => draw());
  new ResizeObserver(() => draw()).observe(canvas.parentElement);

  function summarize(s) {
    const p = s.partitions;
    const all = new Map();
    p.owners.forEach((owner, id) => {
      const key = `${owner} ${stateOf(p, id)}`;
      const row = all.get(key) ?? {key, owner, name: ownerOf(s, id), state: stateOf(p, id), n: 0, rate: 0, lag: null};
      row.n++;
      row.rate += p.rates[id];
      if (p.lag_seconds[id] !== null) row.lag = Math.max(row.lag ?? 0, p.lag_seconds[id]);
      all.set(key, row);
    });
    const rows = [...all.values()].sort((a, b) => a.owner - b.owner || b.n - a.n);
    keyed(groups.body, rows, (r) => r.key, () => {
      const cells = [h('span'), h('span'), h('span'), h('span'), h('span')];
      return {
        element: groups.row(...cells),
        update(r) {
          [r.name, r.state, count(r.n), rate(r.rate), r.lag === null ? duration(s.nodes[r.owner]?.lag_seconds) : duration(r.lag)].forEach((v, i) => text(cells[i], v));
        },
      };
    });
    const owners = s.nodes.map((n) => ({name: n.node, colour: colour(n.node), n: n.owned}));
    const nobody = p.owners.filter((o) => o < 0).length;
    if (nobody) owners.push({name: 'nobody', colour: 'transparent', n: nobody});
    keyed(legend, owners, (o) => o.name, () => {
      const swatch = h('i.swatch');
      const label = h('span');
      return {
        element: h('li', swatch, label),
        update(o) {
          swatch.style.background = o.colour;
          text(label, `${o.name} · ${count(o.n)}`);
        },
      };
    });
  }

  return (next) => {
    state = next;
    if (!state.status) return;
    describe();
    summarize(state.status);
    draw();
  };
}

export const partitions = {id: 'partitions', title: 'Partitions', cluster: true, seen: true, build};
