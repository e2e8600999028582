// What Argo CD provides to an extension of its UI: React, and functions that register components. A page of the sidebar is
// lost if it is registered before Argo CD has rendered.
import * as React from 'react';

export function provide(mount) {
  const tabs = [];
  const pages = [];
  let listens = false;
  const missing = new URLSearchParams(location.search).get('missing');
  window.React = React;
  window.extensions = {resources: {}};
  const api = {
    registerResourceExtension: (component, group, kind, title, opts) => tabs.push({component, group, kind, title, icon: opts?.icon}),
    registerSystemLevelExtension: (component, title, path, icon) => listens && pages.push({component, title, path, icon}),
    registerAppViewExtension: () => {},
    registerStatusPanelExtension: () => {},
    registerTopBarActionMenuExt: () => {},
  };
  if (missing) delete api[missing];
  if (missing !== 'all') window.extensionsAPI = api;

  class App extends React.Component {
    constructor(props) {
      super(props);
      this.state = {};
      listens = true;
    }
    componentDidMount() {
      window.show = (what, props) => {
        const found = what === 'tab' ? tabs.find((t) => t.group === 'argoproj.io' && t.kind === 'Application') : pages[0];
        this.setState({shown: React.createElement(found.component, props)});
      };
    }
    render() {
      return React.createElement('div', null, this.state.shown || 'Checking session');
    }
  }
  mount(React.createElement(App), document.getElementById('app'));
  window.registered = () => [...tabs, ...pages].map((e) => e.title).join(' ');
}
