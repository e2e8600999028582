
"use strict";
(() => {
  // Text from the stream is untrusted. Write it with textContent, never as markup.
  const rows = new Map(); // name → row
  const drawn = new Map(); // name → elements of the row
  const open = new Set(); // names of expanded rows
  const pageSize = 300; // thousands of rows would make the page slow
  let about = {hub: "", command: "argocd-agentctl", expiring: 0};
  let only = null; // selected counter
  let words = [];
  let sort = {by: "state", down: true};
  let room = pageSize;
  let due = false;

  const $ = (id) => document.getElementById(id);
  const now = () => Math.floor(Date.now() / 1000);
  const make = (tag, name, text) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    return e;
  };

  // span formats seconds like argocd-agentctl.
  const span = (s) => {
    s = Math.max(s, 0);
    if (s < 120) return s + "s";
    const two = (unit, name, small, smallName) => {
      const rest = Math.floor(s % unit / small);
      return Math.floor(s / unit) + name + (rest ? rest + smallName : "");
    };
    if (s < 600) return two(60, "m", 1, "s");
    if (s < 3 * 3600) return Math.floor(s / 60) + "m";
    if (s < 8 * 3600) return two(3600, "h", 60, "m");
    if (s < 48 * 3600) return Math.floor(s / 3600) + "h";
    if (s < 8 * 86400) return two(86400, "d", 3600, "h");
    return Math.floor(s / 86400) + "d";
  };
  const past = (t) => t ? now() - t : -Infinity;
  const age = (t) => t ? span(past(t)) : "-";
  const ago = (t) => t ? age(t) + " ago" : "-";
  const date = (t) => t ? new Date(t * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "";
  const soon = (r) => Boolean(r.expires) && r.expires - now() < about.expiring;
  const left = (r) => !r.expires ? "-" : r.expires <= now() ? "expired" : span(r.expires - now());
  const skewed = (r) => Math.abs(r.skew || 0) >= 30;
  const skew = (r) => r.skew === undefined ? "-" : Math.abs(r.skew) < 2 ? "0s" : (r.skew < 0 ? "-" : "+") + span(Math.abs(r.skew));

  const counters = [
    {title: "agents", has: () => true},
    {title: "connected", has: (r) => r.connected},
    {title: "disconnected", has: (r) => !r.connected && (r.state === "disconnected" || r.state === "held"), tone: "bad"},
    {title: "write outage", has: (r) => r.state === "write-outage", tone: "bad"},
    {title: "diverged", has: (r) => r.diverged > 0, tone: "unsure"},
    {title: "held", has: (r) => (r.conditions || []).some((c) => c.type === "Held" && c.status === "True"), tone: "bad"},
    {title: "certificate expires", has: soon, tone: "unsure"},
    {title: "refused", has: (r) => Boolean(r.refused), tone: "bad"},
    {title: "clock skew", has: skewed, tone: "unsure"},
    {title: "suspended", has: (r) => r.state === "suspended"},
    {title: "never connected", has: (r) => r.state === "never-connected"},
  ];

  const tones = {connected: "good", "write-outage": "bad", disconnected: "bad", held: "bad", "never-connected": "faint", suspended: "unsure", terminating: "unsure"};
  const state = (r) => r.connected ? r.state : r.refused ? "refused" : r.state === "held" ? "disconnected, held" : r.state;
  // text is what a column shows. order is the sort key if it differs.
  const columns = [
    {id: "name", title: "Agent", text: (r) => r.name},
    {id: "state", title: "State", text: state, order: (r) => r.urgency || 0, tone: (r) => r.refused ? "bad" : tones[r.state], hint: (r) => r.refused},
    {id: "since", title: "Since", text: (r) => age(r.since), order: (r) => past(r.since), hint: (r) => date(r.since)},
    {id: "mode", title: "Mode", text: (r) => r.mode || "-"},
    {id: "applications", title: "Apps", number: true, text: (r) => String(r.applications), order: (r) => r.applications},
    {id: "diverged", title: "Diverged", number: true, text: (r) => String(r.diverged || 0), order: (r) => r.diverged || 0, tone: (r) => r.diverged && "unsure"},
    {id: "unacked", title: "Unacked", text: (r) => age(r.unacked), order: (r) => past(r.unacked), hint: (r) => date(r.unacked)},
    {id: "confirmed", title: "In sync", text: (r) => ago(r.confirmed), order: (r) => past(r.confirmed), hint: (r) => date(r.confirmed)},
    {id: "skew", title: "Clock", text: skew, order: (r) => Math.abs(r.skew || 0), tone: (r) => skewed(r) && "unsure"},
    {id: "expires", title: "Certificate", text: left, order: (r) => -(r.expires || Infinity), tone: (r) => soon(r) && "unsure", hint: (r) => date(r.expires)},
    {id: "version", title: "Version", text: (r) => r.version || "-"},
  ];

  const text = (r) => r.searchText || (r.searchText = [r.name, state(r), r.mode, r.mapping, r.namespace, r.version, r.principal, r.cluster, r.labels, r.refused]
    .concat((r.conditions || []).map((c) => c.reason + " " + c.message)).join("\n").toLowerCase());
  const wanted = (r) => (!only || only.has(r)) && words.every((w) => text(r).includes(w));

  const ordered = () => {
    const column = columns.find((c) => c.id === sort.by);
    const of = column.order || column.text;
    const keyed = Array.from(rows.values()).filter(wanted).map((r) => ({r, key: of(r)}));
    keyed.sort((a, b) => {
      const way = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
      return (sort.down ? -way : way) || (a.r.name < b.r.name ? -1 : 1);
    });
    return keyed.map((k) => k.r);
  };

  const write = (e, value) => {
    if (e.textContent !== value) e.textContent = value;
  };

  // line updates the row of an agent, or creates it.
  const line = (r) => {
    let d = drawn.get(r.name);
    if (!d) {
      d = {tr: make("tr"), cells: [], detail: null, of: null};
      columns.forEach((c, i) => {
        const td = make("td");
        d.tr.appendChild(td);
        d.cells[i] = td;
        if (c.id !== "name") return;
        const button = make("button", "name", r.name);
        button.type = "button";
        button.addEventListener("click", () => {
          if (!open.delete(r.name)) open.add(r.name);
          draw();
        });
        td.appendChild(button);
        d.cells[i] = button;
      });
      drawn.set(r.name, d);
    }
    columns.forEach((c, i) => {
      const cell = d.cells[i];
      if (c.id === "name") return;
      write(cell, c.text(r));
      const look = ((c.number ? "number " : "") + ((c.tone && c.tone(r)) || "")).trim();
      if (cell.className !== look) cell.className = look;
      const hint = (c.hint && c.hint(r)) || "";
      if (cell.title !== hint) cell.title = hint;
    });
    d.cells[0].setAttribute("aria-expanded", String(open.has(r.name)));
    return d;
  };

  const facts = (r) => [
    ["Refused", r.refused],
    [r.connected ? "Connected since" : "Disconnected since", date(r.since)],
    ["Principal", r.principal],
    ["Version", (r.version || "") + (r.protocol ? " (protocol " + r.protocol + ")" : "")],
    ["Mode", r.mode || "not set"],
    ["Mapping", r.mapping || "default of the principal"],
    ["Namespace", r.namespace + " on the hub"],
    ["Kinds", r.kinds || "all"],
    ["Owners", r.owners],
    ["Allowed on the hub", r.allow],
    ["Shared", r.shared ? "uses repo-server and Redis of the hub" : ""],
    ["Cluster", r.cluster],
    ["Cluster labels", r.labels],
    ["Oldest unacked", date(r.unacked)],
    ["In sync", r.confirmed ? ago(r.confirmed) + ", " + date(r.confirmed) : ""],
    ["Clock", r.skew === undefined ? "" : Math.abs(r.skew) < 2 ? "same as the hub when it connected" : span(Math.abs(r.skew)) + (r.skew < 0 ? " behind" : " ahead of") + " the hub when it connected"],
    ["Certificate", r.expires ? "expires " + date(r.expires) : ""],
    ["Fingerprint", r.fingerprint],
    ["Created", date(r.created)],
  ].filter((f) => f[1]);

  const command = (rest) => make("code", "", about.command + " " + rest);

  // detail creates the content of an expanded row. It is replaced only if the row changes, so that users can select text.
  const detail = (r) => {
    const td = make("td");
    td.colSpan = columns.length;
    const put = (e) => td.appendChild(e);
    for (const h of r.holds || []) {
      put(make("h2", "bad", "Confirmation required: " + h.description));
      if (h.reason) put(make("p", "", h.reason));
      if (h.id) put(make("p", "", "To confirm, run: ")).appendChild(command("pending confirm " + h.id));
    }
    if (r.diverged) {
      put(make("h2", "unsure", r.pending || r.diverged + (r.diverged === 1 ? " item differs" : " items differ") + " between hub and cluster"));
      put(make("p", "", "Pending and rejected items: ")).appendChild(command("pending " + r.name));
      put(make("p", "", "Differences: ")).appendChild(command("diff " + r.name + " --agent-context CONTEXT"));
    }
    const list = put(make("dl"));
    for (const [name, value] of facts(r)) {
      list.appendChild(make("dt", "", name));
      list.appendChild(make("dd", name === "Refused" ? "bad" : "", value));
    }
    if (r.conditions) {
      const table = put(make("table"));
      const head = table.appendChild(make("tr"));
      for (const title of ["Condition", "Status", "Since", "Reason", "Message"]) head.appendChild(make("th", "", title));
      for (const c of r.conditions) {
        const tr = table.appendChild(make("tr"));
        for (const value of [c.type, c.status, date(c.since), c.reason, c.message]) tr.appendChild(make("td", "", value || "-"));
      }
    }
    const tr = make("tr", "detail");
    tr.appendChild(td);
    return tr;
  };

  const draw = () => {
    due = false;
    const all = ordered();
    const body = $("body");
    let at = body.firstChild;
    const place = (node) => {
      if (node === at) at = at.nextSibling;
      else body.insertBefore(node, at);
    };
    for (const r of all.slice(0, room)) {
      const d = line(r);
      place(d.tr);
      if (!open.has(r.name)) continue;
      if (!d.detail || d.of !== r) {
        const old = d.detail;
        d.detail = detail(r);
        d.of = r;
        if (old && old === at) at = at.nextSibling;
        if (old) old.remove();
      }
      place(d.detail);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
    const hidden = Math.max(all.length - room, 0);
    $("more").hidden = hidden === 0;
    write($("more"), "Show " + Math.min(hidden, pageSize) + " more of " + hidden);
    write($("shown"), all.length === rows.size ? "" : all.length + " of " + rows.size);
    for (const c of counters) {
      let n = 0;
      for (const r of rows.values()) if (c.has(r)) n++;
      write(c.count, String(n));
      c.count.className = n && c.tone ? c.tone : "";
      c.button.setAttribute("aria-pressed", String(only === c));
    }
    for (const c of columns) c.th.setAttribute("aria-sort", sort.by !== c.id ? "none" : sort.down ? "descending" : "ascending");
  };
  // later draws once for all changes before the next frame.
  const later = () => {
    if (!due) requestAnimationFrame(draw);
    due = true;
  };

  // receive applies one event of the stream.
  const receive = (update) => {
    if (update.about) {
      about = update.about;
      write($("hub"), about.hub);
      document.title = "Fleet: " + about.hub;
    }
    if (update.reset) {
      rows.clear();
      drawn.clear();
    }
    for (const name of update.deleted || []) {
      rows.delete(name);
      drawn.delete(name);
      open.delete(name);
    }
    for (const r of update.rows || []) rows.set(r.name, r);
    showStatus(update.more ? "loading …" : "live", update.more ? "" : "on", update.stale ? "This page may be out of date: " + update.stale : "");
    later();
  };
  const showStatus = (text, look, warning) => {
    write($("live"), text);
    $("live").className = look;
    $("warning").hidden = !warning;
    write($("warning"), warning);
  };

  // connect opens the stream. Browsers reopen a stream that was cut, but not one that was refused.
  const connect = () => {
    const stream = new EventSource("events");
    stream.onmessage = (e) => receive(JSON.parse(e.data));
    stream.onerror = () => {
      showStatus("disconnected", "off", "This page is out of date: argocd-agentctl fleet is not responding. If it has stopped, start it again and open the new URL. " +
        "If this page is open many times, close some of them.");
      if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
    };
  };

  for (const c of counters) {
    c.button = $("counters").appendChild(make("button"));
    c.button.type = "button";
    c.count = c.button.appendChild(make("b", "", "0"));
    c.button.appendChild(make("span", "", c.title));
    c.button.addEventListener("click", () => {
      only = only === c || c === counters[0] ? null : c;
      room = pageSize;
      draw();
    });
  }
  for (const c of columns) {
    c.th = $("head").appendChild(make("th", c.number ? "number" : ""));
    c.th.scope = "col";
    const button = c.th.appendChild(make("button", "", c.title));
    button.type = "button";
    button.addEventListener("click", () => {
      sort = {by: c.id, down: sort.by === c.id ? !sort.down : Boolean(c.order)};
      draw();
    });
  }
  $("filter").addEventListener("input", () => {
    words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    room = pageSize;
    draw();
  });
  $("more").addEventListener("click", () => {
    room += pageSize;
    draw();
  });
  setInterval(later, 5000); // updates ages
  connect();
})();
