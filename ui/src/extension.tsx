// The extension of Argo CD's UI: tab "Agent" of an Application, and page "Fleet" in the sidebar.
import * as React from 'react';
import {AgentDetails} from './agents';
import {APIError, Client} from './api';
import {FleetPage} from './app';
import {ApplicationDetails} from './applications';
import css from './fleet.css';
import {type Application, type Condition, type Row, ago, unix} from './model';
import {SmallTable, useTick} from './parts';

interface Resource {
  kind?: string;
  metadata?: {namespace?: string; name?: string};
  spec?: {project?: string};
  status?: {conditions?: {type: string; message?: string; lastTransitionTime?: string}[]};
}

const refreshInterval = 10_000;

// In an app of apps, the resource is the Application that the user looks at, and the application is its parent.
function AgentTab(p: {application: Resource; resource?: Resource}) {
  useTick(1000);
  const shown = p.resource?.kind === 'Application' && p.resource.spec?.project ? p.resource : p.application;
  const {namespace = '', name = ''} = shown.metadata || {};
  const project = shown.spec?.project || 'default';
  const [answer, setAnswer] = React.useState<{application: Application; agent?: Row} | null>(null);
  const [problem, setProblem] = React.useState('');
  React.useEffect(() => {
    let current = true;
    setAnswer(null);
    const base = new URL('extensions/argocd-agent/', document.baseURI).href;
    const client = new Client(base, {'Argocd-Application-Name': `${namespace}:${name}`, 'Argocd-Project-Name': project});
    const read = () =>
      client.get<{application: Application; agent?: Row}>('v1/application').then(
        (a) => {
          if (!current) return;
          setAnswer(a);
          setProblem('');
        },
        (e: APIError) => current && setProblem(explain(e)),
      );
    void read();
    const timer = setInterval(read, refreshInterval);
    return () => {
      current = false;
      clearInterval(timer);
    };
  }, [namespace, name, project]);
  const conditions: Condition[] = (shown.status?.conditions || []).filter((c) => c.type.startsWith('Agent')).map((c) => ({type: c.type, message: c.message, since: unix(c.lastTransitionTime)}));
  const agent = answer?.agent;
  return (
    <div className="fleet-ui">
      {problem && (
        <p className="notice" role="status">
          {answer ? `Not up to date: ${problem}` : problem}
        </p>
      )}
      {!answer && !problem && <p role="status">Loading …</p>}
      {answer && (
        <>
          <h2>
            {answer.application.agent ? `Agent ${answer.application.agent}` : 'No agent'}
            {agent?.mode && `, ${agent.mode}`}
          </h2>
          {agent && (
            <p>
              <b className={agent.connected ? 'good' : 'bad'}>{agent.connected ? 'Connected' : 'Disconnected'}</b>, in sync {ago(unix(answer.application.inSync) || agent.confirmed)}
            </p>
          )}
          {conditions.length > 0 && <SmallTable label="Conditions of this Application" head={['Condition', 'Message']} rows={conditions.map((c) => [c.type, c.message || ''])} />}
          <h3>Application</h3>
          <ApplicationDetails application={answer.application} about={{hub: '', command: 'argocd-agentctl'}} />
          {agent && (
            <>
              <h3>Agent</h3>
              <AgentDetails row={agent} command="argocd-agentctl" />
            </>
          )}
        </>
      )}
    </div>
  );
}

// explain adds what to do to the errors that argocd-server returns itself.
function explain(e: APIError): string {
  switch (e.status) {
    case 401:
    case 403:
      return `You may not see this: ${e.message}. To allow it, an administrator adds the policy “p, ROLE, extensions, invoke, argocd-agent, allow”.`;
    case 404:
      return 'argocd-server does not forward requests to argocd-agent. Set extension.config in argocd-cm, and --enable-proxy-extension of argocd-server.';
    default:
      return `The principal does not answer: ${e.message}.`;
  }
}

function Sidebar() {
  return <FleetPage base={fleetURL!.replace(/\/?$/, '/')} argocd={new URL('.', document.baseURI).href} />;
}

declare global {
  interface Window {
    argocdAgentFleetURL?: string; // of the principal; set at the top of the served file
    extensionsAPI?: Record<string, ((...args: unknown[]) => void) | undefined>;
  }
}
const fleetURL = window.argocdAgentFleetURL;

function register(name: string, ...args: unknown[]) {
  const f = window.extensionsAPI?.[name];
  if (f && (React as unknown)) f(...args);
  else console.warn(`argocd-agent: this Argo CD has no ${name}. A part of the extension is not shown.`);
}

// afterRender calls a function when Argo CD has rendered. Argo CD 3.5 and later do not show a page that was registered before.
function afterRender(f: () => void) {
  const app = document.getElementById('app');
  if (!app || app.childElementCount) return f();
  const observer = new MutationObserver(() => {
    if (!app.childElementCount) return;
    observer.disconnect();
    f();
  });
  observer.observe(app, {childList: true});
}

function styles() {
  const element = document.createElement('style');
  element.textContent = css;
  document.head.appendChild(element);
}

styles();
register('registerResourceExtension', AgentTab, 'argoproj.io', 'Application', 'Agent', {icon: 'fa-satellite-dish'});
if (fleetURL) afterRender(() => register('registerSystemLevelExtension', Sidebar, 'Fleet', '/fleet', 'fa-network-wired'));
