// Views of Applications: the result of a query, and one.
import * as React from 'react';
import {APIError, type Client} from './api';
import {type About, type Application, type Counts, type Page, ago, date, healthTone, past, quoted, syncTone, unix} from './model';
import {type Column, Command, Facts, type Route, Table, link, setParameters, useTick} from './parts';

const columns: Column<Application>[] = [
  {id: 'agent', title: 'Agent', width: 12, text: (a) => a.agent || '-', link: (a) => a.agent && link(['agents', a.agent])},
  {id: 'namespace', title: 'Namespace', width: 12, text: (a) => a.namespace},
  {id: 'name', title: 'Name', width: 20, text: (a) => a.name, link: (a) => link(['applications', a.namespace, a.name])},
  {id: 'project', title: 'Project', width: 10, text: (a) => a.project},
  {id: 'health', title: 'Health', width: 9, text: (a) => a.health || '-', tone: (a) => healthTone(a.health)},
  {id: 'sync', title: 'Sync', width: 9, text: (a) => a.sync || '-', tone: (a) => syncTone(a.sync)},
  {id: 'revision', title: 'Revision', width: 10, unsorted: true, text: (a) => (a.revisions || []).map((r) => r.slice(0, 8)).join(', ') || '-'},
  {id: 'freshness', title: 'In sync', width: 9, text: (a) => ago(unix(a.inSync)), order: (a) => past(unix(a.inSync)), hint: (a) => date(unix(a.inSync))},
  {id: 'changed', title: 'Changed', width: 9, text: (a) => ago(unix(a.changed)), order: (a) => past(unix(a.changed)), hint: (a) => date(unix(a.changed))},
];

const groupFields = ['agent', 'project', 'namespace', 'health', 'sync', 'operation', 'revision', 'image', 'chart', 'repo', 'condition', 'freshness', 'changed'];
const ageFields = ['freshness', 'changed'];
const pageSize = 100;
const maxPage = 1000; // of the server

interface Result {
  page: Page;
  items: Application[];
  counts: Counts | null;
}

// useSearch keeps the result of a query up to date.
function useSearch(client: Client, query: string, sort: string, groupBy: string) {
  const [result, setResult] = React.useState<Result | null>(null);
  const [error, setError] = React.useState<APIError | null>(null);
  const [loaded, setLoaded] = React.useState(pageSize); // Applications to show
  const [again, refresh] = React.useReducer((n: number) => n + 1, 0);

  React.useEffect(() => {
    let current = true;
    const read = async () => {
      const page = await client.get<Page>('v1/applications', {query, sort, limit: String(Math.min(loaded, maxPage))});
      const items = page.items || [];
      while (items.length < loaded && page.next) {
        const more = await client.get<Page>('v1/applications', {query, sort, limit: String(Math.min(loaded - items.length, maxPage)), page: page.next});
        items.push(...(more.items || []));
        page.next = more.next;
      }
      const counts = groupBy ? await client.get<Counts>('v1/counts', {query, groupBy, limit: '200'}) : null;
      return {page, items, counts};
    };
    read().then(
      (r) => {
        if (!current) return;
        setResult(r);
        setError(null);
      },
      (e: APIError) => current && setError(e),
    );
    return () => {
      current = false;
    };
  }, [client, query, sort, groupBy, loaded, again]);

  // A watch reports that the result changed. If there is none, the result is read again at an interval.
  const token = result?.page.watch;
  React.useEffect(() => {
    const ended = new AbortController();
    let timer = 0;
    const later = (milliseconds: number) => {
      timer ||= window.setTimeout(() => refresh(0 as never), milliseconds);
    };
    if (token)
      client
        .lines('v1/watch', {query, watch: token}, {}, ended.signal, (line) => {
          const update = JSON.parse(line);
          if (update.changed || update.removed || update.error) later(2000);
        })
        .then(
          () => later(2000),
          () => !ended.signal.aborted && later(15_000),
        );
    else later(15_000);
    return () => {
      ended.abort();
      clearTimeout(timer);
    };
  }, [client, query, token, again]);
  return {result, error, more: () => setLoaded(loaded + pageSize)};
}

// Applications shows the result of a query. A fixed query is a part that the user does not change.
export function Applications(p: {client: Client; about: About; route: Route; fixed?: string}) {
  useTick(5000);
  const {route, fixed = ''} = p;
  const text = route.parameters.get('query') || '';
  const groupBy = route.parameters.get('groupBy') || '';
  const sort = route.parameters.get('sort') || 'namespace';
  const [draft, setDraft] = React.useState(text);
  React.useEffect(() => setDraft(text), [text]);
  const query = [fixed, text].filter(Boolean).join(' ');
  const {result, error, more} = useSearch(p.client, query, sort, groupBy);
  const [groupDraft, setGroupDraft] = React.useState(groupBy);
  React.useEffect(() => setGroupDraft(groupBy), [groupBy]);
  const labels = Array.from(new Set((result?.items || []).flatMap((a) => Object.keys(a.labels || {})))).slice(0, 50);
  const submit = (e: React.FormEvent) => {
    e.preventDefault();
    setParameters(route, {query: draft.trim(), groupBy: groupDraft.trim()});
  };
  return (
    <>
      <form className="find" role="search" onSubmit={submit}>
        <label>
          Query <input className="query" type="search" value={draft} onChange={(e) => setDraft(e.currentTarget.value)} placeholder="health!=Healthy image~nginx:1.2*" autoComplete="off" aria-invalid={error && error.status === 400 ? true : undefined} aria-describedby={error ? 'fleet-query-error' : undefined} />
        </label>
        <label>
          Group by <input list="fleet-fields" value={groupDraft} onChange={(e) => setGroupDraft(e.currentTarget.value)} placeholder="label.team" autoComplete="off" />
        </label>
        <datalist id="fleet-fields">
          {[...groupFields, ...labels.map((key) => `label.${key}`)].map((f) => (
            <option key={f} value={f} />
          ))}
        </datalist>
        <button type="submit" className="small">
          Search
        </button>
        <span role="status">{result ? `${result.page.total} ${result.page.total === 1 ? 'Application' : 'Applications'}` : error ? '' : 'Loading …'}</span>
      </form>
      {error && <QueryError error={error} query={query} />}
      {result?.page.unansweredReplicas ? <p className="notice">{result.page.unansweredReplicas} principal replicas did not answer: the times in sync of their agents may be old.</p> : null}
      {result?.counts && <Groups counts={result.counts} by={groupBy} route={route} text={text} />}
      {result && (
        <>
          <Table label="Table of Applications" columns={fixed ? columns.slice(1) : columns} items={result.items} keyOf={(a) => `${a.namespace}/${a.name}`} sort={sort} onSort={(s) => setParameters(route, {sort: s})} />
          {result.page.next && (
            <p>
              <button type="button" className="small" onClick={more}>
                Show more ({result.page.total - result.items.length} left)
              </button>
            </p>
          )}
        </>
      )}
    </>
  );
}

// QueryError shows where the query is wrong.
function QueryError(p: {error: APIError; query: string}) {
  const {error, query} = p;
  return (
    <div className="notice" role="alert" id="fleet-query-error">
      <p className="bad">{error.message}</p>
      {error.position > 0 && <pre aria-hidden="true">{`${query}\n${' '.repeat(characters(query, error.position - 1))}^`}</pre>}
    </div>
  );
}

// characters returns the number of characters in the first bytes of a text.
const characters = (text: string, bytes: number) => Array.from(new TextDecoder().decode(new TextEncoder().encode(text).slice(0, bytes))).length;

function Groups(p: {counts: Counts; by: string; route: Route; text: string}) {
  const groups = p.counts.groups || [];
  const most = Math.max(...groups.map((g) => g.count), 1);
  return (
    <section aria-label={`Applications by ${p.by}`}>
      <ul className="groups">
        {groups.map((g) => (
          <li key={g.value}>
            {ageFields.includes(p.by) || g.value.includes('"') ? (
              <span>{g.value || 'none'}</span>
            ) : (
              <button type="button" onClick={() => setParameters(p.route, {query: `${p.text} ${p.by}=${g.value && quoted(g.value)}`.trim(), groupBy: ''})}>
                {g.value || 'none'}
              </button>
            )}
            <meter min={0} max={most} value={g.count} aria-label={`${g.value || 'none'}: ${g.count}`} /> <b>{g.count}</b>
          </li>
        ))}
      </ul>
      {p.counts.more ? <p className="faint">{p.counts.more} smaller groups are not shown.</p> : null}
    </section>
  );
}

export function OneApplication(p: {client: Client; about: About; namespace: string; name: string}) {
  useTick(1000);
  const [page, setPage] = React.useState<Page | null>(null);
  const [problem, setProblem] = React.useState('');
  React.useEffect(() => {
    const read = () =>
      p.client.get<Page>('v1/applications', {query: `namespace=${quoted(p.namespace)} name=${quoted(p.name)}`}).then(
        (answer) => {
          setPage(answer);
          setProblem('');
        },
        (e: APIError) => setProblem(e.message),
      );
    void read();
    const timer = setInterval(read, 5000);
    return () => clearInterval(timer);
  }, [p.client, p.namespace, p.name]);
  const a = page?.items?.[0];
  return (
    <>
      {problem && (
        <p className="notice" role="status">
          Not up to date: {problem}
        </p>
      )}
      {a ? <ApplicationDetails application={a} about={p.about} linked /> : page ? <p>There is no Application {`${p.namespace}/${p.name}`}, or you may not see it.</p> : problem ? null : <p>Loading …</p>}
    </>
  );
}

// argocdLink returns the address of an Application in Argo CD. Other schemes than HTTP would be code.
export function argocdLink(base: string | undefined, a: Application): string {
  return base && /^https?:\/\//.test(base) ? `${base.replace(/\/$/, '')}/applications/${encodeURIComponent(a.namespace)}/${encodeURIComponent(a.name)}` : '';
}

export function ApplicationDetails(p: {application: Application; about: About; linked?: boolean}) {
  const {application: a, about} = p;
  const address = argocdLink(about.argocd, a);
  const list = (values?: string[]) =>
    (values || []).length > 0 && (
      <ul>
        {values!.map((v) => (
          <li key={v}>{v}</li>
        ))}
      </ul>
    );
  const all: [string, React.ReactNode][] = [
    ['Agent', a.agent ? p.linked ? <a href={link(['agents', a.agent])}>{a.agent}</a> : a.agent : 'belongs to no agent'],
    ['Health', <span className={healthTone(a.health)}>{a.health || '-'}</span>],
    ['Sync', <span className={syncTone(a.sync)}>{a.sync || '-'}</span>],
    ['Last operation', a.operation],
    ['In sync with its agent', a.inSync && `${ago(unix(a.inSync))}, ${date(unix(a.inSync))}`],
    ['Changed', a.changed && `${ago(unix(a.changed))}, ${date(unix(a.changed))}`],
    ['Project', a.project],
    ['Conditions', list(a.conditions)],
    ['Revisions', list(a.revisions)],
    ['Images', list(a.images)],
    ['Charts', list(a.charts)],
    ['Repositories', list(a.repositories)],
    ['Labels', list(Object.entries(a.labels || {}).map(([key, value]) => `${key}=${value}`))],
  ];
  return (
    <>
      {address && (
        <p>
          <a href={address}>Open in Argo CD</a>
        </p>
      )}
      <Facts facts={all.filter(([, value]) => value)} />
      {a.truncated && <p className="faint">This Application has more images, sources or labels than are shown.</p>}
      <p>
        Find it in a terminal: <Command text={`${about.command} search ${shellQuoted(`namespace=${quoted(a.namespace)} name=${quoted(a.name)}`)}`} />
      </p>
    </>
  );
}

const shellQuoted = (text: string) => `'${text.replace(/'/g, `'\\''`)}'`;
