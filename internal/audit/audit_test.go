package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/lab/collector"
)

// output is a buffer that is safe for concurrent use.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func open(t *testing.T, cfg Config) (*Log, *output) {
	t.Helper()
	messages := new(output)
	cfg.Side, cfg.Log = Spoke, slog.New(slog.NewTextHandler(messages, nil))
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l, messages
}

func read(t *testing.T, text string) (out []Record) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, r)
	}
	return out
}

func TestLog_WritesOneLinePerRecord(t *testing.T) {
	var stdout output
	l, messages := open(t, Config{Target: "-", Stdout: &stdout})
	l.Write(Record{Type: Command, Action: "sync", Caller: "line\nbreak", Result: OK, Object: Object{Name: "web"}})
	l.SetAgent("w1")
	l.Write(Record{Type: Live, Action: "patch", Result: Failed, Code: "409", RequestID: "r2"})
	l.Close()
	l.Close()
	l.Write(Record{Action: "late"})
	got := read(t, stdout.String())
	if len(got) != 2 {
		t.Fatalf("%s", stdout.String())
	}
	if a := got[0]; a.Agent != "" || a.Side != Spoke || a.Caller != "line\nbreak" || a.Object.Name != "web" || a.Time.IsZero() {
		t.Errorf("%+v", a)
	}
	if b := got[1]; b.Agent != "w1" || b.Caller != UnknownCaller || b.Code != "409" || b.RequestID != "r2" {
		t.Errorf("%+v", b)
	}
	if counts, on := l.Counts(); !on || counts.Written != 2 || counts.Full != 1 || messages.String() != "" {
		t.Errorf("%+v %s", counts, messages)
	}
}

func TestNilLog_WritesNothing(t *testing.T) {
	l, err := Open(t.Context(), Config{})
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	l.SetAgent("a")
	l.Write(Record{})
	l.Close()
	if _, on := l.Counts(); on {
		t.Error("it counts")
	}
}

// blocking is a writer that a test lets continue.
type blocking struct {
	output
	began, proceed chan struct{}
}

func (b *blocking) Write(p []byte) (int, error) {
	select {
	case b.began <- struct{}{}:
	default:
	}
	<-b.proceed
	return b.output.Write(p)
}

func TestLog_BlockedTargetLosesLinesAndBlocksNoCaller(t *testing.T) {
	pipe := &blocking{began: make(chan struct{}, 1), proceed: make(chan struct{})}
	l, messages := open(t, Config{Target: "-", Stdout: pipe, Queue: 2})
	l.Write(Record{Action: "first"})
	<-pipe.began
	for range 100 {
		l.Write(Record{Action: "more"})
	}
	if counts, _ := l.Counts(); counts.Full != 98 || counts.Written != 0 {
		t.Errorf("%+v", counts)
	}
	if n := strings.Count(messages.String(), "lines are lost"); n != 1 {
		t.Errorf("%d messages: %s", n, messages)
	}
	close(pipe.proceed)
	l.Close()
	lines := read(t, pipe.String())
	if counts, _ := l.Counts(); counts.Written != 4 || len(lines) != 4 || counts.LostByAgent[""] != 98 {
		t.Errorf("%+v", counts)
	}
	if last := lines[3]; last.Type != Loss || last.Result != Failed || last.Reason != "lost lines of the audit log: 98" {
		t.Errorf("%+v", last)
	}
	if !strings.Contains(messages.String(), "Audit log is written again") {
		t.Error(messages)
	}
}

func TestLog_FullDiskLosesLinesAndIsLoggedOnce(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip(err)
	}
	l, messages := open(t, Config{Target: full})
	for range 10 {
		l.Write(Record{Action: "sync"})
	}
	l.Close()
	if counts, _ := l.Counts(); counts.Failed != 10 || counts.Written != 0 || counts.LostByAgent[""] != 10 {
		t.Errorf("%+v", counts)
	}
	if n := strings.Count(messages.String(), "lines are lost"); n != 1 {
		t.Errorf("%d messages: %s", n, messages)
	}
}

// One agent that causes many lines does not displace those of others.
func TestLog_AgentHasShareOfQueue(t *testing.T) {
	pipe := &blocking{began: make(chan struct{}, 1), proceed: make(chan struct{})}
	l := start(Config{Side: Hub, Log: slog.New(slog.DiscardHandler), Queue: 64}, &stream{w: pipe})
	defer l.Close()
	l.Write(Record{Agent: "w1", Action: "first"})
	<-pipe.began
	for range 1000 {
		l.Write(Record{Agent: "hostile", Action: "more"})
	}
	const share = 64 / shares
	for _, agent := range []string{"w1", "w2", "w3"} {
		for range share {
			l.Write(Record{Agent: agent, Action: "sync"})
		}
	}
	l.Write(Record{Agent: "w1", Action: "above its share"})
	counts, _ := l.Counts()
	if want := map[string]uint64{"hostile": 1000 - 32, "w1": 1}; !maps.Equal(counts.LostByAgent, want) || counts.Full != 969 {
		t.Errorf("%+v, want %v", counts, want)
	}
	close(pipe.proceed)
	l.Close()
	got := map[string]int{}
	for _, r := range read(t, pipe.String()) {
		got[r.Agent+" "+r.Action]++
		if r.Type == Loss && r.Agent == "hostile" && r.Reason != "lost lines of the audit log: 968" {
			t.Errorf("%+v", r)
		}
	}
	want := map[string]int{"w1 first": 1, "hostile more": 32, "w1 sync": share, "w2 sync": share, "w3 sync": share, "hostile lose": 1, "w1 lose": 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(l.queued) != 0 || len(l.lost.due) != 0 {
		t.Errorf("%v %v", l.queued, l.lost.due)
	}
}

// failing is a writer that refuses some writes.
type failing struct {
	output
	left int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left >= 0 {
		return 0, errors.New("no space")
	}
	return f.output.Write(p)
}

func TestLog_ReportsLossWhenTargetAcceptsLinesAgain(t *testing.T) {
	target := &failing{left: 3}
	l := start(Config{Side: Hub, Log: slog.New(slog.DiscardHandler)}, &stream{w: target})
	defer l.Close()
	for i := range uint64(5) { // one batch each
		l.Write(Record{Agent: "w1", Action: fmt.Sprint(i)})
		for counts, _ := l.Counts(); counts.Written+counts.Failed <= i; counts, _ = l.Counts() {
			runtime.Gosched()
		}
	}
	l.Close()
	var got []string
	for _, r := range read(t, target.String()) {
		got = append(got, r.Action+r.Reason)
	}
	if want := []string{"3", "loselost lines of the audit log: 3", "4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLoss_NumberOfAgentsIsBounded(t *testing.T) {
	var l lossByAgent
	for i := range maxLossAgents + 10 {
		l.add(fmt.Sprint(i))
	}
	if len(l.total) != maxLossAgents+1 || l.total[""] != 10 {
		t.Errorf("%d agents, %d without a name", len(l.total), l.total[""])
	}
	if n := len(l.report(Hub)); n != maxLossLines || len(l.due) != maxLossAgents+1-maxLossLines {
		t.Errorf("%d lines, %d due", n, len(l.due))
	}
}

func TestLog_FileCanBeRotated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, _ := open(t, Config{Target: path})
	await := func(file string, lines int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for {
			b, _ := os.ReadFile(file)
			if bytes.Count(b, []byte("\n")) == lines {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s has %q", file, b)
			case <-time.After(time.Millisecond):
			}
		}
	}
	l.Write(Record{Action: "first"})
	await(path, 1)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.Write(Record{Action: "second"})
	await(path, 1)
	await(path+".1", 1)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

func TestLog_FileThatCannotBeOpened(t *testing.T) {
	if _, err := Open(t.Context(), Config{Target: filepath.Join(t.TempDir(), "no", "such")}); err == nil || !strings.Contains(err.Error(), "open audit log") {
		t.Error(err)
	}
}

func TestFile_LineAfterPartialLineIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	s, err := newFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.f.WriteString(`{"time":`); err != nil {
		t.Fatal(err)
	}
	s.broken = true // what a failed write leaves
	if n, err := s.write(t.Context(), []Record{{Action: "a"}, {Action: "b"}}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	s.close(t.Context())
	b, _ := os.ReadFile(path)
	_, rest, _ := strings.Cut(string(b), "\n")
	if got := read(t, rest); len(got) != 2 || got[0].Action != "a" {
		t.Errorf("%s", b)
	}
}

func TestRecord_TextsAreBounded(t *testing.T) {
	var stdout output
	l, _ := open(t, Config{Target: "-", Stdout: &stdout})
	long := strings.Repeat("é\xff", 5000)
	l.Write(Record{Agent: long, Action: long, Caller: long, CallerFrom: long, Impersonates: long, Application: long, Code: long, Setting: long, Reason: long, RequestID: long,
		Object: Object{Group: long, Resource: long, Subresource: long, Namespace: long, Name: long}})
	l.Close()
	if line := stdout.String(); len(line) > 20<<10 || !utf8.ValidString(line) || len(read(t, line)) != 1 {
		t.Errorf("%d bytes", len(line))
	}
}

func TestLog_SendsRecordsToCollector(t *testing.T) {
	c, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, messages := open(t, Config{Target: TargetOTLP, Collector: Collector{Address: c.Address(), Insecure: true, Service: "argocd-agent-agent", Version: "v1"}})
	for _, action := range []string{"sync", "refresh"} {
		l.Write(Record{Type: Command, Action: action, Result: OK, Caller: "alice", Agent: "w1", RequestID: "id-" + action, Object: Object{Namespace: "argocd", Name: "web"}})
	}
	l.Close()
	got := c.Logs()
	if len(got) != 2 {
		t.Fatalf("%v %s", got, messages)
	}
	first := got[0]
	if r := read(t, first.Body); len(r) != 1 || r[0].Action != "sync" || r[0].Object.Name != "web" {
		t.Errorf("%s", first.Body)
	}
	if a := first.Attributes; a["argocd_agent.audit.action"] != "sync" || a["enduser.id"] != "alice" || a["argocd_agent.audit.request_id"] != "id-sync" || first.Event != "argocd_agent.audit" {
		t.Errorf("%v", first)
	}
	if first.Resource["service.name"] != "argocd-agent-agent" {
		t.Errorf("%v", first.Resource)
	}
}

func TestLog_CollectorThatHangsIsLoggedOnceAndEndsWithProcess(t *testing.T) {
	c, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Hold = make(chan struct{})
	defer c.Close()
	defer close(c.Hold)
	l, messages := open(t, Config{Target: TargetOTLP, Collector: Collector{Address: c.Address(), Insecure: true}, Queue: 3})
	l.Write(Record{Action: "held"})
	if err := c.Wait(t.Context(), func() bool { return c.Requests() > 0 }); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		l.Write(Record{Action: "more"})
	}
	l.end() // what Close does after a few seconds
	l.Close()
	<-l.done
	if counts, _ := l.Counts(); counts.Full != 7 || counts.Written != 0 {
		t.Errorf("%+v", counts)
	}
	if n := strings.Count(messages.String(), "lines are lost"); n != 1 {
		t.Errorf("%d messages: %s", n, messages)
	}
}
