module github.com/argocd-agent/argocd-agent/internal/cli/fleet/interop

go 1.26.0

require (
	github.com/argocd-agent/argocd-agent v0.0.0
	github.com/dop251/goja v0.0.0-20260917113740-793a2a65c13b
	golang.org/x/net v0.60.0
)

require (
	github.com/dlclark/regexp2/v2 v2.5.2 // indirect
	github.com/go-sourcemap/sourcemap v2.1.3+incompatible // indirect
	github.com/google/pprof v0.0.0-20230207041349-798e818bf904 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/argocd-agent/argocd-agent => ../../../..
