// Charts with axes: numbers of the last hour, each an equal time after the one before.

import {clock, h, svg} from './ui.js';

const [width, height, left, bottom, top] = [640, 170, 56, 22, 10];

// round returns a number that is easy to read, and no smaller.
function round(v) {
  const size = 10 ** Math.floor(Math.log10(v));
  return [1, 2, 2.5, 5, 10].map((f) => f * size).find((f) => f >= v * 0.9999);
}

// chart makes a chart with a title. draw(lines, at, every, show) draws lines, {name, colour, values}, whose last number is of the time at, and the others every so many
// seconds before; null is unknown. show writes a number of the axis.
export function chart(title) {
  const grid = svg('g', {class: 'grid'});
  const paths = svg('g', {});
  const summary = h('p.help');
  const legend = h('ul.legend');
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': title}, grid, paths);
  const element = h('figure.chart', h('figcaption', title), picture, legend, summary);
  const label = (x, y, anchor, value) => svg('text', {x, y, 'text-anchor': anchor}, value);
  return {
    element,
    draw(lines, at, every, show) {
      const known = lines.flatMap((l) => l.values.filter((v) => v !== null));
      element.hidden = !known.length;
      if (!known.length) return;
      const count = Math.max(...lines.map((l) => l.values.length), 2);
      const most = round(Math.max(...known, 1));
      const x = (i, length) => left + (width - left - 4) * (count - length + i) / (count - 1);
      const y = (v) => height - bottom - (height - bottom - top) * Math.max(0, v) / most;
      const begin = new Date(at) - (count - 1) * every * 1000;
      grid.replaceChildren(
        ...[0, 0.5, 1].flatMap((part) => [svg('line', {x1: left, x2: width - 4, y1: y(most * part), y2: y(most * part)}), label(left - 6, y(most * part) + 4, 'end', show(most * part))]),
        ...[0, 0.25, 0.5, 0.75, 1].map((part) => label(left + (width - left - 4) * part, height - 4, part === 1 ? 'end' : part ? 'middle' : 'start', clock(begin + (new Date(at) - begin) * part).slice(0, every * count > 600 ? 5 : 8))),
      );
      paths.replaceChildren(...lines.map((l) => {
        let d = '';
        let pen = false;
        l.values.forEach((v, i) => {
          if (v !== null) d += `${pen ? 'L' : 'M'}${x(i, l.values.length).toFixed(1)} ${y(v).toFixed(1)}${pen ? '' : 'h.01'}`;
          pen = v !== null;
        });
        const path = svg('path', {d, class: 'line'}, svg('title', {}, l.name));
        if (l.colour) path.style.stroke = l.colour;
        return path;
      }));
      legend.hidden = lines.length < 2;
      legend.replaceChildren(...lines.map((l) => {
        const swatch = h('i.swatch');
        swatch.style.background = l.colour;
        return h('li', swatch, l.name);
      }));
      const last = lines.length === 1 ? lines[0].values.at(-1) : null;
      summary.textContent = [last === null ? '' : `now ${show(last)}`, `at most ${show(Math.max(...known))}`, `from ${clock(begin)} to ${clock(at)}`].filter(Boolean).join(' · ');
    },
  };
}
