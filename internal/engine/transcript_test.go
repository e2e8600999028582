package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts as they come out now")

// TestTranscript plays the scenarios in testdata. A block is a list of commands, a line of dashes, and what both sides
// then say and do; an empty line ends it.
func TestTranscript(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts found: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runTranscript(t, string(text))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s comes out differently:\n%s", file, firstDifference(string(text), got))
			}
		})
	}
}

const dashes = "----"

// runTranscript runs the commands of a transcript and puts what happens behind them.
func runTranscript(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	var block []string
	w := newWorld(t, Tuning{})
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	inOutput := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		switch {
		case inOutput && line != "":
		case inOutput:
			inOutput = false
			out.WriteString("\n")
		case line == dashes:
			inOutput = true
			out.WriteString(dashes + "\n")
			w.trace = func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
			for _, command := range block {
				if err := w.run(strings.Fields(command)); err != nil {
					t.Fatalf("%s: %v", command, err)
				}
				w.work()
			}
			block = nil
		default:
			out.WriteString(line + "\n")
			if line != "" && !strings.HasPrefix(line, "#") {
				block = append(block, line)
			}
		}
	}
	return out.String()
}

func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d\n  want %s\n  got  %s\nRun with -rewrite and read the difference.", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines instead of %d", len(b), len(a))
}

// run carries out one command of a transcript.
func (w *world) run(args []string) error {
	if len(args) == 0 {
		return nil
	}
	verb, rest := args[0], args[1:]
	switch verb {
	case "tune":
		return w.tune(rest)
	case "connect":
		w.connect()
	case "cut":
		w.cut(len(rest) > 0 && rest[0] == "keep")
	case "deliver":
		w.deliver()
	case "wait":
		n, err := strconv.Atoi(strings.TrimSuffix(rest[0], "s"))
		if err != nil {
			return err
		}
		w.wait(Time(n) * Second)
	case "quiet":
		trace := w.trace
		w.trace = nil
		err := w.run(rest)
		w.trace = trace
		return err
	case "status":
		w.trace("%s", w.status())
	case "bytes":
		w.trace("hub sent %d messages, agent %d", w.hub.sent, w.agent.sent)
		w.hub.sent, w.agent.sent = 0, 0
	case "hub":
		return w.hub.run(rest)
	case "agent":
		return w.agent.run(rest)
	default:
		return fmt.Errorf("no such command")
	}
	return nil
}

// tune starts both sides again with other numbers.
func (w *world) tune(args []string) error {
	var t Tuning
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		switch name {
		case "window":
			t.Window = n
		case "items":
			t.MaxItems = n
		case "tombstones":
			t.MaxTombstones = n
		default:
			return fmt.Errorf("no such number: %s", name)
		}
	}
	for _, s := range []*side{w.hub, w.agent} {
		s.cfg.Tuning = t
		s.boot()
		s.do(Tick{})
	}
	return nil
}

// status prints what both sides know about themselves.
func (w *world) status() string {
	var lines []string
	for _, s := range []*side{w.hub, w.agent} {
		st := s.peer.Status()
		line := fmt.Sprintf("%-5s   connected=%v", s.name, st.Connected)
		if st.StoreHoldID != "" {
			line += fmt.Sprintf(" suspect, known is %s@%d", st.Other.UID, st.Other.Revision)
		}
		if st.UnexpectedMessages > 0 {
			line += fmt.Sprintf(" unexpected=%d", st.UnexpectedMessages)
		}
		lines = append(lines, line)
		for _, sc := range st.Scopes {
			line := fmt.Sprintf("%-5s   %s: %d items", s.name, sc.Name, sc.Items)
			for _, n := range []struct {
				name string
				n    int
			}{{"dirty", sc.Dirty}, {"in flight", sc.InFlight}, {"rejected", sc.Rejected}, {"held", sc.Held}, {"divergent", sc.Diverged}, {"lossy", sc.Lossy}} {
				if n.n > 0 {
					line += fmt.Sprintf(", %d %s", n.n, n.name)
				}
			}
			if !sc.Complete {
				line += ", incomplete"
			}
			if sc.InSyncAt != 0 {
				line += fmt.Sprintf(", equal %ds ago", (w.now-sc.InSyncAt)/Second)
			}
			lines = append(lines, line)
		}
		if len(s.store.ran) > 0 {
			lines = append(lines, fmt.Sprintf("%-5s   ran %s", s.name, strings.Join(s.store.ran, " ")))
		}
	}
	return strings.Join(lines, "\n")
}
