// Module docs builds the documentation site. It is a module of its own, so that its libraries stay out of the product's
// go.mod.
module github.com/argocd-agent/argocd-agent/tools/docs

go 1.26.0

require (
	github.com/yuin/goldmark v1.8.7
	golang.org/x/net v0.62.0
)
