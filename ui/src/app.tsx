// The fleet page: frame, login, views.
import * as React from 'react';
import {Agent, Agents} from './agents';
import {APIError, Client, Fleet} from './api';
import {Applications, OneApplication} from './applications';
import {type About, type Counts, type Degraded, span} from './model';
import {Command, link, useRoute, useTick} from './parts';

export function FleetPage(p: {base: string; argocd?: string}) {
  const [client] = React.useState(() => new Client(p.base));
  const [about, setAbout] = React.useState<About | null>(null);
  const [problem, setProblem] = React.useState('');
  const [login, setLogin] = React.useState(false);
  const [attempt, retry] = React.useReducer((n: number) => n + 1, 0);
  client.onUnauthorized = () => {
    if (client.token) setProblem('The hub does not accept this token. It may have expired.');
    client.token = '';
    setLogin(true);
  };
  React.useEffect(() => {
    let timer = 0;
    client.get<About>('v1/about').then(
      (a) => {
        setAbout({...a, argocd: a.argocd || p.argocd});
        setLogin(a.login === 'token' && !client.token);
        if (client.token) setProblem('');
      },
      (e: APIError) => {
        if (e.status === 401) return;
        setProblem(`The server does not answer: ${e.message}.`);
        timer = window.setTimeout(() => retry(0 as never), 5000);
      },
    );
    return () => clearTimeout(timer);
  }, [attempt]);
  const signIn = (token: string) => {
    client.token = token;
    setProblem('');
    retry(0 as never);
  };
  return (
    <div className="fleet-ui">
      {login ? (
        <Login about={about} problem={problem} onToken={signIn} />
      ) : about ? (
        <Views client={client} about={about} />
      ) : (
        <>
          <h1>Fleet</h1>
          <p role="status">{problem || 'Loading …'}</p>
        </>
      )}
    </div>
  );
}

function Login(p: {about: About | null; problem: string; onToken: (token: string) => void}) {
  const [token, setToken] = React.useState('');
  return (
    <>
      <h1>Fleet</h1>
      <p>Enter a token of the hub’s API server. You see the agents and Applications that the token may read. The token is not stored: it is forgotten when you close or reload this page.</p>
      <p>
        To create one that is valid for one hour, run: <Command text="kubectl create token SERVICEACCOUNT -n NAMESPACE --duration 1h" />
      </p>
      <form
        className="find"
        onSubmit={(e) => {
          e.preventDefault();
          if (token.trim()) p.onToken(token.trim());
        }}
      >
        <label>
          Token <input type="password" autoComplete="off" value={token} onChange={(e) => setToken(e.currentTarget.value)} />
        </label>
        <button type="submit" className="small">
          Sign in
        </button>
      </form>
      {p.problem && (
        <p className="notice bad" role="alert">
          {p.problem}
        </p>
      )}
    </>
  );
}

// useDegraded counts the Degraded Applications of each agent.
function useDegraded(client: Client, about: About): Degraded {
  const [degraded, set] = React.useState<Degraded>(new Map());
  React.useEffect(() => {
    if (!about.applications) return;
    const read = () =>
      client.get<Counts>('v1/counts', {query: 'health=Degraded', groupBy: 'agent', limit: '1000'}).then(
        (counts) => set(new Map((counts.groups || []).map((g) => [g.value, g.count]))),
        () => {}, // the stream of agents reports that the server does not answer
      );
    void read();
    const timer = setInterval(read, 10_000);
    return () => clearInterval(timer);
  }, [client, about]);
  return degraded;
}

function Views(p: {client: Client; about: About}) {
  const {client, about} = p;
  const route = useRoute();
  const [fleet] = React.useState(() => new Fleet(client));
  const [, draw] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    const end = fleet.subscribe(() => draw(0 as never));
    const stop = fleet.start();
    return () => {
      end();
      stop();
    };
  }, [fleet]);
  const degraded = useDegraded(client, about);
  const heading = React.useRef<HTMLHeadingElement>(null);
  const place = route.path.join('/');
  const first = React.useRef(true);
  React.useEffect(() => {
    if (!first.current) heading.current?.focus(); // so that a screen reader reads the new view
    first.current = false;
  }, [place]);

  const [area, one, two] = route.path;
  let title = 'Agents';
  let view = <Agents fleet={fleet} degraded={degraded} about={about} route={route} />;
  if (area === 'agents' && one) {
    title = `Agent ${one}`;
    view = <Agent key={one} client={client} fleet={fleet} about={about} route={route} name={one} />;
  } else if (area === 'applications') {
    title = one && two ? `Application ${one}/${two}` : 'Applications';
    view = !about.applications ? (
      <p>
        The search API of the principal is off, so Applications are not shown. To turn it on, set <code>principal.settings.search-port</code> of the chart.
      </p>
    ) : one && two ? (
      <OneApplication key={place} client={client} about={about} namespace={one} name={two} />
    ) : (
      <Applications client={client} about={about} route={route} />
    );
  }
  const current = (is: boolean) => (is ? ('page' as const) : undefined);
  return (
    <div className={fleet.state === 'lost' ? 'old' : undefined}>
      <header>
        <h1>Fleet</h1>
        <span className="faint">{about.hub}</span>
        <nav aria-label="Views">
          <a href={link([])} aria-current={current(area !== 'applications')}>
            Agents
          </a>
          <a href={link(['applications'])} aria-current={current(area === 'applications')}>
            Applications
          </a>
        </nav>
        <span className="faint">{about.user}</span>
        <Connection fleet={fleet} about={about} />
      </header>
      <h2 ref={heading} tabIndex={-1}>
        {title}
      </h2>
      {view}
    </div>
  );
}

// Connection reports whether the data is current.
function Connection(p: {fleet: Fleet; about: About}) {
  useTick(5000);
  const {fleet, about} = p;
  const old = fleet.time ? ` The data is ${span(Math.floor((Date.now() - fleet.time) / 1000))} old.` : '';
  const hint = about.login === 'token' ? '' : ' If argocd-agentctl fleet has stopped, start it again and open the new URL.';
  let problem = fleet.problem && `This page may be out of date: ${fleet.problem}`;
  if (fleet.state === 'lost') problem = fleet.problem ? `The server sends no agents: ${fleet.problem}.${old}` : `The connection is lost.${old} Reconnecting …${hint}`;
  return (
    <>
      <span className={`live ${fleet.state}`}>{fleet.state === 'live' ? 'live' : fleet.state === 'lost' ? 'disconnected' : 'loading …'}</span>
      <p className={problem ? 'notice' : 'hidden'} role="status">
        {problem}
      </p>
    </>
  );
}
