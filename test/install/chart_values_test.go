package install

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// The README of the chart lists the values of values.yaml with their comments.
func TestChart_ReadmeListsValues(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- Generated from values.yaml: go test ./test/install -run Chart -update -->\n# argocd-agent\n\n" +
		"Installs the principal on the hub (`role=principal`) or an agent on a workload cluster (`role=agent`). See docs/install.md for\n" +
		"the steps. Values below `principal.settings` and `agent.settings` are flags, see docs/reference.\n\n" +
		"| value | default | description |\n|---|---|---|\n")
	rows := valueRows(read(t, chart, "values.yaml"))
	if len(rows) < 60 {
		t.Errorf("only %d values: check this test", len(rows))
	}
	for _, row := range rows {
		b.WriteString(row)
	}
	matches(t, filepath.Join(chart, "README.md"), b.String())
}

// valueRows returns one row per value, and one per group of values that has a comment.
func valueRows(text string) (rows []string) {
	var path, comment []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		indent := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		key, value, _ := strings.Cut(trimmed, ":")
		switch value = strings.TrimSpace(value); {
		case trimmed == "":
			comment = nil
			continue
		case strings.HasPrefix(trimmed, "#"):
			comment = append(comment, strings.TrimSpace(strings.TrimPrefix(trimmed, "#")))
			continue
		}
		path = append(path[:min(indent, len(path))], key)
		group := value == "" && i+1 < len(lines) && strings.HasPrefix(lines[i+1], strings.Repeat("  ", indent+1))
		if value != "" {
			value = "`" + value + "`"
		}
		if !group || len(comment) > 0 {
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", strings.Join(path, "."), value, strings.ReplaceAll(strings.Join(comment, " "), "|", `\|`)))
		}
		comment = nil
	}
	return rows
}
