// Package fleet is the fleet page of argocd-agentctl: what a hub knows of its agents, in a browser, as it changes.
//
// A Board has one row for each agent. A Server shows it to the browsers of the one person who was told its address: one
// page without anything from elsewhere, and a stream of server-sent events with the rows that have changed. Like all that
// we replicate, rows are state and not events: a stream remembers how far it has come and nothing else, so a browser
// that is slow, asleep or away costs nothing and then gets each row once, as it is by then.
//
// What rows say comes from clusters, and so from anybody: the page writes it as text, and its policy lets nothing else
// happen. Other pages in the same browser, and other people on the same machine, get nothing.
package fleet
