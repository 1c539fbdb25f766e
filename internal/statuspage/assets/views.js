// The views besides the overview of the cluster, each at an address of its own: #/events, #/subscribers/NAME. A view is {path, title, open(root, name)}; open makes its
// elements and returns {update(state, now), close()}, both optional. One with menu: true is in the menu.
// To add one, write it in views/ and list it here.

import {configuration} from './views/configuration.js';
import {events} from './views/events.js';
import {sink} from './views/sink.js';
import {subscriber} from './views/subscriber.js';

export const views = [events, configuration, subscriber, sink];

// find returns the view of an address with the name in it, null for the overview.
export function find(hash) {
  const [path, ...rest] = hash.startsWith('#/') ? hash.slice(2).split('/') : [];
  const view = views.find((v) => v.path === path);
  if (!view) return null;
  let name = rest.join('/');
  try {
    name = decodeURIComponent(name);
  } catch { /* it was typed by hand */ }
  return {view, name};
}
