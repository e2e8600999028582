// The data API: requests, and the stream of agents.
import type {About, Row} from './model';

export class APIError extends Error {
  constructor(
    readonly status: number, // 0 if there is no response
    message: string,
    readonly position = 0, // in the query, from 1
  ) {
    super(message);
  }
}

// The server refuses more requests of a user at the same time.
const maxRequests = 3;
const timeout = 20_000;

export class Client {
  token = '';
  onUnauthorized = () => {};
  private running = 0;
  private waiting: (() => void)[] = [];

  // The base ends with a slash.
  constructor(
    readonly base: string,
    private readonly headers: Record<string, string> = {},
  ) {}

  async get<T>(path: string, parameters: Record<string, string> = {}): Promise<T> {
    if (this.running >= maxRequests) await new Promise<void>((resume) => this.waiting.push(resume));
    this.running++;
    const ended = new AbortController();
    const timer = setTimeout(() => ended.abort(), timeout);
    try {
      for (let attempt = 0; ; attempt++) {
        const response = await this.open(path, parameters, {}, ended.signal);
        if (response.status === 429 && attempt < 3) {
          await new Promise((resume) => setTimeout(resume, 1000));
          continue;
        }
        await check(response);
        return (await response.json()) as T;
      }
    } catch (e) {
      if (e instanceof APIError && e.status === 401) this.onUnauthorized();
      throw e instanceof APIError ? e : new APIError(0, 'the server does not respond');
    } finally {
      clearTimeout(timer);
      this.running--;
      this.waiting.shift()?.();
    }
  }

  // lines passes each line of a response on and returns at its end.
  async lines(path: string, parameters: Record<string, string>, headers: Record<string, string>, signal: AbortSignal, line: (text: string) => void) {
    const response = await this.open(path, parameters, headers, signal);
    if (response.status === 401) this.onUnauthorized();
    await check(response);
    const reader = response.body!.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, {stream: true})).split('\n');
      rest = parts.pop()!;
      parts.forEach(line);
    }
  }

  private open(path: string, parameters: Record<string, string>, headers: Record<string, string>, signal: AbortSignal) {
    const search = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
    const authorization: Record<string, string> = this.token ? {Authorization: `Bearer ${this.token}`} : {};
    return fetch(this.base + path + (search && `?${search}`), {headers: {...this.headers, ...headers, ...authorization}, signal, cache: 'no-store'});
  }
}

async function check(response: Response) {
  if (response.ok) return;
  const text = (await response.text()).slice(0, 2000);
  let message = text.trim() || `status ${response.status}`;
  let position = 0;
  try {
    const body = JSON.parse(text);
    message = String(body.error ?? body.message ?? message);
    position = Number(body.position) || 0;
  } catch {
    // not JSON: the text is the message
  }
  throw new APIError(response.status, message, position);
}

interface Update {
  reset?: boolean;
  rows?: Row[];
  deleted?: string[];
  stale?: string;
  more?: boolean;
}

const checkInterval = 15_000;

// Fleet has the rows of all agents. It reconnects and keeps the last known rows.
export class Fleet {
  rows = new Map<string, Row>();
  state: 'loading' | 'live' | 'lost' = 'loading';
  received = 0; // number of updates
  time = 0; // of the last update
  problem = ''; // why rows may be out of date, or why the server refuses to send them
  version = 0; // counts changes
  private cursor = '';
  private pause = 1000;
  private stopped = false;
  private connection?: AbortController;
  private due = false;
  private listeners = new Set<() => void>();
  private resume = () => {};

  constructor(private readonly client: Client) {}

  subscribe(listener: () => void) {
    this.listeners.add(listener);
    return () => {
      this.listeners.delete(listener);
    };
  }

  start() {
    const retry = () => this.resume();
    const timer = setInterval(() => void this.check(), checkInterval);
    window.addEventListener('online', retry);
    void this.run();
    return () => {
      this.stopped = true;
      clearInterval(timer);
      window.removeEventListener('online', retry);
      this.connection?.abort();
      this.resume();
    };
  }

  private async run() {
    while (!this.stopped) {
      this.connection = new AbortController();
      const before = this.received;
      try {
        const headers: Record<string, string> = this.cursor ? {'Last-Event-ID': this.cursor} : {};
        await this.client.lines('v1/agents/stream', {}, headers, this.connection.signal, (line) => this.line(line));
        if (this.received === before) this.lose('');
      } catch (e) {
        this.lose(e instanceof APIError ? e.message : '');
      }
      await new Promise<void>((resume) => {
        this.resume = resume;
        setTimeout(resume, this.pause);
      });
      this.pause = Math.min(this.pause * 2, 10_000);
    }
  }

  // lose marks rows as old. A stream that ends after an update is not lost: servers end streams from time to time.
  private lose(reason: string) {
    this.state = 'lost';
    this.problem = reason;
    this.changed();
  }

  // check notices a connection that is broken without an error.
  private async check() {
    if (this.state === 'lost') return;
    try {
      await this.client.get<About>('v1/about');
    } catch {
      this.connection?.abort();
    }
  }

  private line(line: string) {
    if (line.startsWith('id: ')) this.cursor = line.slice(4);
    if (line.startsWith('data: ')) this.update(JSON.parse(line.slice(6)));
  }

  private update(u: Update) {
    if (u.reset) this.rows.clear();
    for (const name of u.deleted || []) this.rows.delete(name);
    for (const r of u.rows || []) this.rows.set(r.name, r);
    this.state = u.more ? 'loading' : 'live';
    this.problem = u.stale || '';
    this.received++;
    this.time = Date.now();
    this.pause = 1000;
    this.changed();
  }

  // changed draws once for all changes before the next frame.
  private changed() {
    this.version++;
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => {
      this.due = false;
      this.listeners.forEach((l) => l());
    });
  }
}
