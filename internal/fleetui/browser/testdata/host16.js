import {render} from 'react-dom';
import {provide} from './host.js';

provide(render);
