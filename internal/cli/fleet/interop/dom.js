// The part of a browser that the script of the page may use. Everything else is missing or throws.
class Element {
  constructor(tag) {
    Object.assign(this, {tag, childNodes: [], parentNode: null, className: "", title: "", hidden: false, value: "", attributes: {}, listeners: {}, own: ""});
  }
  get firstChild() { return this.childNodes[0] || null; }
  get nextSibling() {
    const all = this.parentNode.childNodes;
    return all[all.indexOf(this) + 1] || null;
  }
  get textContent() { return this.childNodes.length ? this.childNodes.map((c) => c.textContent).join("") : this.own; }
  set textContent(text) {
    if (typeof text !== "string") throw new TypeError("written: " + text);
    for (const c of this.childNodes) c.parentNode = null;
    this.childNodes = [];
    if (text === "") return;
    const node = new Element("#text");
    node.own = text;
    this.appendChild(node);
  }
  set innerHTML(_) { throw new Error("markup is made"); }
  appendChild(node) { return this.insertBefore(node, null); }
  insertBefore(node, before) {
    node.remove();
    const at = before ? this.childNodes.indexOf(before) : this.childNodes.length;
    if (at < 0) throw new Error("not a child");
    if (this.tag === "#text") throw new Error("a text has no children");
    this.childNodes.splice(at, 0, node);
    node.parentNode = this;
    moves++;
    return node;
  }
  remove() {
    if (!this.parentNode) return;
    this.parentNode.childNodes.splice(this.parentNode.childNodes.indexOf(this), 1);
    this.parentNode = null;
  }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener(name, listener) { (this.listeners[name] = this.listeners[name] || []).push(listener); }
  send(name) {
    if (!(this.listeners[name] || []).length) throw new Error("no listener for " + name);
    for (const listener of this.listeners[name]) listener({});
  }
  find(wanted) {
    const found = wanted(this) ? [this] : [];
    for (const c of this.childNodes) found.push(...c.find(wanted));
    return found;
  }
}

class EventSource {
  constructor(url) {
    Object.assign(this, {url, readyState: 1});
    streams.push(this);
  }
}
EventSource.CLOSED = 2;

let moves = 0; // number of insertions into the page
const streams = [];
const timers = []; // [what, milliseconds]
let frames = [];
let clock = 0; // milliseconds since 1970
Date.now = () => clock;
const requestAnimationFrame = (draw) => frames.push(draw);
const setTimeout = (what, after) => timers.push([what, after]);
const setInterval = setTimeout;
const root = new Element("html");
const document = {
  title: "",
  createElement: (tag) => new Element(tag),
  getElementById: (id) => root.find((e) => e.attributes.id === id)[0] || null,
};

// load builds the page from parsed HTML.
const load = ({tag, text, attributes, children}) => {
  const e = new Element(tag);
  e.own = text;
  Object.assign(e.attributes, attributes);
  e.hidden = "hidden" in e.attributes;
  for (const c of children || []) e.appendChild(load(c));
  return e;
};
const frame = () => {
  const due = frames;
  frames = [];
  due.forEach((draw) => draw());
};

// Helpers for tests: what a user sees and does.
const $ = document.getElementById;
const button = (label) => root.find((e) => e.tag === "button" && e.textContent === label)[0];
const press = (label) => {
  if (!button(label)) throw new Error("no button " + label);
  button(label).send("click");
};
const type = (words) => {
  $("filter").value = words;
  $("filter").send("input");
};
const seen = () => $("body").childNodes.map((tr) => tr.childNodes.map((td) => td.textContent).join(" | ")).join("\n");
const names = () => root.find((e) => e.className === "name").map((e) => e.textContent).join(" ");
const counts = () => $("counters").childNodes.map((b) => b.childNodes[1].textContent + " " + b.childNodes[0].textContent).join(", ");
