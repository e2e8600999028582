// Package query is the read model of the fleet: a compact row for each Application of the hub, and a query language to
// filter, sort, count, group and follow them.
//
// A Model holds rows, not objects. Rows never change, so a Snapshot of the Model is read without a lock while the Model
// changes. Every query has a Scope, which decides what its caller may see. A row outside of it is not returned, counted,
// grouped or reported as removed.
//
// Everything in a row comes from the Application itself, so every principal replica has the same rows.
package query
