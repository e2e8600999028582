import * as React from 'react';
import {render} from 'preact';
import {FleetPage} from './app';

const base = new URL('.', location.href).href;
render(<FleetPage base={base} />, document.getElementById('page')!);
