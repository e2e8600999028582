package arch

import (
	"strings"
	"testing"
	"testing/fstest"
)

const testModule = "example.org/m"

// parse makes sources out of file names and texts.
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

func TestImportRuleRefusesWhatTheHouseDoesNotAllow(t *testing.T) {
	for _, tc := range []struct {
		why, file, imports string
		refused            bool
	}{
		{"the core points inwards", "internal/kind/a.go", testModule + "/internal/engine", false},
		{"the engine knows no kind", "internal/engine/a.go", testModule + "/internal/kind", true},
		{"the engine does not know the protocol", "internal/engine/a.go", testModule + "/internal/wire", true},
		{"the engine needs no raw objects", "internal/engine/a.go", testModule + "/internal/rawjson", true},
		{"raw is a leaf", "internal/rawjson/a.go", testModule + "/internal/engine", true},
		{"a node binds kinds to the engine", "internal/reconcile/a.go", testModule + "/internal/kind", false},
		{"a kind does not know the node", "internal/kind/a.go", testModule + "/internal/reconcile", true},
		{"the protocol carries engine messages", "internal/wire/a.go", testModule + "/internal/engine", false},
		{"the protocol knows no kind", "internal/wire/a.go", testModule + "/internal/kind", true},
		{"an adapter uses the protocol", "internal/transport/a.go", testModule + "/internal/wire", false},
		{"adapters do not meet", "internal/transport/a.go", testModule + "/internal/kube", true},
		{"adapters do not meet in tests either", "internal/transport/a_test.go", testModule + "/internal/kube", true},
		{"adapters do not meet below either", "internal/proxy/redis/a.go", testModule + "/internal/transport/tunnel", true},
		{"parts of one room may meet", "internal/proxy/redis/a.go", testModule + "/internal/proxy/resource", false},
		{"the proxies pass the engine by", "internal/proxy/a.go", testModule + "/internal/engine", true},
		{"assembly connects adapters", "internal/agent/a.go", testModule + "/internal/kube", false},
		{"assemblies do not meet", "internal/agent/a.go", testModule + "/internal/principal", true},
		{"an adapter does not know its assembly", "internal/kube/a.go", testModule + "/internal/agent", true},
		{"a command calls assembly", "cmd/argocd-agent/main.go", testModule + "/internal/agent", false},
		{"a command calls assembly only", "cmd/argocd-agent/main.go", testModule + "/internal/engine", true},
		{"the product does not know the lab", "internal/kube/a.go", testModule + "/lab", true},
		{"its tests may", "internal/kube/a_test.go", testModule + "/lab", false},
		{"tests of the core need no lab", "internal/engine/a_test.go", testModule + "/lab", true},
		{"the lab runs programs", "lab/a.go", testModule + "/internal/agent", true},
		{"nothing imports the simulator", "internal/reconcile/a_test.go", testModule + "/internal/sim", true},
		{"a name is not a prefix", "internal/kindred/a.go", "strings", true},

		{"pure rooms compute", "internal/engine/a.go", "slices", false},
		{"pure rooms have no network", "internal/engine/a.go", "net", true},
		{"pure rooms have no network", "internal/kind/a.go", "net/http", true},
		{"pure rooms have no environment", "internal/reconcile/a.go", "os", true},
		{"pure rooms do not log", "internal/engine/a.go", "log/slog", true},
		{"pure rooms have one caller at a time", "internal/engine/a.go", "sync", true},
		{"their tests read files", "internal/engine/a_test.go", "os", false},
		{"their tests bring libraries", "internal/engine/a_test.go", "example.net/rapid", false},
		{"pure rooms stand alone", "internal/kind/a.go", "k8s.io/apimachinery/pkg/runtime", true},
		{"pure rooms stand alone", "internal/engine/a.go", "google.golang.org/grpc", true},
		{"the protocol is protobuf", "internal/wire/a.go", "google.golang.org/protobuf/proto", false},
		{"the protocol has no connection", "internal/wire/a.go", "google.golang.org/grpc", true},
		{"an adapter uses what it adapts", "internal/kube/a.go", "k8s.io/client-go/rest", false},
		{"objects stay raw", "internal/kube/a.go", "github.com/argoproj/argo-cd/v3/pkg/apis", true},
		{"objects stay raw in tests", "lab/a_test.go", "github.com/argoproj/argo-cd/v3/pkg/apis", true},
		{"the lab builds Kubernetes elsewhere", "lab/a.go", "k8s.io/kubernetes/cmd", true},
		{"an unknown room is a decision", "internal/common/a.go", "strings", true},
		{"an unknown room is a decision", "pkg/a.go", "strings", true},
	} {
		violations := checkImports(packageRules, testModule, parse(t, map[string]string{tc.file: importing(tc.imports)}))
		if refused := len(violations) > 0; refused != tc.refused {
			t.Errorf("%s: %s importing %s: refused %v, want %v %q", tc.why, tc.file, tc.imports, refused, tc.refused, violations)
		}
	}
}

func TestImportRuleReadsOnlyThisModule(t *testing.T) {
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

func TestPurityRuleFindsTimeChanceAndConcurrency(t *testing.T) {
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
		{"tests are not held to it", "internal/engine/a_test.go", `import "time"; var x = time.Now()`, ""},
		{"adapters are not held to it", "internal/transport/a.go", `import "time"; var x = time.Now()`, ""},
		{"the simulator has no clock", sim, `import "time"; var x = time.Now()`, "time.Now"},
		{"the simulator draws from its seed", sim, `import "math/rand/v2"; var x = rand.IntN(3)`, "rand.IntN"},
		{"nor from the system", sim, `import "crypto/rand"; var x = rand.Reader`, "rand.Reader"},
		{"the simulator may run seeds in parallel", sim, `func f() { go f() }`, ""},
		{"its command has a clock", "internal/sim/cmd/sim/main.go", `import "time"; var x = time.Now()`, ""},
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

func TestCommentRuleWantsOneCommentPerPackage(t *testing.T) {
	violations := checkComments(parse(t, map[string]string{
		"good/doc.go":         "// Package good has a comment.\npackage good",
		"good/code.go":        "package good",
		"bare/code.go":        "package bare",
		"detached/code.go":    "// A licence is not a package comment.\n\npackage detached",
		"onlytests/a_test.go": "// Package onlytests has no code.\npackage onlytests",
		"untold/code.go":      "package untold",
		"untold/a_test.go":    "// Package untold is told by a test file, which documentation does not show.\npackage untold",
	}))
	if got := strings.Join(violations, "\n"); strings.Count(got, "\n") != 2 ||
		!strings.Contains(got, "bare:") || !strings.Contains(got, "detached:") || !strings.Contains(got, "untold:") {
		t.Errorf("got %q, want bare, detached and untold", violations)
	}
}

func TestRoomTableRuleNamesTheRoomThatIsMissing(t *testing.T) {
	got := checkRoomTable([]packageRule{{path: "internal/engine"}, {path: "lab"}}, "| `lab` | clusters |")
	if len(got) != 1 || !strings.Contains(got[0], "internal/engine") {
		t.Errorf("got %q, want internal/engine", got)
	}
}

func TestHouseNamesOnlyRoomsThatItHas(t *testing.T) {
	known := map[string]bool{}
	for _, r := range packageRules {
		if known[r.path] {
			t.Errorf("%s is listed twice", r.path)
		}
		known[r.path] = true
	}
	for _, r := range packageRules {
		for _, name := range rooms(r.inner, r.tests) {
			if !known[name] {
				t.Errorf("%s may import %s, which is no room", r.path, name)
			}
		}
	}
}
