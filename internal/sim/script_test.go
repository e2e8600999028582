package sim

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts as they come out now")

// TestScenario plays the stories in testdata. A block is a list of commands, a line of dashes, and what then happens;
// an empty line ends it. What must come out is also said by commands that begin with expect: they fail whatever the
// transcript says.
func TestScenario(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScenario(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s comes out differently:\n%s\nRun with -rewrite and read the difference.", file, difference(string(text), got))
			}
		})
	}
}

func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\n  want %s\n  got  %s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(b), len(a))
}

const dashes = "----"

// runScenario plays a scenario and returns it with what happened.
func runScenario(t *testing.T, text string) string {
	t.Helper()
	s := &script{t: t}
	var out strings.Builder
	inOutput := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case inOutput && line != "":
			continue
		case inOutput:
			inOutput = false
		case line == dashes:
			inOutput = true
			out.WriteString(dashes + "\n" + s.take())
			continue
		case line != "" && !strings.HasPrefix(line, "#"):
			s.do(line)
		}
		out.WriteString(line + "\n")
	}
	if s.w != nil {
		for _, v := range s.w.violations {
			t.Errorf("violation: %s", v)
		}
	}
	return out.String()
}

// script is a scenario while it runs.
type script struct {
	t          *testing.T
	w          *world
	story      []string
	times      int            // the last line of the story happened so often
	operations map[string]int // how often operations of an Application ran
	fates      []string       // what was deleted on spokes by our agents
	reported   map[string]bool
}

// take returns the story since the last time.
func (s *script) take() string {
	s.line("")
	var b strings.Builder
	for _, line := range s.story {
		b.WriteString(line + "\n")
	}
	s.story, s.reported = nil, map[string]bool{}
	return b.String()
}

// line adds to the story. Repetitions are counted.
func (s *script) line(text string) {
	if n := len(s.story); n > 0 && s.story[n-1] == text {
		s.times++
		return
	}
	if s.times > 1 {
		s.story[len(s.story)-1] += fmt.Sprintf(" (%d times)", s.times)
	}
	s.times = 1
	if text != "" {
		s.story = append(s.story, text)
	}
}

// record turns a line of the transcript into one of the story, if it belongs there: no messages, no times, no numbers
// that mean nothing to the reader.
func (s *script) record(line string) {
	_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case strings.Contains(line, " → "), strings.Contains(line, ": dials"), strings.Contains(line, "event Accepted"),
		strings.Contains(line, "event Delivered"), strings.Contains(line, "event Unattached"), strings.HasPrefix(line, "world:"),
		strings.HasPrefix(line, "---"), strings.Contains(line, "record alias"):
		return
	}
	if who, rest, ok := strings.Cut(line, "runs an operation of applications "); ok {
		app, _, _ := strings.Cut(rest, " ")
		where := strings.TrimPrefix(strings.TrimSuffix(strings.TrimSpace(who), ":"), controllerName+" on ")
		s.operations[where+":"+app]++
	}
	if strings.Contains(line, ": delete ") && !strings.HasPrefix(line, userName) && !strings.HasPrefix(line, serverName) && !strings.HasPrefix(line, spokeUser) {
		s.fates = append(s.fates, line)
	}
	if head, _, ok := strings.Cut(line, ": stored at "); ok {
		line = head
	}
	if strings.Contains(line, "event Refused") || strings.Contains(line, "event Rejected") || strings.Contains(line, "cuts the connection") {
		if s.reported[line] {
			return // once is enough
		}
		s.reported[line] = true
	}
	line = strings.Replace(line, "applications ", "", 1)
	s.line(anonymous(line))
}

// anonymous replaces what changes with every change of a hash or a revision.
func anonymous(line string) string {
	words := strings.Split(line, " ")
	for i, word := range words {
		id := strings.TrimPrefix(word, "store-")
		if len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
			words[i] = "ID"
		}
	}
	line = strings.Join(words, " ")
	if head, _, ok := strings.Cut(line, ": restored from "); ok {
		return head + ": restored from a backup"
	}
	return line
}

// build makes the world of a scenario: `world a:managed b:autonomous replicas=2`.
func (s *script) build(words []string) {
	sh := shape{replicas: 1, mapping: kind.ByNamespace, steady: true}
	offline := false
	for _, word := range words {
		if word == "offline" {
			offline = true
			continue
		}
		if name, mode, ok := strings.Cut(word, ":"); ok {
			sh.agents = append(sh.agents, agentShape{name: name, mode: kind.Mode(mode), hubNamespace: name, argo: "argocd"})
			continue
		}
		if _, err := fmt.Sscanf(word, "replicas=%d", &sh.replicas); err != nil {
			s.t.Fatalf("%q: %v", word, err)
		}
	}
	s.w = newWorld(1, sh)
	s.w.trace = s.record
	s.operations, s.reported = map[string]int{}, map[string]bool{}
	for _, sp := range s.w.spokes {
		if offline {
			sp.partitionUntil = 24 * hour // until the scenario reconnects it
		}
	}
	s.w.begin()
	s.w.run(30 * second)
	s.story, s.times = nil, 0
}

func (s *script) fatal(line, format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s", line, fmt.Sprintf(format, args...))
}

// spoke finds an agent.
func (s *script) spoke(line, name string) *spoke {
	sp := s.w.spokeOf(name)
	if sp == nil {
		s.fatal(line, "no agent %s", name)
	}
	return sp
}

// app is an Application on the hub, written agent/name.
func (s *script) app(word string) kind.Ref {
	ns, name, _ := strings.Cut(word, "/")
	return ref(kind.Applications, ns, name)
}

func (s *script) process(line, name string) *process {
	for _, p := range s.w.processes() {
		if p.name == name {
			return p
		}
	}
	s.fatal(line, "no process %s", name)
	return nil
}

func duration(word string) engine.Time {
	var n int
	var unit string
	if _, err := fmt.Sscanf(word, "%d%s", &n, &unit); err != nil {
		return 0
	}
	return engine.Time(n) * map[string]engine.Time{"ms": millisecond, "s": second, "m": minute, "h": hour}[unit]
}
