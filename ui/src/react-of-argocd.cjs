// Argo CD provides React to extensions.
module.exports = window.React;
