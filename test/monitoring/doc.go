// Package monitoring tests the alerts and dashboards of the chart with the query engine of Prometheus. It is a module of
// its own, so that Prometheus stays out of the go.mod of the product.
package monitoring
