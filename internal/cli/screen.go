package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// ScreenOf tells what a file is shown on.
func ScreenOf(f *os.File) Screen {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return Screen{}
	}
	size := func(of func(width, height int) int) func() int {
		return func() int {
			width, height, err := term.GetSize(fd)
			if err != nil {
				width, height = 80, 24
			}
			return of(width, height)
		}
	}
	return Screen{Terminal: true, Width: size(func(w, _ int) int { return w }), Height: size(func(_, h int) int { return h })}
}

func splitPaths(list string) []string { return filepath.SplitList(list) }

// paint is a colour of a terminal.
type paint string

const (
	plain  paint = ""
	good   paint = "32"
	bad    paint = "31"
	unsure paint = "33"
	faint  paint = "2"
	strong paint = "1"
)

// coloured reports whether colours are shown.
func (p *Program) coloured() bool {
	return p.Screen.Terminal && p.getenv("NO_COLOR") == "" && p.getenv("TERM") != "dumb"
}

func (p *Program) colour(c paint, text string) string {
	if c == plain || text == "" || !p.coloured() {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// cell is one entry of a table.
type cell struct {
	text  string
	paint paint
}

func c(text string) cell { return cell{text: text} }

// orDash shows that there is nothing.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// table prints rows under headings, in columns as wide as what is in them. What comes from elsewhere cannot reach the
// terminal's controls.
func (p *Program) table(headings []string, rows [][]cell) string {
	widths := make([]int, len(headings))
	for i, h := range headings {
		widths[i] = len(h)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = printable(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var b strings.Builder
	line := func(row []cell) {
		for i, cell := range row {
			b.WriteString(p.colour(cell.paint, cell.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.text)+3))
			}
		}
		b.WriteString("\n")
	}
	head := make([]cell, len(headings))
	for i, h := range headings {
		head[i] = cell{h, strong}
	}
	line(head)
	for _, row := range rows {
		line(row)
	}
	return b.String()
}

// printable makes a text safe for one line of a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

// age is how long ago something was, as people say it.
func (p *Program) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(p.Now().Sub(t))
}

// span is a duration in one or two units.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute && int(d.Seconds())%60 != 0:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
