package cli

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "record the transcripts")

// today is the time in all transcripts.
var today = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// script runs transcripts in testdata. A line with "$ " is a command and its output follows. A line with "% " is an
// instruction to the test:
//
//	% terminal      the following commands write to a terminal with colors
//	% answer TEXT   a user answers the next command
//	% env A=B       sets an environment variable
//
// Tests add more instructions. Output that differs between runs is replaced before the comparison.
type script struct {
	t        *testing.T
	env      []string
	commands map[string]func(argument string) string // instructions of the test and their output
	replace  map[string]string                       // expression → replacement
	names    map[string]string                       // placeholder → value, in commands and output
	now      func() time.Time                        // if nil, today

	screen Screen
	answer *string
}

// play runs a transcript and compares the output with the recorded output.
func (s *script) play(file string) {
	s.t.Helper()
	path := filepath.Join("testdata", file)
	recorded, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	var played strings.Builder
	for _, line := range strings.SplitAfter(string(recorded), "\n") {
		switch {
		case strings.HasPrefix(line, "$ "), strings.HasPrefix(line, "% "):
			if played.Len() > 0 {
				played.WriteString("\n")
			}
			played.WriteString(line)
			played.WriteString(s.clean(s.step(strings.TrimSpace(line))))
		case strings.HasPrefix(line, "# "):
			if played.Len() > 0 {
				played.WriteString("\n")
			}
			played.WriteString(line)
		}
	}
	got := regexp.MustCompile(`(?m)^(# .*\n)\n`).ReplaceAllString(played.String(), "$1") // a comment belongs to the next step
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	if got != string(recorded) {
		s.t.Errorf("%s differs; if this is intended, run: go test ./internal/cli -update\n%s", path, difference(string(recorded), got))
	}
}

// step runs one step and returns its output.
func (s *script) step(line string) string {
	s.t.Helper()
	for name, value := range s.names {
		line = strings.ReplaceAll(line, name, value)
	}
	if command, ok := strings.CutPrefix(line, "$ argocd-agentctl"); ok {
		return s.run(words(command)...)
	}
	name, argument, _ := strings.Cut(strings.TrimPrefix(line, "% "), " ")
	switch name {
	case "terminal":
		s.screen = Screen{Terminal: true, Width: func() int { return 120 }, Height: func() int { return 30 }}
	case "pipe":
		s.screen = Screen{}
	case "answer":
		s.answer = &argument
	case "env":
		s.env = append(s.env, argument)
	default:
		do := s.commands[name]
		if do == nil {
			s.t.Fatalf("unknown instruction %q", line)
		}
		return do(argument)
	}
	return ""
}

// run runs the program and returns its output and exit code.
func (s *script) run(args ...string) string {
	s.t.Helper()
	var out bytes.Buffer
	stdin := ""
	if s.answer != nil {
		stdin = *s.answer + "\n"
	}
	p := &Program{Env: s.env, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out, Screen: s.screen, Interactive: s.answer != nil,
		Now: s.now, Version: "v1.2.3", Commit: "abc", Date: "2026-01-02T03:04:05Z", podTimeout: time.Minute}
	if p.Now == nil {
		p.Now = func() time.Time { return today }
	}
	s.answer = nil
	code := p.Run(s.t.Context(), args)
	text := out.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if code != 0 {
		text += fmt.Sprintf("[exit code %d]\n", code)
	}
	return text
}

func (s *script) clean(text string) string {
	text = strings.ReplaceAll(text, "\x1b", "^[")
	for name, value := range s.names {
		text = strings.ReplaceAll(text, value, name)
	}
	for expression, with := range s.replace {
		text = regexp.MustCompile(expression).ReplaceAllString(text, with)
	}
	return regexp.MustCompile(`(?m)^([$%#] )`).ReplaceAllString(text, " $1") // output is not an instruction
}

// words splits a command like a shell, with quotes.
func words(line string) []string {
	var out []string
	for _, match := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		out = append(out, match[1]+match[2]+match[3])
	}
	return out
}

// difference shows the first difference of two texts.
func difference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		x, y := "", ""
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return fmt.Sprintf("line %d was\n  %s\nand is\n  %s\nafter\n%s", i+1, x, y, strings.Join(b[max(0, i-12):min(i, len(b))], "\n"))
		}
	}
	return "no difference"
}
