// Where the page is: #run=NAME&view=nodes, #run=NAME&plan=DIGEST, #run=NAME&incident=12.

export const VIEWS = [
  ["now", "Now"],
  ["nodes", "Nodes"],
  ["line", "Line"],
  ["incidents", "Incidents"],
  ["saves", "Saves"],
  ["ledgers", "Ledgers"],
];

export function route() {
  const given = new URLSearchParams(location.hash.slice(1));
  const incident = Number(given.get("incident"));
  const view = VIEWS.some(([name]) => name === given.get("view")) ? given.get("view") : "now";
  return {
    run: given.get("run") ?? "",
    view: incident ? "incidents" : view,
    plan: /^[0-9a-f]{6,32}$/.test(given.get("plan") ?? "") ? given.get("plan") : "",
    incident: Number.isInteger(incident) && incident > 0 ? incident : 0,
    node: given.get("node") ?? "",
  };
}

/** The address of a place. */
export function to(run, more = {}) {
  const parts = Object.entries({ run, ...more }).filter(([, value]) => value);
  return `#${new URLSearchParams(parts.map(([key, value]) => [key, String(value)]))}`;
}

/** A token in the address is taken out of it before anything else happens; so it is in no history and no picture. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (token === null) return "";
  given.delete("token");
  history.replaceState(null, "", given.size ? `#${given}` : location.pathname);
  return token.trim();
}
