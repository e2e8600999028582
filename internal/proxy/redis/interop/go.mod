module github.com/argocd-agent/argocd-agent/internal/proxy/redis/interop

go 1.26.0

require (
	github.com/argocd-agent/argocd-agent v0.0.0
	github.com/redis/go-redis/v9 v9.8.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sync v0.24.0 // indirect
)

replace github.com/argocd-agent/argocd-agent => ../../../..
