package wire

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// samples has a message of each type with every field in use.
var samples = map[string]engine.Message{
	"hello": engine.Hello{
		Epoch:        engine.Epoch{Incarnation: 17, Attempt: 3},
		ClusterUID:   "b2f6c8a4-7a43-4c0e-9a52-0d5f1f1f9f10",
		Mode:         "managed",
		Mapping:      "namespace",
		Namespace:    "argocd",
		Version:      "v0.1.0",
		Protocol:     engine.Range{Min: 1, Max: 2},
		Projection:   engine.Range{Min: 1, Max: 3},
		Capabilities: []string{"compress", "tunnel", "scope=application"},
		Store:        engine.Store{UID: "spoke", Revision: 123456},
		Known:        engine.Store{UID: "hub", Revision: 987600, Mark: engine.HistoryMark{Record: "agent-uid", Number: 41}},
		Seen:         []engine.Seen{{Scope: "application", Revision: 77}, {Scope: "appproject", Revision: 12}},
		Facts:        []engine.Fact{{Key: "topology.kubernetes.io/region", Value: "eu-west-1"}},
		ClockMillis:  1790000000000,
	},
	"welcome": engine.Welcome{
		Epoch:         engine.Epoch{Incarnation: 17, Attempt: 3},
		Agent:         "prod-1",
		Mode:          "managed",
		Mapping:       "namespace",
		HubNamespace:  "prod-1",
		ArgoNamespace: "argocd",
		ServerURL:     "https://principal.argocd:9090?agentName=prod-1",
		PrincipalUID:  "0e2b7a4e-18d5-4f0b-9d8a-5a5f2a0c3d11",
		Version:       "v0.2.0",
		Protocol:      2,
		Projection:    3,
		Capabilities:  []string{"tunnel", "scope=application"},
		Store:         engine.Store{UID: "hub", Revision: 987654, Mark: engine.HistoryMark{Record: "agent-uid", Number: 42}},
		Seen:          []engine.Seen{{Scope: "status", Revision: 99}},
		ClockMillis:   1790000000001,
		InstanceLabel: "tracking.example/instance",
		HubGeneration: 2,
		Predecessor:   engine.Store{UID: "first-hub", Revision: 123456},
		Known:         engine.Store{UID: "spoke", Revision: 123400},
	},
	"roots": engine.Roots{Mark: 42, Items: []engine.Root{
		{Scope: "application", Count: 10000, Sum: engine.Sum{Hi: 1, Lo: 2}, Revision: 5},
		{Scope: "appproject"},
		{Scope: "repository", Count: 3, Sum: engine.Sum{Hi: 3, Lo: 4}, Revision: 6},
	}, Same: []engine.Root{{Scope: "status", Sum: engine.Sum{Hi: 5, Lo: 6}}}},
	"equal": engine.Equal{Sum: engine.Sum{Hi: 1, Lo: 2}, Seen: []engine.Seen{{Scope: "status", Revision: 5}}, Mark: 7},
	"same":  engine.Same{Items: []engine.Root{{Scope: "application", Count: 10000, Sum: engine.Sum{Hi: 1, Lo: 2}, Revision: 5}}},
	"ask": engine.Ask{Scope: "application", Round: 7, Prefixes: []engine.Prefix{
		{}, {Bits: 0xab00000000000000, Len: 1}, {Bits: 0x0123456789abcdef, Len: 8},
	}},
	"answer": engine.Answer{Scope: "application", Round: 7, View: 4712, Branches: []engine.Branch{
		{Split: true, Sums: []engine.ChildSum{{Child: 0, Sum: engine.Sum{Hi: 3, Lo: 4}}, {Child: 255, Sum: engine.Sum{Lo: 5}}}},
		{Prefix: engine.Prefix{Bits: 0xab00000000000000, Len: 1}, Items: []engine.Listed{
			{Hash: 0xab00000000000001, Version: engine.Version{Hi: 6, Lo: 7}},
			{Hash: 0xab00000000000002, Version: engine.Version{Hi: 8, Lo: 9}},
		}},
	}},
	"want": engine.Want{Scope: "application", Hashes: []engine.KeyHash{0xab00000000000001, 2}},
	"delta": engine.Delta{Scope: "application", Revision: 4711, View: 4712, Items: []engine.DeltaItem{
		{Seq: 1, Key: engine.Key{Namespace: "team-a", Name: "guestbook"}, Version: engine.VersionOf([]byte(`{"spec":{}}`)),
			Content: []byte(`{"spec":{}}`), Extra: []byte(`{"reconciledAt":"2026-01-01T00:00:00Z"}`), Revision: 4710},
		{Seq: 2, Key: engine.Key{Name: "default"}, Gone: true, DeletedUID: "8c1f7d0e-1111-4222-8333-444455556666"},
	}},
	"ack": engine.Ack{Scope: "application", Items: []engine.AckItem{
		{Seq: 1, Key: engine.Key{Namespace: "team-a", Name: "guestbook"}, Version: engine.Version{Hi: 10, Lo: 11}, HandledMillis: 12},
		{Seq: 2, Key: engine.Key{Name: "default"}, Code: engine.Forbidden, Message: "may not update appprojects", RetryAfterMillis: 30000},
	}},
	"finished": engine.Finished{Scope: "application", Key: engine.Key{Namespace: "team-a", Name: "guestbook"}, Version: engine.Version{Hi: 12, Lo: 13}},
	"held": engine.Held{Scope: "application", ID: "5f0c", Count: 120, Of: 150, Reason: "more than 20 % of the scope",
		Sample: []engine.Key{{Namespace: "team-a", Name: "guestbook"}}, Cause: engine.CauseMany},
	"writeoutage": engine.WriteOutage{Reason: "API server has not accepted writes since 2026-01-01T00:00:00Z: 503"},
	"applicationevents": engine.ApplicationEvents{Items: []engine.ApplicationEvent{{
		Key: engine.Key{Namespace: "team-a", Name: "guestbook"}, ApplicationUID: "0c8a4a6e", UID: "5d1f7c1b", Type: "Normal", Reason: "OperationCompleted",
		Message: "Sync operation succeeded", Component: "argocd-application-controller", Count: 2, FirstMillis: 1790000000000, LastMillis: 1790000001000}}},
	"upgradestate": engine.UpgradeState{ID: "20260101-000000", Phase: "RolledBack", Message: "the new agent was not in sync in 5m"},
	"upgrade": engine.Upgrade{ID: "20260101-000000", Version: "v0.3.0", Repository: "registry.example.com/argocd-agent",
		Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", TimeoutMillis: 300000},
	"confirm": engine.Confirm{Scope: "application", ID: "5f0c"},
	"open":    engine.Open{Token: "c2VjcmV0", Target: "kubernetes"},
	"bye":     engine.Bye{Code: engine.Superseded, Message: "a newer session of this agent exists", RetryAfterMillis: 1000},
}

// The golden files are the protocol of released builds. If one changes, peers of different releases do not understand
// each other. New fields are allowed and must be added to a sample.
func TestEncode_MatchesTheGoldenFiles(t *testing.T) {
	for name := range kinds {
		t.Run(name, func(t *testing.T) {
			m := samples[name]
			if m == nil {
				t.Fatal("no sample of this message")
			}
			event, err := Encode(m, someMeta)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(hex.Dump(event)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden := readDump(t, file)
			if !bytes.Equal(event, golden) {
				t.Errorf("the message is encoded as\n%swhich is not what %s has", hex.Dump(event), file)
			}
			got, meta, err := Decode(golden)
			if err != nil {
				t.Fatalf("decode %s: %v", file, err)
			}
			if !reflect.DeepEqual(got, m) || meta != someMeta {
				t.Errorf("%s is decoded as %#v, %#v", file, got, meta)
			}
		})
	}
}

func TestSamples_UseEveryField(t *testing.T) {
	set, all := map[string]bool{}, map[string]bool{}
	for _, m := range samples {
		collectFields(reflect.ValueOf(m), set, all)
	}
	for field := range all {
		if !set[field] {
			t.Errorf("no sample uses %s", field)
		}
	}
}

var dumpLine = regexp.MustCompile(`(?m)^[0-9a-f]{8}  ([0-9a-f ]+?)  \|.*$`)

// readDump reads what hex.Dump wrote.
func readDump(tb testing.TB, file string) []byte {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	var b []byte
	for _, line := range dumpLine.FindAllSubmatch(text, -1) {
		part, err := hex.DecodeString(string(bytes.ReplaceAll(line[1], []byte(" "), nil)))
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		b = append(b, part...)
	}
	return b
}
