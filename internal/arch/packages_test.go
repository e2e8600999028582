// Package arch holds the architecture of this repository as tests: which room may import which, what a pure room may
// touch, and that every package says what it is for. It has no code of its own besides them.
//
// The table below is the authority; ARCHITECTURE.md tells the same story in prose. A new room starts with a line here.
package arch

import "strings"

// A room is a folder with everything below it. What it may import is listed, never what it may not: whatever is absent
// is refused, so a new dependency is a decision that a reviewer sees in this file.
type packageRule struct {
	path string

	// inner lists the other rooms that its code may import. Its own packages are always allowed.
	inner []string

	// tests lists rooms that only its _test.go files may import, beside inner.
	tests []string

	// outer lists the import path prefixes of other modules that its code may use. Tests are free in this.
	outer []string

	// pure rooms compute and nothing else: see purity_test.go.
	pure bool

	// seeded rooms may start goroutines and print, but take time and randomness as inputs, so that a seed replays.
	seeded bool
}

var (
	core     = []string{"internal/engine", "internal/kind", "internal/reconcile", "internal/rawjson"}
	adapters = []string{"internal/transport", "internal/kube", "internal/proxy", "internal/identity", "internal/identity/pki", "internal/observe", "internal/trace"}

	anyModule = []string{""}
	protobuf  = []string{"google.golang.org/protobuf/", "google.golang.org/genproto/"}
	grpc      = append([]string{"google.golang.org/grpc"}, protobuf...)
)

// packageRules is the list of all rooms, from the inside out.
var packageRules = []packageRule{
	{path: "api", outer: append([]string{"k8s.io/apimachinery/pkg/apis/meta/v1"}, grpc...)},

	// The pure core. It never learns how its messages travel or where its objects live.
	{path: "internal/rawjson", pure: true},
	{path: "internal/engine", pure: true},
	{path: "internal/kind", inner: rooms("internal/engine", "internal/rawjson"), pure: true},
	{path: "internal/reconcile", inner: rooms("internal/engine", "internal/kind", "internal/rawjson"), pure: true},

	// The protocol, and the simulated world in which core and protocol are tried.
	{path: "internal/wire", inner: rooms("internal/engine", "api"), outer: protobuf},
	{path: "internal/sim", inner: rooms(core, "internal/wire"), seeded: true},

	// Certificates and tokens: computes, and keeps what it makes in Secrets, through an interface of its own.
	{path: "internal/identity/pki"},

	// Where time goes, for the adapters to tell. It knows none of them.
	{path: "internal/trace", tests: rooms("lab"), outer: []string{"go.opentelemetry.io/otel", "github.com/go-logr/logr", "google.golang.org/grpc/credentials/insecure"}},

	// Adapters: each knows one thing outside. None knows another; the proxies and identity do not know the engine.
	{path: "internal/transport", inner: rooms(core, "internal/wire", "api", "internal/identity/pki", "internal/trace"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/kube", inner: rooms(core, "internal/wire", "internal/identity/pki", "internal/trace"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/proxy", inner: rooms("internal/rawjson", "internal/trace"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/identity", inner: rooms("api", "internal/identity/pki"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/observe", inner: rooms("internal/engine")},

	// Assembly: the only place where adapters meet.
	{path: "internal/principal", inner: rooms(core, "internal/wire", adapters, "api"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/agent", inner: rooms(core, "internal/wire", adapters, "api"), tests: rooms("lab"), outer: anyModule},
	{path: "internal/cli", inner: rooms(core, "internal/wire", adapters, "api", "install"), tests: rooms("lab"), outer: anyModule},
	// A command fills their Config, whose fields are of the types that settings become: kinds', identity's and the proxies'.
	{path: "cmd", inner: rooms("internal/principal", "internal/agent", "internal/cli", "internal/kind", "internal/identity", "internal/identity/pki", "internal/proxy", "internal/trace"), outer: anyModule},

	// What users install, for programs that install it.
	{path: "install", outer: anyModule},

	// Around the product. The lab runs the product as programs, so it needs none of its packages.
	{path: "lab", outer: anyModule},
	{path: "test", inner: rooms("lab", "api", "install"), outer: anyModule},
	// Benchmarks of a fleet run many agents in one process.
	{path: "bench", inner: rooms("lab", "api", core, "internal/wire", "internal/agent", "internal/kube", "internal/transport"), outer: anyModule},
	{path: "internal/arch"},
}

// forbiddenModules lists modules that no package of this module may import, tests included: objects stay raw, so that one build
// serves many Argo CD versions, and what the lab builds from source lives in modules of its own (lab/tools).
var forbiddenModules = []string{"github.com/argoproj/argo-cd", "k8s.io/kubernetes"}

// rooms joins names and lists of names into one list.
func rooms(parts ...any) []string {
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

// roomOf finds the room that a folder (relative to the module's root) belongs to.
func roomOf(house []packageRule, dir string) (packageRule, bool) {
	var best packageRule
	found := false
	for _, r := range house {
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
