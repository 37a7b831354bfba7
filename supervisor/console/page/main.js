// The page: where it is, what it has read, and when it reads again. Everything it shows comes from the API.

import { approve, change, close, commands, refuse } from "./answer.js";
import { follow, get, moment, setToken, silentMs, since } from "./api.js";
import { askToken, forget, keptToken } from "./door.js";
import { h, memo, patch } from "./dom.js";
import { incidentList, incidentPage } from "./incidents.js";
import { listen, showKeys } from "./keys.js";
import { ledgersPage } from "./ledgers.js";
import { line, losses, newest, zoomed } from "./panels.js";
import { lists, nodePanel, table, wallPanel } from "./nodes.js";
import { asPrinted, card, headline, recent, tiles, warnings } from "./now.js";
import { planCard } from "./plan.js";
import { route, takeToken, to, VIEWS } from "./route.js";
import { savesPage } from "./saves.js";
import { clock, now, planId, setClock, span } from "./say.js";
import { byUrgency, standing } from "./standing.js";

/** What each view rests on, and how old each of it may be, in seconds. */
const NEEDS = {
  now: ["status", "line", "plan", "nodes", "incidents", "checkpoints", "losses"],
  nodes: ["status", "nodes", "incidents"],
  line: ["status", "line", "checkpoints", "losses"],
  incidents: ["status", "incidents", "incident"],
  saves: ["status", "checkpoints", "drills"],
  ledgers: ["status", "ledger"],
};
const OLD_S = { runs: 5, status: 4, plan: 5, losses: 10 };
const OLD_ELSE_S = 15;
const LOSSES_PHONE = 400;
const [LEAST_WIDE, PHONE, WIDEST] = [240, 600, 1200];

const $ = (id) => document.getElementById(id);
const state = { inside: false, at: route(), runs: [], you: null, docs: {}, readAt: {}, reading: new Set(), troubles: {}, end: null, meet: null };
let drawing = false;

// --- reading -------------------------------------------------------------------------------------------------------

function path(doc) {
  const base = `/api/runs/${encodeURIComponent(state.at.run)}`;
  if (doc === "runs") return "/api/runs";
  if (doc === "status") return base;
  if (doc === "incident") return `${base}/incidents/${state.at.incident}`;
  if (doc === "losses") return `${base}/losses?${zoomed(innerWidth < PHONE ? LOSSES_PHONE : 1000)}`;
  return `${base}/${doc}`;
}

function wanted() {
  if (!state.at.run) return ["runs"];
  const open = state.docs.status?.glance.plan;
  return ["runs", ...NEEDS[state.at.view]].filter((doc) => (doc !== "incident" || state.at.incident) && (doc !== "plan" || open || state.docs.plan?.open || !state.docs.status));
}

/** Read what is too old. `anew`: whatever its age. */
async function refresh(anew = []) {
  if (!state.inside) return;
  const due = wanted().filter((doc) => anew.includes(doc) || !(state.readAt[doc] && since(state.readAt[doc]) < (OLD_S[doc] ?? OLD_ELSE_S) * 1000));
  await Promise.all(due.filter((doc) => !state.reading.has(path(doc))).map(read));
}

async function read(doc) {
  const from = path(doc);
  const { reading, row } = state;
  const late = () => state.reading !== reading || path(doc) !== from; // somebody has gone elsewhere, or come in anew, meanwhile
  const asked = moment();
  reading.add(from);
  state.readAt[doc] = asked;
  try {
    const told = await get(from);
    if (late()) return;
    take(doc, told, asked, row);
    delete state.troubles[doc];
  } catch (error) {
    if (!late()) failed(doc, error);
  } finally {
    reading.delete(from);
    draw();
  }
}

/** `asked`: when it was asked for; `row`: what was known of the run then. */
function take(doc, told, asked, row) {
  if (doc === "runs") {
    for (const other of told.runs) if (other.run !== state.at.run) announce(state.runs.find((one) => one.run === other.run), other);
    [state.runs, state.you] = [told.runs, told.you];
    if (!state.at.run && told.runs.length === 1) location.replace(to(told.runs[0].run));
    return;
  }
  if (doc === "status") {
    if (told.now !== state.docs.status?.now) {
      setClock(told.now);
      state.freshAt = asked;
    }
    if (state.row && state.row !== row) {
      if (news(state.row) !== news(told.glance)) state.readAt.status = null; // the stream was faster: this is the older one
      told.glance = state.row;
    }
    heard(told.glance);
  }
  state.docs[doc] = told;
}

function failed(doc, error) {
  if (error.status === 401) {
    out("This token is not valid here, or no longer.");
  } else if (error.status !== 0) {
    state.troubles[doc] = error.message;
    if (error.status === 404) state.docs[doc] = null;
  }
}

/** What can't be read of this view, all of it. */
function trouble() {
  return wanted().filter((doc) => state.troubles[doc]).map((doc) => `${doc}: ${state.troubles[doc]}`).join("; ");
}

/** A row of the run that is shown has come: it may be news. */
function heard(row) {
  if (row.run !== state.at.run) return;
  const before = state.docs.status?.glance ?? state.row;
  state.row = row;
  if (before?.run === row.run) announce(before, row);
  if (state.docs.status) state.docs.status = { ...state.docs.status, glance: row };
  if (before && news(before) !== news(row)) {
    state.readAt = {};
    refresh();
  }
}

const news = (row) => JSON.stringify({ ...row, step: 0, loss: 0, written_at: 0, decision: "" });

/** Say it to who does not look at the page. */
function announce(before, row) {
  if (!before) return;
  const said = [];
  if (row.open_incident && row.open_incident !== before.open_incident) said.push(`An incident opened: incident ${row.open_incident}.`);
  if (row.waits && !(before.waits && before.plan === row.plan)) said.push(`A decision waits: plan ${planId(row.plan)}.`);
  if (row.halted && !before.halted) said.push(`Halted: ${row.halted}.`);
  if (!row.controller_alive && before.controller_alive && !row.ended) said.push("No controller is alive.");
  if (before.open_incident && !row.open_incident) said.push(`Incident ${before.open_incident} is closed.`);
  if (said.length) patch($("live"), `${row.run}: ${said.join(" ")}`);
}

// --- drawing -------------------------------------------------------------------------------------------------------

/** Draw once, soon, however many things have come. */
function draw() {
  if (drawing) return;
  drawing = true;
  queueMicrotask(() => {
    drawing = false;
    if (state.inside) render();
  });
}

function render() {
  const { at, docs, runs } = state;
  const row = docs.status?.glance;
  const silentS = silentMs() / 1000;
  const staleS = docs.status ? since(state.freshAt) / 1000 : 0; // a console whose disk hangs answers with what it read last
  const oldS = Math.max(silentS, staleS);
  document.documentElement.toggleAttribute("data-old", oldS > 10);
  document.title = row ? `${standing(row).shape} ${row.run}: ${standing(row).word}` : "relight";
  patch($("top"), top(oldS));
  patch($("warnings"), warnings({ runs, run: at.run, docs, silentS, staleS, trouble: trouble() }));
  patch($("views"), at.run ? VIEWS.map(([name, word]) => h("a", { href: to(at.run, { view: name === "now" ? "" : name }), "aria-current": name === at.view ? "page" : null }, word)) : []);
  patch($("main"), drawn());
  meet();
}

function top(silentS) {
  const { at, runs, you } = state;
  return [
    h("a", { class: "brand", href: "#" }, "relight"),
    at.run ? h("b", { class: "run-name" }, at.run) : null,
    runs.length > 1 && at.run ? h("a", { href: "#" }, `Runs (${runs.length})`) : null,
    h("span", { class: `pulse ${silentS > 10 ? "is-old" : ""}` }, silentS > 10 ? `✕ silent ${span(silentS, true)}` : ["● live", h("span", { class: "time" }, ` ${clock(now())}`)]),
    you ? h("span", { class: "you" }, `${you.name}, ${you.role}`) : null,
    h("button", { type: "button", onclick: showKeys, "aria-label": "Keys" }, "?"),
    h("button", { type: "button", onclick: () => out("") }, "Leave"),
  ];
}

/** What can't be drawn is said: else what stood there before would stay, under another name perhaps. */
function drawn() {
  try {
    return state.at.run ? run() : all();
  } catch (error) {
    reportError(error);
    return h("p", { class: "panel", role: "alert", "data-key": "undrawn" }, `This view can't be drawn. In a terminal: relight status ${state.at.run}`);
  }
}

function all() {
  return h(
    "section",
    { "data-key": "runs" },
    h("h1", null, `Runs: ${state.runs.length || "none yet"}`),
    h("ul", { class: "cards" }, [...state.runs].sort(byUrgency).map(card)),
  );
}

function run() {
  const { at, docs } = state;
  if (docs.status === null) return h("p", { class: "panel" }, "No run of that name is here. ", h("a", { href: "#" }, "All runs"));
  if (!docs.status) return h("p", { class: "panel", "data-key": "wait" }, trouble() || "Reading…");
  const wide = document.documentElement.clientWidth;
  const width = Math.max(LEAST_WIDE, Math.min(wide, WIDEST) - (wide < PHONE ? 46 : 66)); // less what style.css takes beside a picture
  const parts = { now: viewNow, nodes: viewNodes, line: viewLine, incidents: viewIncidents, saves: viewSaves, ledgers: viewLedgers };
  return parts[at.view](docs, at.run, width);
}

/** What a question about the run or its plan works with. */
function it() {
  const { docs, at, you, reading } = state;
  const inside = () => state.inside && state.reading === reading;
  const here = () => inside() && state.at.run === at.run;
  return {
    run: at.run,
    inside,
    here,
    glance: () => (here() ? state.docs.status?.glance : null),
    plan: docs.plan,
    status: docs.status,
    saves: docs.checkpoints?.known ? docs.checkpoints.saves : null,
    spares: docs.nodes?.spares,
    may: you?.asks ?? false,
    done: () => refresh(["status", "plan", "nodes", "incidents"]),
    reload: async () => {
      const [plan, checkpoints, nodes] = await Promise.all(["plan", "checkpoints", "nodes"].map((doc) => get(path(doc))));
      if (!here()) return null; // these are of the run that was left
      Object.assign(state.docs, { plan, checkpoints, nodes });
      draw();
      return { ...it(), plan };
    },
  };
}

function viewNow(docs, name, width) {
  const answer = (kind) => ({ approve, change, refuse })[kind](it());
  const shown = docs.plan?.open && docs.status.glance.plan ? docs.plan : null;
  return [
    headline(docs),
    state.at.plan && !docs.status.glance.plan ? h("p", { class: "panel changed", "data-key": "no-plan" }, h("b", null, `Plan ${planId(state.at.plan)} is no longer open. `), "No plan is open now.") : null,
    shown ? planCard({ plan: shown, saves: docs.checkpoints?.saves, run: name, meant: state.at.plan, may: state.you?.asks ?? false, all: Boolean(docs.checkpoints && docs.nodes), answer }) : null,
    tiles(docs),
    docs.nodes ? memo("wall", [docs.nodes, width, name], () => wallPanel(docs.nodes, name, width, true)) : null,
    docs.line ? line(docs, width, draw) : null,
    docs.losses ? losses(docs.losses, width, () => refresh(["losses"])) : null,
    recent(docs, name),
    commands(it()),
    asPrinted("As relight status prints it", docs.status.text, "status-text"),
  ];
}

function viewNodes(docs, name, width) {
  if (!docs.nodes) return waiting();
  return [
    h("h1", { class: "unseen", "data-key": "title" }, "Nodes"),
    state.at.node ? nodePanel(docs, name, state.at.node) : null,
    memo("slots", [docs.nodes, width, name], () => wallPanel(docs.nodes, name, width)),
    memo("lists", [docs.nodes, name], () => lists(docs.nodes, name)),
    memo("table", [docs.nodes, name], () => table(docs.nodes, name)),
  ];
}

function viewLine(docs, _, width) {
  if (!docs.line) return waiting();
  return [h("h1", { class: "unseen", "data-key": "title" }, "Line of time"), line(docs, width, draw), docs.losses ? losses(docs.losses, width, () => refresh(["losses"])) : null];
}

function viewIncidents(docs, name) {
  if (!state.at.incident) return docs.incidents ? incidentList(docs, name) : waiting();
  if (docs.incident === null) return h("p", { class: "panel" }, `Incident ${state.at.incident} is not known. `, h("a", { href: to(name, { view: "incidents" }) }, "All incidents"));
  return docs.incident?.incident.number === state.at.incident ? incidentPage(docs.incident, name) : waiting();
}

function viewSaves(docs) {
  return docs.checkpoints ? savesPage(docs) : waiting();
}

function viewLedgers(docs, name) {
  return docs.ledger ? ledgersPage(docs, name) : waiting();
}

function waiting() {
  return h("p", { class: "panel", "data-key": "wait" }, "Reading…");
}

/** Whoever has come by a link is brought to what it names, once, as soon as it is there. */
function meet() {
  const found = state.meet && $(state.meet);
  if (state.meet === "plan" && state.docs.status && !state.docs.status.glance.plan) state.meet = null; // one that opens later takes no focus
  if (!found) return;
  state.meet = null;
  found.focus({ preventScroll: true });
  if (found !== $("main")) found.scrollIntoView({ block: "start" });
}

// --- coming and going ----------------------------------------------------------------------------------------------

function go() {
  const token = takeToken();
  if (token) enter(token);
  const before = state.at;
  state.at = route();
  close(); // a question is of the place where it was asked
  if (!state.inside) return;
  if (before.run !== state.at.run || state.end === null) {
    Object.assign(state, { docs: {}, readAt: {}, troubles: {}, row: null });
    newest();
    attend();
  }
  if (before.incident !== state.at.incident) {
    delete state.docs.incident;
    delete state.readAt.incident;
  }
  state.meet = state.at.node ? "node" : state.at.plan ? "plan" : before.view === state.at.view ? null : "main";
  if (before.view !== state.at.view || before.incident !== state.at.incident) scrollTo(0, 0);
  draw();
  refresh();
}

/** Follow the run while the page is seen: a browser has six lines to a host for all its tabs, and questions need one. */
function attend() {
  state.end?.();
  state.end = !state.at.run ? null : document.hidden ? () => {} : follow(state.at.run, heard);
}

function enter(token) {
  if (token) setToken(token);
  state.inside = true;
  state.reading = new Set();
  state.end?.();
  state.end = null;
}

function out(why) {
  forget();
  close();
  state.end?.();
  Object.assign(state, { inside: false, reading: new Set(), docs: {}, readAt: {}, runs: [], you: null, end: null, row: null });
  document.title = "relight";
  for (const id of ["top", "warnings", "views", "live"]) patch($(id));
  askToken($("main"), why, () => {
    enter("");
    go();
  });
}

$("skip").onclick = (event) => {
  event.preventDefault();
  $("main").focus();
};
addEventListener("hashchange", go);
addEventListener("resize", draw);
document.addEventListener("visibilitychange", () => {
  if (state.end) attend();
  draw();
  if (!document.hidden) refresh(["status"]);
});
setInterval(() => {
  refresh();
  draw();
}, 1000);
listen(() => state.at.run);

const token = takeToken() || keptToken();
if (token) {
  enter(token);
  go();
} else {
  out("");
}

