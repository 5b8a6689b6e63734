'use strict';
(() => {
const body = document.body, get = id => document.getElementById(id);
const status = get('status'), live = get('live'), table = get('locks');
let ahead = Number(body.dataset.now) - Date.now(); // how far the clock of the server is ahead of ours
const now = () => Date.now() + ahead;

function duration(ms) {
  const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  const two = n => String(n).padStart(2, '0');
  if (s < 1) return '<1s';
  if (m < 1) return s + 's';
  if (h < 1) return m + 'm' + two(s % 60) + 's';
  if (d < 1) return h + 'h' + two(m % 60) + 'm';
  return d + 'd' + two(h % 24) + 'h';
}
let heard = Date.now(), lost = ''; // lost is the status while there is no stream

const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

// Texts that change by themselves.
function count(root) {
  const t = now();
  for (const node of root.querySelectorAll('[data-since]')) {
    if (lost && node.closest('.silence')) continue;
    const since = Number(node.dataset.since);
    setText(node, since ? duration(t - since) : '–');
  }
  for (const node of root.querySelectorAll('[data-until]')) {
    const until = Number(node.dataset.until), row = node.closest('tr');
    setText(node, until ? duration(until - t) : 'no expiry');
    const lease = Number(node.dataset.lease);
    if (row && !lost) row.classList.toggle('expiring', lease > 0 && until - t < lease / 3 && !row.classList.contains('stale'));
  }
}
function localTimes(root) {
  for (const node of root.querySelectorAll('time')) {
    const at = new Date(node.dateTime);
    node.title = at.toString();
    setText(node, at.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false}));
  }
}
function fragment(html) {
  const t = document.createElement('template');
  t.innerHTML = html;
  return t.content;
}

// The table of all locks.
const rows = new Map(), visible = new Set(), stale = new Set();
let observer, order = 'name', descending = false, filter = '';
const sortKeys = {
  name: tr => tr.querySelector('.name a').textContent,
  holder: tr => tr.querySelector('.holder').textContent,
  since: tr => Number(tr.querySelector('.since').dataset.since),
  left: tr => Number(tr.querySelector('.left').dataset.until),
  waiting: tr => -Number(tr.querySelector('.waiting').textContent.replace(/,/g, '')),
  token: tr => Number(tr.querySelector('.token').textContent) || 0,
  metadata: tr => tr.querySelector('.meta').textContent,
  store: tr => Number(tr.dataset.store),
};

function addRow(tr) {
  rows.set(Number(tr.dataset.id), tr);
  tr.words = null;
  observer.observe(tr);
  showRow(tr);
}
function dropRow(tr) {
  observer.unobserve(tr);
  visible.delete(tr);
  tr.remove();
}
function showRow(tr) {
  if (filter && tr.words === null) {
    tr.words = [...tr.querySelectorAll('.name, .holder, .token, .meta, .store')].map(td => td.textContent).join('\n').toLowerCase();
  }
  tr.hidden = filter !== '' && !tr.words.includes(filter);
  tr.classList.toggle('stale', stale.has(tr.dataset.store));
}
function sortRows() {
  const tbody = table.tBodies[0], key = sortKeys[order], sign = descending ? -1 : 1;
  const byName = tr => tr.querySelector('.name a').textContent;
  const wanted = [...rows.values()].map(tr => [key(tr), byName(tr), Number(tr.dataset.store), tr]);
  const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
  wanted.sort((a, b) => sign * (compare(a[0], b[0]) || compare(a[1], b[1]) || compare(a[2], b[2])));
  const focus = tbody.contains(document.activeElement) ? document.activeElement : null;
  let at = tbody.firstElementChild, moved = false;
  for (const [, , , tr] of wanted) {
    if (tr === at) { at = at.nextElementSibling; continue; }
    tbody.insertBefore(tr, at);
    moved = true;
  }
  if (moved && focus) focus.focus({preventScroll: true});
}
function countRows() {
  let shown = 0;
  for (const tr of rows.values()) if (!tr.hidden) shown++;
  const all = rows.size, number = n => n.toLocaleString('en-US');
  setText(get('count'), (shown === all ? '' : number(shown) + ' of ') + number(all) + (all === 1 ? ' lock' : ' locks'));
  get('none').hidden = shown > 0;
  setText(get('none'), all ? 'No lock matches the filter.' : get('none').dataset.empty);
}
function update(d) {
  ahead = d.now - Date.now();
  const focused = document.activeElement?.closest?.('#locks tbody tr')?.dataset.id;
  if (d.reset) {
    for (const tr of rows.values()) dropRow(tr);
    rows.clear();
  }
  for (const id of d.gone || []) {
    if (rows.has(id)) dropRow(rows.get(id));
    rows.delete(id);
  }
  for (const html of d.rows || []) {
    const tr = fragment('<table>' + html + '</table>').querySelector('tr'), old = rows.get(Number(tr.dataset.id));
    if (old) { old.replaceWith(tr); dropRow(old); } else { table.tBodies[0].append(tr); if (!d.reset) tr.classList.add('new'); }
    addRow(tr);
    if (!d.reset || rows.size < 60) count(tr);
  }
  for (const [id, until, lease] of d.until || []) {
    const left = rows.get(id)?.querySelector('.left');
    if (left) { left.dataset.until = until; left.dataset.lease = lease; }
  }
  const strip = get('strip');
  if (!strip.contains(document.activeElement)) strip.replaceChildren(fragment(d.strip));
  if (d.rows || order === 'left' && d.until) sortRows();
  if (focused && document.activeElement === body) rows.get(Number(focused))?.querySelector('a').focus({preventScroll: true});
  if (d.rows || d.gone || d.reset) countRows();
  tick();
}

// A store may be silent. Without the stream, that is judged as of the last message.
function markStale() {
  const t = lost ? heard + ahead : now();
  let changed = false;
  for (const node of document.querySelectorAll('[data-answered]')) {
    if (node.classList.contains('mute')) continue;
    const answered = Number(node.dataset.answered), old = !answered || t - answered > Number(node.dataset.stale);
    node.classList.toggle('stale', old);
    node.classList.toggle('live', !old);
    if (node.dataset.store !== undefined && stale.has(node.dataset.store) !== old) {
      old ? stale.add(node.dataset.store) : stale.delete(node.dataset.store);
      changed = true;
    }
  }
  if (changed) for (const tr of rows.values()) tr.classList.toggle('stale', stale.has(tr.dataset.store));
}
function tick() {
  if (table) {
    markStale();
    count(get('strip'));
    for (const tr of visible) count(tr);
  } else {
    markStale();
    if (live) count(live);
  }
}

let source, seq = '', pause = 1000, retry;
function connect() {
  clearTimeout(retry);
  source?.close();
  if (document.hidden) return;
  const url = new URL(body.dataset.stream, location.href);
  if (seq) url.searchParams.set('from', seq);
  source = new EventSource(url);
  const hear = f => e => {
    heard = Date.now();
    pause = 1000;
    lost = '';
    body.classList.remove('offline');
    setText(status, 'Live');
    setText(get('age'), '');
    f(JSON.parse(e.data));
  };
  source.addEventListener('rows', hear(d => { update(d); seq = d.seq; }));
  source.addEventListener('main', hear(d => {
    ahead = d.now - Date.now();
    const focused = live.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
    live.replaceChildren(fragment(d.html));
    localTimes(live);
    tick();
    if (focused) [...live.querySelectorAll('a')].find(a => a.getAttribute('href') === focused)?.focus({preventScroll: true});
  }));
  source.addEventListener('beat', hear(at => { ahead = at - Date.now(); tick(); }));
  // A stream that is not served is closed, without its status.
  source.onerror = e => e.target.readyState === EventSource.CLOSED ? lookWhy(url) : lose('Disconnected');
}
async function lookWhy(url) {
  const abort = new AbortController();
  const closed = source;
  let answer;
  try { answer = await fetch(url, {signal: abort.signal}); } catch { /* there is no answer */ }
  abort.abort();
  if (source === closed) lose(answer?.status === 503 ? 'Too many viewers, reload later' : 'Disconnected');
}
function lose(text) {
  source?.close();
  source = null;
  lost = text;
  body.classList.add('offline');
  clearTimeout(retry);
  retry = setTimeout(connect, pause);
  pause = Math.min(pause * 2, 10000);
  showAge();
  tick();
}
function showAge() {
  setText(status, lost);
  setText(get('age'), '· the data is ' + duration(Date.now() - heard) + ' old');
}
document.addEventListener('visibilitychange', () => document.hidden ? source?.close() : connect());

if (table) {
  const input = get('q'), sort = get('sort');
  observer = new IntersectionObserver(entries => {
    for (const e of entries) {
      if (e.isIntersecting) { visible.add(e.target); count(e.target); } else visible.delete(e.target);
    }
  }, {rootMargin: '200px'});
  const remember = () => {
    const url = new URL(location.href);
    input.value ? url.searchParams.set('q', input.value) : url.searchParams.delete('q');
    url.searchParams.set('sort', sort.value);
    history.replaceState(null, '', url);
  };
  const applyFilter = () => {
    filter = input.value.trim().toLowerCase();
    for (const tr of rows.values()) showRow(tr);
    countRows();
  };
  const setOrder = text => {
    descending = text.startsWith('-');
    order = text.replace('-', '');
    if (!sortKeys[order]) order = 'name';
    sort.value = text;
    for (const a of table.tHead.querySelectorAll('a')) {
      const th = a.closest('th'), mine = a.dataset.key === order;
      mine ? th.setAttribute('aria-sort', descending ? 'descending' : 'ascending') : th.removeAttribute('aria-sort');
      a.dataset.next = (mine && !descending ? '-' : '') + a.dataset.key;
    }
  };
  setOrder(sort.value);
  for (const tr of [...table.tBodies[0].rows]) addRow(tr);
  filter = input.value.trim().toLowerCase();
  if (filter) body.dataset.stream = body.dataset.stream.replace(/&from=.*/, ''); // the rows are not all here
  input.addEventListener('input', () => { applyFilter(); remember(); });
  input.form.addEventListener('submit', e => e.preventDefault());
  input.addEventListener('keydown', e => { if (e.key === 'Escape') { input.value = ''; applyFilter(); remember(); } });
  table.tHead.addEventListener('click', e => {
    const a = e.target.closest('a');
    if (!a || e.metaKey || e.ctrlKey) return;
    e.preventDefault();
    setOrder(a.dataset.next);
    sortRows();
    remember();
  });
  document.addEventListener('keydown', e => {
    if (e.key === '/' && !e.ctrlKey && !e.metaKey && document.activeElement !== input) { e.preventDefault(); input.focus(); input.select(); }
  });
}
localTimes(document);
tick();
connect();
setInterval(() => {
  tick();
  if (body.classList.contains('offline')) showAge();
  else if (source && Date.now() - heard > 12000) lose('Disconnected');
}, 1000);
})();
