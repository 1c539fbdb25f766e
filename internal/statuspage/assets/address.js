// at writes the address of a view, #/PATH or #/PATH/NAME.
export const at = (path, name) => `#/${path}${name === undefined ? '' : `/${encodeURIComponent(name)}`}`;
