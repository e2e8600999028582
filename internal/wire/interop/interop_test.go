// Package interop proves that the events of this protocol are CloudEvents to
// the CloudEvents SDK, and that those of the SDK are events to us.
//
// It is a module of its own, so that the SDK stays out of the product's, and it
// meets the product in files only: ../testdata has what we write, which a test
// over there pins, and sdk.golden, which the SDK wrote and we have to read. Run
// it (go test . in this folder) when one of them changes.
package interop

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	format "github.com/cloudevents/sdk-go/binding/format/protobuf/v2"
	"github.com/cloudevents/sdk-go/v2/event"
	"google.golang.org/protobuf/encoding/protowire"
)

var update = flag.Bool("update", false, "have the SDK write sdk.golden again")

const sdkFile = "../testdata/sdk.golden"

func TestSDK_ReadsOurEvents(t *testing.T) {
	files, err := filepath.Glob("../testdata/*.golden")
	if err != nil || len(files) < 2 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".golden")
		if file == sdkFile {
			continue
		}
		t.Run(name, func(t *testing.T) {
			e := read(t, file)
			if err := e.Validate(); err != nil {
				t.Errorf("the SDK finds the event invalid: %v", err)
			}
			contentType := "application/protobuf"
			if name == "equal" { // binary_data, whose type would have to be an attribute
				contentType = ""
			}
			for what, pair := range map[string][2]string{
				"id":              {e.ID(), "17.3.42"},
				"source":          {e.Source(), "agent/prod-1"},
				"specversion":     {e.SpecVersion(), "1.0"},
				"type":            {e.Type(), "io.argocd-agent.sync.v1." + name},
				"datacontenttype": {e.DataContentType(), contentType},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s is %q instead of %q", what, pair[0], pair[1])
				}
			}
			for data := e.Data(); len(data) > 0; {
				_, _, n := protowire.ConsumeField(data)
				if n < 0 {
					t.Fatalf("the data is no protobuf: %v", protowire.ParseError(n))
				}
				data = data[n:]
			}
		})
	}
}

func TestSDK_WritesWhatOurTestsRead(t *testing.T) {
	e := event.New()
	e.SetID("17.3.42")
	e.SetSource("agent/prod-1")
	e.SetType("io.argocd-agent.sync.v1.confirm")
	e.SetDataSchema("type.googleapis.com/argocdagent.v1.Confirm")
	e.SetExtension("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	var data []byte
	data = protowire.AppendString(protowire.AppendTag(data, 1, protowire.BytesType), "application")
	data = protowire.AppendString(protowire.AppendTag(data, 2, protowire.BytesType), "5f0c")
	if err := e.SetData("application/protobuf", data); err != nil {
		t.Fatal(err)
	}
	b, err := format.Protobuf.Marshal(&e)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(sdkFile, []byte(hex.Dump(b)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Compared as events: the order of attributes on the wire is not fixed.
	var now event.Event
	if err := format.Protobuf.Unmarshal(b, &now); err != nil {
		t.Fatal(err)
	}
	if then := read(t, sdkFile); !reflect.DeepEqual(then, now) {
		t.Errorf("the SDK writes\n%v\nand once wrote\n%v", now, then)
	}
}

func read(t *testing.T, file string) event.Event {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for _, line := range regexp.MustCompile(`(?m)^[0-9a-f]{8}  ([0-9a-f ]+?)  \|`).FindAllSubmatch(text, -1) {
		digits.WriteString(strings.ReplaceAll(string(line[1]), " ", ""))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	var e event.Event
	if err := format.Protobuf.Unmarshal(b, &e); err != nil {
		t.Fatalf("the SDK does not read %s: %v", file, err)
	}
	return e
}
