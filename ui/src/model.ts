// Types of the data API, and how the page shows them. Texts come from workload clusters: they are only shown as text.

export interface Hold {
  description: string;
  reason?: string;
  id?: string;
}

export interface Condition {
  type: string;
  status?: string;
  since?: number;
  reason?: string;
  message?: string;
}

// Row is an agent. Times are Unix seconds.
export interface Row {
  name: string;
  state: string;
  urgency?: number;
  refused?: string;
  connected?: boolean;
  since?: number;
  applications: number;
  diverged?: number;
  unacked?: number;
  confirmed?: number;
  skew?: number;
  expires?: number;
  version?: string;
  mode?: string;
  mapping?: string;
  namespace?: string;
  kinds?: string;
  allow?: string;
  owners?: string;
  labels?: string;
  shared?: boolean;
  created?: number;
  principal?: string;
  protocol?: string;
  cluster?: string;
  fingerprint?: string;
  holds?: Hold[];
  pending?: string;
  conditions?: Condition[];
}

export interface Application {
  namespace: string;
  name: string;
  agent?: string;
  project: string;
  health: string;
  sync: string;
  operation?: string;
  revisions?: string[];
  images?: string[];
  charts?: string[];
  repositories?: string[];
  conditions?: string[];
  labels?: Record<string, string>;
  changed?: string;
  inSync?: string;
  truncated?: boolean;
}

export interface Page {
  items: Application[] | null;
  total: number;
  next?: string;
  watch: string;
  unansweredReplicas?: number;
}

export interface Counts {
  total: number;
  groups?: {value: string; count: number}[];
  more?: number;
}

export interface About {
  hub: string;
  command: string;
  argocd?: string;
  login?: string;
  applications?: boolean;
  user?: string;
  expiring?: number; // seconds
}

export interface TimelineItem {
  time: number;
  type: string;
  message?: string;
}

export const now = () => Math.floor(Date.now() / 1000);
export const unix = (time?: string) => (time ? Math.floor(Date.parse(time) / 1000) || 0 : 0);

// span formats seconds like argocd-agentctl.
export function span(s: number): string {
  s = Math.max(s, 0);
  if (s < 120) return `${s}s`;
  const two = (unit: number, name: string, small: number, smallName: string) => {
    const rest = Math.floor((s % unit) / small);
    return Math.floor(s / unit) + name + (rest ? rest + smallName : '');
  };
  if (s < 600) return two(60, 'm', 1, 's');
  if (s < 3 * 3600) return `${Math.floor(s / 60)}m`;
  if (s < 8 * 3600) return two(3600, 'h', 60, 'm');
  if (s < 48 * 3600) return `${Math.floor(s / 3600)}h`;
  if (s < 8 * 86400) return two(86400, 'd', 3600, 'h');
  return `${Math.floor(s / 86400)}d`;
}

export const past = (t?: number) => (t ? now() - t : -Infinity);
export const age = (t?: number) => (t ? span(past(t)) : '-');
export const ago = (t?: number) => (t ? `${age(t)} ago` : '-');
export const date = (t?: number) => (t ? `${new Date(t * 1000).toISOString().replace('T', ' ').slice(0, 19)} UTC` : '');

// Tone decides the colour of a text. The text itself always says the same.
export type Tone = 'good' | 'unsure' | 'bad' | 'faint' | '';

export type Degraded = Map<string, number>; // agent → number of Degraded Applications

const isHeld = (r: Row) => (r.holds || []).length > 0 || (r.conditions || []).some((c) => c.type === 'Held' && c.status === 'True');
const isDisconnected = (r: Row) => !r.connected && (r.state === 'disconnected' || r.state === 'held');
const isDegraded = (r: Row, d: Degraded) => r.state === 'write-outage' || (d.get(r.name) || 0) > 0;
export const expiresSoon = (r: Row, a: About) => Boolean(r.expires) && r.expires! - now() < (a.expiring || 0);
export const skewed = (r: Row) => Math.abs(r.skew || 0) >= 30;
export const skew = (r: Row) => (r.skew === undefined ? '-' : Math.abs(r.skew) < 2 ? '0s' : (r.skew < 0 ? '-' : '+') + span(Math.abs(r.skew)));

const tones: Record<string, Tone> = {connected: 'good', 'write-outage': 'bad', disconnected: 'bad', held: 'bad', 'never-connected': 'faint', suspended: 'unsure', terminating: 'unsure'};
export const toneOf = (r: Row): Tone => (r.refused ? 'bad' : (Object.hasOwn(tones, r.state) && tones[r.state]) || '');
export const stateOf = (r: Row) => (r.connected ? r.state : r.refused ? 'refused' : r.state === 'held' ? 'disconnected, held' : r.state);

// tiles count agents. An agent can be in several. Those with optional are shown only if they count any.
export const tiles: {id: string; title: string; tone?: Tone; optional?: boolean; has: (r: Row, d: Degraded, a: About) => boolean}[] = [
  {id: 'all', title: 'agents', has: () => true},
  {id: 'connected', title: 'connected', has: (r) => Boolean(r.connected)},
  {id: 'diverged', title: 'diverged', has: (r) => (r.diverged || 0) > 0, tone: 'unsure'},
  {id: 'degraded', title: 'degraded', has: isDegraded, tone: 'bad'},
  {id: 'disconnected', title: 'disconnected', has: isDisconnected, tone: 'bad'},
  {id: 'held', title: 'holds', has: isHeld, tone: 'bad'},
  {id: 'outage', title: 'write outage', has: (r) => r.state === 'write-outage', tone: 'bad', optional: true},
  {id: 'expires', title: 'certificate expires', has: (r, _, a) => expiresSoon(r, a), tone: 'unsure', optional: true},
  {id: 'refused', title: 'refused', has: (r) => Boolean(r.refused), tone: 'bad', optional: true},
  {id: 'skew', title: 'clock skew', has: skewed, tone: 'unsure', optional: true},
  {id: 'suspended', title: 'suspended', has: (r) => r.state === 'suspended', optional: true},
  {id: 'never', title: 'never connected', has: (r) => r.state === 'never-connected', optional: true},
];

// kinds are the states of the heat map, worst first. An agent has the first that applies. The sign is in the cell, so that
// the colour is never the only difference.
export const kinds: {id: string; title: string; sign: string; has: (r: Row, d: Degraded) => boolean}[] = [
  {id: 'disconnected', title: 'disconnected', sign: '×', has: (r) => isDisconnected(r) || Boolean(r.refused)},
  {id: 'held', title: 'held', sign: '?', has: isHeld},
  {id: 'degraded', title: 'degraded', sign: '!', has: isDegraded},
  {id: 'diverged', title: 'diverged', sign: '≠', has: (r) => (r.diverged || 0) > 0},
  {id: 'connected', title: 'connected', sign: '·', has: (r) => Boolean(r.connected)},
  {id: 'inactive', title: 'never connected or suspended', sign: '–', has: () => true},
];
export const kindOf = (r: Row, d: Degraded) => kinds.findIndex((k) => k.has(r, d));

const searchTexts = new WeakMap<Row, string>();
export function searchText(r: Row): string {
  let text = searchTexts.get(r);
  if (text === undefined) {
    const conditions = (r.conditions || []).map((c) => `${c.reason} ${c.message}`);
    text = [r.name, stateOf(r), r.mode, r.mapping, r.namespace, r.version, r.principal, r.cluster, r.labels, r.refused, ...conditions].join('\n').toLowerCase();
    searchTexts.set(r, text);
  }
  return text;
}

export function healthTone(health: string): Tone {
  switch (health) {
    case 'Healthy':
      return 'good';
    case 'Degraded':
    case 'Missing':
      return 'bad';
    default:
      return 'unsure';
  }
}
export const syncTone = (sync: string): Tone => (sync === 'Synced' ? 'good' : 'unsure');

// quoted is a value of the search language.
export const quoted = (value: string) => (/^[^\s,"]+$/.test(value) ? value : `"${value}"`);

export const facts = (r: Row): [string, string | undefined][] => {
  const all: [string, string | undefined][] = [
    ['State', stateOf(r)],
    ['Refused', r.refused],
    [r.connected ? 'Connected since' : 'Disconnected since', date(r.since)],
    ['In sync', r.confirmed ? `${ago(r.confirmed)}, ${date(r.confirmed)}` : ''],
    ['Applications', String(r.applications)],
    ['Principal', r.principal],
    ['Version', (r.version || '') + (r.protocol ? ` (protocol ${r.protocol})` : '')],
    ['Mode', r.mode || 'not set'],
    ['Mapping', r.mapping || 'default of the principal'],
    ['Namespace', r.namespace && `${r.namespace} on the hub`],
    ['Kinds', r.kinds || 'all'],
    ['Owners', r.owners],
    ['Allowed on the hub', r.allow],
    ['Shared', r.shared ? 'uses repo-server and Redis of the hub' : ''],
    ['Cluster', r.cluster],
    ['Cluster labels', r.labels],
    ['Oldest unacked', date(r.unacked)],
    ['Clock', r.skew === undefined ? '' : Math.abs(r.skew) < 2 ? 'same as the hub when it connected' : `${span(Math.abs(r.skew))}${r.skew < 0 ? ' behind' : ' ahead of'} the hub when it connected`],
    ['Certificate', r.expires ? `expires ${date(r.expires)}` : ''],
    ['Fingerprint', r.fingerprint],
    ['Created', date(r.created)],
  ];
  return all.filter((f) => f[1]);
};
