// Package arch checks the architecture of this repository: which package may import which, what a pure package may use,
// that every package has a comment, and that no file uses a retired word. It contains only tests.
//
// The table below is authoritative. ARCHITECTURE.md explains it. To add a package, add a line here first.
package arch

import "strings"

// A packageRule applies to a directory and everything below it. It lists what its code may import. Everything else is
// forbidden, so that a reviewer sees each new dependency in this file.
type packageRule struct {
	path string

	// inner lists the other directories of this table that its code may import. Its own packages are always allowed.
	inner []string

	// tests lists directories that only its _test.go files may import, in addition to inner.
	tests []string

	// outer lists the import path prefixes of other modules that its code may use. Tests may use any module.
	outer []string

	// pure packages only compute: see purity_test.go.
	pure bool

	// seeded packages may start goroutines and print. They take time and randomness as inputs, so that a seed replays.
	seeded bool
}

var (
	core     = []string{"internal/engine", "internal/kind", "internal/reconcile", "internal/rawjson"}
	adapters = []string{"internal/transport", "internal/kube", "internal/proxy", "internal/identity", "internal/identity/pki", "internal/observe", "internal/audit", "internal/trace", "internal/util"}

	anyModule = []string{""}
	protobuf  = []string{"google.golang.org/protobuf/", "google.golang.org/genproto/"}
	grpc      = append([]string{"google.golang.org/grpc"}, protobuf...)
)

// packageRules lists all packages, from the core outwards.
var packageRules = []packageRule{
	{path: "api", outer: append([]string{"k8s.io/apimachinery/pkg/apis/meta/v1"}, grpc...)},

	// The pure core. It does not know how its messages travel or where its objects are stored.
	{path: "internal/rawjson", pure: true},
	{path: "internal/engine", pure: true},
	{path: "internal/kind", inner: paths("internal/engine", "internal/rawjson"), outer: []string{"k8s.io/apimachinery/pkg/labels"}, pure: true},
	{path: "internal/reconcile", inner: paths("internal/engine", "internal/kind", "internal/rawjson"), pure: true},

	// The read model of the fleet.
	{path: "internal/query", inner: paths("internal/kind", "internal/rawjson"), pure: true},

	// What a workload cluster allows its hub.
	{path: "internal/policy", inner: paths("internal/engine", "internal/kind", "internal/rawjson", "api"), outer: []string{"github.com/google/cel-go/cel"}},

	// The protocol, and the simulator that tests core and protocol.
	{path: "internal/wire", inner: paths("internal/engine", "api", "internal/util"), outer: protobuf},
	{path: "internal/sim", inner: paths(core, "internal/wire", "internal/transport/route", "internal/hubstate", "internal/hublease"), seeded: true},

	// Helpers that know nothing of the product.
	{path: "internal/util"},
	// Names of settings of existing installations, for the programs and argocd-agentctl import.
	{path: "internal/existing"},
	{path: "internal/util/cmdline", outer: []string{"github.com/spf13/"}},

	// Certificates and tokens. It stores them in Secrets through an interface of its own.
	{path: "internal/identity/pki", inner: paths("internal/util")},

	// Traces for the adapters. It imports none of them.
	{path: "internal/trace", inner: paths("internal/util"), tests: paths("lab"), outer: []string{"go.opentelemetry.io/otel", "github.com/go-logr/logr", "google.golang.org/grpc/credentials/insecure"}},

	// The audit log. It imports no adapter. Its lines of commands come from messages of the core.
	{path: "internal/audit", inner: paths("internal/util"), tests: paths("lab"), outer: []string{"go.opentelemetry.io/otel"}},
	{path: "internal/audit/command", inner: paths(core, "internal/audit", "internal/util")},

	// Adapters: each connects one external system. None imports another. The proxies and identity do not import the engine.
	{path: "internal/transport", inner: paths(core, "internal/transport/route", "internal/wire", "api", "internal/identity/pki", "internal/trace", "internal/util"), tests: paths("lab"), outer: anyModule},
	{path: "internal/transport/route", inner: paths("internal/util")},
	{path: "internal/kube", inner: paths(core, "internal/wire", "internal/identity/pki", "internal/trace", "internal/util"), tests: paths("lab"), outer: anyModule},
	{path: "internal/proxy", inner: paths("api", "internal/rawjson", "internal/audit", "internal/trace", "internal/util"), tests: paths("lab"), outer: anyModule},
	{path: "internal/identity", inner: paths("api", "internal/identity/pki", "internal/util"), tests: paths("lab"), outer: anyModule},
	{path: "internal/observe", inner: paths("internal/engine"), outer: []string{"github.com/prometheus/"}},

	// The fleet view: files for a browser.
	{path: "internal/fleetui"},
	// The rows of agents, for a browser.
	{path: "internal/agentrows", inner: paths("internal/engine", "api", "internal/identity/pki", "internal/util"), outer: []string{"k8s.io/apimachinery/pkg/"}},

	// Upgrades of the agent by its hub.
	{path: "internal/upgrade", inner: paths("internal/engine", "internal/kind", "internal/policy", "internal/kube", "internal/util", "api"), outer: []string{"k8s.io/api/", "k8s.io/apimachinery/"}},

	// The state of a hub in its ConfigMap, for the principal and argocd-agentctl.
	{path: "internal/hubstate", inner: paths(core, "internal/kube")},
	{path: "internal/hublease", inner: paths(core, "internal/kube", "internal/hubstate", "internal/util"), outer: []string{"k8s.io/client-go/rest"}},

	// Parts of the principal: each does one job with adapters.
	{path: "internal/tasks", inner: paths("internal/kube", "internal/util"), outer: anyModule},
	{path: "internal/fleet", inner: paths(core, adapters, "api", "internal/tasks", "internal/identity/issue", "internal/identity/revoke"), outer: anyModule},
	{path: "internal/forward", inner: paths("internal/identity", "internal/observe", "internal/trace")},
	{path: "internal/live", inner: paths(core, adapters, "api", "internal/tasks", "internal/fleet", "internal/forward"), tests: paths("lab"), outer: anyModule},
	{path: "internal/identity/revoke", inner: paths(core, "internal/kube", "internal/identity", "internal/identity/pki", "internal/util")},
	{path: "internal/identity/issue", inner: paths("internal/rawjson", "internal/transport", "internal/identity", "internal/identity/pki", "internal/util")},

	{path: "internal/search", inner: paths(core, "internal/agentrows", "internal/audit", "internal/query", "internal/kube", "internal/fleet", "internal/util"), tests: paths("api"), outer: anyModule},
	{path: "internal/appevents", inner: paths(core, "internal/kube", "internal/observe", "internal/util")},
	{path: "internal/appmetrics", inner: paths(core, "internal/observe")},

	// Assembly: the only packages that import several adapters.
	{path: "internal/principal", inner: paths(core, "internal/wire", adapters, "api", "internal/identity/issue", "internal/identity/revoke", "internal/tasks", "internal/fleet", "internal/live", "internal/appevents", "internal/appmetrics", "internal/search", "internal/audit/command", "internal/hubstate", "internal/hublease"), tests: paths("lab"), outer: anyModule},
	{path: "internal/agent", inner: paths(core, "internal/policy", "internal/upgrade", "internal/wire", adapters, "api", "internal/audit/command"), tests: paths("lab"), outer: anyModule},
	{path: "internal/cli", inner: paths(core, "internal/hubstate", "internal/hublease", "internal/agentrows", "internal/fleetui", "internal/query", "internal/policy", "internal/wire", adapters, "internal/util/cmdline", "internal/existing", "api", "install"), tests: paths("lab"), outer: anyModule},
	// A command fills a Config, whose fields have types of kind, identity and the proxies.
	{path: "cmd", inner: paths("internal/principal", "internal/hublease", "internal/agent", "internal/upgrade", "internal/kube", "internal/cli", "internal/fleet", "internal/fleetui", "internal/kind", "internal/identity", "internal/identity/issue", "internal/identity/pki", "internal/forward", "internal/live", "internal/search", "internal/proxy", "internal/audit", "internal/trace", "internal/util/cmdline", "internal/existing"), tests: paths("internal/transport", "lab"), outer: anyModule},

	// Manifests that users install, for programs that install them.
	{path: "install", outer: anyModule},

	// Around the product. The lab runs the product as processes, so it imports none of its packages.
	{path: "lab", outer: anyModule},
	{path: "test", inner: paths("lab", "api", "install"), outer: anyModule},
	// The fleet benchmark runs many agents in one process.
	{path: "bench", inner: paths("lab", "api", core, "internal/query", "internal/wire", "internal/agent", "internal/kube", "internal/transport", "internal/trace"), outer: anyModule},
	{path: "internal/arch"},
}

// forbiddenModules lists modules that no package of this module may import, tests included. Objects stay raw, so that one
// build works with many Argo CD releases. Components that the lab builds from source have modules of their own (lab/tools).
var forbiddenModules = []string{"github.com/argoproj/argo-cd", "k8s.io/kubernetes"}

// restrictedModules lists modules that only the code of these directories may import. Tests are not restricted. All but
// api and internal/transport/grpc use gRPC for protocols of others: OTLP, the SPIFFE Workload API and Argo CD's
// repo-server. The typed client of Kubernetes and its types add 18 MB to the binary of every agent.
var restrictedModules = map[string][]string{
	"google.golang.org/grpc":      {"api", "internal/transport/grpc", "internal/trace", "internal/proxy/sharedmode", "lab", "test"},
	"k8s.io/api":                  {"internal/cli", "lab", "test", "bench"},
	"k8s.io/client-go/kubernetes": {"internal/cli", "lab", "test", "bench"},
}

// paths joins names and lists of names into one list.
func paths(parts ...any) []string {
	var list []string
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			list = append(list, part)
		case []string:
			list = append(list, part...)
		}
	}
	return list
}

// ruleFor returns the rule with the longest path that contains dir. dir is relative to the module root.
func ruleFor(rules []packageRule, dir string) (packageRule, bool) {
	var best packageRule
	found := false
	for _, r := range rules {
		if within(dir, r.path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

// within reports whether path is dir or below it, by whole segments.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}
