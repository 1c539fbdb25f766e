// What operators do: a button, a question, and the request.

import {Refusal, post} from './api.js';
import {h, text} from './ui.js';

const byId = (id) => document.getElementById(id);
const shownFor = 8000; // milliseconds

let pending = null; // what is asked about
let hiding = 0;
let acted = () => {};

// operating has every action call done when it has been accepted.
export function operating(done) {
  acted = done;
  const dialog = byId('confirm');
  byId('confirm-no').addEventListener('click', () => dialog.close());
  dialog.addEventListener('close', () => {
    if (!dialog.open) pending = null; // it comes late: the next question may be there already
  });
  byId('confirm-form').addEventListener('submit', (event) => {
    event.preventDefault();
    run(dialog);
  });
}

async function run(dialog) {
  const action = pending;
  if (!action) return;
  byId('confirm-yes').disabled = true;
  try {
    const accepted = await post(action.path);
    if (pending === action) dialog.close();
    tell(`${action.label}: accepted${accepted.pending ? `; ${accepted.pending}` : ''}.`);
    acted();
  } catch (error) {
    const said = error instanceof Refusal ? error.advice : 'The node did not answer. Look at the page before you try again.';
    if (pending === action) text(byId('confirm-error'), said);
    else tell(`${action.label}: ${said}`);
  } finally {
    byId('confirm-yes').disabled = false;
  }
}

function tell(what) {
  const done = byId('done');
  text(done, what);
  done.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { done.hidden = true; }, shownFor);
}

// ask asks for confirmation of an action: {label, what, path}.
function ask(action) {
  pending = action;
  text(byId('confirm-title'), `${action.label}?`);
  text(byId('confirm-what'), action.what);
  text(byId('confirm-error'), '');
  text(byId('confirm-yes'), action.label.split(' ')[0]);
  byId('confirm').showModal();
}

// button makes a button that asks about the action which describe returns when it is pressed: {label, what, path}. Identities that may not operate do not
// see it.
export function button(caption, describe) {
  const element = h('button.operate', {type: 'button', click: () => {
    const action = describe();
    if (action) ask(action);
  }}, caption);
  return {
    element,
    // show hides the button, or says what it does.
    show(visible, label) {
      element.hidden = !visible;
      if (label && element.getAttribute('aria-label') !== label) element.setAttribute('aria-label', label);
    },
  };
}

// address writes a path with its parameters escaped: address`/v1/nodes/${node}/drain`.
export const address = (parts, ...values) => parts.reduce((path, part, i) => path + encodeURIComponent(values[i - 1]) + part);
