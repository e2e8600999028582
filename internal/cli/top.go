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

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
)

func (p *Program) topCommand() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:   "top",
		Short: "Watch agents in the terminal",
		Long: `Shows all agents on the whole terminal and updates the view. Agents that need attention are first. Press Ctrl-C to
stop. If the output is not a terminal, or with -o, it prints ` + "`argocd-agentctl agent list`" + ` once.`,
		Example: "  argocd-agentctl top",
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			list, err := a.list(cmd.Context()) // reports missing permissions
			if err != nil {
				return err
			}
			if !p.Screen.Terminal || cmd.Flags().Changed("output") {
				return p.show(p.agentTable(list, a.namespace))
			}
			return p.top(cmd.Context(), a)
		},
	})
}

// Time between two frames. The maximum keeps ages up to date.
const (
	minFrameInterval = 200 * time.Millisecond
	maxFrameInterval = time.Second
)

func (p *Program) top(ctx context.Context, a agents) error {
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	f, err := watchAgents(ctx, a, watcher{changed: func(*v1alpha1.Agent) { notify() }, deleted: func(string) { notify() }, failed: func(string) { notify() }})
	if err != nil {
		return err
	}
	defer f.wait()
	_, _ = io.WriteString(p.Stdout, "\x1b[?1049h\x1b[?25l") // alternate screen, hidden cursor
	defer io.WriteString(p.Stdout, "\x1b[?25h\x1b[?1049l")  //nolint:errcheck // the command ends
	for {
		frame := p.fleet(f.agents(), a.String(), f.staleReason(), p.Screen.Width(), p.Screen.Height())
		// Clear each line as it is written. Clearing the screen would flicker.
		frame = "\x1b[H" + strings.ReplaceAll(frame, "\n", "\x1b[K\n") + "\x1b[K\x1b[J"
		if _, err := io.WriteString(p.Stdout, frame); err != nil {
			return fmt.Errorf("write frame: %w", err)
		}
		pause := time.After(minFrameInterval)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(maxFrameInterval):
		}
		select { // a burst of changes becomes one frame
		case <-ctx.Done():
			return nil
		case <-pause:
		}
	}
}

// fleet renders one frame: a summary and as many agents as fit, the most urgent first.
func (p *Program) fleet(all []v1alpha1.Agent, hub, stale string, width, height int) string {
	slices.SortFunc(all, func(a, b v1alpha1.Agent) int {
		if d := agentrows.Urgency(&b) - agentrows.Urgency(&a); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	counts := map[string]int{}
	var apps, diverged int64
	for i := range all {
		counts[agentrows.StateOf(&all[i])]++
		apps += all[i].Status.Applications
		diverged += all[i].Status.Diverged
	}
	parts := []string{pluralize(len(all), "agent")}
	for _, state := range []string{agentrows.Connected, agentrows.WriteOutage, agentrows.Disconnected, agentrows.Held, agentrows.Suspended, agentrows.Terminating, agentrows.NeverConnected} {
		if counts[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
		}
	}
	parts = append(parts, pluralize(int(apps), "Application"), pluralize(int(diverged), "item")+" diverged")
	lines := []string{
		p.paint(bold, cut(fmt.Sprintf("%s  %s", p.Now().Format(time.TimeOnly), hub), width)),
		cut(strings.Join(parts, ", "), width),
	}
	if stale != "" {
		lines = append(lines, p.paint(red, cut("this view may be out of date: "+printable(stale), width)))
	}
	lines = append(lines, "")
	room := max(height-len(lines)-2, 1)
	hidden := max(len(all)-room, 0)
	v := p.agentTable(&v1alpha1.List{Items: all[:len(all)-hidden]}, "")
	uncolored := *p
	uncolored.Screen = Screen{} // colors are added after lines are cut
	v.narrow()
	for i, line := range strings.Split(strings.TrimSuffix(uncolored.table(v.headings, v.rows), "\n"), "\n") {
		line = cut(line, width)
		switch {
		case i == 0:
			line = p.paint(bold, line)
		case i <= len(v.rows):
			line = p.paint(rowColor(&all[i-1]), line)
		}
		lines = append(lines, line)
	}
	if hidden > 0 {
		lines = append(lines, p.paint(faint, fmt.Sprintf("and %d more", hidden)))
	}
	return strings.Join(lines, "\n")
}

func rowColor(agent *v1alpha1.Agent) color {
	return [...]color{plain, faint, yellow, red, red, red}[agentrows.Urgency(agent)]
}

// cut shortens a line to the width of a terminal.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width-1, 0)]) + "…"
}
