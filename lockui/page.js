"use strict";

// All text that comes from the server is shown as text: nothing here makes HTML of it.
const byID = id => document.getElementById(id);
// The address of the page may have a password in it, with which fetch takes none that is relative.
const url = path => new URL(path, location.href);
const element = (tag, className, ...children) => {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...children);
  return node;
};
// Invisible characters, and those that change the direction of a text, are spelled out.
const readable = text => text.replace(/(?! )[\p{C}\p{Z}]/gu, c => "\\u{" + c.codePointAt(0).toString(16) + "}");
const short = ms => {
  const s = Math.floor(ms / 1000), two = n => String(n).padStart(2, "0");
  if (s < 1) return "<1s";
  if (s < 60) return s + "s";
  if (s < 3600) return Math.floor(s / 60) + "m" + two(s % 60) + "s";
  if (s < 86400) return Math.floor(s / 3600) + "h" + two(Math.floor(s / 60) % 60) + "m";
  return Math.floor(s / 86400) + "d" + two(Math.floor(s / 3600) % 24) + "h";
};
const words = metadata => Object.keys(metadata ?? {}).sort().map(key => key + "=" + metadata[key]).join(" ");
const badge = lock => lock.state === "kept" ? "kept" : lock.shared ? "shared" : lock.limit > 0 ? "one of " + lock.limit : "";

let answer = { stores: [], locks: [] }, answered = 0; // the last answer, and when it came
let order = "name", descending = false;
const rows = new Map(); // by key

const columns = [
  { key: "name", title: "Lock", text: lock => lock.name },
  { key: "holder", title: "Holder", text: lock => lock.holder ?? "–" },
  { key: "age", title: "Held for", number: true, value: lock => lock.age_ms ?? 0, text: (lock, since) => lock.age_ms === undefined ? "–" : short(lock.age_ms + since) },
  { key: "left", title: "Lease", number: true, value: lock => lock.remaining_ms ?? Infinity,
    text: (lock, since) => lock.remaining_ms === undefined ? "no expiry" : short(Math.max(lock.remaining_ms - since, 0)) },
  { key: "waiting", title: "Waiting", number: true, value: lock => lock.waiting ?? 0, text: lock => lock.waiting ? lock.waiting.toLocaleString("en") : "" },
  { key: "token", title: "Token", number: true, value: lock => lock.token ?? 0, text: lock => lock.token ? String(lock.token) : "–" },
  { key: "metadata", title: "Metadata", text: lock => words(lock.metadata) },
  { key: "store", title: "Store", text: lock => answer.stores[lock.store].name },
];
for (const column of columns) {
  const button = element("button", "plain", column.title);
  button.addEventListener("click", () => {
    descending = order === column.key && !descending;
    order = column.key;
    show();
  });
  column.head = element("th", column.key + (column.number ? " number" : ""), button);
  column.head.scope = "col";
  byID("columns").append(column.head);
}
byID("columns").append(element("th", "action", element("span", "hidden", "Action")));

// rowOf returns the row of a hold: the same one as long as the hold lasts.
function rowOf(lock) {
  const key = JSON.stringify([lock.store, lock.name, lock.token, lock.holder]);
  if (!rows.has(key)) {
    const row = element("tr", "");
    row.cells_ = columns.map(column => element("td", column.key + (column.number ? " number" : "")));
    const action = element("td", "action");
    if (answer.allow_break && lock.token) {
      const button = element("button", "danger", "Break…");
      button.setAttribute("aria-label", "Break " + readable(lock.name));
      button.addEventListener("click", () => ask(lock));
      action.append(button);
    }
    row.append(...row.cells_, action);
    rows.set(key, row);
  }
  const row = rows.get(key);
  row.lock = lock;
  return row;
}

// write brings the texts of a row up to date, as of so many milliseconds after the answer.
function write(row, since) {
  columns.forEach((column, i) => {
    const text = readable(column.text(row.lock, since)), cell = row.cells_[i];
    if (cell.title === text && cell.textContent !== "") return;
    cell.title = text;
    cell.replaceChildren(element("span", "text", text));
    if (column.key === "name" && badge(row.lock)) cell.append(element("span", "badge", badge(row.lock)));
  });
}

const plural = (n, noun) => n.toLocaleString("en") + " " + noun + (n === 1 ? "" : "s");

// show brings the page up to date.
function show() {
  const since = performance.now() - answered, filter = byID("filter").value.toLowerCase();
  const column = columns.find(c => c.key === order), value = column.value ?? column.text;
  const shown = answer.locks.filter(lock => columns.some(c => c.text(lock, since).toLowerCase().includes(filter)) || badge(lock).includes(filter));
  const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  shown.sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b)) || compare(a.name, b.name));
  const alive = new Set(answer.locks.map(rowOf)), body = byID("locks");
  for (const [key, row] of rows) if (!alive.has(row)) rows.delete(key);
  const wanted = shown.map(rowOf);
  wanted.forEach((row, i) => {
    write(row, since);
    row.classList.toggle("silent", answer.stores[row.lock.store].state === "silent");
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
  });
  while (body.children.length > wanted.length) body.lastChild.remove();
  for (const c of columns) {
    if (c === column) c.head.ariaSort = descending ? "descending" : "ascending"; else c.head.removeAttribute("aria-sort");
  }
  const all = answer.locks.length, listing = answer.stores.filter(s => s.state !== "unlisted");
  byID("count").textContent = shown.length === all ? plural(all, "hold") : shown.length + " of " + plural(all, "hold");
  byID("none").textContent = shown.length ? "" : all ? "No lock matches the filter."
    : listing.length === 0 ? "No locks are known: what is shown here cannot be listed."
    : listing.some(s => s.state !== "live") ? "No locks are known." : "Nothing is locked.";
}

// showStores shows the stores, each with what doctor finds; those that are open stay open.
function showStores() {
  const list = byID("stores"), open = new Set([...list.querySelectorAll("details[open]")].map(d => d.dataset.name));
  const text = JSON.stringify(answer.stores.map((s, i) => [s, answer.locks.filter(l => l.store === i).length]));
  if (list.dataset.shown === text) return;
  list.dataset.shown = text;
  list.replaceChildren(...answer.stores.map((store, i) => {
    const locks = answer.locks.filter(lock => lock.store === i), waiting = locks.reduce((n, lock) => n + (lock.waiting ?? 0), 0);
    const said = {
      live: plural(locks.length, "hold") + (waiting ? ", " + waiting.toLocaleString("en") + " waiting" : ""),
      asked: "is asked", unlisted: "cannot list its locks",
      silent: "no answer" + (store.silent_ms ? " for " + short(store.silent_ms) : ""),
    }[store.state];
    const summary = element("summary", "", readable(store.name) + " ", element("span", "said", said));
    const bad = (store.findings ?? []).filter(f => f.status === "fail" || f.status === "warn");
    if (bad.length) summary.append(" ", element("span", "badge " + bad[0].status, plural(bad.length, "finding")));
    const details = element("details", "", summary);
    details.dataset.name = store.name;
    details.open = open.has(store.name);
    if (store.error) details.append(element("p", "bad", readable(store.error)));
    for (const f of store.findings ?? []) {
      const line = element("p", "finding", element("span", "badge " + f.status, f.status), " ", element("b", "", f.id), " ", readable((f.server ? f.server + ": " : "") + f.found));
      if (f.want) line.append(element("br", ""), readable("Wanted: " + f.want));
      if (f.remedy) line.append(element("br", ""), "Try: ", element("code", "", readable(f.remedy)));
      details.append(line);
    }
    return element("li", store.state, details);
  }));
}

let timer, looks = 0;
async function look() {
  const mine = ++looks; // an answer to an older look is dropped
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const response = await fetch(url("api/locks"), { signal: AbortSignal.timeout(15000) });
    const text = await response.text();
    if (mine !== looks) return;
    if (!response.ok) throw new Error(text);
    answer = JSON.parse(text);
    answered = performance.now();
    document.body.classList.remove("offline");
    byID("status").textContent = "Live";
    for (const name of ["store", "action"]) document.body.classList.toggle("no-" + name, name === "store" ? answer.stores.length === 1 : !answer.allow_break);
    showStores();
    show();
  } catch (error) {
    if (mine !== looks) return;
    document.body.classList.add("offline");
    byID("status").textContent = "Disconnected";
  }
  timer = setTimeout(look, 2000);
}

let asked; // the hold that the dialog is about
function ask(lock) {
  asked = lock;
  byID("question").textContent = "Break the lock “" + readable(lock.name) + "”?";
  const facts = [["Holder", lock.holder ?? "not known"], ["Token", String(lock.token)], ["Store", answer.stores[lock.store].name], ...Object.entries(lock.metadata ?? {})];
  byID("facts").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", "", readable(name)), element("dd", "", readable(value))]));
  byID("result").textContent = "";
  byID("break").showModal();
}
byID("leave").addEventListener("click", () => byID("break").close());
byID("do").addEventListener("click", async () => {
  const body = new URLSearchParams({ store: asked.store, name: asked.name, token: asked.token });
  try {
    const response = await fetch(url("break"), { method: "POST", body });
    if (response.ok) byID("break").close(); else byID("result").textContent = await response.text();
  } catch (error) {
    byID("result").textContent = "No answer. The hold may be broken or not; it is safe to try again.";
  }
  look();
});

byID("filter").addEventListener("input", show);
byID("tools").addEventListener("submit", event => event.preventDefault());
document.addEventListener("visibilitychange", look);
setInterval(() => { if (!document.hidden) for (const row of byID("locks").children) write(row, performance.now() - answered); }, 1000);
look();
