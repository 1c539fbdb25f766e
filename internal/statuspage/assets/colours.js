// Colours of nodes: a node keeps the one that it had when the page first saw it.

const places = new Map();
let kept = new Map();

// forget has the colours read again from the style, which has changed.
export function forget() {
  kept = new Map();
}

// css returns a custom property of the style.
export function css(name) {
  if (!kept.has(name)) kept.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return kept.get(name);
}

// colour returns that of a node: one of the style's, and beyond them others by turning the hue.
export function colour(node) {
  if (!places.has(node)) places.set(node, places.size);
  const place = places.get(node);
  return css(`--node-${place}`) || `hsl(${Math.round(place * 137.5) % 360} 45% ${css('--node-lightness') || '50%'})`;
}
