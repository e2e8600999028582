package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) topCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the fleet, live",
		Long: `Shows the fleet on the whole terminal, and keeps it up to date: agents in trouble first. It follows the hub's Agent
objects and asks for nothing again and again. Ctrl-C ends it. Where the output is not a terminal, or with -o, it
prints what ` + "`argocd-agentctl agent list`" + ` does, once.`,
		Example: "  argocd-agentctl top",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			list, err := a.list(cmd.Context(), "") // also to find out that it can be read at all
			if err != nil {
				return err
			}
			if !p.Screen.Terminal || cmd.Flags().Changed("output") {
				return p.show(format, p.agentTable(list, a.namespace))
			}
			return p.top(cmd.Context(), a)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// Frames are drawn when something changes, this often at most; and this often at least, because ages grow.
const (
	frameLeast = 200 * time.Millisecond
	frameMost  = time.Second
)

// top draws the fleet until the context ends.
func (p *Program) top(ctx context.Context, a agents) error {
	changed := make(chan struct{}, 1)
	note := func() {
		select {
		case changed <- struct{}{}:
		default: // one is enough
		}
	}
	f, err := follow(ctx, a, "", follower{changed: func(*v1alpha1.Agent) { note() }, gone: func(string) { note() }, trouble: func(string) { note() }})
	if err != nil {
		return err
	}
	defer f.wait()
	_, _ = io.WriteString(p.Stdout, "\x1b[?1049h\x1b[?25l") // a screen of its own, without a cursor
	defer io.WriteString(p.Stdout, "\x1b[?25h\x1b[?1049l")  //nolint:errcheck // there is nowhere left to say so
	for {
		frame := p.fleet(f.agents(), a.String(), f.old(), p.Screen.Width(), p.Screen.Height())
		// Lines are cleared as they are written: a cleared screen would flicker.
		frame = "\x1b[H" + strings.ReplaceAll(frame, "\n", "\x1b[K\n") + "\x1b[K\x1b[J"
		if _, err := io.WriteString(p.Stdout, frame); err != nil {
			return fmt.Errorf("draw: %w", err)
		}
		pause := time.After(frameLeast)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(frameMost):
		}
		select { // bursts become one frame
		case <-ctx.Done():
			return nil
		case <-pause:
		}
	}
}

// fleet is one frame: a summary, and as many agents as fit, those in trouble first.
func (p *Program) fleet(all []v1alpha1.Agent, hub, trouble string, width, height int) string {
	slices.SortFunc(all, func(a, b v1alpha1.Agent) int {
		if d := urgency(&b) - urgency(&a); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	counts := map[string]int{}
	var apps, diverged int64
	for i := range all {
		counts[stateOf(&all[i]).text]++
		apps += all[i].Status.Applications
		diverged += all[i].Status.Diverged
	}
	parts := []string{pluralize(len(all), "agent")}
	for _, state := range []string{"connected", stateNoWrites, "away", "held", "suspended", "leaving", "never"} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	parts = append(parts, pluralize(int(apps), "Application"), pluralize(int(diverged), "item")+" diverged")
	lines := []string{
		p.colour(strong, cut(fmt.Sprintf("%s  %s", p.Now().Format(time.TimeOnly), hub), width)),
		cut(strings.Join(parts, ", "), width),
	}
	if trouble != "" {
		lines = append(lines, p.colour(bad, cut("this picture may be old: "+printable(trouble), width)))
	}
	lines = append(lines, "")
	room := max(height-len(lines)-2, 1)
	hidden := max(len(all)-room, 0)
	v := p.agentTable(&v1alpha1.List{Items: all[:len(all)-hidden]}, "")
	narrow := *p
	narrow.Screen = Screen{} // colours come after lines were cut
	var rows [][]cell
	for _, row := range v.rows {
		rows = append(rows, row[:len(v.headings)-v.wide])
	}
	for i, line := range strings.Split(strings.TrimSuffix(narrow.table(v.headings[:len(v.headings)-v.wide], rows), "\n"), "\n") {
		line = cut(line, width)
		switch {
		case i == 0:
			line = p.colour(strong, line)
		case i <= len(rows):
			line = p.colour(rowPaint(&all[i-1]), line)
		}
		lines = append(lines, line)
	}
	if hidden > 0 {
		lines = append(lines, p.colour(faint, fmt.Sprintf("and %d more", hidden)))
	}
	return strings.Join(lines, "\n")
}

// urgency is how much an agent needs to be looked at.
func urgency(agent *v1alpha1.Agent) int {
	switch state := stateOf(agent).text; {
	case state == "held":
		return 5
	case state == "away", state == stateNoWrites:
		return 4
	case condition(agent, v1alpha1.ConditionRegistered) == metav1.ConditionFalse:
		return 3
	case agent.Status.Diverged > 0:
		return 2
	case state != "connected":
		return 1
	}
	return 0
}

func rowPaint(agent *v1alpha1.Agent) paint {
	switch urgency(agent) {
	case 5, 4, 3:
		return bad
	case 2:
		return unsure
	case 1:
		return faint
	}
	return plain
}

// cut shortens a line to the width of a terminal.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width-1, 0)]) + "…"
}
