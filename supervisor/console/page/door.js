// The door: a token is pasted once and stays in memory; in the tab's own store only if a person says so.

import { setToken } from "./api.js";
import { h, patch } from "./dom.js";

const KEY = "relight-token";

function keep(token) {
  try {
    if (token) sessionStorage.setItem(KEY, token);
    else sessionStorage.removeItem(KEY);
  } catch {
    // A browser that keeps nothing: it is asked for again.
  }
}

/** The token that this tab was told to keep, if there is one. */
export function keptToken() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function forget() {
  keep("");
  setToken("");
}

/** Ask for a token. `enter` is called when one was given. */
export function askToken(main, why, enter) {
  function given(event) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const token = String(form.get("password")).trim();
    keep(form.get("keep") ? token : "");
    setToken(token);
    enter();
  }
  patch(
    main,
    h(
      "section",
      { class: "panel door", "data-key": "door" },
      h("h1", null, "relight console"),
      why ? h("p", { class: "changed", role: "alert" }, why) : null,
      h(
        "form",
        { onsubmit: given },
        h("input", { type: "text", name: "username", value: "relight", autocomplete: "username", hidden: true }),
        h("label", { class: "field" }, "Token", h("input", { type: "password", name: "password", id: "token", required: true, autocomplete: "current-password", spellcheck: "false" })),
        h("label", { class: "check" }, h("input", { type: "checkbox", name: "keep", id: "keep" }), "Keep it in this tab until it is closed"),
        h("div", { class: "buttons" }, h("button", { type: "submit", class: "yes" }, "Come in")),
      ),
      h("p", { class: "dim" }, "Made by: relight token add NAME --role approver. A viewer's token may look. It is sent to this console only, and never stored unless you say so."),
    ),
  );
  document.getElementById("token").focus();
}
