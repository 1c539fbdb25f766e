// The colours: those of the system, unless this browser was told others.

import {forget} from './colours.js';

const kept = 'streamer-colours';
const system = matchMedia('(prefers-color-scheme: dark)');

function apply(chosen, redraw) {
  document.getElementById('dark').media = {light: 'not all', dark: 'all'}[chosen] ?? '(prefers-color-scheme: dark)';
  document.documentElement.style.colorScheme = chosen;
  forget();
  redraw();
}

// choose has a list say which colours there are: '' for those of the system, light or dark.
export function choose(list, redraw) {
  list.value = localStorage.getItem(kept) ?? '';
  list.addEventListener('change', () => {
    if (list.value) localStorage.setItem(kept, list.value);
    else localStorage.removeItem(kept);
    apply(list.value, redraw);
  });
  system.addEventListener('change', () => apply(list.value, redraw));
  if (list.value) apply(list.value, redraw);
}
