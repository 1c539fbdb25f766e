// The last hour, from the memory of the node that has served the page.

import {chart} from '../chart.js';
import {colour} from '../colours.js';
import {clock, duration, h, natural, rate, text} from '../ui.js';

const most = 8; // lines of a chart

// lines are the series of the nodes with the greatest numbers.
function lines(nodes, of) {
  const greatest = (name) => Math.max(-1, ...nodes[name][of].map((v) => v ?? -1));
  const names = Object.keys(nodes).sort((a, b) => greatest(b) - greatest(a)).slice(0, most).sort(natural);
  return names.map((name) => ({name, colour: colour(name), values: nodes[name][of]}));
}

// The stages of a change, in their order. Operations, "Where the time goes", has what to do about each.
const stages = {mongodb: 'held by MongoDB', hub: 'node', transport: 'until written', acknowledgement: 'until acknowledged'};

const milliseconds = (ms) => (ms < 1000 ? `${Number(ms.toPrecision(2))}ms` : duration(ms / 1000));

// stageLines are the stages that were measured, in milliseconds.
function stageLines(of) {
  const known = Object.keys(stages).filter((name) => of[name]?.some((v) => v !== null));
  return known.map((name) => ({name: stages[name], colour: colour(name), values: of[name].map((v) => (v === null ? null : 1000 * v))}));
}

function build(root) {
  const [rates, lags, sessions, room, times] = [
    'Events per second', 'Lag', 'Sessions of gateways', 'Least head-room of this node\u2019s subscribers', 'Where this node\u2019s changes take their time',
  ].map(chart);
  const note = h('p.help');
  root.append(note, h('div.charts', rates.element, lags.element, sessions.element, room.element, times.element));
  return ({history: past}) => {
    text(note, past?.at ? `As ${past.node} saw it since it started, at most for an hour, until ${clock(past.at)}.` : 'Nothing was noted yet.');
    if (!past?.at || past.drawn) return;
    past.drawn = true;
    const nodes = past.nodes ?? {};
    const draw = (c, all, show) => c.draw(all, past.at, past.every_seconds, show);
    draw(rates, lines(nodes, 'rate'), rate);
    draw(lags, lines(nodes, 'lag_seconds'), duration);
    draw(sessions, lines(nodes, 'sessions'), rate);
    draw(room, [{name: 'head-room', values: past.head_room_seconds ?? []}], duration);
    draw(times, stageLines(past.stage_seconds ?? {}), milliseconds);
  };
}

export const hour = {id: 'hour', title: 'The last hour', cluster: true, build};
