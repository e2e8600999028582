package arch

import (
	"strings"
	"testing"
	"testing/fstest"
)

const testModule = "example.org/m"

// parse returns the sources of a map from file name to text.
func parse(t *testing.T, files map[string]string) []source {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	sources, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

func importing(path string) string {
	return "package p\n\nimport _ \"" + path + "\"\n"
}

func TestCheckImports_ReportsForbiddenImports(t *testing.T) {
	for _, tc := range []struct {
		why, file, imports string
		refused            bool
	}{
		{"a kind uses the engine", "internal/kind/a.go", testModule + "/internal/engine", false},
		{"the engine does not import kinds", "internal/engine/a.go", testModule + "/internal/kind", true},
		{"the engine does not import the protocol", "internal/engine/a.go", testModule + "/internal/wire", true},
		{"the engine does not import objects", "internal/engine/a.go", testModule + "/internal/rawjson", true},
		{"rawjson imports nothing", "internal/rawjson/a.go", testModule + "/internal/engine", true},
		{"reconcile connects kinds and engine", "internal/reconcile/a.go", testModule + "/internal/kind", false},
		{"a kind does not import reconcile", "internal/kind/a.go", testModule + "/internal/reconcile", true},
		{"the protocol carries engine messages", "internal/wire/a.go", testModule + "/internal/engine", false},
		{"the protocol does not import kinds", "internal/wire/a.go", testModule + "/internal/kind", true},
		{"an adapter uses the protocol", "internal/transport/a.go", testModule + "/internal/wire", false},
		{"adapters do not import each other", "internal/transport/a.go", testModule + "/internal/kube", true},
		{"adapters do not import each other in tests", "internal/transport/a_test.go", testModule + "/internal/kube", true},
		{"subpackages of adapters do not import other adapters", "internal/proxy/redis/a.go", testModule + "/internal/transport/tunnel", true},
		{"packages of one directory may import each other", "internal/proxy/redis/a.go", testModule + "/internal/proxy/resource", false},
		{"the proxies do not import the engine", "internal/proxy/a.go", testModule + "/internal/engine", true},
		{"assembly imports adapters", "internal/agent/a.go", testModule + "/internal/kube", false},
		{"assemblies do not import each other", "internal/agent/a.go", testModule + "/internal/principal", true},
		{"an adapter does not import its assembly", "internal/kube/a.go", testModule + "/internal/agent", true},
		{"a command imports assembly", "cmd/argocd-agent/main.go", testModule + "/internal/agent", false},
		{"a command does not import the core", "cmd/argocd-agent/main.go", testModule + "/internal/engine", true},
		{"the product does not import the lab", "internal/kube/a.go", testModule + "/lab", true},
		{"tests of the product may import the lab", "internal/kube/a_test.go", testModule + "/lab", false},
		{"tests of the core do not import the lab", "internal/engine/a_test.go", testModule + "/lab", true},
		{"the lab runs the product as processes", "lab/a.go", testModule + "/internal/agent", true},
		{"nothing imports the simulator", "internal/reconcile/a_test.go", testModule + "/internal/sim", true},
		{"a name is not a prefix", "internal/kindred/a.go", "strings", true},

		{"pure packages may compute", "internal/engine/a.go", "slices", false},
		{"pure packages do not use the network", "internal/engine/a.go", "net", true},
		{"pure packages do not use the network", "internal/kind/a.go", "net/http", true},
		{"pure packages do not read the environment", "internal/reconcile/a.go", "os", true},
		{"pure packages do not log", "internal/engine/a.go", "log/slog", true},
		{"pure packages need no locks", "internal/engine/a.go", "sync", true},
		{"tests of pure packages may read files", "internal/engine/a_test.go", "os", false},
		{"tests of pure packages may use libraries", "internal/engine/a_test.go", "example.net/rapid", false},
		{"pure packages use no other module", "internal/kind/a.go", "k8s.io/apimachinery/pkg/runtime", true},
		{"pure packages use no other module", "internal/engine/a.go", "google.golang.org/grpc", true},
		{"the protocol is protobuf", "internal/wire/a.go", "google.golang.org/protobuf/proto", false},
		{"the protocol has no connection", "internal/wire/a.go", "google.golang.org/grpc", true},
		{"gRPC is one transport", "internal/transport/grpc/a.go", "google.golang.org/grpc/codes", false},
		{"the session interface hides gRPC", "internal/transport/a.go", "google.golang.org/grpc", true},
		{"tunnels run on any transport", "internal/transport/tunnel/a.go", "google.golang.org/grpc/mem", true},
		{"nothing above the transport imports gRPC", "internal/principal/a.go", "google.golang.org/grpc/status", true},
		{"tests may use gRPC", "internal/principal/a_test.go", "google.golang.org/grpc", false},
		{"an adapter uses client libraries", "internal/kube/a.go", "k8s.io/client-go/rest", false},
		{"objects stay raw", "internal/kube/a.go", "github.com/argoproj/argo-cd/v3/pkg/apis", true},
		{"objects stay raw in tests", "lab/a_test.go", "github.com/argoproj/argo-cd/v3/pkg/apis", true},
		{"the lab builds Kubernetes in another module", "lab/a.go", "k8s.io/kubernetes/cmd", true},
		{"a directory without a rule", "internal/common/a.go", "strings", true},
		{"a directory without a rule", "pkg/a.go", "strings", true},
	} {
		violations := checkImports(packageRules, testModule, parse(t, map[string]string{tc.file: importing(tc.imports)}))
		if refused := len(violations) > 0; refused != tc.refused {
			t.Errorf("%s: %s importing %s: refused %v, want %v %q", tc.why, tc.file, tc.imports, refused, tc.refused, violations)
		}
	}
}

func TestLoad_ReadsOnlyThisModule(t *testing.T) {
	sources := parse(t, map[string]string{
		"go.mod":                          "module " + testModule,
		"lab/tools/argocd/go.mod":         "module other",
		"lab/tools/argocd/tools.go":       importing("github.com/argoproj/argo-cd/v3/cmd"),
		"internal/engine/testdata/x/a.go": importing("net"),
		".hidden/a.go":                    importing("net"),
	})
	if len(sources) != 0 {
		t.Errorf("read %s, which is not part of the module", sources[0].name)
	}
}

func TestCheckPurity_FindsTimeRandomnessAndConcurrency(t *testing.T) {
	const engine, sim = "internal/engine/a.go", "internal/sim/a.go"
	for _, tc := range []struct {
		why, file, code, want string
	}{
		{"clock", engine, `import "time"; var x = time.Now()`, "time.Now"},
		{"clock as a value", engine, `import "time"; var clock = time.Now`, "time.Now"},
		{"clock under another name", engine, `import tt "time"; func f() { tt.Sleep(1) }`, "tt.Sleep"},
		{"clock in a dot import", engine, `import . "time"; var x = Now()`, "dot import"},
		{"timer", engine, `import "time"; var x = time.NewTimer(1)`, "time.NewTimer"},
		{"time as a type", engine, `import "time"; func f(now time.Time, d time.Duration) time.Time { return now.Add(d) }`, ""},
		{"a variable named like a package", engine, `type c struct{ Now int }; func f(time c) int { return time.Now }`, ""},
		{"global randomness", engine, `import "math/rand/v2"; var x = rand.Uint64()`, "rand.Uint64"},
		{"injected randomness", engine, `import "math/rand/v2"; func f(r *rand.Rand) uint64 { return r.Uint64() }`, ""},
		{"goroutine", engine, `func f() { go f() }`, "go statement"},
		{"channel", engine, `type t struct { c chan int }`, "channel"},
		{"select", engine, `func f() { select {} }`, "select statement"},
		{"printing", engine, `import "fmt"; func f() { fmt.Println() }`, "fmt.Println"},
		{"formatting", engine, `import "fmt"; var err = fmt.Errorf("x")`, ""},
		{"tests are exempt", "internal/engine/a_test.go", `import "time"; var x = time.Now()`, ""},
		{"adapters are exempt", "internal/transport/a.go", `import "time"; var x = time.Now()`, ""},
		{"the simulator has no clock", sim, `import "time"; var x = time.Now()`, "time.Now"},
		{"the simulator uses its seed", sim, `import "math/rand/v2"; var x = rand.IntN(3)`, "rand.IntN"},
		{"the simulator does not use system randomness", sim, `import "crypto/rand"; var x = rand.Reader`, "rand.Reader"},
		{"the simulator may run seeds in parallel", sim, `func f() { go f() }`, ""},
		{"the command of the simulator may use the clock", "internal/sim/cmd/sim/main.go", `import "time"; var x = time.Now()`, ""},
	} {
		violations := checkPurity(packageRules, parse(t, map[string]string{tc.file: "package p; " + tc.code}))
		switch {
		case tc.want == "" && len(violations) > 0:
			t.Errorf("%s: %q, want nothing", tc.why, violations)
		case tc.want != "" && (len(violations) != 1 || !strings.Contains(violations[0], tc.want)):
			t.Errorf("%s: %q, want one line with %q", tc.why, violations, tc.want)
		}
	}
}

func TestCheckComments_RequiresOneCommentPerPackage(t *testing.T) {
	violations := checkComments(parse(t, map[string]string{
		"good/doc.go":         "// Package good has a comment.\npackage good",
		"good/code.go":        "package good",
		"bare/code.go":        "package bare",
		"detached/code.go":    "// A licence is not a package comment.\n\npackage detached",
		"onlytests/a_test.go": "// Package onlytests has no code.\npackage onlytests",
		"testonly/code.go":    "package testonly",
		"testonly/a_test.go":  "// Package testonly has its comment in a test file, which documentation does not show.\npackage testonly",
	}))
	if got := strings.Join(violations, "\n"); strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, "bare:") || !strings.Contains(got, "detached:") || !strings.Contains(got, "testonly:") {
		t.Errorf("got %q, want bare, detached and testonly", violations)
	}
}

func TestCheckPackageTable_NamesMissingPackage(t *testing.T) {
	got := checkPackageTable([]packageRule{{path: "internal/engine"}, {path: "lab"}}, "| `lab` | clusters |")
	if len(got) != 1 || !strings.Contains(got[0], "internal/engine") {
		t.Errorf("got %q, want internal/engine", got)
	}
}

func TestPackageRules_NameKnownPackages(t *testing.T) {
	known := map[string]bool{}
	for _, r := range packageRules {
		if known[r.path] {
			t.Errorf("%s is listed twice", r.path)
		}
		known[r.path] = true
	}
	for _, r := range packageRules {
		for _, name := range paths(r.inner, r.tests) {
			if !known[name] {
				t.Errorf("%s may import %s, which has no rule", r.path, name)
			}
		}
	}
}
