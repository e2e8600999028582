// Parts that several views use.
import {Virtualizer, elementScroll, observeElementOffset, observeElementRect} from '@tanstack/virtual-core';
import * as React from 'react';
import type {Tone} from './model';

export interface Route {
  path: string[];
  parameters: URLSearchParams;
}

// The fragment of the URL carries the view, so that links to it work.
export function readRoute(): Route {
  const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
  return {path: path.split('/').filter(Boolean).map(decode), parameters: new URLSearchParams(search || '')};
}

function decode(part: string) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // not made by us
  }
}

export function link(path: string[], parameters: Record<string, string> = {}): string {
  const search = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value)).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${search && `?${search}`}`;
}

export function useRoute(): Route {
  const [route, set] = React.useState(readRoute);
  React.useEffect(() => {
    const changed = () => set(readRoute());
    window.addEventListener('hashchange', changed);
    return () => window.removeEventListener('hashchange', changed);
  }, []);
  return route;
}

// setParameters changes the view without a new entry in the history.
export function setParameters(route: Route, changes: Record<string, string>) {
  const all = {...Object.fromEntries(route.parameters), ...changes};
  history.replaceState(history.state, '', link(route.path, all));
  window.dispatchEvent(new Event('hashchange'));
}

// useTick draws again after an interval, so that ages stay right.
export function useTick(milliseconds: number) {
  const [, tick] = React.useReducer((n: number) => n + 1, 0);
  React.useEffect(() => {
    const timer = setInterval(() => tick(0 as never), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

// useVirtual returns the visible range of many items of the same height.
export function useVirtual(count: number, height: number, scroller: React.RefObject<HTMLElement | null>) {
  const [, redraw] = React.useReducer((n: number) => n + 1, 0);
  const options = {
    count,
    overscan: 8,
    estimateSize: () => height,
    getScrollElement: () => scroller.current,
    initialRect: {width: 0, height: 600},
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: () => redraw(0 as never),
  };
  const [virtual] = React.useState(() => new Virtualizer<HTMLElement, HTMLElement>(options));
  virtual.setOptions(options);
  React.useLayoutEffect(() => virtual._didMount(), []);
  React.useLayoutEffect(() => virtual._willUpdate());
  React.useLayoutEffect(() => virtual.measure(), [height]);
  return virtual;
}

export interface Column<T> {
  id: string;
  title: string;
  width: number;
  text: (item: T) => string;
  order?: (item: T) => string | number; // if it differs from the text
  tone?: (item: T) => Tone;
  hint?: (item: T) => string | undefined;
  link?: (item: T) => string | undefined;
  number?: boolean;
  unsorted?: boolean;
}

const rowHeight = 30;

// Table shows many rows. Only those in sight are in the document.
export function Table<T>(p: {label: string; columns: Column<T>[]; items: T[]; keyOf: (item: T) => string; sort: string; onSort: (sort: string) => void}) {
  const scroller = React.useRef<HTMLDivElement>(null);
  const virtual = useVirtual(p.items.length, rowHeight, scroller);
  const rows = virtual.getVirtualItems();
  const before = rows.length ? rows[0].start : 0;
  const after = rows.length ? virtual.getTotalSize() - rows[rows.length - 1].end : 0;
  const [by, down] = p.sort.startsWith('-') ? [p.sort.slice(1), true] : [p.sort, false];
  return (
    <div className="table" ref={scroller} role="region" aria-label={p.label} tabIndex={0}>
      <table aria-rowcount={p.items.length + 1}>
        <colgroup>
          {p.columns.map((c) => (
            <col key={c.id} style={{width: `${c.width}%`}} />
          ))}
        </colgroup>
        <thead>
          <tr aria-rowindex={1}>
            {p.columns.map((c) => (
              <th key={c.id} scope="col" className={c.number ? 'number' : undefined} aria-sort={c.unsorted ? undefined : by !== c.id ? 'none' : down ? 'descending' : 'ascending'}>
                {c.unsorted ? (
                  c.title
                ) : (
                  <button type="button" onClick={() => p.onSort(by === c.id && !down ? `-${c.id}` : c.id)}>
                    {c.title}
                  </button>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Space key="before" height={before} columns={p.columns.length} />
          {rows.map((row) => {
            const item = p.items[row.index];
            return (
              item && (
                <tr key={p.keyOf(item)} aria-rowindex={row.index + 2} style={{height: `${rowHeight}px`}}>
                  {p.columns.map((c) => (
                    <td key={c.id} className={`${c.number ? 'number ' : ''}${c.id === 'name' ? 'name ' : ''}${(c.tone && c.tone(item)) || ''}`} title={(c.hint && c.hint(item)) || c.text(item)}>
                      {c.link && c.link(item) ? <a href={c.link(item)}>{c.text(item)}</a> : c.text(item)}
                    </td>
                  ))}
                </tr>
              )
            );
          })}
          <Space key="after" height={after} columns={p.columns.length} />
        </tbody>
      </table>
    </div>
  );
}

function Space(p: {height: number; columns: number}) {
  return p.height > 0 ? (
    <tr aria-hidden="true" className="space">
      <td colSpan={p.columns} style={{height: `${p.height}px`}} />
    </tr>
  ) : null;
}

// Command is a command to copy.
export function Command(p: {text: string}) {
  const [done, setDone] = React.useState('');
  const code = React.useRef<HTMLElement>(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(p.text);
      setDone('Copied');
    } catch {
      getSelection()?.selectAllChildren(code.current!);
      setDone('Selected: press Ctrl+C');
    }
  };
  return (
    <span className="command">
      <code ref={code}>{p.text}</code>{' '}
      <button type="button" className="small" onClick={copy} aria-label={`Copy the command ${p.text}`}>
        Copy
      </button>{' '}
      <span role="status">{done}</span>
    </span>
  );
}

export function Facts(p: {facts: [string, React.ReactNode][]}) {
  return (
    <dl>
      {p.facts.map(([name, value]) => (
        <React.Fragment key={name}>
          <dt>{name}</dt>
          <dd className={name === 'Refused' ? 'bad' : undefined}>{value}</dd>
        </React.Fragment>
      ))}
    </dl>
  );
}

export function SmallTable(p: {label: string; head: string[]; rows: string[][]}) {
  return (
    <table className="details">
      <caption>{p.label}</caption>
      <thead>
        <tr>
          {p.head.map((h) => (
            <th key={h} scope="col">
              {h}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {p.rows.map((cells, i) => (
          <tr key={i}>
            {cells.map((c, j) => (
              <td key={j}>{c || '-'}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
