// Keys: one letter each, off while somebody types, and off altogether for who does not want them.

import { close, show } from "./answer.js";
import { h } from "./dom.js";
import { to, VIEWS } from "./route.js";

const OFF = "relight-keys-off";
let off = false;

try {
  off = sessionStorage.getItem(OFF) === "1";
} catch {
  // A browser that keeps nothing: they are on.
}

function setOff(value) {
  off = value;
  try {
    if (value) sessionStorage.setItem(OFF, "1");
    else sessionStorage.removeItem(OFF);
  } catch {
    // It holds as long as the page is open.
  }
}

const TOLD = [
  ...VIEWS.map(([, word], index) => [String(index + 1), word]),
  ["u", "All runs"],
  ["p", "To the open plan"],
  ["a", "Approve the open plan (asks first)"],
  ["c", "Change the open plan"],
  ["r", "Refuse the open plan (asks first)"],
  ["Esc", "Close a question"],
  ["?", "This list"],
];

export function showKeys() {
  show(
    "Keys",
    h("dl", { class: "keys" }, TOLD.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])),
    h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => setOff(event.target.checked), checked: off }), "Do not listen to single letters in this tab"),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close }, "Close")),
  );
}

/** Listen. `run()` names the run that is shown. */
export function listen(run) {
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select") || document.getElementById("dialog").open; // a question has the keys, wherever the focus is
    if (event.ctrlKey || event.metaKey || event.altKey || typing || off) return;
    const view = VIEWS[Number(event.key) - 1];
    const button = { a: "do-approve", c: "do-change", r: "do-refuse" }[event.key];
    if (event.key === "?") showKeys();
    else if (event.key === "u") location.hash = "";
    else if (view && run()) location.hash = to(run(), { view: view[0] === "now" ? "" : view[0] });
    else if (event.key === "p") document.getElementById("plan")?.focus();
    else if (button) document.getElementById(button)?.click();
    else return;
    event.preventDefault();
  });
}
