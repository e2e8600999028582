// Views of agents: all of them, and one.
import * as React from 'react';
import {APIError, type Client, type Fleet} from './api';
import {Applications} from './applications';
import {type About, type Degraded, type Row, type TimelineItem, age, ago, date, expiresSoon, facts, kindOf, kinds, now, past, quoted, searchText, skew, skewed, span, stateOf, tiles, toneOf} from './model';
import {type Column, Command, Facts, type Route, SmallTable, Table, link, setParameters, useTick, useVirtual} from './parts';

const columns = (about: About): Column<Row>[] => [
  {id: 'name', title: 'Agent', width: 16, text: (r) => r.name, link: (r) => link(['agents', r.name])},
  {id: 'state', title: 'State', width: 13, text: stateOf, order: (r) => -(r.urgency || 0), tone: toneOf, hint: (r) => r.refused},
  {id: 'since', title: 'Since', width: 7, text: (r) => age(r.since), order: (r) => past(r.since), hint: (r) => date(r.since)},
  {id: 'mode', title: 'Mode', width: 10, text: (r) => r.mode || '-'},
  {id: 'applications', title: 'Apps', width: 6, number: true, text: (r) => String(r.applications), order: (r) => r.applications},
  {id: 'diverged', title: 'Diverged', width: 8, number: true, text: (r) => String(r.diverged || 0), order: (r) => r.diverged || 0, tone: (r) => (r.diverged ? 'unsure' : '')},
  {id: 'unacked', title: 'Unacked', width: 7, text: (r) => age(r.unacked), order: (r) => past(r.unacked), hint: (r) => date(r.unacked)},
  {id: 'confirmed', title: 'In sync', width: 9, text: (r) => ago(r.confirmed), order: (r) => past(r.confirmed), hint: (r) => date(r.confirmed)},
  {id: 'skew', title: 'Clock', width: 6, text: skew, order: (r) => Math.abs(r.skew || 0), tone: (r) => (skewed(r) ? 'unsure' : '')},
  {id: 'expires', title: 'Certificate', width: 9, text: (r) => (!r.expires ? '-' : r.expires <= now() ? 'expired' : span(r.expires - now())), order: (r) => r.expires || Infinity, tone: (r) => (expiresSoon(r, about) ? 'unsure' : ''), hint: (r) => date(r.expires)},
  {id: 'version', title: 'Version', width: 9, text: (r) => r.version || '-'},
];

export function sorted<T>(items: T[], columns: Column<T>[], sort: string, nameOf: (item: T) => string): T[] {
  const down = sort.startsWith('-');
  const column = columns.find((c) => c.id === (down ? sort.slice(1) : sort)) || columns[0];
  const of = column.order || column.text;
  const keyed = items.map((item) => ({item, key: of(item), name: nameOf(item)}));
  keyed.sort((a, b) => {
    const way = a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
    return (down ? -way : way) || (a.name < b.name ? -1 : 1);
  });
  return keyed.map((k) => k.item);
}

export function Agents(p: {fleet: Fleet; degraded: Degraded; about: About; route: Route}) {
  useTick(5000);
  const {fleet, degraded, about, route} = p;
  const show = route.parameters.get('show') || '';
  const text = route.parameters.get('text') || '';
  const sort = route.parameters.get('sort') || 'state';
  const tile = tiles.find((t) => t.id === show);
  const all = React.useMemo(() => Array.from(fleet.rows.values()), [fleet.version]);
  const counts = React.useMemo(() => tiles.map((t) => all.reduce((n, r) => n + (t.has(r, degraded, about) ? 1 : 0), 0)), [all, degraded, about]);
  const wanted = React.useMemo(() => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return all.filter((r) => (!tile || tile.has(r, degraded, about)) && words.every((w) => searchText(r).includes(w)));
  }, [all, degraded, about, tile, text]);
  const ordered = React.useMemo(() => sorted(wanted, columns(about), sort, (r) => r.name), [wanted, about, sort]);
  return (
    <>
      <div className="tiles" role="group" aria-label="Show only">
        {tiles.map((t, i) =>
          t.optional && !counts[i] && show !== t.id ? null : (
            <button key={t.id} type="button" aria-pressed={show ? show === t.id : t.id === 'all'} onClick={() => setParameters(route, {show: show === t.id || t.id === 'all' ? '' : t.id})}>
              <b className={(counts[i] && t.tone) || undefined}>{counts[i]}</b> {t.title}
            </button>
          ),
        )}
      </div>
      <HeatMap rows={wanted} degraded={degraded} />
      <p className="find">
        <input type="search" aria-label="Filter agents" placeholder="Filter by words" autoComplete="off" value={text} onChange={(e) => setParameters(route, {text: e.currentTarget.value})} />
        <span role="status">{wanted.length === all.length ? '' : `${wanted.length} of ${all.length} agents`}</span>
      </p>
      <Table label="Table of agents" columns={columns(about)} items={ordered} keyOf={(r) => r.name} sort={sort} onSort={(s) => setParameters(route, {sort: s})} />
    </>
  );
}

// HeatMap has a cell for each agent, worst first. It is a grid with one tab stop: arrow keys move, Enter opens the agent.
function HeatMap(p: {rows: Row[]; degraded: Degraded}) {
  const scroller = React.useRef<HTMLDivElement>(null);
  const [width, setWidth] = React.useState(1000);
  const [active, setActive] = React.useState(''); // name of the agent with the tab stop
  const focus = React.useRef(false);
  React.useLayoutEffect(() => {
    const element = scroller.current!;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const cells = React.useMemo(() => {
    const all = p.rows.map((row) => ({row, kind: kindOf(row, p.degraded)}));
    return all.sort((a, b) => a.kind - b.kind || (a.row.name < b.row.name ? -1 : 1));
  }, [p.rows, p.degraded]);
  const size = cells.length <= 300 ? 26 : cells.length <= 3000 ? 20 : 16;
  const perRow = Math.max(Math.floor(width / size), 1);
  const virtual = useVirtual(Math.ceil(cells.length / perRow), size, scroller);
  const found = cells.findIndex((c) => c.row.name === active);
  const at = Math.max(found, 0);
  const lines = virtual.getVirtualItems();

  React.useLayoutEffect(() => {
    if (!focus.current) return;
    const element = scroller.current!.querySelector<HTMLElement>('[tabindex="0"]');
    if (element) {
      focus.current = false;
      element.focus({preventScroll: true});
    }
  });
  const move = (e: React.KeyboardEvent<HTMLElement>) => {
    const page = perRow * 10;
    const steps: Record<string, number> = {ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + perRow, ArrowUp: at - perRow, Home: 0, End: cells.length - 1, PageDown: at + page, PageUp: at - page};
    if (e.key === 'Enter' && cells[at]) location.hash = link(['agents', cells[at].row.name]);
    if (!(e.key in steps) || !cells.length) return;
    e.preventDefault();
    const next = Math.min(Math.max(steps[e.key], 0), cells.length - 1);
    focus.current = true;
    setActive(cells[next].row.name);
    virtual.scrollToIndex(Math.floor(next / perRow), {align: 'auto'});
  };
  const counts = kinds.map((_, i) => cells.reduce((n, c) => n + (c.kind === i ? 1 : 0), 0));
  return (
    <section aria-label="Heat map">
      <ul className="legend">
        {kinds.map((k, i) => (
          <li key={k.id}>
            <span className={`cell ${k.id}`} aria-hidden="true">
              {k.sign}
            </span>{' '}
            {k.title}: {counts[i]}
          </li>
        ))}
      </ul>
      <div className="heat" ref={scroller}>
        {cells.length > 0 && (
          <div role="grid" aria-label="Clusters by state, worst first. Press arrow keys to move and Enter to open." aria-rowcount={Math.ceil(cells.length / perRow)} aria-colcount={perRow} style={{height: `${virtual.getTotalSize()}px`}} onKeyDown={move}>
            {lines.map((line) => (
              <div key={line.key} role="row" aria-rowindex={line.index + 1} style={{transform: `translateY(${line.start}px)`}}>
                {cells.slice(line.index * perRow, (line.index + 1) * perRow).map(({row, kind}, i) => (
                  <div
                    key={row.name}
                    role="gridcell"
                    aria-colindex={i + 1}
                    aria-label={`${row.name}: ${kinds[kind].title}`}
                    title={`${row.name}: ${stateOf(row)}`}
                    className={`cell ${kinds[kind].id}`}
                    style={{width: `${size - 2}px`, height: `${size - 2}px`}}
                    tabIndex={line.index * perRow + i === at ? 0 : -1}
                    onFocus={() => setActive(row.name)}
                    onClick={() => (location.hash = link(['agents', row.name]))}
                  >
                    <span aria-hidden="true">{kinds[kind].sign}</span>
                  </div>
                ))}
              </div>
            ))}
          </div>
        )}
      </div>
    </section>
  );
}

export function Agent(p: {client: Client; fleet: Fleet; about: About; route: Route; name: string}) {
  useTick(1000);
  const r = p.fleet.rows.get(p.name);
  if (!r) return <p>{p.fleet.state === 'loading' ? 'Loading …' : `There is no agent ${p.name}, or you may not see it.`}</p>;
  return (
    <>
      <AgentDetails row={r} command={p.about.command} />
      <Timeline client={p.client} row={r} />
      {p.about.applications && (
        <>
          <h3>Applications</h3>
          <Applications client={p.client} about={p.about} route={p.route} fixed={`agent=${quoted(r.name)}`} />
        </>
      )}
    </>
  );
}

// AgentDetails shows what needs attention first, with the commands for it.
export function AgentDetails(p: {row: Row; command: string}) {
  const {row: r, command} = p;
  return (
    <>
      {(r.holds || []).map((h, i) => (
        <div className="notice" key={i}>
          <h3 className="bad">Confirmation required: {h.description}</h3>
          {h.reason && <p>{h.reason}</p>}
          {h.id && (
            <p>
              To confirm, run: <Command text={`${command} pending confirm ${h.id}`} />
            </p>
          )}
        </div>
      ))}
      {r.diverged ? (
        <div className="notice">
          <h3 className="unsure">{r.pending || `${r.diverged} ${r.diverged === 1 ? 'item differs' : 'items differ'} between hub and cluster`}</h3>
          <p>
            Pending and rejected items: <Command text={`${command} pending ${r.name}`} />
          </p>
          <p>
            Differences: <Command text={`${command} diff ${r.name} --agent-context CONTEXT`} />
          </p>
        </div>
      ) : null}
      <Facts facts={facts(r)} />
      {r.conditions && <SmallTable label="Conditions" head={['Condition', 'Status', 'Since', 'Reason', 'Message']} rows={r.conditions.map((c) => [c.type, c.status || '', date(c.since), c.reason || '', c.message || ''])} />}
    </>
  );
}

// Timeline shows sessions and holds. It reads them again if the agent changes.
function Timeline(p: {client: Client; row: Row}) {
  const [items, setItems] = React.useState<TimelineItem[] | null>(null);
  const [problem, setProblem] = React.useState('');
  const {row} = p;
  React.useEffect(() => {
    let current = true;
    p.client.get<{items?: TimelineItem[] | null}>(`v1/agents/${encodeURIComponent(row.name)}/timeline`).then(
      (answer) => {
        if (!current) return;
        setItems(answer.items || []);
        setProblem('');
      },
      (e: APIError) => current && setProblem(e.status === 404 ? 'not available here' : e.message),
    );
    return () => {
      current = false;
    };
  }, [row.name, row.state, row.since, (row.holds || []).length]);
  return (
    <>
      <h3>Timeline</h3>
      {problem ? (
        <p className="faint">Sessions and holds: {problem}.</p>
      ) : !items ? (
        <p>Loading …</p>
      ) : items.length === 0 ? (
        <p className="faint">No session or hold is recorded.</p>
      ) : (
        <ol className="timeline">
          {items.slice(0, 200).map((item, i) => (
            <li key={i}>
              <time dateTime={new Date(item.time * 1000).toISOString()} title={date(item.time)}>
                {ago(item.time)}
              </time>{' '}
              <b>{item.type}</b> {item.message}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
