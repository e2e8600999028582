package cli

import (
	"cmp"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ScreenOf returns the terminal of a file, or the zero value.
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

// color is an ANSI color code.
type color string

const (
	plain  color = ""
	green  color = "32"
	red    color = "31"
	yellow color = "33"
	faint  color = "2"
	bold   color = "1"
)

func (p *Program) paint(c color, text string) string {
	if c == plain || text == "" || !p.Screen.Terminal || p.getenv("NO_COLOR") != "" || p.getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

// cell is one entry of a table.
type cell struct {
	text  string
	color color
}

func c(text string) cell { return cell{text: text} }

// table prints rows in columns. Empty cells become "-". Control characters are removed.
func (p *Program) table(headings []string, rows [][]cell) string {
	widths := make([]int, len(headings))
	for i, h := range headings {
		widths[i] = len(h)
	}
	for _, row := range rows {
		for i := range row {
			row[i].text = cmp.Or(printable(row[i].text), "-")
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var b strings.Builder
	line := func(row []cell) {
		for i, cell := range row {
			b.WriteString(p.paint(cell.color, cell.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell.text)+3))
			}
		}
		b.WriteString("\n")
	}
	head := make([]cell, len(headings))
	for i, h := range headings {
		head[i] = cell{h, bold}
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

// age is the time since t.
func (p *Program) age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(p.Now().Sub(t))
}

func span(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }
