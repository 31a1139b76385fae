// Refreshes pages every few seconds, adds keyboard shortcuts, and fills the live tail. Without this script the pages work,
// except for the live tail.
"use strict";
(() => {
  const live = document.getElementById("live");
  const announce = (text) => { if (live.textContent !== text) live.textContent = text; };
  const main = () => document.getElementById("main");

  // --- refresh ----------------------------------------------------------------------------------------------------

  let every = Number(document.body.dataset.refresh);
  let timer = 0;
  let asking = null;

  // Returns whether a refresh would discard typed or chosen input.
  const hasInput = () => {
    const active = document.activeElement;
    if (active && main().contains(active) && active.matches("input, select, textarea")) return true;
    return [...main().querySelectorAll("input, textarea")].some((field) =>
      field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
        : field.type !== "hidden" && field.value !== field.defaultValue);
  };
  const hasSelection = () => {
    const selection = getSelection();
    return !selection.isCollapsed && main().contains(selection.anchorNode);
  };
  const isBusy = () => document.hidden || hasInput() || hasSelection() || document.querySelector("dialog[open]");

  // Returns a selector that finds an element again after a refresh.
  const nameOf = (element) => element && (element.id ? `#${CSS.escape(element.id)}`
    : element.getAttribute("href") ? `a[href="${CSS.escape(element.getAttribute("href"))}"]` : null);

  // The time at which the figures were read, by the browser's monotonic clock.
  let read = 0;
  const seen = () => { read = performance.now() - Number(document.getElementById("age")?.dataset.ms); };
  const grow = () => {
    const age = document.getElementById("age");
    if (age && !document.hidden) age.textContent = `${((performance.now() - read) / 1000).toFixed(1)} s`;
  };
  seen();
  setInterval(grow, 1000);

  const put = (fresh) => {
    const old = main();
    if (old.innerHTML === fresh.innerHTML) return;
    const focused = old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const open = [...old.querySelectorAll("details[open][id]")].map((one) => one.id);
    const scrolled = [...old.querySelectorAll(".scroll[id]")].map((one) => [one.id, one.scrollLeft, one.scrollTop]);
    old.replaceChildren(...fresh.childNodes);
    for (const id of open) { const one = document.getElementById(id); if (one) one.open = true; }
    for (const [id, left, top] of scrolled) {
      const one = document.getElementById(id);
      if (one) { one.scrollLeft = left; one.scrollTop = top; }
    }
    if (focused) { const one = main().querySelector(focused); if (one) one.focus({ preventScroll: true }); }
  };

  const look = async () => {
    if (asking) return;
    asking = new AbortController();
    const limit = setTimeout(() => asking.abort(), 15000);
    try {
      const answer = await fetch(location.href, { signal: asking.signal, headers: { Accept: "text/html" } });
      // The session has ended: the server redirected to the login page.
      if (answer.redirected) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!fresh) throw new Error("no page");
      if (isBusy()) return;
      put(fresh);
      const source = page.getElementById("source");
      if (source) { document.getElementById("source")?.replaceWith(source); seen(); }
      document.title = page.title;
      every = Number(page.body.dataset.refresh);
      announce("");
    } catch {
      announce("Refresh failed, so this page is out of date. Retrying.");
    } finally {
      clearTimeout(limit);
      asking = null;
    }
  };

  const wait = () => {
    clearTimeout(timer);
    if (every > 0) timer = setTimeout(async () => { if (!isBusy()) await look(); wait(); }, every);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && every > 0) look().then(wait); });
  wait();

  // Removes the result of an action from the address, so that the next refresh shows no notice.
  const address = new URL(location.href);
  if (address.searchParams.has("outcome")) {
    for (const name of ["outcome", "done", "skipped", "failed"]) address.searchParams.delete(name);
    history.replaceState(null, "", address);
  }

  // --- keyboard shortcuts -----------------------------------------------------------------------------------------

  const help = document.getElementById("help");
  const opener = document.getElementById("help-open");
  if (opener) {
    opener.hidden = false;
    opener.addEventListener("click", () => help.showModal());
  }

  const press = {
    "/": () => {
      const field = document.querySelector("input[aria-keyshortcuts='/']");
      if (field) { field.focus(); field.select(); }
      return field;
    },
    "?": () => { if (help.open) help.close(); else help.showModal(); return true; },
    "r": () => { if (every > 0) look().then(wait); else location.reload(); return true; },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.target instanceof Element && event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (help.open && event.key !== "?") return;
    const act = press[event.key];
    if (act) { if (act()) event.preventDefault(); return; }
    const link = /^[a-z]$/.test(event.key) && document.querySelector(`a[data-key="${event.key}"]`);
    if (link) { event.preventDefault(); location.assign(link.href); }
  });

  // --- the live tail ----------------------------------------------------------------------------------------------

  const tail = document.getElementById("tail");
  if (!tail) return;
  const MOST = 500;
  const rows = tail.querySelector("tbody");
  const state = document.getElementById("tail-state");
  const hold = document.getElementById("tail-hold");
  let source = null;
  let held = false;

  const cell = (row, text, name) => {
    const one = row.insertCell();
    if (name) one.className = name;
    one.textContent = text;
    return one;
  };
  const span = (ms) => ms < 1000 ? `${ms}ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)}s` : `${Math.round(ms / 60000)}m`;
  const details = (told) => {
    const parts = [];
    if (told.attempt) parts.push(`attempt ${told.attempt}`);
    if (told.late_ms !== undefined) parts.push(`${span(told.late_ms)} late`);
    if (told.next_ms) parts.push(`due in ${span(Math.max(0, told.next_ms - told.at_ms))}`);
    if (told.reason) parts.push(told.reason);
    return parts.join(", ");
  };
  const add = (told) => {
    const row = rows.insertRow(0);
    row.className = "fresh";
    if (told.missed) {
      const text = told.missed === "counted" ? `Missed events: ${told.count}` : "Missed events: the connection was lost";
      cell(row, text, "warn").colSpan = 5;
    } else {
      const time = document.createElement("time");
      time.dateTime = time.title = new Date(told.at_ms).toISOString();
      time.textContent = time.dateTime.slice(11, 23);
      cell(row, "", "fit").append(time);
      const word = document.createElement("span");
      word.className = `state ${{ started: "running", dead: "dead", retry: "warning", done: "ok" }[told.event] || "waiting"}`;
      word.textContent = told.event.replaceAll("_", " ");
      cell(row, "").append(word);
      cell(row, told.topic);
      const key = cell(row, "", "key");
      const link = `${tail.dataset.timer}?topic=${encodeURIComponent(told.topic)}&key=${encodeURIComponent(told.key)}`;
      if (link.length < 16384) {
        const anchor = document.createElement("a");
        anchor.href = link;
        anchor.textContent = told.key.length > 200 ? `${told.key.slice(0, 200)}…` : told.key;
        key.append(anchor);
      } else {
        key.textContent = `${told.key.slice(0, 200)}…`;
      }
      cell(row, details(told));
    }
    while (rows.rows.length > MOST) rows.deleteRow(-1);
    tail.hidden = false;
    document.getElementById("tail-before").hidden = true;
  };
  const open = () => {
    if (source || held || document.hidden) return;
    source = new EventSource(tail.dataset.source);
    source.onopen = () => { state.textContent = "Watching live."; };
    const receive = (message) => { try { add(JSON.parse(message.data)); } catch { /* The message is not an event. */ } };
    for (const kind of ["tail", "missed"]) source.addEventListener(kind, receive);
    source.onerror = () => {
      const gone = source.readyState === EventSource.CLOSED;
      state.textContent = gone ? "The live tail has ended. Reload the page to watch again." : "Connection lost. Reconnecting.";
    };
  };
  const close = (why) => { if (source) source.close(); source = null; state.textContent = why; };
  hold.hidden = false;
  hold.addEventListener("click", () => {
    held = !held;
    hold.textContent = held ? "Resume" : "Pause";
    if (held) close("Paused. New events are not shown."); else open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close("Paused while this page is hidden."); else open();
  });
  open();
})();
