// Colours of nodes, by their place among the nodes: the style's first, others by turning the hue.

const dark = matchMedia('(prefers-color-scheme: dark)');
let kept = new Map();
dark.addEventListener('change', () => { kept = new Map(); });

// css returns a custom property of the style.
export function css(name) {
  if (!kept.has(name)) kept.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return kept.get(name);
}

export function colour(index) {
  return css(`--node-${index}`) || `hsl(${Math.round(index * 137.5) % 360} 45% ${dark.matches ? 55 : 50}%)`;
}
