// Builds the page and the extension of Argo CD into a directory.
import {build} from 'esbuild';
import {copyFileSync, readFileSync} from 'node:fs';

const out = process.argv[2];
const common = {bundle: true, minify: true, charset: 'utf8', target: 'es2020', format: 'iife', logLevel: 'warning'};
// The licenses of the packages require their text in copies.
const licenses = (...names) => ({js: names.map((name) => `/*! ${name}\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim()}\n*/`).join('\n')});

await build({...common, entryPoints: {page: 'src/page.tsx'}, outdir: out, alias: {react: 'preact/compat'}, banner: licenses('preact', '@tanstack/virtual-core')});
await build({...common, entryPoints: {page: 'src/fleet.css'}, outdir: out});
await build({...common, entryPoints: {extension: 'src/extension.tsx'}, outdir: out, alias: {react: './src/react-of-argocd.cjs'}, loader: {'.css': 'text'}, banner: licenses('@tanstack/virtual-core')});
copyFileSync('src/page.html', `${out}/page.html`);
