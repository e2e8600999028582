import {createRoot} from 'react-dom/client';
import {provide} from './host.js';

provide((element, container) => createRoot(container).render(element));
