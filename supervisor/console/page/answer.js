// Questions before something is done: what it will do, a reason where one is wanted, and what came of it.

import { ask, Trouble } from "./api.js";
import { h, patch } from "./dom.js";
import { changes, effects, list, meaningOfNo } from "./plan.js";
import { number, planId, sentence } from "./say.js";

const dialog = () => document.getElementById("dialog");

/** Show a dialog. `parts` are its contents; focus goes to the first that wants it. */
export function show(title, ...parts) {
  const box = dialog();
  patch(box); // nothing of the question before stays
  patch(box, h("h2", { id: "dialog-title", tabindex: "-1" }, title), ...parts);
  if (box.open) box.close();
  box.getBoundingClientRect(); // it is seen closed, so that it is calm anew: a second tap must not answer what has just come
  box.showModal();
  (box.querySelector("[data-first]") ?? box.querySelector("h2")).focus();
}

export function close() {
  if (dialog().open) dialog().close();
}

// A key that is held down opens a question and does not answer it.
dialog().addEventListener("keydown", (event) => {
  if (event.repeat && event.key === "Enter" && event.target.closest("button")) event.preventDefault();
});

/** As soon as no other question than `made` is open: what somebody writes there is not taken away. */
function afterwards(made, tell) {
  const box = dialog();
  if (box.open && !box.contains(made)) box.addEventListener("close", () => afterwards(made, tell), { once: true });
  else tell();
}

const leave = (word = "Cancel") => h("button", { type: "button", onclick: close }, word);

function reason(wanted) {
  return h(
    "label",
    { class: "field" },
    wanted ? "Reason" : "Reason, if there is one to give",
    h("textarea", { name: "why", rows: "2", maxlength: "2000", required: wanted, "data-first": wanted }),
  );
}

/** A form whose answer is filed; the outcome takes the place of the question. */
function form(run, path, body, buttons, after, ...parts) {
  async function send(event) {
    event.preventDefault();
    const made = event.currentTarget;
    const status = made.querySelector("[role=alert]");
    let wish;
    try {
      wish = body(new FormData(made));
    } catch (error) {
      patch(status, error.message);
      return;
    }
    for (const one of made.querySelectorAll("button[type=submit]")) one.disabled = true;
    patch(status, "Asked; waiting for the controller's answer.");
    try {
      await after(await ask(`/api/runs/${encodeURIComponent(run)}/${path}`, wish), made);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      patch(status, sentence(error.message));
      for (const one of made.querySelectorAll("button[type=submit]")) one.disabled = false;
    }
  }
  return h("form", { onsubmit: send }, parts, h("p", { role: "alert", class: "outcome" }), h("div", { class: "buttons" }, buttons, leave()));
}

/** Yes to this plan, and to no other. */
export function approve(it) {
  const { plan, saves, run } = it;
  const id = planId(plan.digest);
  show(
    `Approve plan ${id}?`,
    form(
      run,
      "plan/approve",
      (given) => ({ digest: plan.digest, why: given.get("why") }),
      h("button", { type: "submit", class: "yes", "data-first": true }, `Approve plan ${id}`),
      (came, made) => outcome(came, it, "approve", made),
      h("p", null, "This is done, in this order, and nothing else:"),
      list(effects(plan, saves)),
      reason(false),
    ),
  );
}

/** No to this plan; the run halts. */
export function refuse(it) {
  const { plan, run } = it;
  const id = planId(plan.digest);
  show(
    `Refuse plan ${id}?`,
    form(
      run,
      "plan/refuse",
      (given) => ({ digest: plan.digest, why: given.get("why") }),
      h("button", { type: "submit", class: "no" }, `Refuse plan ${id}`),
      (came, made) => outcome(came, it, "refuse", made),
      h("p", null, meaningOfNo(plan)),
      reason(true),
    ),
  );
}

/** "429300000:429308192, 5:9" as pairs; the end is not left out itself. */
function spans(text) {
  return text.split(/[\s,]+/).filter(Boolean).map((one) => {
    const found = /^(\d+):(\d+)$/.exec(one);
    if (!found || Number(found[1]) >= Number(found[2])) throw new Error(`Samples to leave out: ${one} is not FIRST:END, such as 429300000:429308192.`);
    return [Number(found[1]), Number(found[2])];
  });
}

/** Yes, but: another checkpoint, another spare, a node that is kept, samples left out. What changes is shown before it is approved. */
export function change(it) {
  const { plan, saves, spares, run } = it;
  const { page } = plan;
  const completed = (saves ?? []).filter((one) => one.phase === "completed" && one.location === "store");
  const ready = spares.filter((one) => one.well).map((one) => one.node);
  const body = (given) => {
    if (it.glance()?.plan !== plan.digest) throw new Error(`Plan ${planId(plan.digest)} is no longer the open one. Cancel, and look at the plan as it is now.`);
    const chosen = page.swaps.map(([, , node], index) => given.get(`spare-${index}`) ?? node);
    if (new Set(chosen).size < chosen.length) throw new Error("One spare can't take two slots.");
    const wish = {
      checkpoint: given.get("checkpoint") === page.checkpoint ? "" : given.get("checkpoint") ?? "",
      spares: chosen.some((node, index) => node !== page.swaps[index][2]) ? chosen : [],
      keep_nodes: given.getAll("keep"),
      skip_samples: spans(given.get("skip")),
      why: given.get("why"),
    };
    if (!wish.checkpoint && !wish.spares.length && !wish.keep_nodes.length && !wish.skip_samples.length) throw new Error("Nothing is different from the plan as it is.");
    return wish;
  };
  const choice = (name, label, values, now, word) =>
    h("label", { class: "field" }, label, h("select", { name, "data-first": name === "checkpoint" }, values.map((value) => h("option", { value, selected: value === now }, word(value)))));
  show(
    `Change plan ${planId(plan.digest)}`,
    form(
      run,
      "plan/change",
      body,
      h("button", { type: "submit", class: "yes" }, "Show what changes"),
      (came, made) => outcome(came, it, "change", made),
      completed.length
        ? choice("checkpoint", "Start from", completed.map((one) => one.id), page.checkpoint, (id) => `iteration ${number(completed.find((one) => one.id === id).step)}, ${id}${id === page.checkpoint ? " (as planned)" : ""}`)
        : h("p", { class: "dim" }, saves ? "No save in the store is completed, so none can be chosen here." : "The store can't be read now. No other checkpoint can be chosen here, and the controller takes up a change once it can be read."),
      page.swaps.map(([slot, from, node], index) =>
        choice(`spare-${index}`, `Spare for slot ${number(slot)} of ${from}`, [node, ...ready.filter((one) => one !== node)], node, (one) => (one === node ? `${one} (as planned)` : one))),
      page.bars.length ? h("fieldset", null, h("legend", null, "Keep in use, do not bar"), page.bars.map((node) => h("label", { class: "check" }, h("input", { type: "checkbox", name: "keep", value: node }), node))) : null,
      h("label", { class: "field" }, "Samples to leave out, FIRST:END", h("input", { name: "skip", inputmode: "numeric", autocomplete: "off", placeholder: "429300000:429308192" })),
      reason(false),
    ),
  );
}

/** What came of it. A plan that is no longer the open one is asked about anew, with what is different. */
async function outcome(came, it, kind, made) {
  it.done();
  const fresh = came.changed.length && came.plan && it.here() ? await it.reload().catch(unread) : null;
  afterwards(made, () => told(came, it, kind, fresh));
}

/** The answer stands, though what it is about can't be read now. */
function unread(error) {
  if (!(error instanceof Trouble)) throw error;
  return null;
}

function told(came, it, kind, fresh) {
  if (!it.inside()) return; // it was another's question
  if (it.here() && fresh?.plan.open && fresh.plan.digest === came.plan) {
    const word = came.state === "refused" ? "The plan has changed" : "The plan as changed";
    show(
      word,
      h("p", { role: "alert" }, sentence(came.text)),
      h("p", null, `What is different in plan ${planId(came.plan)}:`),
      changes(came.changed),
      again(fresh, came.plan, kind),
    );
    return;
  }
  const word = { done: "Done", refused: "Refused", filed: "Filed" }[came.state];
  show(
    it.here() ? word : `${word}: ${it.run}`,
    h("p", { role: "alert" }, sentence(came.text)),
    came.changed.length ? changes(came.changed) : null,
    kind === "change" && came.state === "done" && !came.changed.length ? h("p", null, "The plan is as it was.") : null,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: close, "data-first": true }, "Close")),
  );
}

/** The focus is not on its yes: who pressed the first one twice would give the second unread. */
function again(fresh, digest, kind) {
  const id = planId(digest);
  if (kind === "refuse") {
    return h("div", { class: "buttons" }, h("button", { type: "button", class: "no", onclick: () => refuse(fresh) }, `Refuse plan ${id}…`), leave("Leave it open"));
  }
  return form(
    fresh.run,
    "plan/approve",
    () => ({ digest, why: "" }),
    h("button", { type: "submit", class: "yes" }, `Approve plan ${id}`),
    (came, made) => outcome(came, fresh, "approve", made),
    h("p", null, "A yes to it does this:"),
    list(effects(fresh.plan, fresh.saves)),
  );
}

const COMMANDS = {
  pause: ["Pause", "Start and stop nothing until it is resumed. It goes on watching, sealing saves and telling.", ""],
  resume: ["Resume", "Lift the pause, or the halt.", "yes"],
  halt: ["Halt", "Stop the attempt now and start nothing more until a person resumes the run. What was done since the newest completed save is done again.", "no"],
  stop: ["Stop", "Have the ranks save, then end. The run can go on later from that save.", "no"],
};

/** Pause, resume, halt, stop: a reason, and a second click. */
export function command(kind, it) {
  const [word, means, look] = COMMANDS[kind];
  const halted = it.status.glance.halted !== null;
  show(
    `${word} ${it.run}?`,
    form(
      it.run,
      kind,
      (given) => {
        const row = it.glance();
        if (kind === "resume" && !halted && row?.halted) throw new Error(`${it.run} has halted meanwhile: ${row.halted}. Cancel, and look at it first.`);
        return kind === "resume" && halted ? { why: given.get("why"), skip_samples: spans(given.get("skip") ?? "") } : { why: given.get("why") };
      },
      h("button", { type: "submit", class: look }, `${word} ${it.run}`),
      (came, made) => outcome(came, it, kind, made),
      h("p", null, means),
      reason(true),
      kind === "resume" && halted ? h("label", { class: "field" }, "Samples to leave out, FIRST:END", h("input", { name: "skip", inputmode: "numeric", autocomplete: "off" })) : null,
    ),
  );
}

/** The buttons of the run itself. */
export function commands(it) {
  const row = it.status.glance;
  const kinds = [row.paused || row.halted ? "resume" : "pause", row.halted ? "" : "halt", row.halted ? "" : "stop"].filter(Boolean);
  return h(
    "section",
    { class: "panel", "data-key": "commands", "aria-labelledby": "commands" },
    h("h2", { id: "commands" }, "The run itself"),
    row.ended
      ? h("p", { class: "dim" }, "It has ended.")
      : h("div", { class: "buttons" }, kinds.map((kind) => h("button", { type: "button", "data-key": kind, id: `do-${kind}`, disabled: !it.may, onclick: () => command(kind, it) }, `${COMMANDS[kind][0]}…`))),
    it.may ? null : h("p", { class: "dim" }, "This token may only look."),
  );
}
