// What a run is doing, in one word, one shape and one colour; and that nobody watches, which is louder than all of them.

const SIGNS = {
  well: ["✓", "Training"],
  wait: ["▲", "Waits for you"],
  open: ["◆", "Recovering"],
  halt: ["■", "Halted"],
  paused: ["Ⅱ", "Paused"],
  over: ["●", "Ended"],
  start: ["○", "Starting"],
  unknown: ["?", "Not known"],
};

/** What wants a person comes first. */
export function byUrgency(a, b) {
  const order = ["wait", "unknown", "halt", "open", "paused", "start", "well", "over"];
  return order.indexOf(kindOf(a)) - order.indexOf(kindOf(b)) || a.run.localeCompare(b.run);
}

/** `row` is one of /api/runs. Gives {kind, shape, word}. */
export function standing(row) {
  const kind = kindOf(row);
  const [shape, word] = SIGNS[kind];
  return { kind, shape, word: kind === "unknown" && !row.error ? "Nobody watches" : word };
}

function kindOf(row) {
  if (row.error) return "unknown";
  if (row.ended) return "over";
  if (!row.controller_alive) return "unknown";
  if (row.halted) return "halt";
  if (row.paused) return "paused";
  if (row.waits) return "wait";
  if (row.open_incident) return "open";
  return row.attempt && row.step !== null ? "well" : "start";
}
